"""How fast a corpus is cut into partitions, on tokenised text of your own, one sentence a line.

    python benchmarks/partitions.py --source train.src --target train.tgt --tau 15000

Reading the text and numbering its words is not measured. Machines are noisy: the best of all turns counts.
"""

import argparse
import time
from collections import Counter
from typing import Optional, Sequence

import numpy as np

from lv_fairseq.partitions.plan import Sentences, partition

SPECIALS = range(4)  # as in fairseq's dictionaries
END = 2


def read(path: str, lines: int) -> Sentences:
    """The text as fairseq-preprocess would store it: words numbered by frequency, each sentence with its end."""
    with open(path, encoding="utf-8") as file:
        text = [line.split() for _, line in zip(range(lines), file)]
    counts = Counter(word for sentence in text for word in sentence)
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common(), len(SPECIALS))}
    tokens = np.fromiter((i for words in text for i in (*map(numbers.__getitem__, words), END)), dtype=np.uint32)
    return Sentences(tokens, np.cumsum([0, *(len(words) + 1 for words in text)], dtype=np.int64))


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument("--tau", type=int, default=15000, help="(default: 15000)")
    parser.add_argument("--lines", type=int, default=10**9, help="read no more than these (default: all)")
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args(argv)

    target, source = read(args.target, args.lines), read(args.source, args.lines)
    for name, side in ("target", target), ("source", source):
        print(f"{name}: {len(side.lengths):,} sentences, {len(side.tokens):,} tokens, {side.tokens.max() - 3:,} words")
    corpus = np.arange(len(target.lengths))
    orders = {"order of the corpus": corpus, "shuffled": np.random.default_rng(1).permutation(corpus)}
    cases = [(name, sides, order) for name, order in orders.items() for sides in ("target", "target and source")]
    seconds = {case[:2]: [] for case in cases}
    partitions = {}
    for _ in range(args.turns):
        for name, sides, order in cases:
            start = time.perf_counter()
            plan = partition(target, order, args.tau, SPECIALS, source if "source" in sides else None)
            seconds[name, sides].append(time.perf_counter() - start)
            partitions[name, sides] = len(plan)
    print(f"tau {args.tau:,}, numpy {np.__version__}")
    print(f"{'':42}{'partitions':>12}{'seconds':>10}{'million target tokens/s':>26}")
    for case, times in seconds.items():
        speed = len(target.tokens) / min(times) / 1e6
        print(f"{', '.join(case):42}{partitions[case]:12,}{min(times):10.2f}{speed:26.1f}")


if __name__ == "__main__":
    main()
