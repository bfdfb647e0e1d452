"""Rows in a table file of a checkpoint, as its reader sees them: tensors without memory that know where rows are."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lv_fairseq.word_tables.table_file import TableFile


class Stored(NamedTuple):
    table: TableFile
    name: str


def stand_in(table: TableFile, name: str) -> Tensor:
    """For the rows of all words: nothing of them is read."""
    field = table.layout.field(name)
    tensor = torch.empty(table.layout.words, *field.row, dtype=field.dtype, device="meta")
    tensor.stored = Stored(table, name)
    return tensor


def filled(value: Any) -> Any:
    """The rows of all words, if this stands for them: mapped, and copied nowhere."""
    stored = getattr(value, "stored", None)
    return value if stored is None else stored.table.whole(stored.name)
