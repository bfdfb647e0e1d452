"""Of a checkpoint with tables in files, one that holds everything itself; of any, one without statistics."""

import argparse
import pickle
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor

from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole
from lv_fairseq.word_tables.stored_tables import KEY, fetch

STATISTICS = "last_optimizer_state"


def write_ordinary(
    path: Path, out: Path, statistics: bool = True, advance: Callable[[float], None] = lambda done: None
) -> None:
    """Rows pass through files beside ``out``, and not through memory.

    Args:
        statistics: whether the optimiser's are wanted
        advance: is told how many more bytes have been written
    """
    state, made = read(path, statistics), {}
    for place, key, rows in stand_ins(state):
        table, name = rows.stored
        if (id(table), name) not in made:  # else another name of the same parameter
            made[id(table), name] = table.copied(name, out.absolute().parent, advance)
        place[key] = made[id(table), name]
    with written_whole(out) as file:
        torch.save(state, file)


def rows_inside(path: Path, statistics: bool = True) -> int:
    """Bytes of the tables beside a checkpoint; says it if there is nothing to do."""
    found = {(id(rows.stored.table), rows.stored.name): rows for _, _, rows in stand_ins(read(path, statistics))}
    return sum(rows.numel() * rows.element_size() for rows in found.values())


def read(path: Path, statistics: bool) -> Dict:
    """A checkpoint with stand-ins for its tables."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            state: Optional[Dict] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
        raise UserError(f"{path} is no checkpoint that torch has saved, or only a part of one") from None
    if not isinstance(state, dict) or "model" not in state:
        raise UserError(f"{path} is no checkpoint of a model")
    if KEY in state:
        state = fetch(state, path)
    elif statistics or STATISTICS not in state:
        without = "" if statistics else ", without statistics"
        raise UserError(f"{path} has no tables in files: it is an ordinary checkpoint already{without}")
    return {key: value for key, value in state.items() if statistics or key != STATISTICS}


def stand_ins(value: Any) -> Iterator[Tuple[Dict, Any, Tensor]]:
    """Where they stand: a dictionary, the key, and what is there."""
    for key, part in value.items():
        if isinstance(part, dict):
            yield from stand_ins(part)
        elif hasattr(part, "stored"):
            yield value, key, part
