"""The commands of README and docs, copied out of them and pasted into a shell, one after the other; takes minutes. And
their links, in a moment."""

import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import BIN, ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
PAGES += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]


def blocks(page: str) -> list:
    """Language and text of the code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
    return [(language, textwrap.dedent(code)) for _, language, code in found]


def anchors(page: Path) -> set:
    """What links to parts of a page are called."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in links:
        if link.startswith(("https://", "http://")):
            continue
        path, _, part = link.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), link
        assert not part or part in anchors(to), link


def test_the_readme_is_short_enough_to_be_read_and_names_every_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name}" in text, f"no link to {page.name}"


def test_the_reference_says_what_the_options_say():
    assert runpy.run_path(str(ROOT / "scripts" / "reference.py"))["main"](["--check"]) is None


def pasted(page: str, folder: Path) -> str:
    """What the commands of a page print. They find the project's folders, and write beside them."""
    for name in ("lv_fairseq", "scripts", "benchmarks"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(BIN.parent)
    printed = ""
    for language, code in blocks(page):
        if "make demo" in code or "fairseq-train ..." in code:  # this one, and flags that are to be added to a command
            continue
        start = ["bash", "-euc"] if language == "bash" else [sys.executable, "-c"]
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run([*start, code], capture_output=True, text=True, cwd=folder, env=environment)
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout
    return printed


def scores(printed: str) -> list:
    return [float(score) for score in re.findall(r'"score": ([\d.]+)', printed)]


@pytest.mark.slow
def test_the_readmes_commands_work_as_they_are_written(tmp_path):
    printed = pasted("README.md", tmp_path)
    assert len(scores(printed)) == 1
    assert len(re.findall("^H-", printed, re.MULTILINE)) == 3


@pytest.mark.slow
def test_the_commands_of_the_tutorial_work_as_they_are_written(tmp_path):
    printed = pasted("docs/tutorial.md", tmp_path)
    assert len(scores(printed)) == 2, printed
    assert len(re.findall("^H-", printed, re.MULTILINE)) == 6  # three sentences each, typed twice
    assert "unknown words replaced" in printed
    pasted("docs/architectures.md", tmp_path)


@pytest.mark.slow
def test_the_commands_for_released_models_work_as_they_are_written(tmp_path):
    assert "nothing differs from it" in pasted("docs/released-models.md", tmp_path)
