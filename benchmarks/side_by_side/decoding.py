"""Decoding speed beside fairseq alone, Marian and CTranslate2: milliseconds a word.

    make .venv-peers/.installed                        # the other programs, once
    cd benchmarks && python -m side_by_side.decoding   # or: make bench

Models with random weights translate the same sentences in turns, over all words and over candidate lists of the same
K and K'. Ours has --pack-weights, unless its name says without. Random weights do not know when to end: everybody takes
as many steps as a source sentence has words, and one for its end. With one thread the processor's time counts, which
other work on the machine disturbs less; with two the clock. Sentences that are translated one by one also give how long
one takes by the clock: the median and the longest; or, of --latency sentences with lists on one thread, with the middle
one of the beams, what 99 of 100 stay below.

- rnnsearch beside fairseq's lstm and Marian's s2s, of the same embedding and hidden sizes;
- the same with 500,000 words and lists of 15,000 only, beside a model of 15,000 words;
- a transformer with one table for both languages beside fairseq alone and CTranslate2, with the same weights, and
  Marian's.

A setting is left out over all words where hypotheses times words are more than --most: minutes for what nobody runs.
"""

import gc
import itertools
import logging
import math
import statistics
import tempfile
import time
import warnings
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np
import torch

import lv_fairseq
from lv_fairseq import processes
from side_by_side import rows as contract
from side_by_side.families import Family
from side_by_side.peers import PeerError
from side_by_side.rows import PRODUCTS, Row, Rows
from side_by_side.systems import System, Took

FULL = dict(batch=[1, 8, 32], beam=[1, 5, 12], threads=[1, 2], large=500_000, joined=256_000)
FULL.update(seconds=math.inf, latency=100)
QUICK = dict(batch=[1, 8], beam=[5], threads=[1], large=0, joined=32_000, seconds=2.0, latency=0)
LEAST_TURNS = 3
ENOUGH = 100  # sentences, to say what 99 of 100 stay below


class Setting(NamedTuple):
    which: str  # "all words" or "lists"
    batch: int
    beam: int
    threads: int

    def __str__(self) -> str:
        return f"batch {self.batch}, beam {self.beam}, {self.threads} thread{'s' * (self.threads > 1)}, {self.which}"


def parse_args(argv: Optional[Sequence[str]]) -> Namespace:
    parser = contract.section_parser(__doc__)
    add = parser.add_argument
    add("--words", type=int, default=50_000, help="of rnnsearch (50000)")
    add("--frequent", type=int, default=5000, help="K (5000)")
    add("--per-word", type=int, default=10, help="K' (10)")
    add("--large", type=int, help="words of rnnsearch beside a small model; 0: none (500000, with --quick 0)")
    add("--large-frequent", type=int, default=15_000, help="K, and all words of the small model (15000)")
    add("--joined", type=int, help="words of the transformer (256000, with --quick 32000)")
    add("--scale", type=float, default=1.0, help="of the sizes: 620 and 1000 of rnnsearch, 512 and 2048 (1)")
    add("--layers", type=int, default=6, help="of the transformer's encoder and decoder (6)")
    add("--heads", type=int, default=8, help="of its attention (8)")
    add("--batch", type=int, nargs="+", help="sentences that are translated together (1 8 32, with --quick 1 8)")
    add("--beam", type=int, nargs="+", help="(1 5 12, with --quick 5)")
    add("--threads", type=int, nargs="+", choices=[1, 2], help="(1 2, with --quick 1)")
    add("--length", type=int, default=10, help="words of a source sentence (10)")
    add("--sentences", type=int, default=100, help="different ones (100)")
    add("--singles", type=int, default=1, help="sentences a turn where they are translated one by one (1)")
    add("--latency", type=int, help="sentences one by one where 99 of 100 are asked for (100, with --quick 0)")
    add("--most", type=int, default=12_000_000, help="hypotheses times words of a step (12000000)")
    add("--seconds", type=float, help="after which a setting has no fourth turn (no limit, with --quick 2)")
    add("--peers", type=Path, default=contract.PEERS, metavar="DIR", help="their environment (.venv-peers)")
    args = contract.parse(parser, argv)
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


class Turns:
    """What a system has taken in a setting."""

    def __init__(self, system: System, setting: Setting):
        self.system, self.setting = system, setting
        self.figures: List[float] = []  # ms a word, of each turn
        self.seconds: List[float] = []  # of each batch, by the clock
        self.words = self.sentences = 0
        self.differ = 0  # sentences that one that must be right has translated otherwise: last digits differ
        self.failed = ""

    def add(self, took: Sequence[Took]) -> None:
        words = sum(len(mine) for x in took for mine in x.words)
        seconds = sum(x.cpu if self.setting.threads == 1 else x.wall for x in took)
        self.figures.append(1000 * seconds / words)
        self.seconds += [x.wall for x in took]
        self.words += words
        self.sentences += sum(len(x.words) for x in took)

    def row(self, table: str, length: int) -> Row:
        """
        Args:
            length: words that each translation should have, its end included
        """
        system, notes = self.system, [self.failed or self.system.note]
        row = Row(table, str(self.setting), system.name, "ms a word", self.figures, system.ours, system.peer)
        if not self.failed and self.words != length * self.sentences:
            notes.append(f"{self.words / self.sentences:.1f} words a sentence and not {length}")
        if self.differ:
            notes.append(f"{self.differ} of {self.sentences} translations are others without --pack-weights")
        if self.setting.batch == 1 and self.seconds:
            tail = ("p99 ms", 99) if len(self.seconds) >= ENOUGH else ("longest ms", 100)
            row.more = {name: 1000 * float(np.percentile(self.seconds, p)) for name, p in (("p50 ms", 50), tail)}
        row.note = "; ".join(filter(None, notes))
        return row


def measure(systems: List[System], setting: Setting, sentences: List[List[str]], args: Namespace) -> List[Turns]:
    """Some turns of each; before them a sentence that is not counted."""
    found = [Turns(system, setting) for system in systems]
    again, start = itertools.cycle(sentences), time.perf_counter()
    whole = setting == Setting("lists", 1, args.beam[len(args.beam) // 2], 1) and args.latency > 0
    singles = -(-args.latency // args.turns) if whole else args.singles
    for turn in range(-1, args.turns):
        if turn >= LEAST_TURNS and not whole and time.perf_counter() - start > args.seconds:
            break
        batches = [[sentences[0]]]
        if turn >= 0:
            count = singles if setting.batch == 1 else 1
            batches = [list(itertools.islice(again, setting.batch)) for _ in range(count)]
        said: Dict[str, List] = {}
        for mine in found[turn % len(found) :] + found[: turn % len(found)]:
            try:
                if turn < 0:
                    mine.system.search(setting.beam)
                took = [mine.system.translate(batch) for batch in batches] if not mine.failed else []
            except PeerError as error:
                mine.failed, mine.figures, mine.seconds, took = f"absent: {error}", [], [], []
            if took and turn >= 0:
                mine.add(took)
            said[mine.system.name] = [x.words for x in took]
        ours = next(mine for mine in found if mine.system.ours)
        first, *others = [mine.system.name for mine in found if mine.system.same]
        others = [name for name in others if said[name] != said[first]]
        assert not others, f"{others} found something else than {first}"
        if turn >= 0:
            pairs = zip(itertools.chain(*said[ours.system.name]), itertools.chain(*said[first]))
            ours.differ += sum(mine != its for mine, its in pairs)
    return found


def settings(args: Namespace, threads: int, peers: bool) -> List[Setting]:
    sizes = itertools.product(args.batch, args.beam, ("all words", "lists") if peers else ("lists",))
    return [Setting(which, batch, beam, threads) for batch, beam, which in sizes]


def measure_family(family: Family, args: Namespace, rows: Rows) -> None:
    for threads in args.threads:
        torch.set_num_threads(threads)
        with family.with_peers(threads, rows.versions) as systems:
            for setting in settings(args, threads, family.peers):
                alone = setting.batch == 1
                mine = [system for system in systems[setting.which] if not (alone and system.for_batches)]
                if setting.which == "all words" and setting.batch * setting.beam * family.words > args.most:
                    why = "left out: minutes for what nobody runs"
                    rows.add(Row(family.title, str(setting), mine[0].name, "ms a word", ours=True, note=why))
                    continue
                found = measure(mine, setting, family.sentences, args)
                rows.add(*(with_products(turns, family, args) for turns in found))
                for name, why in family.absent[setting.which]:
                    rows.add(Row(family.title, str(setting), name, "ms a word", peer=True, note=why))


def with_products(turns: Turns, family: Family, args: Namespace) -> Row:
    row = turns.row(family.title, args.length + 1)
    if row.ours:
        seconds = statistics.median(turns.seconds)
        batch = list(itertools.islice(itertools.cycle(family.sentences), turns.setting.batch))
        row.more[PRODUCTS] = turns.system.share_of_products(batch, seconds)
    return row


@processes.signals_as_exit()
def main(argv: Optional[List[str]] = None) -> None:
    args = parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lv_fairseq.register()
    rows = Rows(args.out)
    rows.versions.update(torch=torch.__version__, fairseq=version("fairseq-fixed"))
    sizes = [("rnnsearch", args.words, args.frequent, True), ("rnnsearch", args.large, args.large_frequent, False)]
    sizes.append(("transformer", args.joined, args.frequent, True))
    for arch, words, frequent, peers in sizes:
        if words:
            with tempfile.TemporaryDirectory() as folder:
                family = Family(Path(folder) / "family", args, arch, words, frequent, peers)
                measure_family(family, args, rows)
            del family
            gc.collect()
    rows.close()


if __name__ == "__main__":
    main()
