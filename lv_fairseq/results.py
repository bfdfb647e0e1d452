"""What travels as data: the line that decoding ends with, and the schema of ``results.json``, which
``scripts/run_experiment.py`` writes and ``lv-report`` reads. Any part of the file may be missing."""

import json
import re
from typing import Any, Dict, List, Optional, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

Number = Optional[float]

# The most that a page shows of each: lv-report refuses more, and an experiment that would give more does not begin.
SYSTEMS, COMPARISONS, SEEDS, CURVES = 100, 200, 50, 1000
GRID_POINTS, LISTS, TAUS = 400, 1000, 50
TIMES, RARE, CLAIMS, PICTURES = 100, 100, 200, 100
OUTPUTS = 2000  # of all systems and lists, seeds and sets: each is scored again


class Decoding(TypedDict, total=False):
    """What decoding did; None for what it was not asked to do."""

    sentences: Number
    mean_list: Number  # words of a candidate list
    expanded: Number  # sentences decoded again with longer lists
    list_seconds: Number
    search_seconds: Number
    unknown: Number  # words
    replaced: Number  # of these
    ms_per_word: Number


class Names(TypedDict, total=False):
    """Source words outside the dictionary."""

    wanted: Number  # that the reference has
    arrived: Number  # of these, that the output has


class Output(TypedDict, total=False):
    """What a system made of a set of sentences."""

    hypotheses: str  # a file, as all names of files relative to the folder
    bleu: Number
    interval: Number
    signature: str  # of sacrebleu
    chrf: Number
    tokenised_bleu: Number
    names: Names
    replaced: Dict[str, List[str]]  # words in the place of unknown ones, by number of the sentence, from 0
    ms_per_word: Number
    seconds: Number
    decoding: Decoding


class Training(TypedDict, total=False):
    seconds: Number
    updates: Number


class SeedOutputs(TypedDict, total=False):
    """The same system, trained with one seed of several."""

    seed: Number
    dev: Output
    test: Output


class Spread(TypedDict, total=False):
    """BLEU over seeds; the standard deviation of single trainings, estimated from these (n - 1)."""

    count: Number
    mean: Number
    spread: Number


class OverSeeds(TypedDict, total=False):
    dev: Spread
    test: Spread


class System(TypedDict, total=False):
    id: str
    name: str
    note: str
    against: List[str]  # systems before it that it is compared with
    checkpoints: List[str]
    dev: Output  # with the first seed
    test: Output
    seeds: List[SeedOutputs]  # all of them, if there are several
    over_seeds: OverSeeds
    decoding: Decoding
    training: Training


class Side(TypedDict, total=False):
    tokens: Number
    types: Number
    coverage: Dict[str, Number]  # share of the tokens, by number of most frequent words


class Corpus(TypedDict, total=False):
    pairs: Number
    source: Side
    target: Side


class Text(TypedDict, total=False):
    source: str
    reference: str
    tokenised_source: str


class Texts(TypedDict, total=False):
    dev: Text
    test: Text


GridPoint = TypedDict(
    "GridPoint",
    {
        "tau": Number,
        "K": int,
        "K'": int,
        "bleu": Number,
        "interval": Number,
        "sentences": Number,
        "mean_list": Number,
        "coverage": Number,
    },
    total=False,
)


ListPoint = TypedDict(  # the paper's analysis: BLEU by tau, K and K', unknown words replaced
    "ListPoint",
    {
        "id": str,
        "tau": int,
        "K": int,
        "K'": int,
        "mean_list": Number,
        "seeds": List[SeedOutputs],
        "over_seeds": OverSeeds,
    },
    total=False,
)


class DecodingTime(TypedDict, total=False):
    """What a word takes with nothing beside."""

    id: str
    name: str
    threads: Number
    ms_per_word: Number
    mean_list: Number
    bleu: Number


class Band(TypedDict, total=False):
    """Words of the test set's references that were seen about equally often in training."""

    least: Number  # occurrences
    most: Number  # None: and more
    wanted: Number  # that the references have
    arrived: List[int]  # of these, that the output of each seed has


class RareWords(TypedDict, total=False):
    system: str
    bands: List[Band]


class Claim(TypedDict, total=False):
    """BLEU of ``more``, added up, should be above that of ``less``, or not below: ids of systems or of lists."""

    claim: str
    paper: str  # what it found
    expected: str
    more: List[str]
    less: List[str]


class CurvePoint(TypedDict, total=False):
    seconds: Number
    updates: Number
    bits: Number  # a word, on the development set
    training_bits: Number  # the same on the training text as it goes by, over the words of its partition
    bleu: Number


class Curve(TypedDict, total=False):
    system: str
    name: str
    seed: Number
    points: List[CurvePoint]


class Attention(TypedDict, total=False):
    system: str
    sentence: Number  # its number, from 0: systems are shown together
    source: List[str]
    target: List[str]
    weights: List[List[float]]  # target words x source words
    replaced: List[int]  # places of target words


class Results(TypedDict, total=False):
    name: str
    signature: Dict[str, Any]
    corpus: Corpus
    texts: Texts
    systems: List[System]
    grid: List[GridPoint]
    curves: List[Curve]
    attention: List[Attention]
    lists: List[ListPoint]
    times: List[DecodingTime]
    rare_words: List[RareWords]
    claims: List[Claim]
    seconds: Dict[str, Number]  # that stages took, by their kind


def inside(kind: Any, name: Any) -> Any:
    """The kind of what is inside an object or a list; a KeyError for a name that the schema does not have."""
    if is_typeddict(kind):
        return get_type_hints(kind)[name]
    return get_args(kind)[-1] if get_origin(kind) in (dict, list) else Any


def check(value: Any, kind: Any = Results, place: str = "results") -> None:
    """Refuse to write what the schema does not have."""
    kinds = {dict: dict, list: list}.get(get_origin(kind), dict if is_typeddict(kind) else None)
    if kinds is None:
        allowed = get_args(kind) or (kind,)
        if kind is not Any and not isinstance(value, (*allowed, int) if float in allowed else allowed):
            raise TypeError(f"{place} must be {kind}, not {value!r}")
        return
    if not isinstance(value, kinds):
        raise TypeError(f"{place} must be a {kinds.__name__}, not {value!r}")
    for name, part in value.items() if kinds is dict else enumerate(value):
        check(part, inside(kind, name), f"{place}.{name}")


def line_of(figures: Decoding) -> str:
    """The line that decoding ends with, after the sentence for people."""
    return json.dumps({"lv_fairseq": figures})


def in_output(text: str) -> Decoding:
    """What the last such line of a command's output says; nothing if there is none."""
    found = re.findall(r'^\{"lv_fairseq": .*\}$', text, re.MULTILINE)
    return json.loads(found[-1])["lv_fairseq"] if found else {}
