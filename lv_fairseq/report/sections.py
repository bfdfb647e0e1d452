"""What is in the sections of a report. Each is made of what the run holds, and says so if that is nothing."""

from collections import Counter
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from lv_fairseq.report import analysis_sections
from lv_fairseq.report.analysis_sections import with_seeds
from lv_fairseq.report.contrasts import SeedScores
from lv_fairseq.report.differences import SHORT, Sentence, bare, words_outside
from lv_fairseq.report.drawing import svg
from lv_fairseq.report.figures import Line, Picture, heat_map, line_picture
from lv_fairseq.report.markup import Html, join, tag
from lv_fairseq.report.part import measured
from lv_fairseq.report.run import SETS, Attention, GridPoint, Names, Run
from lv_fairseq.report.scored_run import SET_NAMES, OverSeeds, Results, Section
from lv_fairseq.report.scores import Difference, Scored, SetScores
from lv_fairseq.report.tables import NOTHING, duration, filled_columns, marked, matrix, shown, table

PERCENT = "{:.1f} %"


def best(run: Run, scores: Dict[str, SetScores]) -> Optional[Tuple[str, int, Scored]]:
    """Set, number and score of the best system: on the test set if there is one."""
    for which in reversed(SETS):
        known = [(i, scored) for i, scored in enumerate(scores[which].systems) if scored.bleu is not None]
        if known:
            return (which, *max(known, key=lambda pair: pair[1].bleu))
    return None


def with_interval(scored: Scored) -> str:
    if scored.bleu is None:
        return NOTHING
    return f"{scored.bleu:.2f}" + (f" \u00b1 {scored.interval:.2f}" if scored.interval is not None else "")


def compared(difference: Optional[Difference]) -> str:
    """How much more BLEU, and how likely chance alone gives as much."""
    if difference is None:
        return NOTHING
    if difference.same_output:
        return "same output"
    more = f"{difference.bleu:+.2f}".replace("-", "\u2212")
    return more + (f" (p\u00a0=\u00a0{difference.p_value:.3f})" if difference.p_value is not None else "")


def summary(results: Results) -> Iterator:
    run = results.run
    count = len(run.systems)
    what = f"{count} system{'' if count == 1 else 's'}" if count else "No systems"
    yield tag("p", f"{what}, trained on {run.pairs:,.0f} sentence pairs." if run.pairs is not None else f"{what}.")
    top = best(run, results.scores)
    if top is not None and count > 1:
        which, i, scored = top
        first = results.scores[which].systems[0].bleu
        difference = Difference(scored.bleu - first) if i and first is not None else None
        against = f", {compared(difference)} against {run.systems[0].name}" if difference else ""
        name = tag("strong", run.systems[i].name)
        yield tag("p", f"Best on the {SET_NAMES[which]}: ", name, f" with {with_interval(scored)} BLEU{against}.")
    elif top is not None:
        which, i, scored = top
        yield tag("p", f"{run.systems[i].name} has {with_interval(scored)} BLEU on the {SET_NAMES[which]}.")
    rows = [
        [system.name, system.note or NOTHING, duration(system.seconds), shown(system.updates)] for system in run.systems
    ]
    if rows:
        heads, rows = filled_columns(["System", "What it is", "Training time", "Updates"], rows)
        if len(heads) > 1:
            yield table("Systems", heads, rows, kind="words")
    if run.seconds:
        spent = [[name, duration(seconds)] for name, seconds in run.seconds.items()]
        yield table("Time that stages took, one after the other", ["Stages", "Time"], spent)
    if run.signature:
        yield table("Settings and versions (signature)", ["Setting", "Value"], run.signature, kind="words")
    else:
        yield "results.json has no signature: with which settings these figures were made is not known."


def coverage(results: Results) -> Iterator:
    sides = results.run.sides
    sizes = sorted({size for side in sides.values() for size in side.coverage})
    percent = lambda share: shown(None if share is None else 100 * share, PERCENT)
    rows = [[f"{size:,} words", *(percent(side.coverage.get(size)) for side in sides.values())] for size in sizes]
    if not rows:
        yield "results.json has no coverage of the training text."
    totals = [(name, [shown(getattr(side, name)) for side in sides.values()]) for name in ("tokens", "types")]
    rows += [[f"all: {name}", *cells] for name, cells in totals if set(cells) != {NOTHING}]
    if sides and rows:
        heads = ["Vocabulary", *(name.capitalize() for name in sides)]
        yield table("Tokens of the training text that are among the most frequent words", heads, rows)


def bleu(results: Results) -> Iterator:
    run, scores = results.run, results.scores
    if not run.systems:
        yield "results.json has no systems."
        return
    tables = [quality(run, which, scores[which], results.over_seeds) for which in SETS]
    tables = [one for one in tables if one is not None]
    if not tables:
        yield "There is neither a score nor an output that could be scored."
    else:
        yield tag("div", *tables, class_="beside")
        yield from differences(run, scores)
        yield from differences_over_seeds(run, results.over_seeds)
        yield tag(
            "p",
            "BLEU is by sacrebleu, of detokenised text unless its signature says tok:none; tokenised BLEU is the "
            "paper\u2019s measure and depends on the tokeniser: compare it with nothing else. Names are source words "
            "outside the dictionary of all words that the reference has too, and how many of them the output has.",
            class_="quiet",
        )
    signatures = {which: scores[which].signatures for which in SETS if scores[which].signatures}
    for signature in sorted({one for some in signatures.values() for one in some}):
        where = ", ".join(which for which, some in signatures.items() if signature in some)
        yield tag("p", f"Signature ({where}): ", tag("code", signature), class_="quiet")
    for which in SETS:
        yield from scores[which].notes
    yield from results.over_seeds.notes


def mean_of(seeds: Optional[SeedScores]) -> str:
    """BLEU over seeds, with the standard deviation of single trainings."""
    return f"{seeds.mean:.2f} \u00b1 {seeds.spread:.2f} ({len(seeds.scores)})" if seeds else NOTHING


def quality(run: Run, which: str, scores: SetScores, over: OverSeeds) -> Optional[Html]:
    """BLEU, of the first seed and over all, tokenised BLEU and names of all systems on one set."""
    outputs = [system.outputs.get(which) for system in run.systems]
    tokenised = [output.tokenised_bleu if output else None for output in outputs]
    names = [output.names if output else None for output in outputs]
    seeds = [over.several(which, system.id) for system in run.systems]
    columns = [
        [system.name for system in run.systems],
        mark([scored.bleu for scored in scores.systems], [with_interval(scored) for scored in scores.systems]),
        mark([one and one.mean for one in seeds], [mean_of(one) for one in seeds]),
        mark(tokenised, [shown(value, "{:.2f}") for value in tokenised]),
        mark([one and one.arrived for one in names], list(map(arrived, names))),
    ]
    heads, rows = filled_columns(["System", "BLEU", "mean of seeds", "tokenised BLEU", "names"], list(zip(*columns)))
    if len(heads) == 1:
        return None
    caption = f"{SET_NAMES[which].capitalize()}. {'The best of a column is bold.' if len(rows) > 1 else ''}"
    return table(caption.strip(), heads, rows, kind="systems")


def arrived(names: Optional[Names]) -> str:
    return f"{names.arrived:,.0f} of {names.wanted:,.0f}" if names else NOTHING


def differences(run: Run, scores: Dict[str, SetScores]) -> Iterator[Html]:
    """Which system is better than which, and how sure that is."""
    rows = []
    for pair in run.comparisons:
        names = join((tag("span", run.systems[i].name, class_="name") for i in pair), " against ")
        rows.append([names, *(compared(scores[which].differences.get(pair)) for which in SETS)])
    heads, rows = filled_columns(["Systems", *(SET_NAMES[which].capitalize() for which in SETS)], rows)
    if len(heads) == 1:
        return
    yield table("Differences of BLEU", heads, rows, kind="pairs")
    yield tag(
        "p",
        "p is the probability that chance alone makes a difference as large (paired bootstrap); below 0.05 a "
        "difference is usually called significant.",
        class_="quiet",
    )


def differences_over_seeds(run: Run, over: OverSeeds) -> Iterator[Html]:
    """The same of the means of systems that were trained several times."""
    rows = []
    for pair in run.comparisons:
        names = join((tag("span", run.systems[i].name, class_="name") for i in pair), " against ")
        rows.append([names, *(with_seeds(over.pairs.get(which, {}).get(pair)) for which in SETS)])
    heads, rows = filled_columns(["Systems", *(SET_NAMES[which].capitalize() for which in SETS)], rows)
    if len(heads) == 1:
        return
    yield table("Differences of mean BLEU over all seeds", heads, rows, kind="pairs")
    yield tag(
        "p",
        "\u00b1 is the standard deviation of single trainings, of systems or of their differences. Chance comes in "
        "twice: other sentences (paired bootstrap, of the mean over seeds) and other trainings (t-test of the seeds, "
        "which is Welch\u2019s if these are not the same ones; of a system that was trained once, whether every "
        "training of the other says so).",
        class_="quiet",
    )


def mark(values: Sequence[Optional[float]], texts: Sequence[str]) -> list:
    """The texts, that of the largest value marked if there are several."""
    known = [value for value in values if value is not None]
    return [marked(text, len(known) > 1 and value == max(known)) for value, text in zip(values, texts)]


def grid_lines(grid: Sequence[GridPoint], x: str, y: str, scale: float = 1) -> List[Line]:
    lines = []
    for k in sorted({point.k for point in grid}):
        points = [(getattr(point, x), getattr(point, y)) for point in grid if point.k == k]
        known = sorted((a, b * scale) for a, b in points if a is not None and b is not None)
        lines.append(Line(f"K = {k:,}", known))
    return lines


def grid_bleu(results: Results) -> Iterator:
    grid = [point for point in results.run.grid if point.bleu is not None]
    if not grid:
        yield "results.json has no BLEU for several K and K'."
        return
    by_tau = sorted({point.tau for point in grid}, key=lambda tau: tau or 0)
    for tau in by_tau:
        mine, of = [point for point in grid if point.tau == tau], f", tau {tau or 0:,.0f}" if len(by_tau) > 1 else ""
        places, lines = [point.per_word for point in mine], grid_lines(mine, "per_word", "bleu")
        id = f"{results.prefix}grid-bleu" + (f"-{tau or 0:.0f}" if of else "")
        yield line_picture(id, f"BLEU by K and K'{of}", lines, "K' (logarithmic)", f"BLEU{of}", places)
        values = {(point.k, point.per_word): point.bleu for point in mine}
        caption = f"BLEU by K (rows) and K' (columns){of}. The best is bold."
        yield matrix(caption, "K", values, "{:.2f}".format, mark_best=True)
    sentences = {point.sentences for point in grid if point.sentences is not None}
    interval = max((point.interval for point in grid if point.interval is not None), default=None)
    if len(sentences) == 1 and interval is not None:
        yield tag(
            "p",
            f"On {sentences.pop():,.0f} sentences of the development set, where chance alone could move each figure by "
            f"up to \u00b1 {interval:.2f} (95 % confidence); they move together, since the sentences are the same.",
            class_="quiet",
        )


def decoding_time(results: Results) -> Iterator:
    systems = [system for system in results.run.systems if any(x is not None for x in system.decoding.values())]
    yield from analysis_sections.decoding_times(results)
    if not systems and not results.run.times:
        yield "results.json has no decoding times."
    if not systems:
        return
    first = systems[0].decoding.get("ms_per_word")
    rows = []
    for system in systems:
        find = system.decoding.get
        time = find("ms_per_word")
        ratio = measured(time / first) if time is not None and first else None
        counts = [shown(find(name)) for name in ("mean_list", "unknown", "replaced", "expanded")]
        rows.append([system.name, shown(time, "{:,.1f}"), shown(ratio, "{:.2f}"), *counts])
    names = ["System", "ms a word", "ratio", "mean list", "unknown words", "replaced", "lists enlarged"]
    yield table("Decoding time, and what was decoded with", *filled_columns(names, rows), kind="systems")


def learning_curves(results: Results) -> Iterator:
    everything = results.run.curves
    curves = [curve for curve in everything if curve.seed == everything[0].seed]  # a picture has room for one seed
    longest = max((p.seconds for curve in curves for p in curve.points if p.seconds is not None), default=0)
    unit, seconds = ("hours", 3600) if longest >= 2 * 3600 else ("minutes", 60)

    def lines(x: str, y: str, divisor: float = 1) -> List[Line]:
        pairs = [(curve.name, [(getattr(p, x), getattr(p, y)) for p in curve.points]) for curve in curves]
        found = [
            Line(name, sorted((a / divisor, b) for a, b in points if a is not None and b is not None))
            for name, points in pairs
        ]
        return found if any(len(line.points) > 1 for line in found) else []  # points alone are in the table

    time, bits = f"{unit} of training", "bits a word"
    pictures = [
        line_picture(f"{results.prefix}curves-time", "Learning curves", lines("seconds", "bits", seconds), time, bits),
        line_picture(f"{results.prefix}curves-updates", "Learning curves", lines("updates", "bits"), "updates", bits),
        line_picture(f"{results.prefix}curves-bleu", "BLEU", lines("seconds", "bleu", seconds), time, "BLEU"),
        line_picture(
            f"{results.prefix}curves-training",
            "Learning curves of the training text",
            lines("seconds", "training_bits", seconds),
            time,
            f"{bits}, training text",
        ),
    ]
    pictures = [picture for picture in pictures if picture is not None]
    if not pictures:
        yield "results.json has no learning curves."
        return
    yield pictures
    ends = [(curve.name, [point for point in curve.points if point.bits is not None][-1:]) for curve in everything]
    rows = [[name, shown(end.updates), shown(end.bits, "{:.2f}")] for name, points in ends for end in points]
    if rows:
        yield table("The last point of each", ["System", "updates", bits], rows, kind="systems")


def candidate_lists(results: Results) -> Iterator:
    grid = results.run.grid
    grid = [point for point in grid if point.tau == grid[0].tau]  # lists are the same for all tau
    covered = {(p.k, p.per_word): p.coverage for p in grid if p.coverage is not None}
    lengths = {(p.k, p.per_word): p.mean_list for p in grid if p.mean_list is not None}
    if covered:
        lines = grid_lines(grid, "per_word", "coverage", 100)
        title, y = "Reference words on the lists by K and K'", "reference words covered, %"
        places = [per_word for _, per_word in covered]
        yield line_picture(f"{results.prefix}lists", title, lines, "K' (logarithmic)", y, places)
        show = lambda share: PERCENT.format(100 * share)
        yield matrix("Reference words on the lists, by K (rows) and K' (columns)", "K", covered, show)
    if lengths:
        yield matrix("Mean length of a list, by K (rows) and K' (columns)", "K", lengths, "{:,.0f}".format)
    if not covered and not lengths:
        yield "results.json has no candidate lists for several K and K'."


def attention(results: Results) -> Iterator:
    names = {system.id: system.name for system in results.run.systems}
    drawn = 0
    for group in same_sentence(results.run.attention):
        pictures, tables = [], []
        for one in group:
            caption = names.get(one.system, one.system)
            if one.replaced:
                caption += f" (* replaced: {', '.join(one.target[place] for place in one.replaced)})"
            id = f"{results.prefix}attention-{drawn + len(pictures) + 1}"
            picture = heat_map(id, one.source, one.target, one.weights, one.replaced, caption.strip())
            if picture is not None:
                pictures.append(picture)
                tables.append(strongest(one, names.get(one.system, one.system)))
        if pictures:
            drawn += len(pictures)
            number = group[0].sentence
            yield tag("h4", "A sentence" if number is None else f"Sentence {number + 1:,.0f}")
            yield pictures
            yield tag("details", tag("summary", "As tables" if len(tables) > 1 else "As a table"), *tables)
    if not drawn:
        yield "results.json has no attention weights."


def same_sentence(everything: Sequence[Attention]) -> List[List[Attention]]:
    """Pictures of one sentence together, in the order of the first of each."""
    groups: Dict = {}
    for i, one in enumerate(everything):
        groups.setdefault(f"picture {i}" if one.sentence is None else one.sentence, []).append(one)
    return list(groups.values())


def strongest(sentence: Attention, system: str) -> Html:
    """The source word that each target word looked at most."""
    rows = []
    for i, (word, weights) in enumerate(zip(sentence.target, sentence.weights)):
        place = max(range(len(weights)), key=weights.__getitem__)
        star = " *" if i in sentence.replaced else ""
        rows.append([word + star, sentence.source[place], f"{weights[place]:.2f}"])
    heads = ["Target word", "Source word", "Weight"]
    caption = "The source word with the largest weight for each target word"
    return table(f"{system}. {caption}" if system else caption, heads, rows, kind="words")


def side_by_side(results: Results) -> Iterator:
    if results.differing_set is None:
        yield "There are no outputs of two systems to compare."
        return
    if not results.differing:
        yield "The systems do not differ on any sentence."
        return
    count = len(results.differing)
    yield tag(
        "p",
        f"{count} sentence{'' if count == 1 else 's'} of the {SET_NAMES[results.differing_set]}, the largest "
        f"difference of sentence chrF first, but references of fewer than {SHORT} words last. chrF counts common "
        "letter sequences, from 0 to 100; it stands after the systems.",
        class_="quiet",
    )
    scores = results.scores[results.differing_set]
    for sentence in results.differing:
        yield compared_outputs(results.run, results.differing_set, scores, sentence)


def compared_outputs(run: Run, which: str, scores: SetScores, sentence: Sentence) -> Html:
    reference = scores.references[sentence.number]
    rows = [("Source", scores.sources[sentence.number])] if scores.sources else []
    rows.append(("Reference", reference))
    systems: Dict[Tuple, List[int]] = {}  # by what they wrote, and which of it was put in the place of unknown words
    for i in sentence.chrf:
        replaced = run.systems[i].outputs[which].replaced.get(sentence.number, [])
        systems.setdefault((scores.hypotheses[i][sentence.number], *replaced), []).append(i)
    for (output, *replaced), who in systems.items():
        names = join((tag("span", run.systems[i].name, class_="name") for i in who), ", ")
        chrf = tag("span", f"{sentence.chrf[who[0]]:.0f}", class_="quiet")
        rows.append((join([names, chrf], " "), marked_words(output, reference, replaced) or tag("em", "nothing")))
    inside = [tag("div", tag("dt", name), tag("dd", text)) for name, text in rows]
    return tag("article", tag("h4", f"Sentence {sentence.number + 1:,}"), tag("dl", *inside), class_="sentence")


def marked_words(output: str, reference: str, replaced: Sequence[str]) -> Html:
    """An output; its words that the reference does not have are underlined, those that were replaced have a star."""
    left, words = Counter(replaced), []
    for word, outside in words_outside(output, reference):
        is_replaced = left[bare(word)] > 0
        left[bare(word)] -= is_replaced
        word = tag("span", word, "*", class_="replaced") if is_replaced else word
        words.append(tag("mark", word) if outside else word)
    return join(words, " ")


def shown_part(part) -> Html:
    """A part of a section as HTML: pictures drawn, plain text as a remark on what is missing."""
    if isinstance(part, (Picture, list)):
        return tag("div", *map(figure, part if isinstance(part, list) else [part]), class_="pictures")
    return part if isinstance(part, Html) else tag("p", part, class_="missing")


def figure(picture: Picture) -> Html:
    caption = [tag("figcaption", picture.caption)] if picture.caption else []
    return tag("figure", *caption, svg(picture), class_=None if picture.scales else "scroll")


def pictures(sections: Sequence[Section]) -> Iterator[Picture]:
    for section in sections:
        for part in section.parts:
            if isinstance(part, Picture):
                yield part
            elif isinstance(part, list):
                yield from part
