"""The commands of README and docs, copied out of them and pasted into a shell, one after the other; takes minutes. And
their links, in a moment."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import BIN, ROOT
from test_examples import CONFIG, corpus

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]
PAGES += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "benchmarks").glob("*.md"))]


# Pages whose commands are pasted below, and where those of others are run.
PASTED = {"README.md", "docs/tutorial.md", "docs/architectures.md", "docs/released-models.md", "docs/experiments.md"}
ELSEWHERE = {
    "CONTRIBUTING.md": "make itself",
    "docs/serving.md": "test_serving.py",
    "docs/install.md": "installs into another environment, minutes and GB",
    "docs/machines.md": "flags to be added to a command: test_workers.py, test_word_table_dir.py",
    **{f"examples/{x}/README.md": "test_examples.py" for x in ("demo", "europarl_en_de", "wmt14_en_de", "wmt14_en_fr")},
    **{f"examples/{x}/README.md": "test_examples.py" for x in ("finetune_nllb", "finetune_mbart50", "multi30k")},
    "examples/debian_descriptions/README.md": "half an hour, and the network: its parts are in test_examples.py",
}


def blocks(page: str) -> list:
    """Language and text of the code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```", text, re.MULTILINE | re.DOTALL)
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


def test_the_commands_of_every_page_are_run_somewhere():
    assert {str(page.relative_to(ROOT)) for page in PAGES if blocks(page)} == PASTED | ELSEWHERE.keys()


def pasted(page: str, folder: Path, **instead) -> str:
    """What the commands of a page print. They find the project's folders, and write beside them.

    Args:
        instead: for words of the commands that stand for something of the user's own
    """
    for name in ("lv_fairseq", "scripts", "benchmarks"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    if not (folder / ".venv").exists():
        (folder / ".venv").symlink_to(BIN.parent)
    printed = ""
    for language, code in blocks(page):
        if "make demo" in code or "run.sh" in code:  # these have tests of their own
            continue
        if language == "text":  # the README's commands for larger text, or with a part left out
            continue
        for word, other in instead.items():
            code = code.replace(word, shlex.quote(str(other)))
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
def test_the_commands_from_raw_text_to_a_report_work_as_they_are_written(tmp_path):
    raw = corpus(tmp_path / "raw text", "de")
    (tmp_path / "small.yaml").write_text(CONFIG)
    config = {"examples/europarl_en_de/config.yaml": tmp_path / "small.yaml"}
    pasted("docs/experiments.md", tmp_path, FOLDER=raw, **config)
    assert (tmp_path / "runs" / "raw" / "experiment" / "report.html").is_file()
    assert list((tmp_path / "runs" / "raw" / "pictures").glob("*.png"))


@pytest.mark.slow
def test_the_commands_for_released_models_work_as_they_are_written(tmp_path):
    assert "nothing differs from it" in pasted("docs/released-models.md", tmp_path)
