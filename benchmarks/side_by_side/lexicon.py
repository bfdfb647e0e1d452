"""What comes before training, by the million tokens: aligning the words of a text for its lexicon, and cutting it into
partitions; each beside a bare minimum, reading the same once.

    python -m side_by_side.lexicon --source text.en --target text.de

In one direction an aligner makes five passes and writes its whole table; eflomal can only align in both, and so ours
does too where it is compared with it. Tokens are those of both sides for an aligner, those of the target side for
partitions.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

import numpy as np

from lv_fairseq.alignment import Aligner, align, find_aligner, write_corpus
from lv_fairseq.alignment.program import built_in, eflomal
from lv_fairseq.errors import UserError
from lv_fairseq.partitions import Sentences, partition
from lv_fairseq.processes import signals_as_exit
from side_by_side.rows import Row, Rows, parse, section_parser

DEMO = Path(__file__).resolve().parents[2] / "scripts" / "demo_corpus.py"
FULL_PAIRS, QUICK_PAIRS = 100_000, 5_000
TAU, SPECIALS, END = 15_000, range(4), 2  # special symbols as in fairseq's dictionaries
WAYS = {"one direction": ("none", "fast_align"), "both directions": ("intersection", "eflomal")}
UNIT, OURS = "s a million tokens", "lv_fairseq, built-in aligner"


@signals_as_exit()
def main(argv: Optional[List[str]] = None) -> None:
    parser = section_parser(__doc__)
    parser.add_argument(
        "--pairs", type=int, metavar="N", help=f"of the text (default: {FULL_PAIRS:,}, with --quick {QUICK_PAIRS:,})"
    )
    args = parse(parser, argv)
    args.pairs = args.pairs or (QUICK_PAIRS if args.quick else FULL_PAIRS)
    rows = Rows(args.out)
    rows.versions["numpy"] = np.__version__
    with tempfile.TemporaryDirectory() as folder:
        sides = first_lines(args, Path(folder))
        aligners(args, rows, sides, Path(folder))
        partitions(args, rows, sides[1])
    rows.close()


def first_lines(args: argparse.Namespace, folder: Path) -> Tuple[Path, Path]:
    """Copies of the first pairs of the text, or of the demo's."""
    given = args.source, args.target
    if args.source is None:
        numbers = ["--pairs", args.pairs, "--valid", 0, "--test", 0]
        subprocess.run(
            list(map(str, [sys.executable, DEMO, "--out", folder, *numbers])), check=True, stdout=subprocess.DEVNULL
        )
        given = folder / "train.src", folder / "train.tgt"
    copies = folder / "source", folder / "target"
    for path, copy in zip(given, copies):
        with open(path, "rb") as text, open(copy, "wb") as out:
            out.writelines(itertools.islice(text, args.pairs))
    return copies


# --- aligners ---


def aligners(args: argparse.Namespace, rows: Rows, sides: Tuple[Path, Path], folder: Path) -> None:
    corpus, table = folder / "corpus", folder / "table"
    counts = write_corpus(*sides, corpus, skip_bad_lines=True)
    million = (counts.source_tokens + counts.target_tokens) / 1e6
    known, absent = peers()
    systems: Dict[Tuple[str, str], Callable[[], object]] = {}  # (setting, system): what it does
    for threads, (way, (method, peer)) in itertools.product((1, 2), WAYS.items()):
        setting = f"{counts.pairs:,} pairs, {way}, {threads} thread{'s' * (threads > 1)}"
        for system, aligner in {OURS: built_in(), **known}.items():
            if system in (OURS, peer):
                systems[setting, system] = partial(align, aligner, corpus, table, folder, method, threads=threads)
        if method == "none" and threads == 1:
            systems[setting, "bare minimum: lines read and split"] = partial(read_and_split, corpus)
    times = in_turns(systems, args.turns, million)
    for setting in dict.fromkeys(setting for setting, _ in systems):
        for system in [system for other, system in systems if other == setting]:
            rows.add(aligner_row(setting, system, times[setting, system]))
        others = [peer for way, (_, peer) in WAYS.items() if f" {way}, " in setting and peer in absent]
        rows.add(*(aligner_row(setting, peer, [], f"absent: {absent[peer]}") for peer in others))


def peers() -> Tuple[Dict[str, Aligner], Dict[str, str]]:
    """Those that are here; of others, why they are not."""
    known, absent = {}, {}
    for name, find in {"fast_align": partial(find_aligner, None, "fast_align"), "eflomal": eflomal}.items():
        try:
            known[name] = find()
        except UserError as error:
            absent[name] = "not on the PATH" if name == "fast_align" else str(error).partition(":")[0]
    return known, absent


def aligner_row(setting: str, system: str, turns: List[float], note: str = "") -> Row:
    peer = system in ("fast_align", "eflomal")
    return Row("aligning words", setting, system, UNIT, turns, ours=system == OURS, peer=peer, note=note)


def read_and_split(corpus: Path) -> int:
    with open(corpus, "rb") as file:
        return sum(len(line.split()) for line in file)


# --- partitions ---


def partitions(args: argparse.Namespace, rows: Rows, path: Path) -> None:
    target = numbered(path)
    corpus = np.arange(len(target.lengths))
    orders = {"order of the corpus": corpus, "shuffled": np.random.default_rng(1).permutation(corpus)}
    ours, bare = "lv_fairseq, partition", "bare minimum: np.bincount over its word numbers"
    systems: Dict[Tuple[str, str], Callable[[], object]] = {}
    for name, order in orders.items():
        setting = f"{len(corpus):,} sentences, tau {TAU:,}, {name}"
        systems[setting, ours] = lambda order=order: partition(target, order, TAU, SPECIALS)
        systems[setting, bare] = lambda: np.bincount(target.tokens)
    times = in_turns(systems, args.turns, len(target.tokens) / 1e6)
    for setting, system in systems:
        rows.add(Row("cutting a text into partitions", setting, system, UNIT, times[setting, system], system == ours))


def numbered(path: Path) -> Sentences:
    """The text as fairseq-preprocess would store it: words numbered by frequency, each sentence with its end."""
    with open(path, encoding="utf-8", newline="\n") as file:
        text = [line.split() for line in file]
    counts = Counter(itertools.chain.from_iterable(text))
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common(), len(SPECIALS))}
    tokens = np.fromiter((i for words in text for i in (*map(numbers.__getitem__, words), END)), dtype=np.uint32)
    return Sentences(tokens, np.cumsum([0, *(len(words) + 1 for words in text)], dtype=np.int64))


def in_turns(systems: Dict, turns: int, million: float) -> Dict[Tuple[str, str], List[float]]:
    """Seconds a million tokens of each system, of each turn."""
    times = {system: [] for system in systems}
    for _ in range(turns):
        for system, work in systems.items():
            start = time.perf_counter()
            work()
            times[system].append((time.perf_counter() - start) / million)
    return times


if __name__ == "__main__":
    main()
