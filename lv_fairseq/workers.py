"""The workers of a training that run on one machine: found out through torch.distributed, for word tables to share."""

import itertools
import logging
import os
import socket
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lv_fairseq.word_tables import ALONE, Workers
from lv_fairseq.word_tables.homes import make_shared, open_shared

logger = logging.getLogger(__name__)


def workers_of_this_machine() -> Workers:
    """Those that can share memory with this one. All workers of a training must call it together."""
    if not dist.is_available() or not dist.is_initialized():
        return ALONE
    places = [None] * dist.get_world_size()
    dist.all_gather_object(places, this_machine())
    for place in dict.fromkeys(places):  # every worker makes the groups of all machines
        ranks = [rank for rank, other in enumerate(places) if other == place]
        group = dist.new_group(ranks, backend="gloo")  # on the CPU, whatever the training's own group uses
        if dist.get_rank() in ranks:
            mine, first = group, ranks[0]
    workers = Workers(dist.get_rank() == first, partial(tell, first, mine), partial(dist.barrier, mine))
    if dist.get_world_size(mine) == 1:
        return ALONE
    if not can_share(workers, mine):
        if workers.first:
            logger.warning("the workers of this machine cannot share memory: each keeps all words in its own")
        return ALONE
    return workers


def this_machine() -> tuple:
    """Equal in processes that see each other's files in /proc: not in two containers, even with one name."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return socket.gethostname(), file.read(), os.readlink("/proc/self/ns/pid")
    except OSError:  # not Linux
        return socket.gethostname(), os.getpid()


def tell(first: int, group: dist.ProcessGroup, said: Any) -> Any:
    box = [said]
    dist.broadcast_object_list(box, src=first, group=group, device=torch.device("cpu"))
    return box[0]


def can_share(workers: Workers, group: dist.ProcessGroup) -> bool:
    """Whether every worker can open what the first one has made."""
    made = make_shared((1,), torch.uint8) if workers.first else None
    shared = workers.tell(made and made[0])
    answers = [None] * dist.get_world_size(group)
    try:
        open_shared(shared)
        dist.all_gather_object(answers, True, group)
    except OSError:
        dist.all_gather_object(answers, False, group)
    return all(answers)


def same_rest(model: nn.Module, workers: Workers) -> None:
    """Give all of a model that is not on pages the values that the first worker has. Others were built without tables,
    so that chance has drawn other values for the rest of them."""
    if workers is ALONE:
        return
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if not hasattr(tensor, "host"):
                tensor.copy_(workers.tell(tensor.data))
