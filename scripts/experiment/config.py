"""The settings of an experiment: a small YAML file, and what results.json says of them."""

import importlib.metadata
import json
import math
import os
import platform
import shlex
from pathlib import Path
from typing import Dict

import yaml

from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole

DEFAULTS = {
    "name": "experiment",
    "shortlist": 30000,  # words of the baseline, on both sides
    "tau": 15000,
    "reshuffle_tau": None,  # of the run with new partitions every epoch, if not the same
    "source_tau": 0,
    "hide_rare_words": 0.0,  # A of --hide-rare-words, in LV runs; the baseline has unknown words without it
    "hours": 1.0,  # of training, the same for every run
    "frozen_hours": 0.25,  # of tuning with frozen word vectors, on top of that
    "seeds": [1, 2],  # of the LV runs, for the ensemble
    "points": 2,  # of each LV run in the ensemble: the best, the second-best ...
    "beam": 12,
    "frequent": [15000, 30000, 50000],  # K to try
    "per_word": [10, 20],  # K' to try
    "grid_sentences": 500,  # of the development set, to choose K and K'
    "unk_replacement": "lexicon-lowercase",
    "train": [],  # flags of fairseq-train, for every run
    "generate": [],  # flags of fairseq-generate, for every row
    "attention": 4,  # sentences to draw
    "parallel": 1,  # trainings or decodings at a time, which share the cores
}
UNK_REPLACEMENTS = ("none", "copy", "lexicon", "lexicon-lowercase")
LARGEST = 2**31 - 1  # whole number
CAN_CHANGE = ("name", "parallel", "attention")  # after some stages are done


def load_config(path: Path) -> Dict:
    try:
        given = yaml.safe_load(path.read_bytes().decode()) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    if not isinstance(given, dict):
        raise UserError(f"{path} must have lines `key: value`. Known keys are: {', '.join(DEFAULTS)}")
    unknown = sorted(str(key) for key in given if key not in DEFAULTS)
    if unknown:
        raise UserError(f"{path} has unknown keys: {', '.join(unknown)}. Known are: {', '.join(DEFAULTS)}")
    for key, value in given.items():
        what = expected(key, value)
        if what:
            raise UserError(f"{path}: {key} must be {what}, not {value!r}")
    if "--arch" not in given.get("train", ()):
        raise UserError(f"{path}: train must name a model, train: [--arch, rnnsearch_small, ...]; see examples")
    return {**DEFAULTS, **given}


def whole(value, lowest: int = 0) -> bool:
    return type(value) is int and lowest <= value <= LARGEST


def flag(value) -> bool:
    return type(value) in (str, int) or type(value) is float and math.isfinite(value)


def expected(key: str, value) -> str:
    """What a value must be, if it is something else."""
    default, number = DEFAULTS[key], isinstance(value, (int, float)) and not isinstance(value, bool)
    if key == "unk_replacement":
        return "" if value in UNK_REPLACEMENTS else f"one of {', '.join(UNK_REPLACEMENTS)}"
    if isinstance(default, str):
        return "" if isinstance(value, str) else "a word"
    if key in ("train", "generate"):
        return "" if isinstance(value, list) and all(map(flag, value)) else "a list of words and numbers, [...]"
    if isinstance(default, list):
        if not isinstance(value, list):
            return "a list, [...]"
        sound = value and all(map(whole, value)) and len(set(value)) == len(value)
        return "" if sound else f"a list of different whole numbers, at most {LARGEST}"
    if key == "hide_rare_words":
        return "" if number and 0 <= value < math.inf else "a number, 0 or more"
    if isinstance(default, float):
        return "" if number and 0 < value < math.inf else "a number above 0"
    lowest = 0 if key in ("source_tau", "attention") else 1
    if default is None and value is None or whole(value, lowest):
        return ""
    return f"a whole number from {lowest} to {LARGEST}"


def keep_config(config: Dict, prepared: str, path: Path) -> None:
    """Stages that are done were done with these settings and this text: others would make a table of two kinds of rows.

    ``prepared``: what tells one prepared text from another."""
    if not path.exists():
        with written_whole(path) as file:
            file.write(json.dumps({**config, "prepared": prepared}, indent=1).encode())
    try:
        before = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict) or not before:
        raise UserError(f"{path} is damaged: take another --out, or remove {path.parent}")
    if "prepared" not in before:
        raise UserError(f"{path} does not say of which --prepared: take another --out, or remove {path.parent}")
    if before["prepared"] != prepared:
        raise UserError(f"{path.parent} was begun with another --prepared: take another --out, or remove it")
    changed = [key for key in config if key not in CAN_CHANGE and config[key] != before.get(key, DEFAULTS[key])]
    if changed:
        raise UserError(f"{path.parent} was begun with another {', '.join(changed)}: take another --out, or remove it")


def signature(config: Dict) -> Dict:
    return {
        "shortlist": config["shortlist"],
        "tau": config["tau"],
        "reshuffle tau": config["reshuffle_tau"] or config["tau"],
        "A of hidden words": config["hide_rare_words"],
        "hours": config["hours"],
        "runs at a time": config["parallel"],
        "beam": config["beam"],
        "K tried": ", ".join(f"{k:,}" for k in config["frequent"]),
        "K' tried": ", ".join(f"{k:,}" for k in config["per_word"]),
        "seed": config["seeds"][0],
        "seeds of LV": ", ".join(map(str, config["seeds"])),
        "flags of all trainings": shlex.join(map(str, config["train"])),
        "flags of decoding": shlex.join(map(str, config["generate"])) or None,
        "unknown words": config["unk_replacement"],
        **made_with(),
    }


def made_with() -> Dict:
    """Versions and machine."""
    packages = ("lv_fairseq", "torch", "fairseq-fixed", "fairseq", "sacrebleu", "sentencepiece", "sacremoses")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"versions": versions, "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
