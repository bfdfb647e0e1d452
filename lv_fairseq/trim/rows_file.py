"""``trim.json``: which rows of a checkpoint a trimmed one has, so that they find back to their places."""

import hashlib
import json
from pathlib import Path
from typing import Dict, NamedTuple

import numpy as np
import torch

from lv_fairseq.errors import UserError
from lv_fairseq.fingerprint import fingerprint
from lv_fairseq.trim.checkpoint import CHUNK, READS, Checkpoint
from lv_fairseq.trim.dictionaries import Words

NAME = "trim.json"
FORMAT = 1


class KeptRows(NamedTuple):
    """Args:
    rows: by side, in order
    all: rows that the side had
    checkpoint: fingerprint of the one that was trimmed
    """

    rows: Dict[str, np.ndarray]
    all: Dict[str, int]
    checkpoint: str


def weights_fingerprint(checkpoint: Checkpoint) -> str:
    """Of names, shapes and all numbers of the parameters; tables that are one are read once."""
    digest, known = hashlib.sha256(), {}
    for name, tensor in sorted(checkpoint.model.items()):
        place = tensor.data_ptr(), tensor.shape, tensor.stride()
        if place not in known:
            known[place] = numbers_fingerprint(tensor)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {known[place]}\n".encode())
    return digest.hexdigest()


def numbers_fingerprint(tensor: torch.Tensor) -> str:
    """Of the bits of its numbers, read a part at a time."""
    digest = hashlib.sha256()
    rows = tensor.reshape(len(tensor), -1) if tensor.dim() and tensor.numel() else tensor.reshape(1, -1)
    for part in rows.split(max(1, CHUNK // max(1, rows[0].nbytes))):
        digest.update(part.contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def save_rows(folder: Path, checkpoint: Checkpoint, sides: Dict[str, Words], rows: Dict[str, np.ndarray]) -> None:
    about: dict = {"format": FORMAT, "checkpoint": {"name": checkpoint.path.name}}
    about["checkpoint"]["fingerprint"] = weights_fingerprint(checkpoint)
    for side, words in sides.items():
        kept = {"rows": rows[side].tolist(), "of": len(words.words), "dictionary": fingerprint(words.words)}
        about[side] = kept
    (folder / NAME).write_text(json.dumps(about) + "\n", encoding="utf-8")


def load_rows(path: Path) -> KeptRows:
    damaged = UserError(f"{path} is damaged: it does not say which rows were kept; trim the checkpoint again")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise UserError(f"{path} was written by another version of this program: trim the checkpoint again")
        rows = {side: np.array(about[side]["rows"]) for side in READS}
        sizes = {side: about[side]["of"] for side in READS}
        digest = about["checkpoint"]["fingerprint"]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, LookupError, TypeError, RecursionError):
        raise damaged from None
    for side, kept in rows.items():
        if kept.dtype != np.int64 or kept.ndim != 1 or type(sizes[side]) is not int or type(digest) is not str:
            raise damaged
        if not len(kept) or kept[0] < 0 or kept[-1] >= sizes[side] or (np.diff(kept) <= 0).any():
            raise damaged
    return KeptRows(rows, sizes, digest)
