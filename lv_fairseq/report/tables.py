"""Tables of a page: with a caption, heads that say what they are the head of, and a container that scrolls."""

from typing import Callable, Dict, List, Optional, Sequence

from lv_fairseq.report.markup import Html, tag

NOTHING = "\u2013"
FEW_CELLS, SPARSE = 100, 4  # a matrix may have as many cells, and as many for each of its numbers


def table(caption: str, heads: Sequence, rows: Sequence[Sequence], kind: Optional[str] = None) -> Html:
    """A table; the first cell of a row is its head.

    Args:
        heads: of the columns
        kind: "words": cells are text, set left; "systems": rows have long names
    """
    head = tag("tr", *(tag("th", name, scope="col") for name in heads))
    body = [tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells)) for first, *cells in rows]
    title = tag("caption", tag("span", caption))
    inside = tag("table", title, tag("thead", head), tag("tbody", *body), class_=kind)
    return tag("div", inside, class_="scroll", role="region", tabindex="0", aria_label=caption)


def matrix(
    caption: str,
    corner: str,
    values: Dict[tuple, Optional[float]],
    show: Callable[[float], str],
    mark_best: bool = False,
) -> Html:
    """A table of numbers by two other numbers: (row, column): value. Where most places would be empty, a line for each
    that is not."""
    rows, columns = (sorted({place[i] for place in values}) for i in (0, 1))
    known = [value for value in values.values() if value is not None]
    best = max(known) if mark_best and len(known) > 1 else None
    is_best = lambda value: best is not None and show(value) == show(best)
    cell = lambda value: marked(show(value), is_best(value)) if value is not None else NOTHING
    if len(rows) * len(columns) > FEW_CELLS + SPARSE * len(values):
        lines = [[f"{row:,}", f"{column:,}", cell(value)] for (row, column), value in sorted(values.items())]
        return table(caption, [f"{corner} (row)", "column", "value"], lines)
    body = [[f"{row:,}", *(cell(values.get((row, column))) for column in columns)] for row in rows]
    return table(caption, [corner, *(f"{column:,}" for column in columns)], body)


def marked(text, is_best: bool):
    return tag("strong", text, class_="best") if is_best else text


def filled_columns(heads: Sequence, rows: Sequence[Sequence]) -> tuple:
    """Heads and rows without the columns in which nothing stands; the first column stays."""
    kept: List[int] = [i for i in range(len(heads)) if i == 0 or any(row[i] != NOTHING for row in rows)]
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]


def shown(value: Optional[float], form: str = "{:,.0f}") -> str:
    return NOTHING if value is None else form.format(value)


def duration(seconds: Optional[float]) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
