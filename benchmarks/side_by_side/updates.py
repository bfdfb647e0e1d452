"""An update with very many words: ours, fairseq's softmaxes, torch's, and the least that it can cost.

    python -m side_by_side.updates --out rows.json          # from the folder benchmarks
    python -m side_by_side.updates --quick
    python -m side_by_side.updates --words 150000 --archs transformer --source text.en --target text.de

Each way of training is a process of its own with one thread, of which the processor's time counts. They take turns:
in each, all train on the same sentences, about --tokens target tokens. Dictionaries are filled up with words that never
occur. Ours includes its swaps, in proportion. A way that takes longer than --row-seconds for its turns gets fewer of
them. Those that do not fit into memory together are measured one group after the other, ours beside each; of what ours
took in a turn the median counts.
"""

import argparse
import contextlib
import itertools
import logging
import shutil
import statistics
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import torch
import torch._dynamo  # noqa: F401  every optimiser wants it: imported once for all processes
from one_update import ARCHS, DIM, OWN, AdaptiveRun, Run, binarise, demo_text, joined, with_pages

import lv_fairseq
from lv_fairseq.processes import signals_as_exit
from side_by_side.beside import Beside, EndedError
from side_by_side.rows import PRODUCTS, Row, Rows, parse, section_parser
from side_by_side.ways import SCORES, CrossEntropyRun, GatheredRun, LinearCrossEntropyRun, ProductsRun, parts

WORDS, QUICK_WORDS = [15_000, 50_000, 150_000, 500_000, 1_000_000], [15_000, 150_000]
PAIRS, QUICK_PAIRS = 40_000, 10_000  # of the demo's text the latter are two partitions
TOKENS, QUICK_TOKENS = 2_000, 1_000
GB = 1 << 30
ALONE = "its matrix products alone"
OTHERWISE = 1.0  # GB of a process besides what grows with the words
FEW, SHORT = 8, 0.3  # sentences of a first update; seconds that it takes if a whole one may follow before turns count


@dataclass
class Way:
    """
    Args:
        name: of the system
        make: data and arguments to a `Run`
        copies: of the model's word tables that are in memory
        scores: bytes, for each of a part's scores
        floor: has as many words as a page, not all
        draws: takes the sentences that come next, which are ours, since it has pages
    """

    name: str
    make: Callable[[Path, argparse.Namespace], Run]
    copies: float = 0.0
    scores: int = 0
    ours: bool = False
    peer: bool = False
    floor: bool = False
    draws: bool = False

    def gigabytes(self, args: argparse.Namespace) -> float:
        tables = 4 * DIM * args.size * (1 if joined(args) else 3)
        return OTHERWISE + (self.copies * tables + self.scores * min(SCORES / 4, args.tokens * args.size)) / GB

    def exists(self, args: argparse.Namespace) -> bool:
        return not self.floor or args.size > args.tau  # else it is ours


def ways(args: argparse.Namespace) -> List[Way]:
    """Ours first. An optimiser that steps along all rows has values, gradients and two statistics of each; statistics
    of rows that are never used take no memory."""
    adaptive = 4.2 if joined(args) else 2.9  # no table of scores
    return [
        Way(f"lv_fairseq, tau {args.tau:,}", with_pages, 1.5, ours=True, draws=True),
        Way(f"a vocabulary of {args.tau:,} words", lambda data, args: Run(data, args, *OWN), floor=True),
        Way(ALONE, partial(with_pages, run=ProductsRun), 1.5, draws=True),
        Way("gathered rows, SparseAdam", GatheredRun, 3.3, peer=True),
        Way(
            "fairseq, adaptive_loss",
            lambda data, args: AdaptiveRun(data, args, "--criterion", "cross_entropy"),
            adaptive,
            peer=True,
        ),
        Way("torch, linear_cross_entropy", LinearCrossEntropyRun, 5.0, peer=True),
        Way("fairseq, cross_entropy", CrossEntropyRun, 4.0, scores=16, peer=True),
    ]


@dataclass
class Measured:
    """Of a way: seconds of each turn, other figures, a swap's part of an update, and why it was given up."""

    seconds: List[float] = field(default_factory=list)
    more: Dict[str, float] = field(default_factory=dict)
    swap: float = 0.0
    failed: str = ""

    def in_time(self, limit: float) -> bool:
        """Whether there is time for one more turn."""
        return not self.failed and (not self.seconds or sum(self.seconds) + self.seconds[-1] <= limit)

    @contextlib.contextmanager
    def unless_it_ends(self) -> Iterator[None]:
        """Of another way than ours, which the others can go on without."""
        try:
            yield
        except EndedError as error:
            self.failed, self.seconds = f"not measured: {error}", []


def groups(others: List[Way], args: argparse.Namespace, memory: float) -> Iterator[List[Way]]:
    """Ways that fit into so many GB together."""
    group: List[Way] = []
    for way in others:
        if sum(each.gigabytes(args) for each in [*group, way]) > memory:
            yield group
            group = []
        group.append(way)
    yield group


def take_turns(group: List[Way], data: Dict[bool, Path], args: argparse.Namespace) -> List[Measured]:
    """Ours, the first of the group, goes first in each turn and says what the others train on."""
    with contextlib.ExitStack() as stack:
        systems, measured = [], [Measured() for _ in group]
        for way, one in zip(group, measured):
            systems.append(None)
            with contextlib.nullcontext() if way.ours else one.unless_it_ends():
                systems[-1] = Beside(partial(way.make, data[way.floor], args))
                stack.callback(systems[-1].end)
        for turn in range(1 + args.turns):
            taking = [one for one in measured[1:] if one.in_time(args.row_seconds)]
            if len(group) > 1 and not taking and measured[0].seconds:
                break
            sentences, page, seconds = systems[0].ask("update", None)
            measured[0].seconds += [seconds] * (turn > 0)
            for way, system, one in zip(group[1:], systems[1:], measured[1:]):
                if not any(one is each for each in taking):
                    continue
                with one.unless_it_ends():
                    if turn == 0 and not way.draws:
                        *_, seconds = system.ask("update", sentences[:FEW], page)
                        if seconds > SHORT:
                            continue
                    trained, _, seconds = system.ask("update", None if way.draws else sentences, page)
                    assert sorted(trained) == sorted(sentences)
                    one.seconds += [seconds] * (turn > 0)
        for system, one in zip(systems, measured):
            if not one.failed:
                one.more, one.swap = system.ask("sizes"), system.ask("swap_seconds")
    return measured


def measure(data: Dict[bool, Path], args: argparse.Namespace) -> Iterator[Row]:
    """Rows of one model and one number of words."""
    ours, *others = [way for way in ways(args) if way.exists(args)]
    tokens = f", {args.tokens:,} tokens" if args.tokens != TOKENS else ""  # the page's first lines say what is usual
    here = dict(table=f"an update of {args.arch}{tokens}", setting=f"{args.size:,} words", unit="s")
    if ours.gigabytes(args) > args.memory:
        yield Row(system=ours.name, ours=True, note=too_large(ours, args), **here)
        return
    room = args.memory - ours.gigabytes(args)
    fitting = [way for way in others if way.gigabytes(args) <= room]
    beside: List[Measured] = []
    found: Dict[str, Measured] = {}
    row = Row(system=ours.name, ours=True, **here)
    for group in groups(fitting, args, room):
        first, *rest = take_turns([ours, *group], data, args)
        beside.append(first)
        found.update({way.name: one for way, one in zip(group, rest)})
        fill(row, beside, found)  # again, if it was handed over already
        if len(beside) == 1:
            yield row
        for way, one in zip(group, rest):
            more = {} if way.draws else one.more
            yield Row(system=way.name, peer=way.peer, turns=one.seconds, more=more, note=note(way, one, args), **here)
    for way in others:
        if way not in fitting:
            yield Row(system=way.name, peer=way.peer, note=too_large(way, args), **here)


def fill(row: Row, beside: List[Measured], found: Dict[str, Measured]) -> None:
    """Our row, from what is measured so far: of all groups the median of each turn."""
    swap = statistics.median(one.swap for one in beside)
    most = max(len(one.seconds) for one in beside)
    row.turns = [
        swap + statistics.median(one.seconds[turn] for one in beside if turn < len(one.seconds)) for turn in range(most)
    ]
    row.more = beside[0].more
    share = 100 * swap / statistics.median(row.turns)
    row.note = f"{share:.2f} % is swaps" if swap else "no swaps: one page holds all words of the text"
    if ALONE in found:
        share = statistics.median(its / mine for mine, its in zip(row.turns, found[ALONE].seconds))
        row.more = {**row.more, PRODUCTS: round(100 * share, 1)}


def note(way: Way, one: Measured, args: argparse.Namespace) -> str:
    notes = []
    if way.scores and parts(args.tokens, args.size) > 1:
        notes.append(f"in {parts(args.tokens, args.size)} parts, for its scores to fit into memory")
    notes.append(one.failed)
    return ", ".join(filter(None, notes))


def too_large(way: Way, args: argparse.Namespace) -> str:
    return f"not measured: it takes about {way.gigabytes(args):.0f} GB, and ours beside it; --memory {args.memory:.0f}"


def available() -> float:
    """GB of memory that nobody uses, with some left over."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return 0.8 * kilobytes / (1 << 20)


def parse_args(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = section_parser(__doc__)
    parser.add_argument("--archs", nargs="+", choices=ARCHS, help="(default: both, with --quick rnnsearch_small)")
    parser.add_argument(
        "--words", nargs="+", type=int, metavar="N", help="sizes of the vocabularies (15,000 to 1,000,000)"
    )
    parser.add_argument("--tau", type=int, default=15_000, help="target words of a partition (default: 15,000)")
    parser.add_argument("--tokens", type=int, help="target tokens of an update (default: 2,000, with --quick 1,000)")
    parser.add_argument("--pairs", type=int, help=f"sentence pairs to take (default: {PAIRS:,})")
    text = "a way that would take longer in all its turns gets fewer, at least one (default: 60)"
    parser.add_argument("--row-seconds", type=float, default=60.0, help=text)
    parser.add_argument("--memory", type=float, help="GB that may be used at a time (default: what is free)")
    args = parse(parser, argv)
    args.archs = args.archs or (["rnnsearch_small"] if args.quick else list(ARCHS))
    args.words = args.words or (QUICK_WORDS if args.quick else WORDS)
    args.pairs = args.pairs or (QUICK_PAIRS if args.quick else PAIRS)
    args.tokens = args.tokens or (QUICK_TOKENS if args.quick else TOKENS)
    args.memory = args.memory or available()
    return args


@signals_as_exit()
def main(argv: Optional[List[str]] = None) -> None:
    args = parse_args(argv)
    torch.set_num_threads(1)
    lv_fairseq.register()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # of fairseq and torch to each other
    rows = Rows(args.out)
    rows.versions = {
        "torch": torch.__version__,
        "fairseq": version("fairseq-fixed"),
        "lv_fairseq": lv_fairseq.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if args.source is None:
            args.source, args.target = demo_text(args.pairs, folder / "demo")
        for arch, size in itertools.product(args.archs, args.words):
            here = argparse.Namespace(**{**vars(args), "arch": arch, "size": size})
            data = {floor: binarise(here, args.tau if floor else size, folder / str(floor)) for floor in (True, False)}
            for row in measure(data, here):
                rows.add(row)
            for floor in data:
                shutil.rmtree(folder / str(floor))
    rows.close()


if __name__ == "__main__":
    sys.exit(main())
