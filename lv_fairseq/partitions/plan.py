"""Which sentences make up a partition, and the words V' of each (section 3.1 of the paper).

The sentences are read in training order. A partition ends before the first sentence that would bring it above tau
different target words, so its updates need no more than tau rows of the target word table. Special symbols do not count
and are in every set. A limit on source words, the same for the other side, is ours. Languages that share one table
share tau too, since it limits the rows of that table: there it counts the words of both.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from lv_fairseq.errors import UserError

MIN_READ = 64  # sentences: fewer at a time cost as much
MAX_READ = 1 << 16  # tokens of both sides: more at a time leave the processor's cache


class Sentences(NamedTuple):
    """One side of a corpus: sentence ``i`` is ``tokens[starts[i] : starts[i + 1]]``."""

    tokens: np.ndarray  # (tokens) word numbers, any integer type
    starts: np.ndarray  # (sentences + 1) int64

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)


@dataclass(frozen=True, eq=False)
class PartitionPlan:
    """Partition ``i`` holds the sentences ``order[bounds[i] : bounds[i + 1]]``; ``len`` is the number of partitions."""

    order: np.ndarray  # sentence numbers in training order
    bounds: np.ndarray  # (partitions + 1) int64
    partition_of: np.ndarray  # (sentences) int32, by sentence number; -1: not in order
    target_words: List[np.ndarray]  # V' of each partition: int64, sorted, with the special symbols
    source_words: Optional[List[np.ndarray]]  # the same for the source side

    def __len__(self) -> int:
        return len(self.bounds) - 1


def partition(
    target: Sentences,
    order: np.ndarray,
    tau: int,
    specials: Sequence[int],
    source: Optional[Sentences] = None,
    source_tau: int = 0,
    progress: Optional[Callable[[int], None]] = None,
    joined: bool = False,
    source_specials: Optional[Sequence[int]] = None,
) -> PartitionPlan:
    """Cut the training order into partitions of at most ``tau`` different target words.

    Args:
        target: the target side of the corpus
        order: sentence numbers in training order; may leave sentences out
        tau: most target words of a partition, special symbols not counted
        specials: word numbers of what is in every partition: special symbols, language tokens
        source: the source side, if its words are wanted
        source_tau: most source words of a partition; 0 = no limit
        progress: is told now and then how many sentences are done
        joined: both sides have the same word numbers, and tau counts the words of both
        source_specials: the same for the source side, if they have other numbers there
    """
    order = np.asarray(order, dtype=np.int64)
    check(target, tau, source, source_tau, joined)
    sides = [Side("target", target, 0 if joined else tau, specials)]
    if source is not None:
        sides.append(Side("source", source, source_tau, specials if source_specials is None else source_specials))
    if joined:
        sides.append(Side("source and target", source, tau, specials, beside=target))

    bounds = np.array(cut(sides, order, progress), dtype=np.int64)
    partition_of = np.full(len(target.starts) - 1, -1, dtype=np.int32)
    partition_of[order] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    return PartitionPlan(order, bounds, partition_of, sides[0].sets, sides[1].sets if source is not None else None)


def cut(sides: Sequence["Side"], order: np.ndarray, progress: Optional[Callable[[int], None]]) -> List[int]:
    """Where partitions begin and end in the training order. Each side keeps the words of each."""
    bounds, done, read = [0], 0, MIN_READ
    while done < len(order):
        ahead = order[done : done + read]
        tokens = np.cumsum(sum(side.lengths(ahead) for side in sides))
        ahead = ahead[: max(1, np.searchsorted(tokens, MAX_READ, "right"))]
        found = [side.new_words(ahead) for side in sides]
        fit = min(side.fitting(counts) for side, (_, counts) in zip(sides, found))
        for side, (words, counts) in zip(sides, found):
            side.add(words[: counts[fit]])
        done += fit
        if fit == len(ahead):
            left = min(side.sentences_left(counts) for side, (_, counts) in zip(sides, found))
        elif done > bounds[-1]:
            left = done - bounds[-1]  # a guess: as many as in the last partition
            bounds.append(done)
            for side in sides:
                side.close()
        else:
            raise too_many_words(sides, order, int(order[done]))
        read = max(MIN_READ, int(min(left, len(order))))
        if progress is not None:
            progress(done)
    if done > bounds[-1]:
        bounds.append(done)
        for side in sides:
            side.close()
    return bounds


def some(sentences: Sentences, numbers: np.ndarray) -> Sentences:
    """These sentences, one after the other."""
    begins, lengths = sentences.starts[numbers], sentences.starts[numbers + 1] - sentences.starts[numbers]
    starts = np.append(0, np.cumsum(lengths))
    if numbers[-1] - numbers[0] == len(numbers) - 1 and np.all(np.diff(numbers) == 1):
        return Sentences(sentences.tokens[begins[0] : begins[0] + starts[-1]], starts)
    places = np.repeat(begins - starts[:-1], lengths)
    places += np.arange(len(places))
    return Sentences(sentences.tokens[places], starts)


def side_by_side(first: Sentences, second: Sentences) -> Sentences:
    """Each sentence of the one, and after it that of the other."""
    tokens = np.empty(len(first.tokens) + len(second.tokens), dtype=np.int64)
    tokens[np.arange(len(first.tokens)) + np.repeat(second.starts[:-1], first.lengths)] = first.tokens
    tokens[np.arange(len(second.tokens)) + np.repeat(first.starts[1:], second.lengths)] = second.tokens
    return Sentences(tokens, first.starts + second.starts)


class Side:
    """Target, source or both while the sentences are read: which words the current partition holds."""

    def __init__(
        self,
        name: str,
        sentences: Sentences,
        tau: int,
        specials: Sequence[int],
        beside: Optional[Sentences] = None,
    ):
        self.name, self.tau = name, tau
        self.texts = [sentences] if beside is None else [sentences, beside]
        self.specials = np.unique(np.asarray(specials, dtype=np.int64))
        tokens = [text.tokens for text in self.texts]
        words = 1 + max(int(x.max()) for x in (*tokens, self.specials, np.zeros(1, np.int64)) if len(x))
        self.seen = np.zeros(words, dtype=np.int32)  # the last partition, from 1, in which a word occurred
        self.seen[self.specials] = np.iinfo(np.int32).max
        self.first = np.empty(words, dtype=np.int64)  # where a word occurs first in what is read; else anything
        self.sets: List[np.ndarray] = []  # V' of the partitions before
        self.parts: List[np.ndarray] = []  # words of the current one
        self.size = 0

    def lengths(self, numbers: np.ndarray) -> np.ndarray:
        return sum(text.starts[numbers + 1] - text.starts[numbers] for text in self.texts)

    def read(self, numbers: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """The tokens of these sentences, one after the other, and where each sentence ends."""
        read = reduce(side_by_side, (some(text, numbers) for text in self.texts))
        return read.tokens.astype(np.int64), read.starts[1:]

    def new_words(self, numbers: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Words that these sentences would bring, in the order in which they occur, and how many up to each sentence.

        Returns:
            words: each once
            counts: (sentences + 1) ``words[: counts[i]]`` are those of the first ``i`` sentences
        """
        tokens, ends = self.read(numbers)
        places = np.flatnonzero(self.seen[tokens] <= len(self.sets))
        words = tokens[places]
        self.first[words] = len(tokens)
        np.minimum.at(self.first, words, places)
        new = self.first[words] == places
        return words[new], np.searchsorted(places[new], np.append(0, ends))

    def different_words(self, number: int) -> int:
        """How many words a sentence would bring into an empty partition."""
        return len(np.setdiff1d(self.read(np.array([number]))[0], self.specials))

    def fitting(self, counts: np.ndarray) -> int:
        """How many of the sentences the partition has room for."""
        if self.tau == 0:
            return len(counts) - 1
        return int(np.searchsorted(counts, self.tau - self.size, "right")) - 1

    def sentences_left(self, counts: np.ndarray) -> float:
        """About how many sentences like these the partition still has room for."""
        if self.tau == 0 or counts[-1] == 0:
            return np.inf
        return (self.tau - self.size) * (len(counts) - 1) / counts[-1]

    def add(self, words: np.ndarray) -> None:
        self.seen[words] = len(self.sets) + 1
        self.parts.append(words)
        self.size += len(words)

    def close(self) -> None:
        """Keep the words of this partition; the next one begins empty."""
        self.sets.append(np.sort(np.concatenate([self.specials, *self.parts])))
        self.parts, self.size = [], 0


def check(target: Sentences, tau: int, source: Optional[Sentences], source_tau: int, joined: bool) -> None:
    if tau < 1:
        raise UserError(f"tau must be 1 or more, not {tau}")
    if source_tau < 0:
        raise UserError(f"source-tau must be 0 (no limit) or more, not {source_tau}")
    if source is None and (source_tau > 0 or joined):
        raise UserError(f"{'a joined table' if joined else f'source-tau {source_tau}'} needs the source sentences")
    if source is not None and len(source.starts) != len(target.starts):
        raise UserError(
            f"{len(source.starts) - 1} source sentences do not pair with {len(target.starts) - 1} target ones"
        )


def too_many_words(sides: Sequence[Side], order: np.ndarray, number: int) -> UserError:
    """What to say of a sentence that does not fit into an empty partition."""
    side = next(side for side in sides if 0 < side.tau < side.different_words(number))
    option = "source-tau" if side.name == "source" else "tau"
    # the longest sentences first: one that is no longer than the most different words so far cannot have more
    lengths, most = side.lengths(order), 0
    for i in np.argsort(-lengths, kind="stable"):
        if lengths[i] <= most:
            break
        most = max(most, side.different_words(order[i]))
    return UserError(
        f"sentence {number}, counted from 0, has {side.different_words(number)} different {side.name} words, more than "
        f"{option} {side.tau}: the smallest {option} for this corpus is {most}"
    )
