"""Collects the entries of a lexicon, millions at a time, and keeps the best of each source word.

An entry is a source word (or several, parted by blanks), a target word and ln p(target | source). Words are objects,
entries are rows of arrays; memory is bounded by what is kept.
"""

from collections import Counter, defaultdict
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

BLOCK = 8_000_000  # entries that may wait before the best are picked


class Numbering(defaultdict):
    """Gives each new word the next number."""

    def __init__(self):
        super().__init__(self.__len__)

    def of(self, words: Sequence[bytes]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, words), np.int32, len(words))


class Entries:
    """
    Args:
        most: entries to keep of a source word
        without: words whose entries are not wanted, on either side

    Attributes:
        impossible: how many entries were left out since their probability is 0
    """

    def __init__(self, most: Optional[int] = None, without: Sequence[bytes] = ()):
        self.most, self.impossible = most, 0
        self.sources, self.targets = Numbering(), Numbering()
        self._unwanted = len(without)
        for numbering in (self.sources, self.targets):
            numbering.of(without)
        self._blocks: List[Tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._waiting, self._limit = 0, BLOCK

    def add(self, sources: Sequence[bytes], targets: Sequence[bytes], scores: np.ndarray) -> None:
        """More entries: words, and ln p of each; those of probability 0 are left out."""
        block = self.sources.of(sources), self.targets.of(targets), scores
        wanted = (block[0] >= self._unwanted) & (block[1] >= self._unwanted)
        possible = np.isfinite(scores)
        self.impossible += int(np.count_nonzero(wanted & ~possible))
        wanted &= possible
        self._blocks.append(block if wanted.all() else tuple(column[wanted] for column in block))
        self._waiting += len(scores)
        if self._waiting > self._limit:
            self._limit = BLOCK + 2 * len(self.best()[0])

    def best(self) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Source numbers, target numbers and scores (entries each): by source word, the most likely first."""
        if not self._blocks:
            self._blocks = [(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float64))]
        source, target, score = (np.concatenate(parts) for parts in zip(*self._blocks))
        # the same pair twice: the more likely counts. A stable sort keeps the order of appearance among equals.
        order = np.lexsort((-score, target, source))
        source, target, score = source[order], target[order], score[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        source, target, score = source[first], target[first], score[first]
        order = np.lexsort((-score, source))
        source, target, score = source[order], target[order], score[order]
        if self.most is not None:
            kept = rank_in_group(source) < self.most
            source, target, score = source[kept], target[kept], score[kept]
        self._blocks, self._waiting = [(source, target, score)], len(source)
        return source, target, score


def rank_in_group(groups: np.ndarray) -> np.ndarray:
    """For a sorted array: how many equal values stand before each."""
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]]) if len(groups) else np.zeros(0, np.int64)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.r_[starts, len(groups)]))


def arrange(
    entries: Entries, target_counts: Optional[Dict[bytes, int]] = None
) -> Tuple[List[bytes], List[bytes], np.ndarray, np.ndarray, np.ndarray]:
    """Source words in alphabetical order; target words by frequency where it is known, else as they came.

    Returns: source words, target words, entry starts (source words + 1), target numbers and scores (entries each).
    """
    source, target, score = entries.best()
    words = list(entries.sources)
    alphabetical = sorted(np.unique(source).tolist(), key=words.__getitem__)
    place_of = np.zeros(len(words), dtype=np.int64)
    place_of[alphabetical] = np.arange(len(alphabetical))
    order = np.argsort(place_of[source], kind="stable")
    counts = np.bincount(place_of[source], minlength=len(alphabetical)) if len(source) else np.zeros(0, np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    used = np.zeros(len(entries.targets), dtype=bool)
    used[target] = True
    target_words = [word for word, kept in zip(entries.targets, used.tolist()) if kept]
    numbers = np.cumsum(used) - 1
    if target_counts is not None:  # all words of the corpus, also those without an entry
        used_words, counts = target_words, Counter(dict.fromkeys(target_words, 0))
        counts.update(target_counts)
        target_words = sorted(counts, key=lambda word: (-counts[word], word))
        number_of = {word: number for number, word in enumerate(target_words)}
        numbers = np.fromiter(map(number_of.__getitem__, used_words), np.int64, len(used_words))[numbers]
    return [words[i] for i in alphabetical], target_words, starts, numbers[target[order]].astype(np.int32), score[order]
