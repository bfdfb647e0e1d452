"""What a training left behind: its best checkpoints, how long it took, its learning curve."""

import argparse
import itertools
import json
import re
from pathlib import Path
from typing import Dict, List


def points(run: Path) -> List[Path]:
    """The checkpoints of a run, the best on the development set first."""
    found = []
    for path in run.glob("checkpoint.best_loss_*.pt"):
        found.append((float(re.search(r"best_loss_([\d.]+)\.pt", path.name).group(1)), path))
    return [path for _, path in sorted(found)]


def trained_hours(checkpoint: Path) -> float:
    """How long a model was trained until it was saved."""
    import torch

    torch.serialization.add_safe_globals([argparse.Namespace])
    state = torch.load(checkpoint, map_location="cpu", mmap=True, weights_only=True)
    return state["extra_state"]["previous_training_time"] / 3600


def curve(name: str, run: Path, seconds: float = 0.0) -> Dict:
    """Validation loss in bits against the time spent in updates, which is added up here: fairseq's own clock stands
    still after a restart. ``seconds``: how long the run had been trained before."""
    points, last, pace = [], 0, 0.0  # updates so far, seconds an update
    lines = (run / "train.log").read_text(encoding="utf-8").splitlines()
    for line, _ in itertools.groupby(lines):  # fairseq writes some lines twice
        found = re.search(r"\{.*\}", line)
        try:
            figures = json.loads(found.group(0)) if found else {}
        except json.JSONDecodeError:
            continue
        if "valid_nll_loss" in figures:
            updates = int(float(figures["valid_num_updates"]))
            spent = seconds + max(updates - last, 0) * pace
            points.append({"updates": updates, "bits": float(figures["valid_nll_loss"]), "seconds": spent})
        elif "num_updates" in figures:
            updates, spent = int(figures["num_updates"]), float(figures["train_wall"])
            pace = spent / (updates - last) if updates > last else pace
            last, seconds = updates, seconds + spent
    return {"system": name, "name": name, "points": points}
