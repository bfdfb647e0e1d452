"""Counts the words of a text, and what share of it the most frequent ones make up."""

import os
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence

import numpy as np

from lv_fairseq.errors import UserError
from lv_fairseq.files import open_text

BLOCK = 10000  # lines after which words are counted and progress is told


@dataclass(frozen=True)
class TextCounts:
    """How often each word of a text occurs."""

    sentences: int
    tokens: int
    words: Counter = field(repr=False)  # word: how often

    @property
    def types(self) -> int:
        return len(self.words)

    def by_frequency(self) -> List[str]:
        """The words, the most frequent first, equally frequent ones by the alphabet: the order of fairseq's
        dictionaries."""
        return sorted(self.words, key=lambda word: (-self.words[word], word))


def count_words(path: Path, progress: Callable[[float], None] = lambda done: None) -> TextCounts:
    """Count the words of tokenised text. Words are what stands between Unicode white space; only a line feed ends a
    line.

    Args:
        path: UTF-8, one sentence a line
        progress: is told how many more bytes are read
    """
    words: Counter = Counter()
    sentences = 0
    try:
        with open_text(path) as file:
            while block := list(islice(file, BLOCK)):
                words.update(decoded(path, sentences, block).split())
                sentences += len(block)
                progress(sum(map(len, block)))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    if not words:
        raise UserError(f"{path} holds no words" if sentences else f"{path} is empty")
    return TextCounts(sentences, sum(words.values()), words)


def decoded(path: Path, done: int, lines: Sequence[bytes]) -> str:
    try:
        return b"".join(lines).decode()
    except UnicodeDecodeError as error:
        number = done + error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}, line {number}: not UTF-8") from None


def coverage(counts: TextCounts, sizes: Sequence[int], words: Optional[Sequence[str]] = None) -> Dict[int, float]:
    """For each size, the share of the text's tokens that are among so many words.

    Args:
        counts: of the text
        sizes: numbers of words; more than there are means all of them
        words: the most frequent first (default: of the text itself)
    """
    words = counts.by_frequency() if words is None else words
    covered = np.cumsum([0, *(counts.words.get(word, 0) for word in words)])  # by the first 0, 1, 2, ... words
    return {size: float(covered[min(size, len(words))]) / counts.tokens for size in sizes}


def size_of(path: Path) -> int:
    """Bytes of a text, 0 if it comes through a pipe. An error for what cannot be a text."""
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder: name the text files in it")
    return size
