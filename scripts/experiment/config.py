"""The settings of an experiment: a small YAML file, and what results.json says of them."""

import importlib.metadata
import json
import math
import os
import platform
import shlex
from pathlib import Path
from typing import Dict, Sequence

import yaml

from experiment.limits import excess
from experiment.plan import LV, REPEATABLE, RESHUFFLE, reshuffle_taus, shortlists, taus
from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole

DEFAULTS = {
    "name": "experiment",
    "shortlist": 30000,  # words of the baseline, on both sides; a list: a baseline for each
    "tau": 15000,  # a list: LV runs for each; the last one goes on to the ensemble
    "reshuffle_tau": None,  # of the runs with new partitions every epoch, if not the same
    "source_tau": 0,
    "hide_rare_words": 0.0,  # A of --hide-rare-words, in LV runs; the baseline has unknown words without it
    "measure": "equal time",  # or "equal convergence": until the development set gets no better, hours being the limit
    "patience": 3,  # equal convergence: so many looks at the development set without a gain
    "hours": 1.0,  # of training, the same for every run
    "frozen_hours": 0.25,  # of tuning with frozen word vectors, on top of that
    "seeds": [1, 2],
    "every_seed": ["lv"],  # what is trained with all seeds: rnnsearch, lv, reshuffle; others with the first
    "ensemble": ["lv", "reshuffle"],  # runs whose seeds, with the last tau, it is made of
    "points": 2,  # of each run in the ensemble: the best, the second-best ...
    "beam": 12,
    "frequent": [15000, 30000, 50000],  # K to try
    "per_word": [10, 20],  # K' to try
    "grid_sentences": 500,  # of the development set, to choose K and K'
    "analysis_frequent": [],  # K of BLEU against K', on the test set, for each tau; empty: no such figures
    "analysis_per_word": [0, 1, 2, 5, 10, 20, 50],  # and K'
    "timing": False,  # decoding times taken on one thread, with nothing beside
    "unk_replacement": "lexicon-lowercase",
    "proposals": [],  # further LV runs with the last tau: [unigram]
    "candidate_source_words": False,  # a further row with --candidate-source-words
    "other_lexicon": None,  # further rows: a lexicon by another aligner, a file
    "other_train": [],  # a further row: flags of another model, in the place of `train`, with the last tau
    "train": [],  # flags of fairseq-train, for every run (but that of other_train)
    "frozen_train": [],  # flags of tuning with frozen word vectors, after those of `train`: another learning rate
    "generate": [],  # flags of fairseq-generate, for every row
    "attention": 4,  # sentences to draw
    "parallel": 1,  # trainings or decodings at a time, which share the cores
}
MEASURES = ("equal time", "equal convergence")
CHOICES = {  # of lists of words
    "every_seed": REPEATABLE,
    "ensemble": (LV, RESHUFFLE),
    "proposals": ("unigram",),
}
SIZES = ("shortlist", "tau", "reshuffle_tau")  # a number, or several
FLAGS = ("train", "frozen_train", "generate", "other_train")
OPTIONAL = ("analysis_frequent",)  # lists of numbers that may be empty
UNK_REPLACEMENTS = ("none", "copy", "lexicon", "lexicon-lowercase")
LARGEST = 2**31 - 1  # whole number
NAMES = 2  # of runs and stages: what earlier versions have begun cannot be gone on with
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
    if given.get("other_train") and "--arch" not in given["other_train"][:-1]:
        raise UserError(f"{path}: other_train must name a model, other_train: [--arch, transformer, ...]")
    if given.get("other_lexicon"):
        given["other_lexicon"] = str(Path(given["other_lexicon"]).resolve())
        if not Path(given["other_lexicon"]).is_file():
            raise UserError(f"{path}: there is no other_lexicon {given['other_lexicon']}: make it with lv-lexicon")
    config = {**DEFAULTS, **given}
    too_much = excess(config)
    if too_much:
        raise UserError(f"{path}: {too_much}")
    return config


def whole(value, lowest: int = 0) -> bool:
    return type(value) is int and lowest <= value <= LARGEST


def flag(value) -> bool:
    return type(value) in (str, int) or type(value) is float and math.isfinite(value)


def expected(key: str, value) -> str:
    """What a value must be, if it is something else."""
    default, number = DEFAULTS[key], isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in ("unk_replacement", "measure"):
        among = UNK_REPLACEMENTS if key == "unk_replacement" else MEASURES
        return "" if value in among else f"one of {', '.join(among)}"
    if key == "other_lexicon":
        return "" if value is None or isinstance(value, str) else "the name of a file"
    if isinstance(default, (str, bool)):
        what = "a word" if isinstance(default, str) else "true or false"
        return "" if isinstance(value, type(default)) else what
    if isinstance(default, list):
        return expected_list(key, value)
    if key == "hide_rare_words":
        return "" if number and 0 <= value < math.inf else "a number, 0 or more"
    if isinstance(default, float):
        return "" if number and 0 < value < math.inf else "a number above 0"
    lowest = 0 if key in ("source_tau", "attention") else 1
    if default is None and value is None or whole(value, lowest):
        return ""
    several = key in SIZES
    if several and isinstance(value, list) and value and all(whole(x, 1) for x in value) and different(value):
        return ""
    return f"a whole number from {lowest} to {LARGEST}" + (", or a list of different ones, [...]" if several else "")


def different(values: list) -> bool:
    return len(set(values)) == len(values)


def expected_list(key: str, value) -> str:
    """What a list must be, if it is something else."""
    if key in FLAGS:
        return "" if isinstance(value, list) and all(map(flag, value)) else "a list of words and numbers, [...]"
    if not isinstance(value, list):
        return "a list, [...]"
    if key in CHOICES:
        sound = all(isinstance(x, str) and x in CHOICES[key] for x in value) and different(value)
        return "" if sound else f"a list of some of {', '.join(CHOICES[key])}"
    sound = (value or key in OPTIONAL) and all(map(whole, value)) and different(value)
    return "" if sound else f"a list of different whole numbers, at most {LARGEST}"


def keep_config(config: Dict, prepared: str, path: Path) -> None:
    """Stages that are done were done with these settings and this text: others would make a table of two kinds of rows.

    ``prepared``: what tells one prepared text from another."""
    if not path.exists():
        with written_whole(path) as file:
            file.write(json.dumps({**config, "prepared": prepared, "names": NAMES}, indent=1).encode())
    try:
        before = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        before = None
    if not isinstance(before, dict) or not before:
        raise UserError(f"{path} is damaged: take another --out, or remove {path.parent}")
    if "prepared" not in before:
        raise UserError(f"{path} does not say of which --prepared: take another --out, or remove {path.parent}")
    if before.get("names") != NAMES:
        raise UserError(f"{path.parent} was begun by another version, whose runs have other names: take another --out")
    if before["prepared"] != prepared:
        raise UserError(f"{path.parent} was begun with another --prepared: take another --out, or remove it")
    changed = [key for key in config if key not in CAN_CHANGE and config[key] != before.get(key, DEFAULTS[key])]
    if changed:
        raise UserError(f"{path.parent} was begun with another {', '.join(changed)}: take another --out, or remove it")


def numbers(values: Sequence[int]):
    """One number as it is, several as text."""
    return values[0] if len(values) == 1 else ", ".join(f"{value:,}" for value in values)


def signature(config: Dict) -> Dict:
    return {
        "shortlist": numbers(shortlists(config)),
        "tau": numbers(taus(config)),
        "reshuffle tau": numbers(reshuffle_taus(config)),
        "A of hidden words": config["hide_rare_words"],
        "measure": config["measure"],
        "patience": config["patience"] if config["measure"] == "equal convergence" else None,
        "hours": config["hours"],
        "hours of frozen tuning": config["frozen_hours"],
        "runs at a time": config["parallel"],
        "beam": config["beam"],
        "K tried": numbers(config["frequent"]),
        "K' tried": numbers(config["per_word"]),
        "seeds": ", ".join(map(str, config["seeds"])),
        "trained with all seeds": ", ".join(config["every_seed"]) or None,
        "flags of all trainings": shlex.join(map(str, config["train"])),
        "flags of frozen tuning": shlex.join(map(str, config["frozen_train"])) or None,
        "flags of the other model": shlex.join(map(str, config["other_train"])) or None,
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
