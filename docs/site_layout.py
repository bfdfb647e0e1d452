"""A hook of mkdocs: the site has the folders of the repository, so that a link leads to the same place in both. On it
are README, docs, the pages of examples and benchmarks, and every file that one of these links to."""

import re
from pathlib import Path
from typing import Iterator

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "examples/*/README.md", "benchmarks/*.md")
STYLE = ("docs/site.css", "docs/favicon.svg")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = sorted(page for pattern in PAGES for page in ROOT.glob(pattern))
    linked = {file for page in pages for file in links(page)}
    found = [*pages, *sorted(linked.difference(pages)), *(ROOT / name for name in STYLE)]
    of_theme = [file for file in files if not Path(file.abs_src_path).is_relative_to(ROOT / "docs")]
    own = [File.generated(config, str(file.relative_to(ROOT)), abs_src_path=str(file)) for file in found]
    return Files(of_theme + own)


def on_page_markdown(markdown: str, **_) -> str:
    """What belongs to an item `1. ` stands three spaces to the right, as forges want it; mkdocs wants four."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        indented = line.startswith("   ")
        inside = bool(re.match(r"\d\. ", line)) or inside and (indented or not line)
        lines.append(f" {line}" if inside and indented else line)
    return "\n".join(lines)


def links(page: Path) -> Iterator[Path]:
    """The files of the repository that a page links to."""
    for link in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
        file = page.parent / link
        if file.is_file() and file.resolve().is_relative_to(ROOT):
            yield file.resolve()
