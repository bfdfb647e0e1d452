"""Trainings that are killed at random moments and resumed end with the same bits as one that was never killed."""

import json
import sys
from pathlib import Path

import faults
import pytest
import torch
from conftest import LOG, PLUGIN, ROOT, run_code
from small_corpus import MODEL, write_corpus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts processes that a kill leaves")
FLAGS = (*PLUGIN, *MODEL, *LOG, "--criterion", "partition_cross_entropy", "--tau", 30, "--hide-rare-words", 5)
FLAGS += ("--reshuffle-partitions", "--optimizer", "adam", "--lr", 0.005, "--clip-norm", 1.0, "--dropout", 0.1)
FLAGS += ("--max-tokens", 60, "--cpu", "--save-interval-updates", 2, "--keep-interval-updates", 2)
FLAGS += ("--keep-last-epochs", 1, "--validate-interval-updates", 6)
PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from killing import main
main({seed!r}, {kills}, {workers}, {folder!r}, {flags!r})
"""


def saved(folder: Path) -> dict:
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


def assert_same(one, two, place: str) -> None:
    """The same bits, whatever they are in."""
    assert type(one) is type(two), place
    if isinstance(one, dict):
        assert one.keys() == two.keys(), place
        for name in one:
            assert_same(one[name], two[name], f"{place}, {name}")
    elif isinstance(one, list):
        assert len(one) == len(two), place
        for number, pair in enumerate(zip(one, two)):
            assert_same(*pair, f"{place}, {number}")
    else:
        assert torch.equal(one, two) if torch.is_tensor(one) else one == two, place


@pytest.mark.parametrize(
    "workers, kills, readers, updates",
    [
        pytest.param(2, 2, 0, 12, marks=pytest.mark.slow),  # of one worker test_resume.py kills some
        *(pytest.param(n, faults.KILLS // 2, r, 50, marks=pytest.mark.faults) for n in (1, 2) for r in (0, 1)),
    ],
)
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path, workers, kills, readers, updates):
    corpus, seed = write_corpus(tmp_path / "corpus"), f"{faults.SEED} {workers} {kills} {readers}"
    flags = [str(x) for x in (corpus, *FLAGS, "--num-workers", readers, "--max-update", updates)]
    how = dict(tests=str(ROOT / "tests"), seed=seed, kills=kills, workers=workers, folder=str(tmp_path), flags=flags)
    ended = run_code(PROGRAM.format(**how), tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert figures["nobody_left"] and sum(figures["killed_in"].values()) == kills
    whole = saved(tmp_path / "whole")
    assert whole["optimizer_history"][-1]["num_updates"] == updates
    for number in range(figures["trainings"]):
        killed = saved(tmp_path / str(number))
        for part in ("model", "last_optimizer_state"):
            assert_same(whole[part], killed[part], part)
        assert_same(whole["optimizer_history"][-1], killed["optimizer_history"][-1], "optimizer")
        assert whole["extra_state"]["train_iterator"] == killed["extra_state"]["train_iterator"]
    faults.report(f"kill -9 of trainings with {workers} worker(s) and {readers} reader(s)", kills=kills, **figures)
