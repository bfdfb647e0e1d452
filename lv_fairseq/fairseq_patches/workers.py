"""Several workers: how they are started on GPUs and CPUs, and how they read a checkpoint."""

import os
import re
import socket

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.trainer import Trainer
from torch.multiprocessing.spawn import ProcessRaisedException

from lv_fairseq.errors import UserError

LAUNCHED = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK")  # what torchrun sets


def start_anywhere() -> None:
    """Let ``torchrun fairseq-train ...`` and ``fairseq-train --distributed-world-size N --cpu`` start workers on CPUs.

    fairseq divides by the number of GPUs there, and spawns as many workers. Under torchrun it also trains a model in
    each process, as if alone, where a machine has one GPU or none; and a `UserError` in a worker that it has spawned
    comes as a stack trace.
    """
    call = distributed_utils.call_main

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
            call(cfg, main, **kwargs)
        except ProcessRaisedException as error:
            raise behind(error) from None

    distributed_utils.call_main = call_anywhere


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
            distributed_utils.distributed_main, (main, cfg, kwargs), cfg.distributed_training.distributed_world_size
        )
    except ProcessRaisedException as error:
        raise behind(error) from None


def behind(error: ProcessRaisedException) -> Exception:
    """The `UserError` of a worker, of which there is only the stack trace as text."""
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
