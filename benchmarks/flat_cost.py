"""The cost of an update with a very large vocabulary, against a small one and against fairseq's own softmaxes.

    python benchmarks/flat_cost.py                                      # text of the demo's made-up languages
    python benchmarks/flat_cost.py --source text.en --target text.de    # any tokenised parallel text
    python benchmarks/flat_cost.py --arch transformer --rows pages      # one table for both languages

Every row trains the same model of 256 dims with Adam and clipping through fairseq's own trainer, about 2,000 target
tokens an update: `rnnsearch_small`, or a transformer of 3 + 3 layers with --share-all-embeddings. The dictionaries are
filled up with words that never occur: it is the size of the tables that counts. Each row is measured in turns with the
small vocabulary and on the same sentences, so that a noisy machine slows both: the ratio is the median of that of each
turn. Swaps are added to the update as often as the partitions ask for. With OMP_NUM_THREADS=1 the processor's time
counts, which other work on the machine disturbs less. The full softmax gets its 2,000 tokens in four parts, since its
scores alone would not fit into memory otherwise. The spread is that of the middle half of the turns, the last column
the largest memory of the process up to then.

The page of a joined table holds the words of both languages, tau together, of which the target words are scored. The
small vocabulary is of both languages together too.
"""

import argparse
import logging
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Optional, Sequence

import torch
from one_update import ARCHS, OWN, UNMEASURED, AdaptiveRun, Run, binarise, demo_text, with_pages

import lv_fairseq

COLUMNS = {"": 34, "s/update": 10, "spread": 8, "ratio": 8, "swap s": 8, "swap %": 8, "MB trained": 12, "peak GB": 9}
ROWS = {
    "pages": ("{words:,} words, tau {tau:,}", with_pages),
    "adaptive": (
        "{words:,} words, adaptive_loss",
        lambda data, args: AdaptiveRun(data, args, "--criterion", "cross_entropy"),
    ),
    "full": (
        "{words:,} words, cross_entropy",
        lambda data, args: Run(data, args, "--criterion", "cross_entropy", parts=4),
    ),
}


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHS, default="rnnsearch_small")
    parser.add_argument("--source", type=Path, help="tokenised source text (default: the demo corpus)")
    parser.add_argument("--target", type=Path, help="tokenised target text (default: the demo corpus)")
    parser.add_argument("--pairs", type=int, default=200_000, help="sentence pairs to take (default: 200,000)")
    parser.add_argument("--words", type=int, default=500_000, help="size of the vocabularies (default: 500,000)")
    parser.add_argument("--tau", type=int, default=15_000, help="target words of a partition (default: 15,000)")
    parser.add_argument("--tokens", type=int, default=2000, help="target tokens of an update (default: 2,000)")
    parser.add_argument("--turns", type=int, default=15, help="updates to measure of pages (default: 15; others: 3)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="what to measure (default: all)")
    args = parser.parse_args(argv)
    if (args.source is None) != (args.target is None):
        parser.error("--source and --target go together")
    return args


def ratios(run: Run, other: Run) -> Sequence[float]:
    """Of the seconds of updates with the same sentences."""
    return [mine / its for mine, its in zip(run.seconds(), other.seconds())]


def middle_half(numbers: Sequence[float]) -> Sequence[float]:
    """Between which two numbers half of them lie."""
    return statistics.quantiles(numbers, n=4)[::2] if len(numbers) > 1 else [*numbers, *numbers]


def show(name: str, run: Run, baseline: Run) -> None:
    seconds, (low, high) = statistics.median(run.seconds()), middle_half(run.seconds())
    figures = {
        "s/update": f"{seconds:.3f}",
        "spread": f"{high - low:.3f}",
        "ratio": f"{statistics.median(ratios(run, baseline)):.2f}",
        "swap s": f"{run.a_swap():.3f}",
        "swap %": f"{100 * run.swap_seconds() / seconds:.2f}",
        "MB trained": f"{run.trained_bytes() / 2**20:.1f}",
        "peak GB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f}",
    }
    print(f"{name:34}" + "".join(f"{figure:>{COLUMNS[column]}}" for column, figure in figures.items()), flush=True)


def compare(run: Run, small: Run) -> None:
    low, high = middle_half(ratios(run, small))
    time, in_bytes = statistics.median(ratios(run, small)), run.trained_bytes() / small.trained_bytes()
    print(f"  {time:.3f} of the time ({low:.3f} to {high:.3f}), {in_bytes:.3f} of the bytes trained")


def measure(run: Run, small: Run, turns: int) -> None:
    """Some updates of each, in turns and with the same sentences."""
    small.updates.clear()
    for _ in range(UNMEASURED + turns):
        small.update(run.update())
    if run.pages is not None:
        run.swap_more()


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    lv_fairseq.register()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if args.source is None:
            args.source, args.target = demo_text(args.pairs, folder / "demo")
        large = binarise(args, args.words, folder / "large")
        small = Run(binarise(args, args.tau, folder / "small"), args, *OWN)
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.arch}, |V| = {args.words:,}")
        print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()))
        for kind in args.rows:
            name, make = ROWS[kind]
            run = make(large, args)
            measure(run, small, args.turns if kind == "pages" else min(args.turns, 3))
            if kind == args.rows[0]:
                show(f"all of {args.tau:,} words", small, small)
            show(name.format(**vars(args)), run, small)
            if kind == "pages":
                compare(run, small)
            del run


if __name__ == "__main__":
    main()
