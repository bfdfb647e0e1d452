"""The tables of a report as Markdown, such as for a README: the same figures, without pictures and outputs."""

import html
import re
from html.parser import HTMLParser
from typing import List, Sequence, Tuple

from lv_fairseq.report.markup import Html
from lv_fairseq.report.scored_run import Results, Section

NO_TEXT = ("details", "dl", "figure", "svg")  # pictures, and sentences side by side
SPECIAL = re.compile(r"([\\`*_\[\]|~])")


def markdown(runs: Sequence[Tuple[Results, Sequence[Section]]]) -> str:
    """The whole page as text."""
    blocks: List[str] = []
    for results, sections in runs:
        blocks.append(f"# {plain(results.run.name)}")
        for section in sections:
            found = [block for part in section.parts if isinstance(part, Html) for block in blocks_of(part)]
            if any(block.startswith("|") for block in found):
                blocks += [f"## {plain(section.title)}", plain(section.explanation), *found]
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return SPECIAL.sub(r"\\\1", html.escape(re.sub(r"\s+", " ", text), quote=False))


def blocks_of(part: Html) -> List[str]:
    """Paragraphs, and tables under their captions."""
    reader = Reader()
    reader.feed(part)
    reader.close()
    return reader.blocks


class Reader(HTMLParser):
    """Reads the elements that `tables.table` and the sections make."""

    def __init__(self):
        super().__init__()
        self.blocks: List[str] = []
        self.rows: List[List[str]] = []
        self.text = ""
        self.outside = 0  # how many elements around this place are not shown

    def handle_starttag(self, element: str, attributes) -> None:
        self.outside += element in NO_TEXT
        if element in ("p", "caption", "th", "td"):
            self.text = ""
        elif element == "table":
            self.rows = []
        elif element == "tr":
            self.rows.append([])
        elif element == "strong":
            self.text += "**"

    def handle_data(self, data: str) -> None:
        self.text += plain(data)

    def handle_endtag(self, element: str) -> None:
        self.outside -= element in NO_TEXT
        if self.outside:
            return
        if element == "strong":
            self.text += "**"
        elif element in ("th", "td"):
            self.rows[-1].append(self.text.strip())
        elif element in ("p", "caption"):
            self.blocks.append(self.text.strip())
        elif element == "table":
            head, *body = self.rows
            line = "|---" * len(head) + "|"
            rows = ["| " + " | ".join(row) + " |" for row in (head, *body)]
            self.blocks.append("\n".join([rows[0], line, *rows[1:]]))
