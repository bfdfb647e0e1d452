"""`Run`: what ``results.json`` of a run folder says, checked. Every part of it may be missing."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from lv_fairseq.errors import UserError

NAME = "results.json"
SETS = ("dev", "test")
BEYOND = 1e15


@dataclass(frozen=True)
class Side:
    """One language of the training text. ``coverage``: share of its tokens by number of most frequent words."""

    tokens: Optional[float]
    types: Optional[float]
    coverage: Dict[int, float]


@dataclass(frozen=True)
class Text:
    """The files of a development or test set."""

    source: Optional[Path]
    reference: Optional[Path]


@dataclass(frozen=True)
class Output:
    """What a system made of a set, and what was measured then."""

    hypotheses: Optional[Path]
    bleu: Optional[float]
    signature: str
    tokenised_bleu: Optional[float]


@dataclass(frozen=True)
class System:
    id: str
    name: str
    note: str
    outputs: Dict[str, Output]  # by set
    decoding: Dict[str, Optional[float]]
    seconds: Optional[float]  # of training
    updates: Optional[float]


@dataclass(frozen=True)
class GridPoint:
    """One choice of K and K'; ``coverage`` is the share of reference words in the candidate lists."""

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


@dataclass(frozen=True)
class Curve:
    name: str
    points: List[CurvePoint]


@dataclass(frozen=True)
class Attention:
    """One sentence: ``weights`` is target words x source words; ``replaced`` holds places of target words."""

    system: str
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


def clean(text: str) -> str:
    """Text that any font and encoder takes: no control characters, no halves of surrogate pairs."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


class Part:
    """A value of the JSON file and where it stands, so that an error can say what is wrong where."""

    def __init__(self, value: Any, place: str, file: Path):
        self.value, self.place, self.file = value, place, file

    def wrong(self, expected: str) -> UserError:
        shown = repr(self.value)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        return UserError(f"{self.file}: {self.place or 'the whole'} must be {expected}, not {clean(shown)}")

    def items(self) -> Iterator[Tuple[str, "Part"]]:
        """The fields of an object; none if it is missing."""
        if not isinstance(self.value, (dict, type(None))):
            raise self.wrong("an object")
        for name in self.value or {}:
            yield name, self[name]

    def __getitem__(self, name: str) -> "Part":
        if not isinstance(self.value, (dict, type(None))):
            raise self.wrong("an object")
        return Part((self.value or {}).get(name), f"{self.place}.{name}" if self.place else name, self.file)

    def __iter__(self) -> Iterator["Part"]:
        """The elements of a list; none if it is missing."""
        if not isinstance(self.value, (list, type(None))):
            raise self.wrong("a list")
        return (Part(value, f"{self.place}[{i}]", self.file) for i, value in enumerate(self.value or []))

    def number(self) -> Optional[float]:
        """None if it is missing or nothing that was measured: not finite, or beyond all measure."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.wrong("a number")
        return float(self.value) if abs(self.value) < BEYOND else None  # NaN is not less

    def whole_number(self) -> int:
        number = self.number()
        if number is None or number != int(number) or number < 0:
            raise self.wrong("a whole number")
        return int(number)

    def text(self, default: str = "") -> str:
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return clean(self.value)

    def path(self) -> Optional[Path]:
        """Relative to the folder of the run."""
        text = self.text()
        return self.file.parent / text if text else None

    def words(self) -> List[str]:
        return [part.text() for part in self]

    def flat(self, prefix: str = "") -> Iterator[Tuple[str, str]]:
        """Names and values of an object, also of the objects in it."""
        for name, part in self.items():
            if isinstance(part.value, dict):
                yield from part.flat(f"{clean(name)}: ")
            elif part.value is not None:
                number = isinstance(part.value, (int, float)) and not isinstance(part.value, bool)
                shown = thousands(part.value) if number else clean(str(part.value))
                yield prefix + clean(name), shown


def thousands(number: float) -> str:
    whole = isinstance(number, int) or number.is_integer()
    return f"{int(number):,}" if whole and abs(number) < 1e15 else f"{number:.6g}"


def read_run(folder: Path) -> Run:
    """Read and check a run folder's results."""
    file = Path(folder) / NAME
    part = Part(parsed(file), "", file)
    corpus = part["corpus"]
    return Run(
        folder=Path(folder),
        name=part["name"].text() or clean(Path(folder).resolve().name),
        signature=list(part["signature"].flat()),
        pairs=corpus["pairs"].number(),
        sides={side: read_side(corpus[side]) for side in ("source", "target") if corpus[side].value is not None},
        texts={name: Text(text["source"].path(), text["reference"].path()) for name, text in part["texts"].items()},
        systems=[read_system(system, i) for i, system in enumerate(part["systems"])],
        comparisons=list(read_comparisons(part["systems"])),
        grid=[read_grid_point(point) for point in part["grid"]],
        curves=[read_curve(curve) for curve in part["curves"]],
        attention=[read_attention(sentence) for sentence in part["attention"]],
    )


def parsed(file: Path) -> Dict:
    try:
        value = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        when = "scripts/run_experiment.py writes it when all is done"
        raise UserError(f"{file.parent} is no run folder: there is no {NAME} in it ({when})") from None
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is damaged, make it again: {clean(str(error))}") from None
    if not isinstance(value, dict):
        raise Part(value, "", file).wrong("an object")
    return value


def read_side(part: Part) -> Side:
    coverage = {}
    for name, share in part["coverage"].items():
        if not (name.isascii() and name.isdigit()):
            raise Part(name, share.place, part.file).wrong("named by a number of words")
        if share.number() is not None:
            coverage[int(name[:15])] = share.number()
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
        decoding={clean(name): value.number() for name, value in part["decoding"].items()},
        seconds=training["seconds"].number(),
        updates=training["updates"].number(),
    )


def read_comparisons(systems: Part) -> Iterator[Tuple[int, int]]:
    """A system is compared with those that it names, or with the first one."""
    ids = [system["id"].text() for system in systems]
    for i, system in enumerate(systems):
        for other in system["against"] if system["against"].value is not None else []:
            if other.text() not in ids[:i]:
                raise other.wrong("the id of a system before this one")
            yield i, ids.index(other.text())
        if i and system["against"].value is None:
            yield i, 0


def read_output(part: Part) -> Output:
    return Output(
        part["hypotheses"].path(), part["bleu"].number(), part["signature"].text(), part["tokenised_bleu"].number()
    )


def read_grid_point(part: Part) -> GridPoint:
    return GridPoint(
        part["K"].whole_number(),
        part["K'"].whole_number(),
        part["bleu"].number(),
        part["interval"].number(),
        part["sentences"].number(),
        part["mean_list"].number(),
        part["coverage"].number(),
    )


def read_curve(part: Part) -> Curve:
    points = [
        CurvePoint(*(p[name].number() for name in ("seconds", "updates", "bits", "bleu"))) for p in part["points"]
    ]
    return Curve(part["name"].text() or part["system"].text() or "a system", points)


def read_attention(part: Part) -> Attention:
    source, target = part["source"].words(), part["target"].words()
    weights = [[weight.number() or 0.0 for weight in row] for row in part["weights"]]
    if len(weights) != len(target) or any(len(row) != len(source) for row in weights):
        shape = f"{len(target)} rows (target words) of {len(source)} numbers (source words)"
        raise part["weights"].wrong(shape)
    replaced = [place.whole_number() for place in part["replaced"]]
    if any(not 0 <= place < len(target) for place in replaced):
        raise part["replaced"].wrong(f"places of the {len(target)} target words")
    return Attention(part["system"].text(), source, target, weights, replaced)
