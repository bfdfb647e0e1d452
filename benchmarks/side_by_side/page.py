"""From rows to `benchmarks/README.md`: a table for each thing that was measured, and where we are behind."""

from typing import Dict, List, Sequence, Tuple

from .rows import PRODUCTS, Row

HEAD = """# Side by side with everyone

`make bench` wrote this page: {how}

Each row is one system; systems of a setting took turns in one run on one machine. The figure is the median of the
turns, in brackets between which two figures half of them lie. The ratio is ours by this one's, the median of that of
each turn: below 1.00 we are faster. Bold: another program, or fairseq without us, is faster than we are. Peak memory is
that of the updates that were measured: statistics of words that did not come yet take none.

{signature}
"""


def page(rows: Sequence[Row], versions: Dict[str, str], how: str, pictures: Sequence[Tuple[str, str]]) -> str:
    """
    Args:
        how: the command and how long it took
        pictures: names of files beside the page, and what they show
    """
    signature = ", ".join(f"{name} {version}".strip() for name, version in versions.items())
    parts = [HEAD.format(how=how, signature=signature), behind(rows)]
    parts += [f"![{what}]({name})\n" for name, what in pictures]
    for table in dict.fromkeys(row.table for row in rows):
        parts.append(tabulated(table, [row for row in rows if row.table == table]))
    return "\n".join(parts)


def ours_of(rows: Sequence[Row]) -> Dict[Tuple[str, str], Row]:
    """By table and setting, the row that the others are compared with."""
    return {(row.table, row.setting): row for row in rows if row.ours}


def behind(rows: Sequence[Row]) -> str:
    """How we stand against others."""
    ours, compared, slower = ours_of(rows), 0, []
    for row in rows:
        mine = ours.get((row.table, row.setting))
        ratio = row.ratio(mine) if row.peer and mine is not None else None
        if ratio is not None:
            compared += 1
            if round(ratio, 2) > 1:
                slower.append(f"- {row.table}, {row.setting}: {ratio:.2f} of {row.system}{why(mine, row)}")
    absent = sorted({f"- {row.system}: {row.note}" for row in rows if row.peer and not row.turns})
    lines = [f"Of {compared} comparisons with others, ours is at or below 1.00 in {compared - len(slower)}."]
    lines += ["", "Behind, with what is known of our time there:", "", *slower] if slower else []
    lines += ["", "Not compared:", "", *absent] if absent else []
    return "\n".join([*lines, ""])


def why(ours: Row, other: Row) -> str:
    """What the profile of our time says of one that is faster."""
    share, note = ours.more.get(PRODUCTS), f"; {ours.note}" if ours.note else ""
    if share is None:
        return note
    said = f"; {share:.0f} % of ours are matrix products"
    if ours.median * share / 100 > other.median:
        said += ", which alone take longer than all of it: it multiplies faster, or less"
    return said + note


def tabulated(table: str, rows: List[Row]) -> str:
    (unit, *others) = dict.fromkeys(row.unit for row in rows)
    assert not others, f"{table} has several units: {unit}, {', '.join(others)}"
    more = list(dict.fromkeys(name for row in rows for name in row.more))
    heads = ["", "", f"{unit}", "ours / it", *more, ""]
    lines = [
        f"## {table[:1].upper()}{table[1:]}\n",
        line(heads),
        line(["---"] * 2 + ["---:"] * (len(heads) - 3) + ["---"]),
    ]
    ours, last = ours_of(rows), None
    for row in sorted(rows, key=lambda row: [r.setting for r in rows].index(row.setting)):
        cells = [row.setting if row.setting != last else "", row.system, figure(row), compared(row, ours)]
        cells += [number(row.more[name]) if name in row.more else "" for name in more]
        lines.append(line([*cells, row.note]))
        last = row.setting
    return "\n".join([*lines, ""])


def figure(row: Row) -> str:
    if not row.turns:
        return ""
    low, high = row.spread
    return f"{number(row.median)} ({number(low)}–{number(high)})"


def compared(row: Row, ours: Dict[Tuple[str, str], Row]) -> str:
    mine = ours.get((row.table, row.setting))
    ratio = row.ratio(mine) if mine is not None else None
    if ratio is None:
        return ""
    text = f"{ratio:.2f}"
    return f"**{text}**" if row.peer and round(ratio, 2) > 1 else text


def number(x: float) -> str:
    """Three digits that count."""
    if x == 0:
        return "0"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}" if abs(x) >= 0.001 else f"{x:.1e}"


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
