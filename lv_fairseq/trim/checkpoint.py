"""A checkpoint of fairseq as a file: its settings, and where among its parameters the tables of words are.

It is mapped, so that only what is looked at is read. Tables are known by their names in the file; no model is built.
"""

import os
import tempfile
from argparse import Namespace
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from lv_fairseq.errors import UserError
from lv_fairseq.fairseq_patches.checkpoints import load
from lv_fairseq.files import open_file
from lv_fairseq.models.families import FAMILIES

READS = {"source": "encoder.embed_tokens.weight", "target": "decoder.embed_tokens.weight"}
SCORES = (*dict.fromkeys(f"decoder.{family.places.scores}" for family in FAMILIES), "decoder.embed_out")
SHARED = ("share_all_embeddings", "share_decoder_input_output_embed", "share_input_output_embed")
SPECIAL = ("adaptive_softmax.", "embed_tokens.embeddings.")  # an adaptive softmax, an adaptive input
FINGERPRINTS = "dictionaries"  # of both dictionaries, a buffer of rnnsearch
CHUNK = 1 << 24  # bytes that are copied at a time


class Table(NamedTuple):
    """A parameter that has a row for each word.

    Args:
        name: in the checkpoint
        side: source or target, whose words they are
    """

    name: str
    side: str


class Checkpoint:
    """Args:
    path: of a file that fairseq has saved
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with open_file(path) as file:
                self.state = load(file, map_location="cpu")
        except OSError as error:
            raise UserError(f"cannot read the checkpoint {path}: {error.strerror or error}") from None
        if isinstance(self.state, dict) and "word_tables" in self.state:
            raise UserError(f"{path} has its tables in files beside it: lv-checkpoint makes an ordinary one of it")
        self.model: Dict[str, Tensor] = self.state.get("model") if isinstance(self.state, dict) else None
        if not isinstance(self.model, dict) or not all(isinstance(x, Tensor) for x in self.model.values()):
            raise UserError(f"{path} is no checkpoint of fairseq: it holds no model")
        self.tables = self._tables()

    def _tables(self) -> List[Table]:
        if any(part in name for name in self.model for part in SPECIAL):
            raise UserError(f"{self.path} has an adaptive input or softmax in the place of tables of words")
        for name in READS.values():
            if name not in self.model or self.model[name].dim() != 2:
                raise UserError(f"{self.path} is no translation model with tables of words: it lacks {name}")
        tables = [Table(name, side) for side, name in READS.items()]
        tables += [Table(name, "target") for name in self.model if scores_words(name)]
        if len(tables) == len(READS) and not any(self.get(name) for name in SHARED):
            raise UserError(f"{self.path} scores words in a way that is not known: it has none of {', '.join(SCORES)}")
        for table in tables:
            if self.model[table.name].dim() and len(self.model[table.name]) != self.rows(table.side):
                raise UserError(f"{self.path}: {table.name} has not as many rows as {READS[table.side]}")
        return [table for table in tables if self.model[table.name].dim()]

    def rows(self, side: str) -> int:
        return len(self.model[READS[side]])

    @property
    def scoring(self) -> str:
        """The name of the matrix that words are scored with."""
        names = [table.name for table in self.tables if scores_words(table.name)]
        matrices = [name for name in names if self.model[name].dim() == 2 and self.model[name].size(1) > 1]
        return matrices[-1] if matrices else READS["target"]

    def ties(self) -> List[List[Table]]:
        """The tables, those that are one parameter under several names together."""
        groups: Dict[Tuple, List[Table]] = {}
        for table in self.tables:
            tensor = self.model[table.name]
            place = tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride()
            groups.setdefault(place, []).append(table)
        return list(groups.values())

    def settings(self) -> Iterator[Any]:
        """Every place of the checkpoint that may hold a setting, that of the task first: dictionaries, or namespaces'
        own."""
        cfg = self._cfg
        parts = [cfg.get("task"), cfg.get("model"), cfg.get("bpe"), self.state.get("args")]
        parts += [part for name, part in cfg.items() if name not in ("task", "model", "bpe")]
        for part in parts:
            if isinstance(part, Namespace):
                yield vars(part)
            elif isinstance(part, dict):
                yield part

    def get(self, name: str) -> Any:
        """A setting; None if there is none."""
        return next((part[name] for part in self.settings() if name in part), None)

    def set(self, name: str, value: Any) -> None:
        """Change a setting wherever it is."""
        for part in self.settings():
            if name in part:
                part[name] = value

    @property
    def task(self) -> Optional[str]:
        task = self._cfg.get("task")
        task = vars(task) if isinstance(task, Namespace) else task
        return (task.get("_name") if isinstance(task, dict) else None) or self.get("task")

    @property
    def _cfg(self) -> Dict:
        cfg = self.state.get("cfg")
        return cfg if isinstance(cfg, dict) else {}


def scores_words(name: str) -> bool:
    return name in SCORES or name.rpartition(".")[0] in SCORES


def chunks(rows: int, table: Tensor) -> Iterator[slice]:
    """So many rows of a table, some at a time."""
    size = max(1, CHUNK // max(1, table[:1].nbytes))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def in_a_file(folder: Path, shape: Tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor whose memory is a new file, so that it may be larger than memory is."""
    size = torch.Size(shape).numel()
    number, path = tempfile.mkstemp(dir=folder)
    with open(number, "wb") as file:  # a full disk is an error here, and would be a signal later
        os.posix_fallocate(file.fileno(), 0, max(1, size * dtype.itemsize))
    return torch.from_file(path, shared=True, size=size, dtype=dtype).view(shape)


def save_state(state: Dict[str, Any], path: Path) -> None:
    torch.save(state, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """In this block, a disk that is full, say, is one line."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error):
            raise
        raise UserError(f"cannot write {path}: is the disk full?") from None
