"""What a smaller checkpoint saves: seconds to open it and to score all its words."""

import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F

from lv_fairseq.trim.checkpoint import Checkpoint, chunks

REPEATS = 5


class Seconds(NamedTuple):
    """Args:
    opening: and reading all parameters
    scoring: one position, over all words
    """

    opening: float
    scoring: float


@torch.no_grad()
def measure(path: Path) -> Seconds:
    start = time.perf_counter()
    checkpoint = Checkpoint(path)
    for value in checkpoint.model.values():
        rows = value if value.dim() else value.view(1)
        for some in chunks(len(rows), rows):
            rows[some].clone()
    opening = time.perf_counter() - start
    table = checkpoint.model[checkpoint.scoring]
    features = torch.ones(1, table.size(1), dtype=table.dtype)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        F.linear(features, table)
        times.append(time.perf_counter() - start)
    return Seconds(opening, min(times))
