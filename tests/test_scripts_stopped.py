"""However a script is stopped, no process of it goes on and, if it has a chance to, it leaves no temporary file."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import begin_experiment
from started import Started

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
KILL, TERM, HUP, INT = (signal.Signals[f"SIG{name}"] for name in ("KILL", "TERM", "HUP", "INT"))


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for split, count in (("train", 200_000), ("dev", 10), ("test", 10)):
        for language in ("en", "de"):
            (folder / f"{split}.{language}").write_text("This is a sentence , and it is not the first one .\n" * count)
    return folder


def prepare(raw, train, out):
    files = ("--trainpref", raw / train, "--validpref", raw / "dev")
    return Started(sys.executable, "scripts/prepare", "-s", "en", "-t", "de", *files, "--out", out, "--workers", 2)


def temporary(folder):
    return [path for path in folder.rglob("*") if path.suffix in (".tmp", ".part")]


@pytest.mark.parametrize("number", [KILL, TERM, INT])
def test_workers_end_with_prepare(raw, tmp_path, number):
    started = prepare(raw, "train", tmp_path / "out")
    started.wait_for("scripts/prepare", 3)
    said = started.stop(number, freeze=number == KILL)
    if number == KILL:
        started = prepare(raw, "train", tmp_path / "out")  # what the kill has left goes now
        started.wait_for("scripts/prepare", 3)
        number, said = TERM, started.stop(TERM)
    assert said == f"stopped by {number.name}: what was finished is kept"
    assert not temporary(tmp_path) and not (tmp_path / "out" / "prepare.json").exists()


@pytest.mark.parametrize("number", [KILL, HUP])
def test_commands_end_with_prepare(raw, tmp_path, number):
    started = prepare(raw, "dev", tmp_path / "out")
    started.wait_for("fairseq-preprocess", 1)
    said = started.stop(number, freeze=number == KILL)
    if number != KILL:
        assert said == "stopped by SIGHUP: what was finished is kept" and not temporary(tmp_path)


def test_processes_of_commands_end_with_them(tmp_path):
    pool = "import multiprocessing, time\nmultiprocessing.Pool(2).map(time.sleep, [600, 600])\n"
    (tmp_path / "pool.py").write_text(pool)
    started = Started(sys.executable, "scripts/forking.py", tmp_path / "pool.py")
    started.wait_for("pool.py", 3)
    started.stop(KILL, freeze=True)


@pytest.mark.parametrize("number", [KILL, TERM, HUP])
def test_trainings_end_with_their_experiment(tmp_path, number):
    begin_experiment(tmp_path, "{seeds: [1], parallel: 2, train: [--arch, rnnsearch_small]}\n")
    folders = ("--prepared", tmp_path / "prepared", "--out", tmp_path / "out")
    started = Started(sys.executable, "scripts/run_experiment.py", tmp_path / "config.yaml", *folders)
    started.wait_for("fairseq-train", 2)
    said = started.stop(number, freeze=number == KILL)
    if number != KILL:
        assert said.startswith(f"stopped by {number.name}: the same command goes on")
        assert not temporary(tmp_path)


@pytest.mark.skipif(subprocess.run(["setpriv", "--pdeathsig", "TERM", "true"]).returncode != 0, reason="needs setpriv")
@pytest.mark.parametrize("number", [KILL, TERM])
def test_everything_ends_with_a_recipe(raw, tmp_path, number):
    started = Started("bash", "examples/europarl_en_de/run.sh", raw, tmp_path / "out")
    started.wait_for("scripts/prepare", 3)
    started.stop(number)
    assert not temporary(tmp_path)
