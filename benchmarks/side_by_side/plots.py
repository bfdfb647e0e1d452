"""Pictures of what `make bench` measured: the cost of an update against the vocabulary, and where our time goes."""

import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import matplotlib

from .rows import PRODUCTS, Row

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import LogLocator  # noqa: E402

SALT = {"svg.hashsalt": "bench", "svg.fonttype": "none", "font.size": 9}


def words_of(setting: str) -> Optional[int]:
    """The vocabulary of a setting such as "500,000 words"; None if it says nothing of it."""
    found = re.match(r"([\d,]+) words", setting)
    return int(found.group(1).replace(",", "")) if found else None


def curves(rows: Sequence[Row]) -> Dict[str, Dict[str, List[Tuple[int, Row]]]]:
    """By table and system, the rows of several vocabularies."""
    found: Dict[str, Dict[str, List[Tuple[int, Row]]]] = {}
    for row in rows:
        words = words_of(row.setting)
        if words is not None and row.turns:
            found.setdefault(row.table, {}).setdefault(row.system, []).append((words, row))
    several = lambda systems: {len(points) for points in systems.values()} != {1}
    return {table: systems for table, systems in found.items() if several(systems)}


def cost(rows: Sequence[Row], path: Path) -> bool:
    """Time against |V| on a log scale, a panel for each table; False: nothing was measured at several sizes."""
    tables = curves(rows)
    if not tables:
        return False
    with matplotlib.rc_context(SALT):
        size = {"figsize": (5 * len(tables), 3.8), "squeeze": False, "layout": "constrained"}
        figure, (panels,) = pyplot.subplots(1, len(tables), **size)
        for panel, (table, systems) in zip(panels, tables.items()):
            for system, points in systems.items():
                points = sorted(points, key=lambda point: point[0])
                width = 2.5 if points[0][1].ours else 1
                medians = [row.median for _, row in points]
                panel.plot(
                    [words for words, _ in points], medians, marker="o", markersize=3, linewidth=width, label=system
                )
            panel.set(xscale="log", yscale="log", title=table, xlabel="words", ylabel=points[0][1].unit)
            sizes = sorted({words for points in systems.values() for words, _ in points})
            panel.set_xticks(sizes, [f"{words:,}" for words in sizes])
            panel.minorticks_off()
            panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter("{x:g}")
            panel.grid(alpha=0.3)
            panel.legend(fontsize=7)
        save(figure, path)
    return True


def shares(rows: Sequence[Row], path: Path) -> bool:
    """Of our own rows, which part of the time is matrix products; False: no row says it. With two threads it is much
    the same."""
    ours = [row for row in rows if row.ours and PRODUCTS in row.more and "2 threads" not in row.setting]
    if not ours:
        return False
    with matplotlib.rc_context(SALT):
        figure, panel = pyplot.subplots(figsize=(8, 1.1 + 0.24 * len(ours)), layout="constrained")
        names = [f"{row.table}, {row.setting}" for row in ours]
        products = [min(row.more[PRODUCTS], 100.0) for row in ours]
        panel.barh(names, products, label="matrix products")
        panel.barh(names, [100 - share for share in products], left=products, color="0.8", label="everything else")
        panel.invert_yaxis()
        panel.set(xlim=(0, 100), xlabel="% of our time")
        panel.tick_params(axis="y", labelsize=7)
        figure.legend(fontsize=7, loc="outside lower center", ncols=2)
        save(figure, path)
    return True


def save(figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
