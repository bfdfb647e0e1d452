"""What fairseq (0.12.3.1, from PyPI as ``fairseq-fixed``) does otherwise than we need it, and nothing else."""

import argparse
import fileinput
import os
import shutil
import sys
import types
from functools import partial
from typing import Callable

import torch
from fairseq import checkpoint_utils, optim
from fairseq.data import data_utils
from fairseq.file_io import IOPathManager, PathManager


def keep_safe_loading() -> None:
    """Let torch's safe loader read fairseq's checkpoints.

    fairseq stores an ``argparse.Namespace`` in a checkpoint, the only class there that the loader does not know.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])


def keep_every_sentence() -> None:
    """Give back the sentences that fairseq-fixed loses when it makes batches.

    Its ``batch_by_size`` throws the last batch away if its size is not a multiple of
    ``--required-batch-size-multiple`` (8): fairseq-generate then leaves sentences out without a word, and a corpus of a
    few sentences has no batch at all.
    """
    cut = data_utils.batch_by_size

    def cut_and_keep(indices, *args, **kwargs):
        if len(indices) == 0:
            return []
        batches = cut(indices, *args, **kwargs)
        rest = indices[sum(map(len, batches)) :]
        return [*batches, rest] if len(rest) else batches

    data_utils.batch_by_size = cut_and_keep


def copy_checkpoints_atomically() -> None:
    """A checkpoint that fairseq copies (to checkpoint_last.pt, say) appears whole or not at all.

    fairseq writes a checkpoint atomically, but copies it in place: a kill then leaves half a file to resume from.
    """

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        shutil.copyfile(src_path, dst_path + ".tmp")
        os.replace(dst_path + ".tmp", dst_path)
        return True

    if IOPathManager is None:
        PathManager.copy = staticmethod(copy)


def meet_every_optimizer(meet: Callable[[torch.optim.Optimizer], None]) -> None:
    """Call ``meet`` with each optimiser that fairseq builds; its trainer builds one late and another on a resume."""
    build = optim.build_optimizer

    def build_and_meet(*args, **kwargs):
        optimizer = build(*args, **kwargs)
        meet(optimizer.optimizer)
        return optimizer

    optim.build_optimizer = build_and_meet


def show_every_flag_in_help() -> None:
    """Let ``--help`` show the flags of the chosen task, architecture and criterion too.

    fairseq parses its command line twice, to learn from the first time which flags to add
    (``fairseq.options.parse_args_and_arch``), but ``--help`` ends the command there. Here it waits for the second time.
    """
    show = argparse._HelpAction.__call__
    parsed_once = set()

    def show_the_second_time(action, parser, *args, **kwargs):
        if "--user-dir" in parser._option_string_actions and id(parser) not in parsed_once:
            parsed_once.add(id(parser))
            return
        show(action, parser, *args, **kwargs)

    argparse._HelpAction.__call__ = show_the_second_time


def answer_every_line() -> None:
    """Let fairseq-interactive read whatever comes: a byte that is not UTF-8 would end it, a lone CR make two lines."""
    if "fairseq_cli.interactive" in sys.modules:
        fileinput.hook_encoded = partial(fileinput.hook_encoded, errors="replace")
        sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")


def map_checkpoints() -> None:
    """Let commands that only use a checkpoint map it: what they do not need, such as statistics of the optimiser, is
    never read, and several processes share one copy. Training reads it, since it may replace the file."""
    if "fairseq_cli.train" in sys.modules:
        return

    def load(file, *args, **kwargs):
        try:
            return torch.load(file.name, *args, mmap=True, **kwargs)
        except (AttributeError, RuntimeError, ValueError):  # not a file, or in torch's old format
            return torch.load(file, *args, **kwargs)

    class Torch(types.ModuleType):
        """torch, as fairseq.checkpoint_utils sees it."""

        def __getattr__(self, name):
            return getattr(torch, name)

    checkpoint_utils.torch = Torch("torch")
    checkpoint_utils.torch.load = load
