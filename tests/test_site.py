"""The site of `make docs`: every page is in its navigation, and a link that leads nowhere is an error."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

MKDOCS = ROOT / ".venv-docs" / "bin" / "mkdocs"
needs_mkdocs = pytest.mark.skipif(not MKDOCS.exists(), reason="needs what `make docs` installs")


def pages(navigation) -> list:
    """The files that a navigation names, in its order."""
    if isinstance(navigation, str):
        return [navigation]
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for part in parts for page in pages(part)]


def test_the_navigation_holds_every_page_once_and_no_other():
    found = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    wanted = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    assert {page for page in found if page.startswith("docs/")} == wanted
    assert found[0] == "README.md" and len(set(found)) == len(found)
    assert all((ROOT / page).is_file() for page in found)


def build(project: Path, site: Path) -> subprocess.CompletedProcess:
    command = [MKDOCS, "build", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=project, capture_output=True, text=True, env=environment)


@needs_mkdocs
def test_the_site_fetches_nothing_and_an_item_keeps_what_belongs_to_it(tmp_path):
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    made = list(tmp_path.rglob("*.html"))
    assert len(made) > len(list((ROOT / "docs").glob("*.md"))) and (tmp_path / "LICENSE").is_file()
    for page in made:
        assert not re.search(r"<(?:link|script|img)[^>]*(?:href|src)=.?https?:", page.read_text(encoding="utf-8")), page
    items = re.search(r"<ol>.*?</ol>", (tmp_path / "index.html").read_text(encoding="utf-8"), re.DOTALL)[0]
    assert items.count("<li>") == items.count("<pre>") == 5  # the commands of the README


@pytest.fixture
def project(tmp_path):
    """A copy of all that the site is made of."""
    folder = tmp_path / "a clone"
    for name in ("docs", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name)
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "mkdocs.yml",
        "lock.txt",
        "pyproject.toml",
    ):
        shutil.copy2(ROOT / name, folder)
    return folder


@needs_mkdocs
def test_a_link_that_leads_nowhere_is_an_error(project, tmp_path):
    bad = ("no-such-page.md", "training.md#no-such-part", "../examples", "/docs/training.md")
    with open(project / "docs" / "names.md", "a", encoding="utf-8") as page:
        page.writelines(f"[link]({link})\n" for link in bad)
    done = build(project, tmp_path / "site")
    assert done.returncode and done.stderr.count("WARNING") == len(bad), done.stderr
    assert all(link in done.stderr for link in bad)


@pytest.mark.slow
def test_make_docs_builds_the_site_from_nothing(project):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "docs"], cwd=project, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "runs" / "site" / "index.html").is_file()
