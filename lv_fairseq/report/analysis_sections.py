"""Sections that a report has if the run holds something for them: the paper's claims, and its analysis."""

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from lv_fairseq.report.analysis import Band, ListPoint
from lv_fairseq.report.contrasts import PAIRED, Contrast
from lv_fairseq.report.figures import Line, line_picture
from lv_fairseq.report.markup import tag
from lv_fairseq.report.run import SETS
from lv_fairseq.report.scored_run import SET_NAMES, Results
from lv_fairseq.report.tables import NOTHING, filled_columns, matrix, shown, table


def with_seeds(found: Optional[Contrast]) -> str:
    """How much more BLEU, over how many seeds, and both ways in which chance may have given it."""
    if found is None:
        return NOTHING
    text = f"{found.bleu:+.2f}".replace("-", "\u2212")
    text += f" \u00b1 {found.spread:.2f}" if found.spread is not None else ""
    chances = (("sentences", found.p_sentences), ("seeds", found.p_seeds))
    said = [f"{name} p\u00a0=\u00a0{p:.3f}" for name, p in chances if p is not None]
    said += [found.how] if found.how not in ("", PAIRED) else []
    return text + (f" ({', '.join(said)})" if said else "")


def claims(results: Results) -> Iterator:
    """What the paper found, and whether it comes out here."""
    rows = []
    for one in results.over_seeds.claims:
        figures = [with_seeds(one.contrasts.get(which)) for which in SETS]
        rows.append([one.claim.text, tag("strong", one.verdict), *figures, one.claim.paper or NOTHING])
    if not rows:
        return
    heads = ["Claim", "Verdict", *(SET_NAMES[which].capitalize() for which in SETS), "In the paper (BLEU)"]
    heads, rows = filled_columns(heads, rows)
    yield table("What the paper claims, and what comes out", heads, rows, kind="words")
    yield tag(
        "p",
        "A claim comes out, or does not (its contrary does), on the test set if both chances are below 0.05: that "
        "other sentences (paired bootstrap, of the mean over seeds) and that other trainings (t-test of the "
        "differences of the seeds; \u00b1 is their standard deviation) make a difference as large. What should only "
        "not be below comes out if its mean is not. Of systems with different seeds the second is Welch\u2019s "
        "t-test; where one was trained once and others several times, all of these must say the same in its place. "
        "With one training each, nothing is known of other trainings.",
        class_="quiet",
    )


def list_mean(results: Results, point: ListPoint) -> Optional[float]:
    scored = results.over_seeds.systems.get("test", {}).get(point.id)
    return scored.mean if scored else None


def list_analysis(results: Results) -> Iterator:
    """BLEU against K' for several K, and the grid of tau against K."""
    points = [(point, list_mean(results, point)) for point in results.run.lists]
    known = [(point, bleu) for point, bleu in points if bleu is not None]
    if not known:
        return
    seeds = max(len(point.outputs) for point, _ in known)
    yield tag(
        "p", f"Mean over {seeds} seed{'' if seeds == 1 else 's'}, test set, unknown words replaced.", class_="quiet"
    )
    pictures, tables = [], []
    for tau in sorted({point.tau for point, _ in known}):
        mine = [(point, bleu) for point, bleu in known if point.tau == tau]
        lines = per_word_lines(mine)
        places = [point.per_word for point, _ in mine]
        title = f"BLEU against K', tau {tau:,}"
        id = f"{results.prefix}per-word-{tau}"
        picture = line_picture(id, title, lines, "K' (logarithmic)", f"BLEU, tau {tau:,}", places)
        pictures.append(picture)
        values: Dict[tuple, Optional[float]] = {(point.k, point.per_word): bleu for point, bleu in mine}
        caption = f"BLEU by K (rows) and K' (columns), tau {tau:,}. The best is bold."
        tables.append(matrix(caption, "K", values, "{:.2f}".format, mark_best=True))
    yield [picture for picture in pictures if picture is not None]
    yield from tables
    yield from tau_against_k(known)


def per_word_lines(points: Sequence[Tuple[ListPoint, float]]) -> List[Line]:
    return [
        Line(f"K = {k:,}", sorted((float(point.per_word), bleu) for point, bleu in points if point.k == k))
        for k in sorted({point.k for point, _ in points})
    ]


def tau_against_k(known: Sequence[Tuple[ListPoint, float]]) -> Iterator:
    """For the K' with the best mean over all; nothing with one tau."""
    if len({point.tau for point, _ in known}) < 2:
        return
    by_per_word: Dict[int, List[float]] = {}
    for point, bleu in known:
        by_per_word.setdefault(point.per_word, []).append(bleu)
    best = max(by_per_word, key=lambda x: sum(by_per_word[x]) / len(by_per_word[x]))
    values: Dict[tuple, Optional[float]] = {
        (point.tau, point.k): bleu for point, bleu in known if point.per_word == best
    }
    caption = f"BLEU by tau (rows) and K (columns), K' = {best:,}. The best is bold."
    yield matrix(caption, "tau", values, "{:.2f}".format, mark_best=True)


def decoding_times(results: Results) -> Iterator:
    """Times taken with nothing beside."""
    times = results.run.times
    if not times:
        return
    first = next((time.ms_per_word for time in times if time.ms_per_word), None)
    rows = []
    for time in times:
        ratio = time.ms_per_word / first if time.ms_per_word is not None and first else None
        figures = [shown(time.ms_per_word, "{:,.2f}"), shown(ratio, "{:.2f}"), shown(time.mean_list)]
        rows.append([time.name, *figures, shown(time.bleu, "{:.2f}"), shown(time.threads)])
    heads = ["System", "ms a word", "ratio", "mean list", "BLEU", "threads"]
    yield table("Time a word of the test set takes, loading not counted", *filled_columns(heads, rows), kind="systems")


def band_name(band: Band) -> str:
    if band.most is None:
        return f"more than {band.least - 1:,}"
    return f"{band.least:,}" if band.least == band.most else f"{band.least:,}\u2013{band.most:,}"


def rare_words(results: Results) -> Iterator:
    """Recall of reference words by their frequency in training."""
    names = {system.id: system.name for system in results.run.systems}
    found = [one for one in results.run.rare_words if one.bands]
    if not found:
        return
    heads = ["System", *(f"{band_name(band)}: {band.wanted:,.0f} words" for band in found[0].bands)]
    rows = [[names.get(one.system, one.system), *map(recall, one.bands)] for one in found]
    rows = [[*row, *([NOTHING] * (len(heads) - len(row)))][: len(heads)] for row in rows]
    caption = "Words of the test set's references that arrive, by how often they were seen in training"
    yield table(caption, *filled_columns(heads, rows), kind="systems")


def recall(band: Band) -> str:
    """The share of words that arrive: the mean over seeds, and from the fewest to the most."""
    if not band.wanted or not band.arrived:
        return NOTHING
    mean = sum(band.arrived) / len(band.arrived)
    text = f"{100 * mean / band.wanted:.1f} %"
    low, high = min(band.arrived), max(band.arrived)
    return text + (f" ({low:,}\u2013{high:,})" if low != high else f" ({low:,})")
