"""Reads a corpus of lines ``source words ||| target words`` into numbers, and orders its pairs by their lengths."""

import array
from dataclasses import dataclass
from typing import Callable, List, Tuple

import numpy as np

BLOCK = 1 << 16  # pairs that are reordered at a time


class BadLineError(ValueError):
    """A line that is no pair, with its place."""


class WordNumbers(dict):
    """Numbers words in the order in which they are first asked for."""

    def __missing__(self, word: bytes) -> int:
        self[word] = number = len(self)
        return number


@dataclass
class Side:
    """One side of all pairs."""

    words: List[bytes]  # by number
    tokens: np.ndarray  # int32, word numbers of all pairs, one after the other
    lengths: np.ndarray  # int32 [pairs]


@dataclass
class Text:
    """``order``: numbers of the pairs; in it, pairs of the same lengths are side by side."""

    given: Side  # words to condition on
    predicted: Side
    order: np.ndarray  # int64 [pairs]

    @property
    def pairs(self) -> int:
        return len(self.given.lengths)


def read(path: str, reverse: bool, told: Callable[[int], None]) -> Text:
    """Takes 4 bytes a token; ``told`` hears after each line how many are read."""
    numbers = WordNumbers(), WordNumbers()
    tokens, lengths = (array.array("i"), array.array("i")), (array.array("i"), array.array("i"))
    with open(path, "rb") as file:
        for i, line in enumerate(file, start=1):
            pair = split(path, i, line)
            if reverse:
                pair = pair[::-1]
            for side in (0, 1):
                lengths[side].append(len(pair[side]))
                tokens[side].extend(map(numbers[side].__getitem__, pair[side]))
            told(i)
    # frombuffer shares the array's memory
    given, predicted = (
        Side(list(numbers[side]), *(np.frombuffer(x[side], dtype=np.int32) for x in (tokens, lengths)))
        for side in (0, 1)
    )
    return in_order(given, predicted)


def split(path: str, number: int, line: bytes) -> Tuple[List[bytes], List[bytes]]:
    words = line.split()
    try:
        line.decode()
        bar = words.index(b"|||")
    except UnicodeDecodeError:
        raise BadLineError(f"{path}, line {number}: not UTF-8") from None
    except ValueError:
        raise BadLineError(f"{path}, line {number}: no ||| between source and target") from None
    if bar == 0 or bar == len(words) - 1:
        raise BadLineError(f"{path}, line {number}: one side is empty")
    return words[:bar], words[bar + 1 :]


def in_order(given: Side, predicted: Side) -> Text:
    """Tokens of both sides pair by pair in ``order``, which is by the lengths of the pairs."""
    order = np.lexsort((predicted.lengths, given.lengths))
    for side in (given, predicted):
        side.tokens = reordered(side.tokens, side.lengths, order)
    return Text(given, predicted, order)


def reordered(tokens: np.ndarray, lengths: np.ndarray, order: np.ndarray) -> np.ndarray:
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    result, done = np.empty_like(tokens), 0
    for begin in range(0, len(order), BLOCK):
        pairs = order[begin : begin + BLOCK]
        long = lengths[pairs]
        ends = np.cumsum(long, dtype=np.int64)
        places = np.arange(ends[-1]) + np.repeat(starts[pairs] - (ends - long), long)
        result[done : done + len(places)] = tokens[places]
        done += len(places)
    return result


def count_lines(path: str) -> int:
    """Also of a last one without a line feed."""
    lines, last = 0, b"\n"
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            lines, last = lines + block.count(b"\n"), block
    return lines + (not last.endswith(b"\n"))
