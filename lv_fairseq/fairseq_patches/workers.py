"""Several workers: how they are started on GPUs and CPUs, and how they read a checkpoint."""

import os
import re
import socket
import sys
from functools import partial
from urllib.parse import urlsplit

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.trainer import Trainer
from torch.multiprocessing.spawn import ProcessException, ProcessExitedException

from lv_fairseq.errors import UserError
from lv_fairseq.processes import how_ended, signals_as_exit, signals_at_once
from lv_fairseq.watch import watching

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")  # what torchrun sets


def start_anywhere() -> None:
    """Let ``torchrun fairseq-train ...`` and ``fairseq-train --distributed-world-size N --cpu`` start workers on CPUs.

    fairseq divides by the number of GPUs there, and spawns as many workers. Under torchrun it also trains a model in
    each process, as if alone, where a machine has one GPU or none; a `UserError` in a worker that it has spawned comes
    as a stack trace; and workers wait for one that is gone. As long as they have not met, who has started them ends
    those who wait.
    """
    call, meet = distributed_utils.call_main, distributed_utils.distributed_init

    def meet_or_end(cfg):
        with signals_at_once():
            return meet(cfg)

    def call_anywhere(cfg, main, **kwargs):
        training = cfg.distributed_training
        if cfg.common.cpu or not torch.cuda.is_available():
            training.distributed_backend = "gloo"
        if training.distributed_init_method is None and not cfg.common.tpu:
            # not in a command that a worker of somebody's training has started: that one is alone
            if main.__module__ == "fairseq_cli.train" and all(name in os.environ for name in LAUNCHED):
                follow_torchrun(training)
            elif cfg.common.cpu and training.distributed_world_size > 1 and training.distributed_port < 0:
                spawn(cfg, main, kwargs)
                return
        try:
            call(cfg, partial(work, main), **kwargs)
        except ProcessException as error:
            raise behind(error) from None

    distributed_utils.call_main, distributed_utils.distributed_init = call_anywhere, meet_or_end


def follow_torchrun(training) -> None:
    training.distributed_world_size = int(os.environ["WORLD_SIZE"])
    if training.distributed_world_size > 1:
        training.distributed_init_method = "env://"
        training.distributed_rank = int(os.environ["RANK"])
        training.device_id = int(os.environ["LOCAL_RANK"])
        training.distributed_no_spawn = True


def spawn(cfg, main, kwargs) -> None:
    """Workers on CPUs, as fairseq spawns one for each GPU."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        cfg.distributed_training.distributed_init_method = f"tcp://localhost:{free.getsockname()[1]}"
    cfg.distributed_training.distributed_rank = None  # each finds its own
    try:
        torch.multiprocessing.spawn(
            distributed_utils.distributed_main,
            (partial(work, main), cfg, kwargs),
            cfg.distributed_training.distributed_world_size,
        )
    except ProcessException as error:
        raise behind(error) from None


def work(main, cfg, **kwargs) -> None:
    """What each worker does, in a process of its own or in ours, also if it is alone."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        main(cfg, **kwargs)
        return
    sys.modules["lv_fairseq"].register()  # fairseq's --user-dir takes what we were imported for this for everything
    method = cfg.distributed_training.distributed_init_method or "env://"
    with signals_as_exit(None), watching(urlsplit(method).hostname or os.environ.get("MASTER_ADDR", "localhost")):
        main(cfg, **kwargs)


def behind(error: ProcessException) -> Exception:
    """Why a worker that was spawned has ended: its `UserError`, of which there is only the stack trace as text."""
    if isinstance(error, ProcessExitedException):
        return UserError(
            f"the worker of rank {error.error_index} {how_ended(error.exit_code)}: the others end too. The same "
            "command goes on from the last checkpoint, if there is one"
        )
    lines = re.findall(rf"^{re.escape(UserError.__module__)}\.\w+: (.+)$", str(error), re.MULTILINE)
    return UserError(lines[-1]) if lines else error


def average_gradients_on_cpus() -> None:
    """``--ddp-backend pytorch_ddp`` on CPUs: fairseq names a GPU for each worker."""
    average = distributed_fairseq_model.DistributedDataParallel

    def average_anywhere(module, device_ids, output_device, **kwargs):
        if next(module.parameters()).device.type == "cpu":
            device_ids = output_device = None
        return average(module, device_ids=device_ids, output_device=output_device, **kwargs)

    distributed_fairseq_model.DistributedDataParallel = average_anywhere


def let_each_read_checkpoints() -> None:
    """Every worker reads a checkpoint itself: all find the file, since they look for it before they resume.

    fairseq lets the first one read it and broadcasts it, each tensor at once and through a GPU, where a table of all
    words has no place; the others use a loader that refuses their own settings (torch >= 2.6). Mapped files are read
    once for all workers of a machine.
    """
    load = Trainer.load_checkpoint

    def load_on_each(self, *args, **kwargs):
        if self.data_parallel_world_size > 1 and self.cfg.distributed_training.zero_sharding == "none":
            self.cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
        return load(self, *args, **kwargs)

    Trainer.load_checkpoint = load_on_each
