"""What the project is built from: its version, the packages it imports, and the versions and hashes in lock.txt."""

import ast
import importlib.metadata
import json
import re
import runpy
import sys
import tomllib

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lv_fairseq

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "lock.txt").read_text(encoding="utf-8")
AUDIT = runpy.run_path(str(ROOT / ".ci" / "audit.py"))


def names(requirements: list) -> set:
    return {canonicalize_name(Requirement(x).name) for x in requirements}


RUNTIME = names(PROJECT["project"]["dependencies"])
DEVELOPMENT = names(PROJECT["project"]["optional-dependencies"]["dev"])
SERVE = names(PROJECT["project"]["optional-dependencies"]["serve"])
PEERS = names(PROJECT["dependency-groups"]["peers"])  # in an environment of their own


def sources(folder: str) -> list:
    """The Python files of a folder, also those that are commands without a suffix."""
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in ("", ".py")]
    return [path for path in files if path.suffix or b"python" in path.read_bytes().partition(b"\n")[0]]


def imported(folder: str) -> set:
    """Packages that are imported anywhere in a folder, other than Python's and the project's own."""
    found = set()
    for path in sources(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(node.module.partition(".")[0])
    own = {"lv_fairseq"} | {path.stem for top in ("tests", "scripts", "benchmarks") for path in (ROOT / top).glob("*")}
    return found - own - sys.stdlib_module_names


@pytest.mark.parametrize("folder", ["lv_fairseq", "scripts", "benchmarks", "tests", ".ci"])
def test_what_is_imported_is_declared(folder):
    others = {"tests": DEVELOPMENT | SERVE, ".ci": DEVELOPMENT, "lv_fairseq": SERVE, "benchmarks": PEERS}
    declared = RUNTIME | others.get(folder, set())
    distributions = importlib.metadata.packages_distributions()
    found = imported(folder)
    assert found
    assert not {x for x in found if declared.isdisjoint(map(canonicalize_name, distributions.get(x, [x])))}


def test_every_file_of_the_package_that_is_no_python_is_installed_with_it():
    package = ROOT / "lv_fairseq"
    others = [path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    named = PROJECT["tool"]["setuptools"]["package-data"]["lv_fairseq"]
    assert sorted(str(path.relative_to(package)) for path in others) == sorted(named)


def test_the_version_stands_in_one_place():
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "lv_fairseq.__version__"}
    assert "version" not in PROJECT["project"]
    release = re.match(r"[\d.]+\d", lv_fairseq.__version__)[0]
    assert f"## {release} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_dependency_is_locked_with_hashes_and_without_an_address():
    groups = [x for group in PROJECT["dependency-groups"].values() for x in group]
    groups = [x for x in groups if Requirement(x).marker is None or Requirement(x).marker.evaluate()]  # of this Python
    assert RUNTIME | DEVELOPMENT | names(groups) <= AUDIT["locked"]().keys()
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    assert not [entry for entry in entries if not re.match(r"[\w.-]+==\S+ .*\\\n    --hash=sha256:[0-9a-f]{64}", entry)]
    assert "://" not in LOCK


def test_the_locked_versions_are_ones_that_are_allowed():
    locked = AUDIT["locked"]()
    requirements = [Requirement(x) for x in PROJECT["project"]["dependencies"]]
    assert [x.name for x in requirements if locked[canonicalize_name(x.name)] not in x.specifier] == []


def test_the_audit_names_what_is_not_as_locked():
    locked = {"torch": "2.13.0", "tqdm": "4.70.1", "numpy": "2.4.6"}
    assert AUDIT["differences"]({"torch": "2.13.0+cpu", "tqdm": "4.70.1"}, locked) == []
    wrong = AUDIT["differences"]({"torch": "2.12.0", "tqdm": "4.70.1", "left-pad": "1.0"}, locked)
    assert [line.partition(" is ")[0] for line in wrong] == ["left-pad 1.0", "torch 2.12.0"]


@pytest.fixture
def pip_audit(tmp_path):
    """A program in the place of pip-audit: what it finds depends on the day."""

    def make(shell: str) -> str:
        program = tmp_path / "pip-audit"
        program.write_text(f"#!/bin/sh\nfor out; do :; done\n{shell}\n")
        program.chmod(0o755)
        return str(program)

    return make


def test_the_audit_names_each_advisory(pip_audit):
    holes = [{"id": "PYSEC-1", "fix_versions": ["2.1"]}, {"id": "PYSEC-2", "fix_versions": []}]
    answer = {"dependencies": [{"name": "tqdm", "version": "2.0", "vulns": holes}]}
    assert AUDIT["advisories"](pip_audit(f"echo '{json.dumps(answer)}' > \"$out\"; exit 1")) == [
        "tqdm 2.0: PYSEC-1, mended in 2.1",
        "tqdm 2.0: PYSEC-2, mended in no version yet",
    ]


def test_the_audit_does_not_take_no_answer_for_no_advisories(pip_audit):
    with pytest.raises(OSError, match="^no route to host$"):
        AUDIT["advisories"](pip_audit("echo no route to host >&2; exit 1"))


@pytest.mark.parametrize(
    "shell, installed, code",
    [
        ('echo \'{"dependencies": []}\' > "$out"', {}, 0),
        ("exit 1", {}, 2),  # not a word
        ("echo no route to host >&2; exit 1", {}, 2),
        ("echo no route to host >&2; exit 1", {"left-pad": "1.0"}, 1),
        (None, {}, 0),
        (None, {"left-pad": "1.0"}, 1),
    ],
)
def test_the_audit_succeeds_only_if_all_that_was_to_be_known_is_good(
    pip_audit, monkeypatch, capsys, shell, installed, code
):
    monkeypatch.setitem(AUDIT["main"].__globals__, "installed", lambda: installed)
    with pytest.raises(SystemExit) as end:
        AUDIT["main"](*([] if shell is None else [pip_audit(shell)]))
    assert (end.value.code or 0) == code
    assert ("Nothing is known about advisories" in capsys.readouterr().err) == ("exit 1" in (shell or ""))
