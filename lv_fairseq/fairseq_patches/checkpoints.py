"""Checkpoints: read safely and without copying, refused in one line, written whole."""

import argparse
import functools
import os
import pickle
import re
import time
import types
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, NamedTuple, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import IOPathManager, PathManager
from omegaconf.errors import OmegaConfBaseException

from lv_fairseq.errors import UserError, behind
from lv_fairseq.files import copied_whole, remove_left, written_whole
from lv_fairseq.watch import undisturbed

# how fairseq begins what it says of checkpoints and flags that do not go together
PLAIN = ("--", "Criterion does not match", "Optimizer does not match", "Cannot load model parameters")
# what settings that are none lead to
WRONG = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
WRONG += (OSError, EOFError, pickle.UnpicklingError, OmegaConfBaseException)


class Beside(NamedTuple):
    """What belongs to a checkpoint and is kept beside its file.

    Args:
        store: what a checkpoint is to hold, and its path: what its file is to hold
        fetch: what its file holds, and its path: what the checkpoint holds
        tidy: removes what no checkpoint of a folder needs any more
    """

    store: Callable[[Any, Path], Any] = lambda state, path: state
    fetch: Callable[[Any, Path], Any] = lambda state, path: state
    tidy: Callable[[Path], None] = lambda folder: None


beside = Beside()  # (`keep_beside`)

# what a user has named in the place of a checkpoint's settings, while a task and models are made of these
overrides: ContextVar[Optional[Dict[str, Any]]] = ContextVar("overrides", default=None)
# the checkpoint of which they are made
opening: ContextVar[Optional[str]] = ContextVar("opening", default=None)


def load_safely() -> None:
    """Let fairseq read its checkpoints with torch's safe loader, and map them.

    fairseq stores an ``argparse.Namespace`` in a checkpoint, the only class there that the loader does not know. A
    mapped file is read only where it is needed, not for the statistics of an optimiser, say, and several processes
    share one copy. Training, which may replace the file, has copied all it needs by then.
    """
    torch.serialization.add_safe_globals([argparse.Namespace])

    class Torch(types.ModuleType):
        """torch, as fairseq.checkpoint_utils sees it."""

        def __getattr__(self, name):
            return getattr(torch, name)

    def load_with_tables(file, *args, **kwargs):
        return beside.fetch(load(file, *args, **kwargs), Path(file.name))

    checkpoint_utils.torch = Torch("torch")
    checkpoint_utils.torch.load = load_with_tables


def load(file: BinaryIO, *args, **kwargs) -> Any:
    """What torch has saved in a file, read with its safe loader, and mapped where it can be."""
    torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        state = load_any(file, *args, **kwargs)
    except (*WRONG, MemoryError) as error:
        raise UserError(f"the checkpoint {file.name} cannot be used: {unreadable(file.name, error)}") from error
    refuse_references(file.name, state)
    return state


def load_any(file: BinaryIO, *args, **kwargs) -> Any:
    try:
        return torch.load(file.name, *args, mmap=True, weights_only=True, **kwargs)
    except (AttributeError, RuntimeError, ValueError):  # not a file, or in torch's old format
        file.seek(0)
    return torch.load(file, *args, weights_only=True, **kwargs)


def unreadable(path: str, error: BaseException) -> str:
    """Why torch does not read a file."""
    if os.path.getsize(path) == 0:
        return "it is empty"
    unsafe = re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", str(error))
    if unsafe:
        return f"it wants to call {unsafe.group(1)}, which no checkpoint of fairseq does"
    if isinstance(error, MemoryError) or "alloc" in str(error):
        return "there is not enough memory for it"
    return "it is no file that torch has saved, or only a part of one"


def refuse_references(path: str, state) -> None:
    """Settings may not ask for variables of the environment, or have anything else computed, when they are read."""
    settings = [state.get(name) for name in ("args", "cfg")] if isinstance(state, dict) else []
    while settings:
        value = settings.pop()
        if isinstance(value, argparse.Namespace):
            value = vars(value)
        if isinstance(value, dict):
            settings += [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            settings += value
        elif isinstance(value, str) and re.search(r"\$\{[^}]*:", value):
            raise UserError(
                f"the checkpoint {path} cannot be used: a setting is {value[:60]!r}, which no checkpoint of fairseq has"
            )


def name_unusable_files() -> None:
    """Say in one line which checkpoint cannot be used and why."""
    load, ensemble, restore = (
        getattr(checkpoint_utils, name)
        for name in ("load_checkpoint_to_cpu", "load_model_ensemble_and_task", "load_checkpoint")
    )

    def load_or_say(path, *args, **kwargs):
        if os.path.exists(path) and not os.path.isfile(path):  # also a pipe, which would make us wait
            what = "a folder" if os.path.isdir(path) else "no ordinary file"
            raise UserError(f"the checkpoint {path} cannot be used: it is {what}")
        try:
            return load(path, *args, **kwargs)
        except WRONG as error:
            raise UserError(f"the checkpoint {path} cannot be used: it is not fairseq's ({shown(error)})") from error

    def ensemble_or_say(filenames, arg_overrides=None, *args, **kwargs):
        before, opened = overrides.set(arg_overrides), opening.set(filenames[0] if filenames else None)
        try:
            return ensemble(filenames, arg_overrides, *args, **kwargs)
        except UserError:
            raise
        except Exception as error:
            if str(error).startswith("Model file not found"):
                name = str(error).partition(": ")[2]
                raise UserError(f"there is no checkpoint {name}: name one with --path") from None
            if isinstance(error, WRONG) or str(error).startswith("Could not infer"):
                raise UserError(f"no model can be made of {', '.join(filenames)}: {shown(error)}") from error
            raise
        finally:
            overrides.reset(before)
            opening.reset(opened)

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


def shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def cause(error: BaseException) -> list:
    """The first line, after its heading, of what torch says of parameters that do not fit."""
    lines = str(error.__context__ or "").splitlines()
    return ["/", *lines[1].split()] if len(lines) > 1 else []


def write_whole() -> None:
    """A checkpoint that fairseq writes, or copies (to checkpoint_last.pt, say), appears whole or not at all.

    fairseq writes a checkpoint to a name that anybody can guess, and copies it in place: a kill then leaves half a file
    to resume from.
    """
    save = checkpoint_utils.torch_persistent_save

    def save_whole(obj, filename: str, async_write: bool = False) -> None:
        stored = beside.store(obj, Path(filename))
        if async_write and stored is obj:  # else its tables would look as if nobody needed them
            save(obj, filename, async_write)
            return
        try:
            with written_whole(filename) as file:
                checkpoint_utils._torch_persistent_save(stored, file)
        except BaseException:
            beside.tidy(Path(filename).parent)
            raise

    save_all, began = checkpoint_utils.save_checkpoint, time.time()

    @functools.wraps(save_all)  # fairseq keeps the best score so far as an attribute
    def save_and_tidy(cfg, trainer, *args, **kwargs):
        def tidy():  # before too: what a full disk or a kill has left may be what there is no room for now
            if trainer.data_parallel_rank == 0 and os.path.isdir(cfg.save_dir):
                beside.tidy(Path(cfg.save_dir))
                remove_left(Path(cfg.save_dir), "checkpoint", before=began)

        with undisturbed:
            tidy()
            saved = save_all(cfg, trainer, *args, **kwargs)
            tidy()
        return saved

    checkpoint_utils.torch_persistent_save = save_whole
    checkpoint_utils.save_checkpoint = save_and_tidy
    copy_checkpoints(link=False)


def keep_beside(store: Callable, fetch: Callable, tidy: Callable) -> None:
    """Keep something beside every checkpoint from now on (`Beside`)."""
    global beside
    beside = Beside(store, fetch, tidy)


def copy_checkpoints(link: bool) -> None:
    """How fairseq copies a checkpoint from now on: whole or not at all, or, with ``link``, by giving it another name.
    Then it is written once, of however many gigabytes; best, last and the epoch's are one file until they differ."""

    def copy_whole(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        copied_whole(src_path, dst_path, link)
        return True

    if IOPathManager is None:
        PathManager.copy = staticmethod(copy_whole)
