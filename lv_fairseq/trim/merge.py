"""The way back: rows of a trimmed model, which may have been trained since, to their places in the whole one."""

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from lv_fairseq.errors import UserError
from lv_fairseq.files import temporary_folder
from lv_fairseq.trim.checkpoint import FINGERPRINTS, READS, Checkpoint, Table, chunks, in_a_file, save_state, writing
from lv_fairseq.trim.rows_file import NAME, KeptRows, load_rows, weights_fingerprint
from lv_fairseq.trim.trim import Progress, refuse_existing, with_tables


class Merged(NamedTuple):
    """Args:
    rows: that were put back, by side
    changed: parameters that differ from those of the whole checkpoint
    """

    rows: Dict[str, int]
    changed: List[str]


def merge(trimmed: Path, into: Path, out: Path, data: Optional[Path] = None) -> Merged:
    """Write a checkpoint whose tables are those of ``into`` with the rows of ``trimmed``, and whose other parameters
    are those of ``trimmed``. Settings are those of ``into``; so is the optimiser's state, if nothing has changed: else
    it is left out, since it belongs to other values.

    Args:
        data: folder with ``trim.json`` (default: where ``trimmed`` is, or the data folder of its settings)
    """
    refuse_existing(out)
    small, whole = Checkpoint(trimmed), Checkpoint(into)
    kept = load_rows(find_rows(small, data))
    check(small, whole, kept)
    changed: List[str] = [name for name, value in small.model.items() if not same(value, whole.model.get(name))]
    tables = {table.name for table in small.tables}
    changed = [name for name in changed if name not in tables and name != FINGERPRINTS]
    with writing(out), temporary_folder(out) as folder:
        place = lambda ties, progress: placed(folder, small, whole, ties, kept, changed, progress)
        model = with_tables(small, "placing rows", place)
        model.update((name, whole.model[name]) for name in [FINGERPRINTS] if name in whole.model)
        state = {name: value for name, value in whole.state.items() if not changed or name != "last_optimizer_state"}
        save_state({**state, "model": model}, folder / "whole")
        refuse_existing(out)
        os.rename(folder / "whole", out)
    return Merged({side: len(rows) for side, rows in kept.rows.items()}, changed)


def find_rows(small: Checkpoint, data: Optional[Path]) -> Path:
    settings = str(small.get("data") or "").split(os.pathsep)[0]
    folders = [data] if data is not None else [small.path.absolute().parent, *([Path(settings)] if settings else [])]
    for folder in folders:
        if (folder / NAME).is_file():
            return folder / NAME
    where = " nor in ".join(map(str, folders))
    raise UserError(f"there is no {NAME} in {where}, which says where the rows belong: name its folder with --data")


def check(small: Checkpoint, whole: Checkpoint, kept: KeptRows) -> None:
    """One line if these two and the rows do not belong together."""
    sizes = {side: whole.rows(side) for side in READS}
    if sizes != kept.all or weights_fingerprint(whole) != kept.checkpoint:
        raise UserError(f"{whole.path} is not the checkpoint that was trimmed: name that one with --into")
    for side in READS:
        if small.rows(side) != len(kept.rows[side]):
            raise UserError(
                f"{small.path} has {small.rows(side):,} rows of {side} words, where {len(kept.rows[side]):,} were "
                f"kept: name the folder with its {NAME} with --data"
            )
    tables = {table.name for table in small.tables}
    for name, value in small.model.items():
        first = 1 if name in tables else 0  # tables differ in rows
        if name in whole.model and value.shape[first:] != whole.model[name].shape[first:]:
            raise UserError(f"{small.path} is of another model than {whole.path}: {name} has another shape")


def same(one: Tensor, other: Optional[Tensor]) -> bool:
    return other is not None and one.dtype == other.dtype and torch.equal(one, other)


def placed(
    folder: Path,
    small: Checkpoint,
    whole: Checkpoint,
    ties: List[Table],
    kept: KeptRows,
    changed: List[str],
    progress: Progress,
) -> Tensor:
    """A whole table with the rows of a trimmed one."""
    name, side = ties[0]
    rows, new = torch.from_numpy(kept.rows[side]), small.model[name]
    before = whole.model.get(name)
    if before is None:  # a new name for what an older fairseq shared without saying so
        before = whole.model[whole.scoring]
    after = in_a_file(folder, before.shape, torch.promote_types(before.dtype, new.dtype))
    for some in chunks(len(before), before):
        after[some] = before[some]
        progress(new.nbytes * (some.stop - some.start) / len(before))
    for some in chunks(len(rows), new):
        if name not in changed and not same(new[some], before[rows[some]]):
            changed.append(name)
        after[rows[some]] = new[some].to(after.dtype)
    return after
