"""`Run`: what ``results.json`` of a run folder says, checked. Every part of it may be missing.

A file that no experiment has written must not keep us busy for hours either: what a page cannot show is refused.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from lv_fairseq.errors import UserError
from lv_fairseq.report.analysis import (
    Claim,
    DecodingTime,
    ListPoint,
    RareWords,
    SeedOutput,
    read_claims,
    read_list_points,
    read_rare_words,
    read_seed_outputs,
    read_times,
)
from lv_fairseq.report.part import NAME, Part, clean, measured, read_part, short
from lv_fairseq.report.run_file import RunFile
from lv_fairseq.results import COMPARISONS, CURVES, GRID_POINTS, OUTPUTS, PICTURES, SYSTEMS, TAUS

SETS = ("dev", "test")
SETTINGS = 1000
CURVE_POINTS = 20_000
WORDS, WEIGHTS = 250, 50_000  # of a picture of attention, and weights of all
REPLACED = 10_000  # sentences with replaced words


@dataclass(frozen=True)
class Side:
    """One language of the training text. ``coverage``: share of its tokens by number of most frequent words."""

    tokens: Optional[float]
    types: Optional[float]
    coverage: Dict[int, float]


@dataclass(frozen=True)
class Text:
    """The files of a development or test set."""

    source: Optional[RunFile]
    reference: Optional[RunFile]


@dataclass(frozen=True)
class Names:
    """Source words outside the dictionary that the reference has: how many, and how many of them the output has."""

    wanted: float
    arrived: float


@dataclass(frozen=True)
class Output:
    """What a system made of a set, and what was measured then."""

    hypotheses: Optional[RunFile]
    bleu: Optional[float]
    signature: str
    tokenised_bleu: Optional[float]
    names: Optional[Names]
    replaced: Dict[int, List[str]]  # words that were put in the place of unknown ones, by number of the sentence


@dataclass(frozen=True)
class System:
    id: str
    name: str
    note: str
    outputs: Dict[str, Output]  # by set
    seeds: Dict[str, List[SeedOutput]]  # by set, of systems that were trained several times
    decoding: Dict[str, Optional[float]]
    seconds: Optional[float]  # of training
    updates: Optional[float]


@dataclass(frozen=True)
class GridPoint:
    """One choice of K and K', for the model of some tau; ``coverage`` is the share of reference words in the lists."""

    tau: Optional[float]
    k: int
    per_word: int
    bleu: Optional[float]
    interval: Optional[float]
    sentences: Optional[float]
    mean_list: Optional[float]
    coverage: Optional[float]


@dataclass(frozen=True)
class CurvePoint:
    seconds: Optional[float]
    updates: Optional[float]
    bits: Optional[float]
    bleu: Optional[float]
    training_bits: Optional[float]


@dataclass(frozen=True)
class Curve:
    name: str
    seed: Optional[float]
    points: List[CurvePoint]


@dataclass(frozen=True)
class Attention:
    """One sentence: ``weights`` is target words x source words; ``replaced`` holds places of target words."""

    system: str
    sentence: Optional[float]  # its number, from 0
    source: List[str]
    target: List[str]
    weights: List[List[float]]
    replaced: List[int]


@dataclass(frozen=True)
class Run:
    folder: Path
    name: str
    signature: List[Tuple[str, str]]
    pairs: Optional[float]
    sides: Dict[str, Side]  # "source", "target"
    texts: Dict[str, Text]  # by set
    systems: List[System]
    comparisons: List[Tuple[int, int]]  # numbers of systems: which is tested against which
    grid: List[GridPoint]
    curves: List[Curve]
    attention: List[Attention]
    lists: List[ListPoint]
    times: List[DecodingTime]
    rare_words: List[RareWords]
    claims: List[Claim]
    seconds: Dict[str, float]  # by kind of stage

    def outputs(self) -> List[RunFile]:
        """All that may be scored, in the order of the file; what is named twice is there twice."""
        outputs = [output.hypotheses for system in self.systems for output in system.outputs.values()]
        seeds = [some for system in self.systems for some in system.seeds.values()]
        outputs += [one.hypotheses for some in (*seeds, *(point.outputs for point in self.lists)) for one in some]
        return [file for file in outputs if file is not None]

    def files(self) -> List[Path]:
        """All that is read of the folder."""
        texts = [file for text in self.texts.values() for file in (text.source, text.reference)]
        return [self.folder / NAME, *(file.path for file in (*texts, *self.outputs()) if file is not None)]


def read_run(folder: Path) -> Run:
    """Read and check a run folder's results."""
    folder = Path(folder)
    part = read_part(folder)
    corpus, texts = part["corpus"], part["texts"]
    run = Run(
        folder=folder,
        name=part["name"].text() or clean(folder.resolve().name),
        signature=read_signature(part["signature"]),
        pairs=corpus["pairs"].number(),
        sides={side: read_side(corpus[side]) for side in ("source", "target") if corpus[side].value is not None},
        texts={which: read_text(texts[which]) for which in SETS if texts[which].value is not None},
        systems=[read_system(system, i) for i, system in enumerate(part["systems"].elements(SYSTEMS))],
        comparisons=read_comparisons(part["systems"]),
        grid=read_grid(part["grid"]),
        curves=[read_curve(curve) for curve in part["curves"].elements(CURVES)],
        attention=read_sentences(part["attention"]),
        lists=read_list_points(part["lists"]),
        times=read_times(part["times"]),
        rare_words=read_rare_words(part["rare_words"]),
        claims=read_claims(part["claims"]),
        seconds=read_seconds(part["seconds"]),
    )
    if len(run.outputs()) > OUTPUTS:
        place = clean(str(folder / NAME))
        raise UserError(
            f"{place} names {len(run.outputs()):,} outputs to score, and a page is made of {OUTPUTS:,} at most"
        )
    return run


def read_signature(part: Part) -> List[Tuple[str, str]]:
    settings = list(itertools.islice(part.flat(), SETTINGS + 1))
    if len(settings) > SETTINGS:
        raise part.wrong(f"of at most {SETTINGS:,} settings")
    return settings


def read_seconds(part: Part) -> Dict[str, float]:
    found = {short(name): value.number() for name, value in part.items()}
    if len(found) > SETTINGS:
        raise part.wrong(f"of at most {SETTINGS:,} kinds of stages")
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def read_text(part: Part) -> Text:
    return Text(part["source"].run_file(), part["reference"].run_file())


def read_side(part: Part) -> Side:
    coverage = {}
    for name, share in part["coverage"].items():
        if not (name.isascii() and name.isdigit()):
            raise Part(name, share.place, part.file).wrong("named by a number of words")
        words = measured(int(name)) if len(name) < 20 else None
        if words is not None and share.number() is not None:
            coverage[int(words)] = share.number()
    if len(coverage) > SETTINGS:
        raise part["coverage"].wrong(f"of at most {SETTINGS:,} numbers")
    return Side(part["tokens"].number(), part["types"].number(), dict(sorted(coverage.items())))


def read_system(part: Part, number: int) -> System:
    name = part["name"].text() or part["id"].text() or f"system {number + 1}"
    outputs = {which: read_output(part[which]) for which in SETS if part[which].value is not None}
    training = part["training"]
    return System(
        id=part["id"].text(),
        name=name,
        note=part["note"].text(),
        outputs=outputs,
        seeds={which: read_seed_outputs(part["seeds"], which) for which in SETS if part["seeds"].value},
        decoding={clean(name): value.number() for name, value in part["decoding"].items()},
        seconds=training["seconds"].number(),
        updates=training["updates"].number(),
    )


def read_comparisons(systems: Part) -> List[Tuple[int, int]]:
    """A system is compared with those that it names, or with the first one."""
    pairs, ids = [], []
    for i, system in enumerate(systems.elements(SYSTEMS)):
        for other in system["against"].elements(COMPARISONS):
            if other.text() not in ids:
                raise other.wrong("the id of a system before this one")
            pairs.append((i, ids.index(other.text())))
        if i and system["against"].value is None:
            pairs.append((i, 0))
        ids.append(system["id"].text())
    if len(pairs) > COMPARISONS:
        raise systems.wrong(f"compared with one another at most {COMPARISONS:,} times")
    return pairs


def read_output(part: Part) -> Output:
    return Output(
        part["hypotheses"].run_file(),
        part["bleu"].number(),
        part["signature"].text(),
        part["tokenised_bleu"].number(),
        read_names(part["names"]),
        read_replaced(part["replaced"]),
    )


def read_names(part: Part) -> Optional[Names]:
    wanted, arrived = part["wanted"].number(), part["arrived"].number()
    return Names(wanted, arrived) if wanted is not None and arrived is not None else None


def read_replaced(part: Part) -> Dict[int, List[str]]:
    found = {}
    for name, words in part.items():
        if not (name.isascii() and name.isdigit() and len(name) < 20):
            raise Part(name, words.place, part.file).wrong("the number of a sentence")
        found[int(name)] = words.words(WORDS)
    if len(found) > REPLACED:
        raise part.wrong(f"of at most {REPLACED:,} sentences")
    return found


def read_grid(part: Part) -> List[GridPoint]:
    points = [read_grid_point(point) for point in part.elements(GRID_POINTS)]
    if len({point.tau for point in points}) > TAUS:
        raise part.wrong(f"of at most {TAUS:,} different tau")
    return points


def read_grid_point(part: Part) -> GridPoint:
    return GridPoint(
        part["tau"].number(),
        part["K"].whole_number(),
        part["K'"].whole_number(),
        part["bleu"].number(),
        part["interval"].number(),
        part["sentences"].number(),
        part["mean_list"].number(),
        part["coverage"].number(),
    )


def read_curve(part: Part) -> Curve:
    names = ("seconds", "updates", "bits", "bleu", "training_bits")
    points = [CurvePoint(*(p[name].number() for name in names)) for p in part["points"].elements(CURVE_POINTS)]
    return Curve(part["name"].text() or part["system"].text() or "a system", part["seed"].number(), points)


def read_sentences(part: Part) -> List[Attention]:
    sentences = [read_attention(sentence) for sentence in part.elements(PICTURES)]
    if sum(len(sentence.source) * len(sentence.target) for sentence in sentences) > WEIGHTS:
        raise part.wrong(f"of at most {WEIGHTS:,} weights")
    return sentences


def read_attention(part: Part) -> Attention:
    source, target = part["source"].words(WORDS), part["target"].words(WORDS)
    rows = [row.elements(WORDS) for row in part["weights"].elements(WORDS)]
    if len(rows) != len(target) or any(len(row) != len(source) for row in rows):
        shape = f"{len(target)} rows (target words) of {len(source)} numbers (source words)"
        raise part["weights"].wrong(shape)
    weights = [[weight.number() or 0.0 for weight in row] for row in rows]
    replaced = sorted({place.whole_number() for place in part["replaced"].elements(WORDS)})
    if any(place >= len(target) for place in replaced):
        raise part["replaced"].wrong(f"places of the {len(target)} target words")
    return Attention(part["system"].text(), part["sentence"].number(), source, target, weights, replaced)
