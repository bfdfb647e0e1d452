"""Draws docs/page_swap.svg and docs/list_columns.svg: python docs/pictures.py"""

from pathlib import Path
from typing import List, Optional, Sequence
from xml.sax.saxutils import escape

ROW, CELL = 26, 74  # height of a row, width of a cell
STYLE = """
text { font: 14px sans-serif; fill: #1f2328; }
.small { font-size: 12px; } .dim { fill: #656d76; } .title { font-weight: bold; } .number { font-family: monospace; }
.box { fill: #ffffff; stroke: #8c959f; }
.special { fill: #eaeef2; } .one { fill: #b6d7ff; } .two { fill: #ffd8a8; } .both { fill: #c9e7c4; }
.none { fill: none; } .line { stroke: #57606a; fill: none; stroke-width: 1.5; } .head { fill: #57606a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .dim { fill: #9198a1; }
  .box { fill: #0d1117; stroke: #6e7681; }
  .special { fill: #2d333b; } .one { fill: #1f4f8f; } .two { fill: #7a4a10; } .both { fill: #28602f; }
  .none { fill: none; } .line { stroke: #9198a1; } .head { fill: #9198a1; }
}
"""
HEAD = """<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">
<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>"""


class Picture:
    def __init__(self, width: int, height: int, title: str):
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            HEAD,
        ]

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        self.lines.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x: float, y: float, text: str, kind: str, width: float = CELL) -> None:
        self.lines.append(f'<rect x="{x}" y="{y}" width="{width}" height="{ROW}" class="box {kind}"/>')
        self.text(x + width / 2, y + ROW - 8, text, "dim" if kind == "none" else "", "middle")

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        bend = (x + to_x) / 2
        path = f"M{x},{y} C{bend},{y} {bend},{to_y} {to_x},{to_y}"
        self.lines.append(f'<path class="line" d="{path}" marker-end="url(#head)"/>')

    def write(self, path: Path) -> None:
        path.write_text("\n".join([*self.lines, "</svg>", ""]), encoding="utf-8")


def page_swap() -> Picture:
    """All rows in the middle; what has trained goes back from the left, what trains next is taken out to the right."""
    words = ["<s>", "<pad>", "</s>", "<unk>", "the", "of", "house", "sea", "cat", "tree", "salt", "owl"]
    before: List[Optional[int]] = [0, 1, 2, 3, 4, 6, 8, None]
    after: List[Optional[int]] = [0, 1, 2, 3, 4, 5, 7, 10]
    picture = Picture(860, 470, "A page swap: from the words of one partition to those of the next")
    left, middle, right, top = 70, 380, 690, 74
    for x, title, below in (
        (left, "page, partition 1", "device: parameters, gradients"),
        (middle, "all rows", "host: values and statistics"),
        (right, "page, partition 2", "the same memory, other words"),
    ):
        picture.text(x + CELL / 2, 28, title, "title", "middle")
        picture.text(x + CELL / 2, 48, below, "small dim", "middle")
    for number, word in enumerate(words):
        kind = (
            "special"
            if number < 4
            else {(1, 0): "one", (0, 1): "two", (1, 1): "both"}.get((number in before, number in after), "")
        )
        picture.box(middle, top + number * ROW, word, kind)
        picture.text(middle - 8, top + number * ROW + 18, str(number), "small number dim", "end")
    for x, page in ((left, before), (right, after)):
        for row, number in enumerate(page):
            kind = "none" if number is None else "special" if number < 4 else "one" if page is before else "two"
            kind = "both" if number == 4 else kind
            y = top + row * ROW
            picture.box(x, y, "spare" if number is None else words[number], kind)
            if page is before:
                picture.text(x - 8, y + 18, str(row), "small number dim", "end")
            else:
                picture.text(x + CELL + 8, y + 18, str(row), "small number dim")
            if number is not None and number > 3:
                ends = (left + CELL + 4, y), (middle - 30, top + number * ROW)
                if page is after:
                    ends = (middle + CELL + 4, top + number * ROW), (right - 4, y)
                (x1, y1), (x2, y2) = ends
                picture.arrow(x1, y1 + ROW / 2, x2, y2 + ROW / 2)
    picture.text((left + CELL + middle) / 2, 66, "1. put back", "small", "middle")
    picture.text((middle + CELL + right) / 2, 66, "2. take out", "small", "middle")
    for number, line in enumerate(
        (
            "A page has tau + 4 rows, whatever partition is on it: cost does not depend on how many words there are.",
            "A spare row holds no word; the softmax adds minus infinity to its score.",
            "Everybody says word 8. Only tables know: that is row 6 of the first page, and not on the second.",
        )
    ):
        picture.text(20, 410 + 22 * number, line, "small")
    return picture


def list_columns() -> Picture:
    """Scores of a step of the search: two sentences with two hypotheses each."""
    first = ["<s>", "<pad>", "</s>", "<unk>", "die", "der"]
    others: Sequence[Sequence[str]] = (("Haus", "Baum", "Katze"), ("Meer", "Salz"))
    numbers = ((311, 4702, 80114), (96, 2207))
    picture = Picture(860, 330, "The columns of a search over candidate lists")
    left, top = 150, 92
    edge = left + len(first) * CELL
    picture.text(left, 28, "on every list: special symbols, frequent words", "title")
    picture.text(edge + 10, 28, "translations of its words", "title")
    picture.text(left, 48, "sorted by frequency, column c is word c: a slice of the table", "small dim")
    picture.text(edge + 10, 48, "other words in each sentence", "small dim")
    for column in range(len(first) + 3):
        x = left + column * CELL + CELL / 2 + (10 if column >= len(first) else 0)
        picture.text(x, 76, str(column), "number", "middle")
    picture.text(left - 10, 76, "column", "small dim", "end")
    for sentence in range(2):
        y = top + sentence * (2 * ROW + 44)
        for hypothesis in range(2):
            picture.text(
                left - 10, y + hypothesis * ROW + 18, f"sentence {sentence + 1}, hyp. {hypothesis + 1}", "small", "end"
            )
            for column, word in enumerate(first):
                kind = "special" if column < 4 else "both"
                picture.box(left + column * CELL, y + hypothesis * ROW, word, kind)
            for column in range(3):
                x = edge + 10 + column * CELL
                known = column < len(others[sentence])
                kind = ("one", "two")[sentence] if known else "none"
                picture.box(x, y + hypothesis * ROW, others[sentence][column] if known else "-inf", kind)
        picture.text(left - 10, y + 2 * ROW + 17, "word", "small dim", "end")
        for column in range(len(first)):
            picture.text(left + column * CELL + CELL / 2, y + 2 * ROW + 17, str(column), "small number dim", "middle")
        for column, number in enumerate(numbers[sentence]):
            x = edge + 10 + column * CELL + CELL / 2
            picture.text(x, y + 2 * ROW + 17, str(number), "small number dim", "middle")
    picture.text(
        20,
        292,
        "fairseq's search chooses columns and takes them for words. Only tables know: column 6 is word 311 in the",
        "small",
    )
    picture.text(20, 312, "first sentence and word 96 in the second. Hypotheses come out as words again.", "small")
    return picture


def draw(folder: Path) -> None:
    page_swap().write(folder / "page_swap.svg")
    list_columns().write(folder / "list_columns.svg")


if __name__ == "__main__":
    draw(Path(__file__).resolve().parent)
