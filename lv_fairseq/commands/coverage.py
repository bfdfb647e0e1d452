"""``lv-coverage``: the paper's coverage table for any tokenised text."""

import argparse
import sys
from pathlib import Path
from typing import List, Optional, Sequence

from lv_fairseq.corpus_coverage.counting import TextCounts, count_words, coverage, size_of
from lv_fairseq.errors import command
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.progress import stage

PAPER = "15000,30000,50000,500000"


def sizes(text: str) -> List[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 16 and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of sizes such as 15000,30000")
    return sorted(set(map(int, parts)))


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-coverage",
        description="Shows what share of a text its most frequent words make up, for several sizes of vocabulary: how "
        "much a vocabulary of that size would lose.",
    )
    add = parser.add_argument
    add("texts", type=Path, nargs="+", metavar="TEXT", help="tokenised text, UTF-8, one sentence a line")
    add("--sizes", type=sizes, default=PAPER, metavar="N,N,...", help="sizes of vocabulary (default: %(default)s)")
    add(
        "--words-of",
        type=Path,
        metavar="TEXT",
        help="take the most frequent words of this text, for example the training text, and measure every TEXT by "
        "them (default: each text by its own words)",
    )
    return parser.parse_args(argv)


def count(path: Path) -> TextCounts:
    with stage(f"counting {path}", size_of(path), "B") as progress:
        return count_words(path, progress)


def column(path: Path, counts: TextCounts, sizes: Sequence[int], words: Optional[Sequence[str]]) -> List[str]:
    """What is to be said of one text, from the top of the table to its end."""
    everything = sys.maxsize
    shares = coverage(counts, [*sizes, everything], words)
    numbers = [f"{number:,}" for number in (counts.sentences, counts.tokens, counts.types)]
    return [str(path), *numbers, *(f"{100 * share:.2f} %" for share in shares.values())]


def table(columns: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for first, *others in zip(*columns):
        lines.append("  ".join([first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(others, widths[1:]))]))
    return "\n".join(lines)


def show(args: argparse.Namespace) -> None:
    for path in args.texts:  # before minutes of counting
        size_of(path)
    words = None if args.words_of is None else count(args.words_of).by_frequency()
    first = ["", "sentences", "tokens", "types", *(f"{size:,} words" for size in args.sizes), "all words"]
    print(table([first, *(column(path, count(path), args.sizes, words) for path in args.texts)]))
    whose = "its own text" if args.words_of is None else f"{args.words_of} ({len(words):,} types)"
    print(f"\n%: tokens that are among so many most frequent words of {whose}")


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    with printing():
        show(args)


if __name__ == "__main__":
    main()
