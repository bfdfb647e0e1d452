"""What a training left behind: its best checkpoints, how long it took, its learning curve."""

import argparse
import itertools
import json
import math
import pickle
import re
from pathlib import Path
from typing import Dict, List

from lv_fairseq.errors import UserError


def points(run: Path) -> List[Path]:
    """The checkpoints of a run, the best on the development set first; not those whose loss is no number."""
    found = []
    for path in run.glob("checkpoint.best_loss_*.pt"):
        loss = re.fullmatch(r"checkpoint\.best_loss_(-?[\d.]+)\.pt", path.name)
        if loss:
            found.append((float(loss.group(1)), path))
    return [path for _, path in sorted(found)]


def best_points(run: Path, most: int = 1) -> List[Path]:
    """The best checkpoints of a run, of which there must be one."""
    found = points(run)[:most]
    if not found:
        raise UserError(
            f"the training {run.name} left no model whose loss on the development set is a number: look into "
            f"{run / 'fairseq-train.log'}, and try other flags (a smaller --lr, --clip-norm) with another --out"
        )
    return found


def trained_hours(checkpoint: Path) -> float:
    """How long a model was trained until it was saved."""
    import torch

    torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        state = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)
        return state["extra_state"]["previous_training_time"] / 3600
    except (RuntimeError, pickle.UnpicklingError, EOFError, LookupError, TypeError):
        raise UserError(f"{checkpoint} is no whole checkpoint of fairseq-train: remove it, and start again") from None


def curve(name: str, run: Path, seconds: float = 0.0) -> Dict:
    """Validation loss in bits against the time spent in updates, which is added up here: fairseq's own clock stands
    still after a restart. ``seconds``: how long the run had been trained before."""
    points, last, pace = [], 0, 0.0  # updates so far, seconds an update
    lines = (run / "train.log").read_bytes().decode(errors="replace").split("\n")
    for line, _ in itertools.groupby(lines):  # fairseq writes some lines twice
        found = re.search(r"\{.*\}", line)
        try:
            figures = json.loads(found.group(0)) if found else {}
        except json.JSONDecodeError:
            continue
        if "valid_nll_loss" in figures:
            updates, bits = int(float(figures["valid_num_updates"])), float(figures["valid_nll_loss"])
            spent = seconds + max(updates - last, 0) * pace
            if math.isfinite(bits):
                points.append({"updates": updates, "bits": bits, "seconds": spent})
        elif "num_updates" in figures:
            updates, spent = int(figures["num_updates"]), float(figures["train_wall"])
            pace = spent / (updates - last) if updates > last else pace
            last, seconds = updates, seconds + spent
    return {"system": name, "name": name, "points": points}
