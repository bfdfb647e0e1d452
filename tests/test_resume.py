"""Training with --tau that is killed and resumed: the same updates."""

import functools
import signal
import subprocess

import pytest
import torch
from architectures import ARCHITECTURES
from conftest import BIN, PLUGIN, ROOT, SMALL, train
from small_corpus import write_corpus
from test_large_vocabulary import ADAM, TAU


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    """Runs of architectures, with dropout and everything that could go wrong at a resume: end, data and flags."""

    @functools.cache
    def run(name):
        folder, words, flags = tmp_path_factory.mktemp(name), data, (*SMALL, *TAU, *ADAM, "--hide-rare-words", 20)
        if name != "rnnsearch":
            words = write_corpus(folder / "data", joined=True)
            flags = (*ARCHITECTURES[name].flags, *TAU, *ADAM, "--tau", 30, "--max-tokens", 60)
        flags += ("--dropout", 0.1, "--update-freq", 2, "--reshuffle-partitions", "--max-update", 24)
        flags += ("--save-interval-updates", 5, "--num-workers", 0, "--disable-validation")
        train(words, folder, *flags)
        return torch.load(folder / "checkpoint_last.pt", weights_only=True), words, flags

    return run


MOMENTS = [("rnnsearch", "swap", 20), ("rnnsearch", "save", 3), ("rnnsearch", "copy", 2), ("rnnsearch", "update", 31)]
MOMENTS += [pytest.param("transformer-joined", "swap", 9, marks=pytest.mark.slow)]


@pytest.mark.parametrize("name, moment, count", MOMENTS)
def test_killed_and_resumed_it_ends_with_the_same_bits(uninterrupted, tmp_path, name, moment, count):
    whole, data, flags = uninterrupted(name)
    command = [BIN / "python", ROOT / "tests" / "killed.py", moment, count, data]
    command += [*PLUGIN, "--save-dir", tmp_path, *flags]
    killed = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    result = train(data, tmp_path, *flags)
    assert "Loaded checkpoint" in result.stdout + result.stderr
    resumed = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert all(torch.equal(whole["model"][name], resumed["model"][name]) for name in whole["model"])
    statistics = whole["last_optimizer_state"]["state"]
    for number, state in resumed["last_optimizer_state"]["state"].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(statistics[number][name]))
