"""From two tokenised text files to the one file that fast_align reads: ``a b c ||| x y`` a line."""

import itertools
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Callable, List, Optional

from lv_fairseq.errors import UserError
from lv_fairseq.files import open_text

BLOCK = 10000  # pairs after which words are counted and progress is told


@dataclass(frozen=True)
class CorpusCounts:
    """What was written; ``skipped`` pairs are those left out."""

    pairs: int
    skipped: int
    source_counts: Counter = field(repr=False)  # word: how often
    target_counts: Counter = field(repr=False)

    @property
    def source_tokens(self) -> int:
        return sum(self.source_counts.values())

    @property
    def target_tokens(self) -> int:
        return sum(self.target_counts.values())


def write_corpus(
    source: Path,
    target: Path,
    corpus: Path,
    skip_bad_lines: bool = False,
    progress: Optional[Callable[[float, str], None]] = None,
) -> CorpusCounts:
    """Pair the lines of two files. Words are what fairseq takes for words: what stands between Unicode white space.

    Args:
        source: tokenised text, UTF-8, one sentence a line; only a line feed ends a line
        target: the translations, line by line
        corpus: is written
        skip_bad_lines: leave out pairs of which a side is empty, is not UTF-8 or holds a tab or ``|||``; else such a
            line is an error
        progress: is told now and then which fraction is done, and of what
    """
    counts, pending = (Counter(), Counter()), ([], [])
    pairs = skipped = 0
    with opened(source) as left, opened(target) as right:
        size = max(1, os.fstat(left.fileno()).st_size)
        try:
            with open(corpus, "wb") as out:
                for number, lines in enumerate(itertools.zip_longest(left, right), start=1):
                    if None in lines:
                        raise different_lengths(source, target, number - 1, lines, left, right)
                    try:
                        words = split(source, number, lines[0]), split(target, number, lines[1])
                    except BadLineError as error:
                        if not skip_bad_lines:
                            raise UserError(
                                f"{error}: mend the line, or leave such pairs out with --skip-bad-lines"
                            ) from None
                        skipped += 1
                        continue
                    out.write(f"{' '.join(words[0])} ||| {' '.join(words[1])}\n".encode())
                    pairs += 1
                    for side, some in zip(pending, words):
                        side += some
                    if pairs % BLOCK == 0:
                        count(counts, pending)
                        if progress is not None:
                            progress(min(1.0, left.tell() / size), "reading the corpus")
        except OSError as error:
            raise UserError(f"cannot write {corpus}: {error.strerror}") from None
    count(counts, pending)
    if pairs == 0:
        raise UserError(f"all {skipped} pairs of {source} and {target} are bad" if skipped else f"{source} is empty")
    if progress is not None:
        progress(1.0, "reading the corpus")
    return CorpusCounts(pairs, skipped, *counts)


class BadLineError(ValueError):
    """A line that cannot be part of an aligner's corpus, with its place."""


def split(path: Path, number: int, line: bytes) -> List[str]:
    # fast_align's own separators; fairseq would read a tab as white space, but it mostly shows a file of another kind
    if b"\t" in line:
        raise BadLineError(f"{path}, line {number}: a tab in the text")
    if b"|||" in line:
        raise BadLineError(f"{path}, line {number}: ||| in the text")
    try:
        words = line.decode().split()
    except UnicodeDecodeError as error:
        raise BadLineError(f"{path}, line {number}: not UTF-8 (byte {error.start + 1} of the line)") from None
    if not words:
        raise BadLineError(f"{path}, line {number}: an empty line")
    return words


def count(counts, pending) -> None:
    for counter, words in zip(counts, pending):
        counter.update(words)
        words.clear()


def opened(path: Path) -> BinaryIO:
    try:
        return open_text(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def different_lengths(source: Path, target: Path, both: int, lines, left: BinaryIO, right: BinaryIO) -> UserError:
    """``both`` lines are in both files; one file has ended, ``lines`` holds one more of the other."""
    lengths = [both + (line is not None) + sum(1 for _ in file) for line, file in zip(lines, (left, right))]
    return UserError(
        f"{source} has {lengths[0]:,} lines and {target} has {lengths[1]:,}: line i of one must be the translation of "
        "line i of the other"
    )
