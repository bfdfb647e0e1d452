"""The Makefile, in a folder with a space in its name; what it installs is not installed here."""

import fcntl
import os
import shutil
import subprocess

import pytest
from conftest import ROOT


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "lock.txt"):
        shutil.copy2(ROOT / name, folder)
    return folder


def start(folder, *arguments) -> subprocess.Popen:
    """make as it is called from a shell, even if a make runs these tests."""
    environment = {
        x: y for x, y in os.environ.items() if x not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "VENV")
    }
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(["make", *arguments], cwd=folder, env=environment, **pipes)


def test_clean_keeps_runs(clone):
    for name in ("runs/model", ".venv/bin", ".venv-python3.13/bin", ".pytest_cache"):
        (clone / name).mkdir(parents=True)
    make = start(clone, "clean")
    assert make.wait() == 0, make.communicate()
    left = {"Makefile", "pyproject.toml", "lock.txt", ".make.lock", "runs"}
    assert {path.name for path in clone.iterdir()} == left and (clone / "runs" / "model").is_dir()


@pytest.mark.parametrize("python", ["false", "no-such-python"])
def test_a_python_that_does_not_do_is_named_and_nothing_is_made(clone, python):
    make = start(clone, "install", f"PYTHON={python}")
    stderr = make.communicate()[1]
    assert make.returncode
    assert f"{python} does not run, or is not Python 3.11, 3.12 or 3.13: name another one with PYTHON=..." in stderr
    assert not list(clone.glob(".venv*"))


def test_a_second_make_waits_for_the_first_and_installs_nothing_twice(clone):
    with open(clone / ".make.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make = start(clone, "install", "PYTHON=false")  # which could install nothing
        assert make.stdout.readline() == "Another make is installing here: waiting for it\n"
        (clone / ".venv-false").mkdir()
        (clone / ".venv-false" / ".installed").touch()
    assert make.communicate() == ("", "")
    assert make.returncode == 0
