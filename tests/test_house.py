"""The house: what each room of the package may know of the others, and what none may become."""

import ast
import re
import runpy
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "lv_fairseq"
BY_PATH = PACKAGE / "alignment" / "builtin"  # a program of its own, whose files import each other by relative names

# From the ground up: a room, and those before it that it may import. So no import goes round in a circle.
MAY_IMPORT = {
    "errors": "",
    "progress": "",
    "processes": "errors",
    "files": "errors",
    "lock": "errors",
    "results": "",
    "fingerprint": "errors files",
    "index_file": "errors",
    "dictionary_file": "",
    "data_folder": "dictionary_file errors index_file",
    # files to files
    "alignment": "errors files processes",
    "lexicon": "alignment errors files fingerprint progress",
    "corpus_coverage": "errors files",
    "report": "errors progress results",
    # one concept each
    "watch": "errors",
    "fairseq_patches": "errors files processes watch",
    "partitions": "errors",
    "batching": "errors fairseq_patches partitions",
    "packed_weights": "",
    "word_tables": "errors files packed_weights",
    "softmax": "",
    "rnnsearch": "",
    "candidates": "corpus_coverage errors files fingerprint lexicon",
    # what connects them
    "page_turner": "partitions word_tables",
    "workers": "word_tables",
    "models": "errors fingerprint packed_weights rnnsearch word_tables",
    "decoding": "candidates errors lexicon models results word_tables",
    "criterions": "errors models softmax",
    "task_config": "candidates data_folder decoding errors",
    "opening": "errors",
    "trim": "corpus_coverage data_folder errors fairseq_patches files fingerprint models opening progress",
    "large_vocabulary": "batching data_folder decoding errors fairseq_patches models page_turner task_config "
    "word_tables workers",
    "language_tokens": "fairseq_patches large_vocabulary opening",
    "tasks": "criterions data_folder decoding errors fairseq_patches language_tokens large_vocabulary task_config "
    "word_tables",
    "serving": "candidates decoding errors large_vocabulary processes report",
    "commands": "batching candidates corpus_coverage data_folder errors fairseq_patches files fingerprint lexicon "
    "models partitions processes progress report serving tasks trim word_tables",
    "lv_fairseq": "errors lexicon models partitions tasks",
}
CONNECT = "models decoding criterions task_config opening large_vocabulary tasks serving commands fairseq_patches"
CONNECT = CONNECT.split()
KNOW = {  # libraries, and the rooms that may know them
    "fairseq": [*CONNECT, "index_file", "dictionary_file", "data_folder", "batching", "rnnsearch"],
    "torch": [
        *CONNECT,
        *"batching rnnsearch packed_weights word_tables softmax".split(),
        "page_turner",
        "workers",
        "watch",
        "trim",
    ],
    "fairseq_cli": [],
    "starlette": ["serving"],
    "uvicorn": ["serving"],
}
LONGEST = 60  # lines of a function


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    """Of the package's own modules the room, of others the library."""
    first, *others = module.split(".")
    return others[0] if first == "lv_fairseq" and others else first


def imports(path: Path) -> set[str]:
    """Rooms and libraries that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level or path.parent == BY_PATH, f"{path} imports by a relative name"
            if node.level:
                assert (BY_PATH / f"{node.module}.py").exists(), f"{path} imports what is not beside it"
                continue
            rooms = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(rooms if node.module == "lv_fairseq" else [node.module])
    return set(map(room_of, found))


def test_the_built_in_aligner_needs_numpy_only():
    known = set().union(*(imports(path) for path in sources(str(BY_PATH.relative_to(ROOT)))))
    assert {name.split(".")[0] for name in known} - sys.stdlib_module_names == {"numpy"}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """For each room what it imports beyond itself."""
    rooms = defaultdict(set)
    for path in sources("lv_fairseq"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        room = "lv_fairseq" if parts == ("__init__",) else parts[0]
        rooms[room] |= imports(path) - {room}
    return rooms


def test_no_room_imports_in_a_circle():
    rooms = list(MAY_IMPORT)
    for number, (room, others) in enumerate(MAY_IMPORT.items()):
        assert set(others.split()) <= set(rooms[:number]), room


def test_a_room_imports_the_rooms_that_it_may_know_and_no_other(graph):
    assert graph.keys() <= MAY_IMPORT.keys()
    more = {room: (others & MAY_IMPORT.keys()) - set(MAY_IMPORT[room].split()) for room, others in graph.items()}
    assert {room: others for room, others in more.items() if others} == {}


@pytest.mark.parametrize("library", KNOW)
def test_only_some_rooms_know(library, graph):
    assert {room for room in graph if library in graph[room]} <= set(KNOW[library])


@pytest.mark.parametrize("room", ["partitions", "rnnsearch", "softmax", "word_tables"])
def test_flags_of_commands_are_not_known_to(room):
    """In docstrings they may stand, for those who look for them."""
    named = []
    for path in sources(f"lv_fairseq/{room}"):
        docstrings = {ast.get_docstring(node, clean=False) for node in ast.walk(parsed(path)) if documented(node)}
        texts = (node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant))
        named += [text for text in texts if isinstance(text, str) and text not in docstrings and has_flag(text)]
    assert named == []


def documented(node: ast.AST) -> bool:
    return isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))


def has_flag(text: str) -> bool:
    return re.search(r"(^|\W)--[a-z]", text) is not None


def test_no_function_is_longer_than_a_page():
    long = []
    for path in sources("lv_fairseq", "scripts", "benchmarks", "examples", "docs"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= LONGEST:
                long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert long == []


def test_every_own_command_is_in_the_room_of_commands():
    scripts = re.findall(r"^(lv-\w+) = \"(.*):main\"$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert scripts == [(name, f"lv_fairseq.commands.{name.removeprefix('lv-')}") for name, _ in scripts]
    mains = {path.stem for path in (PACKAGE / "commands").glob("[a-z]*.py")}
    assert mains == {name.removeprefix("lv-") for name, _ in scripts}


def test_the_walk_names_files_that_are_there():
    walk = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## What we hold")[0]
    names = {name for name in re.findall(r"[`(]([\w/]+\.(?:py|svg))[`)]", walk)}
    places = (ROOT, PACKAGE, *(path for path in PACKAGE.iterdir() if path.is_dir()))
    assert (
        len(names) > 20 and {name for name in names if not any((place / name).is_file() for place in places)} == set()
    )


def test_the_pictures_are_those_that_the_script_draws(tmp_path):
    runpy.run_path(str(ROOT / "docs" / "pictures.py"))["draw"](tmp_path)
    drawn = list(tmp_path.glob("*.svg"))
    assert len(drawn) > 1
    for path in drawn:
        assert path.read_text(encoding="utf-8") == (ROOT / "docs" / path.name).read_text(encoding="utf-8")
