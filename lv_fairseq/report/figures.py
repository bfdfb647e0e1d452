"""The pictures of a report, drawn with matplotlib: lines and heat maps.

Sizes are in points and small, since a phone's page is 360 wide: pictures grow on larger screens, they never shrink.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import matplotlib
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from lv_fairseq.report.palette import LINES, light

WIDTH, HEIGHT, LEGEND_ROW = 330, 225, 16.5
CELL = 18  # of a heat map
FAINT = 0.015  # a smaller weight is not drawn
MARKERS = "osD^vPX*"
STYLES = ("-", "--", "-.", ":")
MOST_LINES = 40  # of a picture

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 11.5,
    "text.parse_math": False,  # words may hold dollar signs
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": light("quiet"),
    "axes.labelcolor": light("ink"),
    "text.color": light("ink"),
    "xtick.color": light("quiet"),
    "ytick.color": light("quiet"),
    "axes.grid": True,
    "grid.color": light("rule"),
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}


class Line(NamedTuple):
    name: str
    points: List[Tuple[float, float]]


class Picture(NamedTuple):
    """A drawn figure.

    Attributes:
        id: names the picture in the page and the PNG file
        description: for those who cannot see it
        scales: grows with the page; otherwise it has its own size and scrolls
        caption: stands above it
    """

    id: str
    figure: Figure
    description: str
    scales: bool = True
    caption: str = ""


def number(value: float, _=None) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "\u2026"


def line_picture(
    id: str, title: str, lines: Sequence[Line], x: str, y: str, x_places: Optional[Sequence[float]] = None
) -> Optional[Picture]:
    """Lines through points; None if there is not a single point.

    Args:
        x, y: what the axes show
        x_places: the places that x takes; its axis is logarithmic then
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    caption = f"The first {MOST_LINES} of {len(lines):,} lines." if len(lines) > MOST_LINES else ""
    lines = lines[:MOST_LINES]
    with matplotlib.rc_context(STYLE):
        size = (WIDTH / 72, (HEIGHT + LEGEND_ROW * len(lines)) / 72)
        figure = Figure(figsize=size, dpi=72, layout="constrained")
        axes = figure.add_subplot()
        many = max(len(line.points) for line in lines) > 25
        for i, line in enumerate(lines):
            colour = light(LINES[i % len(LINES)])
            marker = None if many else MARKERS[i % len(MARKERS)]
            style = STYLES[i // len(LINES) % len(STYLES)] if not many else STYLES[i % len(STYLES)]
            axes.plot(*zip(*line.points), style, color=colour, marker=marker, label=cut(line.name, 48))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(number))
        if x_places is not None:
            logarithmic(axes, x_places)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(FuncFormatter(number))
        figure.legend(loc="outside lower left", ncols=1, handlelength=2.6, labelspacing=0.25)
    return Picture(id, figure, f"{title}. {described(lines, x, y)}", caption=caption)


def logarithmic(axes, places: Sequence[float]) -> None:
    """A logarithmic axis with a tick where there are points; 0 has its place left of 1."""
    places = sorted(set(places))
    if places[0] > 0:
        axes.set_xscale("log")
    else:
        axes.set_xscale("symlog", linthresh=1)
    if len(places) > 8:
        places = [places[round(i * (len(places) - 1) / 7)] for i in range(8)]
    axes.set_xticks(places, [number(place) for place in places])
    axes.xaxis.set_minor_locator(NullLocator())


def described(lines: Sequence[Line], x: str, y: str) -> str:
    ends = (
        f"{line.name}: {number(round(line.points[0][1], 3))} at {number(round(line.points[0][0], 2))}, "
        f"{number(round(line.points[-1][1], 3))} at {number(round(line.points[-1][0], 2))}"
        for line in lines
    )
    return f"{y} by {x}; first and last point of each line. {'; '.join(ends)}."


def heat_map(
    id: str,
    source: Sequence[str],
    target: Sequence[str],
    weights: Sequence[Sequence[float]],
    replaced: Sequence[int],
    caption: str = "",
) -> Optional[Picture]:
    """Attention weights (target words x source words) as squares, the darker the larger; None without words."""
    if not source or not target:
        return None
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        figure = Figure(figsize=(CELL * len(source) / 72, CELL * len(target) / 72), dpi=72)
        axes = figure.add_axes([0, 0, 1, 1])  # words stand outside; saving makes room for them
        cells = [(i, j, min(w, 1.0)) for j, row in enumerate(weights) for i, w in enumerate(row) if w >= FAINT]
        squares = [[(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)] for i, j, _ in cells]
        faces = [to_rgba(light("heat"), round(weight, 2)) for _, _, weight in cells]
        axes.add_collection(PolyCollection(squares, facecolors=faces, linewidths=0))
        axes.set_xlim(0, len(source))
        axes.set_ylim(len(target), 0)
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color(light("rule"))
        axes.xaxis.tick_top()
        axes.set_xticks([i + 0.5 for i in range(len(source))], [cut(word, 24) for word in source], rotation=90)
        marked = [cut(word, 24) + (" *" if j in replaced else "") for j, word in enumerate(target)]
        axes.set_yticks([j + 0.5 for j in range(len(target))], marked)
        axes.tick_params(length=0, labelcolor=light("ink"))
        for j in replaced:
            axes.get_yticklabels()[j].set_color(light("mark"))
            axes.get_yticklabels()[j].set_fontweight("bold")
    words = f"{len(target)} target words by {len(source)} source words"
    said = f"Attention weights, {words}. The table below says the same."
    return Picture(id, figure, said, scales=False, caption=caption)
