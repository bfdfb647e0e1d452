"""What ``results.json`` says beyond the table, checked: BLEU by candidate list, decoding times, rare words, claims."""

from dataclasses import dataclass
from typing import List, Optional

from lv_fairseq.report.part import Part
from lv_fairseq.report.run_file import RunFile
from lv_fairseq.results import CLAIMS, LISTS, RARE, SEEDS, TAUS, TIMES

BANDS, TERMS = 20, 10
EXPECTED = ("above", "not below")


@dataclass(frozen=True)
class SeedOutput:
    """What a system that was trained with one of several seeds made of a set."""

    hypotheses: Optional[RunFile]
    bleu: Optional[float]
    signature: str
    seed: Optional[float] = None


@dataclass(frozen=True)
class ListPoint:
    """One choice of K and K' for a model that was trained with some tau; outputs of the test set by seed."""

    id: str
    tau: int
    k: int
    per_word: int
    mean_list: Optional[float]
    outputs: List[SeedOutput]


@dataclass(frozen=True)
class DecodingTime:
    name: str
    threads: Optional[float]
    ms_per_word: Optional[float]
    mean_list: Optional[float]
    bleu: Optional[float]


@dataclass(frozen=True)
class Band:
    """Reference words seen from ``least`` to ``most`` times in training: how many, and how many arrived, by seed."""

    least: int
    most: Optional[int]
    wanted: float
    arrived: List[int]


@dataclass(frozen=True)
class RareWords:
    system: str
    bands: List[Band]


@dataclass(frozen=True)
class Claim:
    """The BLEU of ``more``, ids of systems or lists, added up, should be above that of ``less``, or not below."""

    text: str
    paper: str
    expected: str
    more: List[str]
    less: List[str]


def read_seed_outputs(part: Part, which: str) -> List[SeedOutput]:
    """The outputs of each seed for a set."""
    outputs = [(one[which], one["seed"].number()) for one in part.elements(SEEDS) if one[which].value is not None]
    return [
        SeedOutput(one["hypotheses"].run_file(), one["bleu"].number(), one["signature"].text(), seed)
        for one, seed in outputs
    ]


def read_list_points(part: Part) -> List[ListPoint]:
    points = [
        ListPoint(
            point["id"].text(),
            point["tau"].whole_number(),
            point["K"].whole_number(),
            point["K'"].whole_number(),
            point["mean_list"].number(),
            read_seed_outputs(point["seeds"], "test"),
        )
        for point in part.elements(LISTS)
    ]
    if len({point.tau for point in points}) > TAUS:
        raise part.wrong(f"of at most {TAUS:,} different tau")
    return points


def read_times(part: Part) -> List[DecodingTime]:
    numbers = ("threads", "ms_per_word", "mean_list", "bleu")
    return [
        DecodingTime(time["name"].text() or time["id"].text(), *(time[name].number() for name in numbers))
        for time in part.elements(TIMES)
    ]


def read_rare_words(part: Part) -> List[RareWords]:
    return [RareWords(one["system"].text(), read_bands(one["bands"])) for one in part.elements(RARE)]


def read_bands(part: Part) -> List[Band]:
    bands = []
    for band in part.elements(BANDS):
        most = None if band["most"].value is None else band["most"].whole_number()
        arrived = [count.whole_number() for count in band["arrived"].elements(SEEDS)]
        bands.append(Band(band["least"].whole_number(), most, band["wanted"].number() or 0.0, arrived))
    return bands


def read_claims(part: Part) -> List[Claim]:
    return [read_claim(claim) for claim in part.elements(CLAIMS)]


def read_claim(part: Part) -> Claim:
    expected = part["expected"].text("above")
    if expected not in EXPECTED:
        raise part["expected"].wrong(f"one of {', '.join(EXPECTED)}")
    more, less = (part[name].words(TERMS) for name in ("more", "less"))
    return Claim(part["claim"].text(), part["paper"].text(), expected, more, less)
