"""What the tests of faults share: chance that can be repeated, sizes, and figures to be shown at the end.

make test-faults FAULTS_SEED=17 FAULTS_KILLS=100 FAULTS_LINES=100000
"""

import json
import os
import random

SEED = int(os.environ.get("FAULTS_SEED") or 1)
KILLS = int(os.environ.get("FAULTS_KILLS") or 100)
LINES = int(os.environ.get("FAULTS_LINES") or 100_000)
FIGURES = os.environ.get("FAULTS_FIGURES")  # a file


def chance(*what) -> random.Random:
    """The same moments for the same seed, as far as a machine's speed allows, others for each test."""
    return random.Random(f"{SEED} {what}")


def report(what: str, **figures) -> None:
    """Keep figures for the end of `make test-faults`."""
    if FIGURES:
        with open(FIGURES, "a") as file:
            file.write(json.dumps({"fault": what, **rounded(figures)}) + "\n")


def rounded(figures: dict) -> dict:
    return {name: round(value, 1) if isinstance(value, float) else value for name, value in figures.items()}
