"""Checkpoints: read safely and without copying, refused in one line, copied whole."""

import argparse
import os
import pickle
import re
import shutil
import sys
import types

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import IOPathManager, PathManager

from lv_fairseq.errors import UserError, behind

# how fairseq begins what it says of checkpoints and flags that do not go together
PLAIN = ("--", "Criterion does not match", "Optimizer does not match", "Cannot load model parameters")


def load_safely() -> None:
    """Let fairseq read its checkpoints with torch's safe loader, and map them where they are only used.

    fairseq stores an ``argparse.Namespace`` in a checkpoint, the only class there that the loader does not know. A
    mapped file is read only where it is needed, not for the statistics of an optimiser, say, and several processes
    share one copy; training reads it, since it may replace the file.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])
    mapped = "fairseq_cli.train" not in sys.modules

    def load(file, *args, **kwargs):
        kwargs["weights_only"] = True
        if mapped:
            try:
                return torch.load(file.name, *args, mmap=True, **kwargs)
            except (AttributeError, RuntimeError, ValueError):  # not a file, or in torch's old format
                file.seek(0)
        return torch.load(file, *args, **kwargs)

    class Torch(types.ModuleType):
        """torch, as fairseq.checkpoint_utils sees it."""

        def __getattr__(self, name):
            return getattr(torch, name)

    checkpoint_utils.torch = Torch("torch")
    checkpoint_utils.torch.load = load


def name_unusable_files() -> None:
    """Say in one line which checkpoint cannot be used and why."""
    load, ensemble, restore = (
        getattr(checkpoint_utils, name)
        for name in ("load_checkpoint_to_cpu", "load_model_ensemble_and_task", "load_checkpoint")
    )

    def load_or_say(path, *args, **kwargs):
        try:
            return load(path, *args, **kwargs)
        except UserError:
            raise
        except (OSError, EOFError, RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"the checkpoint {path} cannot be used: {reason(path, error)}") from error
        except pickle.UnpicklingError as error:
            raise UserError(f"the checkpoint {path} cannot be used: {reason(path, error)}") from error

    def ensemble_or_say(filenames, *args, **kwargs):
        try:
            return ensemble(filenames, *args, **kwargs)
        except OSError as error:
            if not str(error).startswith("Model file not found"):
                raise
            raise UserError(f"there is no checkpoint {str(error).partition(': ')[2]}: name one with --path") from None

    def restore_or_say(*args, **kwargs):
        try:
            return restore(*args, **kwargs)
        except Exception as error:
            if not str(error).startswith(PLAIN):
                raise
            raise behind(error) or UserError(" ".join([*str(error).split(), *cause(error)])) from error

    checkpoint_utils.load_checkpoint_to_cpu = load_or_say
    checkpoint_utils.load_model_ensemble_and_task = ensemble_or_say
    checkpoint_utils.load_checkpoint = restore_or_say


def reason(path: str, error: Exception) -> str:
    """Why a file is no checkpoint."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if os.path.getsize(path) == 0:
        return "it is empty"
    unsafe = re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", str(error))
    if unsafe:
        return f"it wants to call {unsafe.group(1)}, which no checkpoint of fairseq does"
    if isinstance(error, (RuntimeError, EOFError, pickle.UnpicklingError)):
        return "it is no file that torch has saved, or only a part of one"
    return f"it is not fairseq's ({type(error).__name__}: {' '.join(str(error).split())[:100]})"


def cause(error: Exception) -> list:
    """The first line, after its heading, of what torch says of parameters that do not fit."""
    lines = str(error.__context__ or "").splitlines()
    return ["/", *lines[1].split()] if len(lines) > 1 else []


def copy_atomically() -> None:
    """A checkpoint that fairseq copies (to checkpoint_last.pt, say) appears whole or not at all.

    fairseq writes a checkpoint atomically, but copies it in place: a kill then leaves half a file to resume from.
    """

    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        shutil.copyfile(src_path, dst_path + ".tmp")
        os.replace(dst_path + ".tmp", dst_path)
        return True

    if IOPathManager is None:
        PathManager.copy = staticmethod(copy)
