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

MOST = 300  # points of a learning curve between those of the development set
FLAGS = {"model": "arch"}  # where a part of fairseq's settings is not named as its flag
SETTINGS = {  # parts, and what is named of them; (): everything
    "model": ("_name", "dropout"),
    "task": ("tau", "source_tau", "reshuffle_partitions", "freeze_word_tables", "hide_rare_words", "sort_window"),
    "criterion": (),
    "optimizer": (),
    "lr_scheduler": (),
    "optimization": ("lr", "clip_norm", "update_freq", "sentence_avg", "max_epoch", "max_update", "stop_time_hours"),
    "dataset": ("max_tokens", "batch_size"),
    "common": ("seed", "fp16", "bf16", "memory_efficient_fp16", "memory_efficient_bf16", "amp"),
}
INHERITED = ("lr", "sentence_avg", "tpu", "bf16", "fp16_adam_stats")  # from other parts, or of no matter


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


def read_checkpoint(path: Path) -> Dict:
    import torch

    torch.serialization.add_safe_globals([argparse.Namespace])
    return torch.load(path, map_location="cpu", mmap=True, weights_only=True)


def trained_hours(checkpoint: Path) -> float:
    """How long a model was trained until it was saved."""
    try:
        return read_checkpoint(checkpoint)["extra_state"]["previous_training_time"] / 3600
    except (RuntimeError, pickle.UnpicklingError, EOFError, LookupError, TypeError):
        raise UserError(f"{checkpoint} is no whole checkpoint of fairseq-train: remove it, and start again") from None


def logged(line: str) -> Dict[str, str]:
    """The figures of a line of fairseq's log, of --log-format json or simple, by their names in the former."""
    found = re.search(r"\{.*\}", line)
    if found:
        try:
            return json.loads(found.group(0))
        except json.JSONDecodeError:
            return {}
    valid = re.search(r"\| valid on .* subset \| (.*)", line)
    if valid:
        return {f"valid_{name}": value for name, value in re.findall(r"(\w+) ([^ |]+)", valid.group(1))}
    inner = re.search(r"\| epoch \d+: +\d+ / \d+ (.*)", line)
    return dict(re.findall(r"(\w+)=([^ ,]+)", inner.group(1))) if inner else {}


def curve(name: str, log: Path, seconds: float = 0.0) -> Dict:
    """Loss in bits against the time spent in updates, which is added up here: fairseq's own clock stands still after a
    restart. On the development set over all words, and between, on the training text as it goes by, over the words of
    its partition. ``seconds``: how long the run had been trained before."""
    points, last, pace = [], 0, 0.0  # updates so far, seconds an update
    lines = log.read_bytes().decode(errors="replace").split("\n")
    for line, _ in itertools.groupby(lines):  # fairseq writes some lines twice
        figures = logged(line)
        if "valid_nll_loss" in figures:
            updates, bits = int(float(figures["valid_num_updates"])), float(figures["valid_nll_loss"])
            points.append({"updates": updates, "bits": bits, "seconds": seconds + max(updates - last, 0) * pace})
        elif "num_updates" in figures and "train_wall" in figures:
            updates, spent = int(figures["num_updates"]), float(figures["train_wall"])
            pace = spent / (updates - last) if updates > last else pace
            last, seconds = updates, seconds + spent
            bits = float(figures.get("nll_loss", math.nan))
            points.append({"updates": updates, "training_bits": bits, "seconds": seconds})
    finite = [point for point in points if math.isfinite(point.get("bits", point.get("training_bits")))]
    return {"system": name, "name": name, "points": thinned(finite)}


def thinned(points: List[Dict]) -> List[Dict]:
    """All points of the development set, and of the others so many as can be told from one another."""
    others = [point for point in points if "bits" not in point]
    kept = {id(others[i * len(others) // MOST]) for i in range(MOST)} if len(others) > MOST else set(map(id, others))
    return [point for point in points if "bits" in point or id(point) in kept]


def trained_with(checkpoint: Path) -> str:
    """The flags of a training that matter for what comes out, as its checkpoint has them."""
    settings, flags = read_checkpoint(checkpoint)["cfg"], []
    for part, names in SETTINGS.items():
        values = settings[part] if isinstance(settings[part], dict) else vars(settings[part])
        for name in names or (name for name in values if name not in INHERITED):
            value, flag = values.get(name), FLAGS.get(part, part) if name == "_name" else name
            value = " ".join(map(str, value)) if isinstance(value, list) else value
            if value not in (None, False, 0, -1, "none", "0.0", "1"):  # off, and fairseq's --update-freq
                flags += [f"--{flag.replace('_', '-')}"] + [str(value)] * (value is not True)
    return " ".join(flags)
