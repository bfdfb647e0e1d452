"""From rows to `benchmarks/README.md`: a table for each thing that was measured, and where we are behind."""

import statistics
from typing import Dict, List, Optional, Sequence, Tuple

from .rows import PRODUCTS, Row

HEAD = """# Side by side with everyone

What an update, a decoded word, a first sentence and an aligned word cost, ours beside others. Each row is one system. A
setting is what systems have in common: a number of words, or batch, beam and threads. Systems of a setting took turns
on one machine; the figure is the median of the turns, in brackets between which two figures half of them lie. "Ours /
it" is our time divided by its time, turn by turn, and of that the median, which need not be the quotient of the two
medians: below 1.00 we are faster. Bold: another program, or fairseq without us, is faster than we are; the last column
says why. Peak memory is that of the updates that were measured: statistics of words that did not come yet take none.

"% products" is the share of matrix products in our time, "MB trained" what parameters, gradients and statistics of the
optimiser take. tau is how many words a page holds, swaps are turning pages. "Gathered rows" are those of a page, taken
from the whole table with a sparse gradient. "Lists" are candidate lists of the K most frequent words and K'
translations of each source word, a vmap those of CTranslate2, which has no recurrent models. Ours decodes with
`--pack-weights`, unless a row says without. Models that decode have random weights, and sentences ten words; p50, p99
and longest are times of a sentence alone in its batch. K is the size of the small model beside the lists, K' is 10.
Updates are of about 2,000 target tokens, unless a heading names another number, rows of {turns} turns, unless they do.

{signature}

`make bench` wrote this page: {how}
"""


def page(rows: Sequence[Row], versions: Dict[str, str], how: str, pictures: Sequence[Tuple[str, str]]) -> str:
    """
    Args:
        how: the command and how long it took
        pictures: names of files beside the page, and what they show
    """
    signature = ", ".join(f"{name} {version}".strip() for name, version in once(versions).items())
    turns = statistics.mode([len(row.turns) for row in rows if row.turns] or [0])
    parts = [HEAD.format(how=how, signature=signature, turns=turns), behind(rows)]
    parts += [f"![{what}]({name})\n" for name, what in pictures]
    for table in dict.fromkeys(row.table for row in rows):
        parts.append(tabulated(table, [row for row in rows if row.table == table], turns))
    return "\n".join(parts)


def once(versions: Dict[str, str]) -> Dict[str, str]:
    """Without what is there by a longer name too, as fairseq is by that of its package."""
    pairs = list(versions.items())
    longer = {pair for pair in pairs for name, version in pairs if pair[0] in name != pair[0] and pair[1] == version}
    return {name: version for name, version in pairs if (name, version) not in longer}


def ours_of(rows: Sequence[Row]) -> Dict[Tuple[str, str], Row]:
    """By table and setting, the row that the others are compared with."""
    return {(row.table, row.setting): row for row in rows if row.ours}


def ratio_of(row: Row, ours: Dict[Tuple[str, str], Row]) -> Optional[float]:
    """Ours by this one's."""
    mine = ours.get((row.table, row.setting))
    return None if mine is None else row.ratio(mine)


def is_ahead(row: Row, ratio: Optional[float]) -> bool:
    """Whether another program is faster than we are, as far as the page shows it."""
    return row.peer and ratio is not None and round(ratio, 2) > 1


def behind(rows: Sequence[Row]) -> str:
    """How we stand against others."""
    ours, compared = ours_of(rows), {}
    for row in rows:
        ratio = ratio_of(row, ours) if row.peer else None
        if ratio is not None:
            compared.setdefault((row.table, row.system), []).append((row, ratio))
    ahead = {key: [ratio for row, ratio in pairs if is_ahead(row, ratio)] for key, pairs in compared.items()}
    every, slower = (sum(map(len, groups.values())) for groups in (compared, ahead))
    lines = [f"Of {every} comparisons with others, ours is at or below 1.00 in {every - slower}."]
    lines += ["", "Ahead of us, which its row explains:", ""] if slower else []
    for (table, system), ratios in ahead.items():
        if ratios:
            span = " to ".join(dict.fromkeys(f"{ratio:.2f}" for ratio in (min(ratios), max(ratios))))
            where = f"{len(ratios)} of {len(compared[table, system])} settings"
            lines.append(f"- {table}: {system}, in {where}; ours takes {span} of its time")
    absent = sorted({f"- {row.system}: {row.note}" for row in rows if row.peer and not row.turns})
    lines += ["", "Not compared:", "", *absent] if absent else []
    return "\n".join([*lines, ""])


def why(ours: Row, other: Row) -> str:
    """What the profile of our time says of one that is ahead."""
    share = ours.more.get(PRODUCTS)
    if ours.spread[0] <= other.spread[1]:
        return "ahead in most turns, but not by more than turns differ"
    if share is None:
        return "ahead"
    if ours.median * share / 100 > other.median:
        return (
            f"ahead: our matrix products alone, {share:.0f} % of our time, take longer, so it multiplies faster or less"
        )
    return f"ahead: {100 - share:.0f} % of our time is not matrix products"


def tabulated(table: str, rows: List[Row], turns: int) -> str:
    """
    Args:
        turns: that need not be said
    """
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
        ratio = ratio_of(row, ours)
        ahead = is_ahead(row, ratio)
        shown = "" if ratio is None else f"**{ratio:.2f}**" if ahead else f"{ratio:.2f}"
        cells = [row.setting if row.setting != last else "", row.system, figure(row), shown]
        cells += [number(row.more[name]) if name in row.more else "" for name in more]
        reason = why(ours[row.table, row.setting], row) if ahead else ""
        made = len(row.turns)
        other = f"{made} turn{'s' * (made > 1)}" if made not in (0, turns) else ""
        lines.append(line([*cells, "; ".join(filter(None, [row.note, other, reason]))]))
        last = row.setting
    return "\n".join([*lines, ""])


def figure(row: Row) -> str:
    if not row.turns:
        return ""
    low, high = row.spread
    if len(row.turns) == 1:
        return number(row.median)
    return f"{number(row.median)} ({number(low)}–{number(high)})"


def number(x: float) -> str:
    """Three digits that count."""
    if x == 0:
        return "0"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}" if abs(x) >= 0.001 else f"{x:.1e}"


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
