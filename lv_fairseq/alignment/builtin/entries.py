"""Which entries the translation table has, pairs of words that stand in a sentence pair together, and which of them
each link of the corpus is about.

A link is a predicted word and a given word of one sentence pair. Links are cut into chunks. Of each chunk two arrays
are kept: the table's entries that are in it, each once, and of each link the place of its entry among these. A chunk's
own part of the table is so small that it stays in the processor's cache, and the large table is visited in order.
"""

from dataclasses import dataclass
from typing import Callable, Iterator, List, Tuple

import numpy as np

from .shelf import Shelf
from .text import Text
from .threads import in_turn

CHUNK = 1 << 18  # links
CELLS = 32  # of a grid, for a link, at most
BUFFER = 1 << 22  # keys that wait to be merged
MOST = 1 << 32  # entries that 4 bytes can number


@dataclass
class Chunk:
    """Pairs that are side by side in the order of the text, or some predicted words of one long pair.

    ``runs`` are of pairs of the same lengths: (pairs, predicted words of each, given words of each). Links are in the
    order [pair, predicted word, given word].
    """

    runs: List[Tuple[int, int, int]]
    pairs: int  # that end in this chunk
    tokens: slice  # of the predicted side
    given: slice  # tokens of the given side
    before: int = 0  # of a long pair: predicted words that other chunks have
    whole: int = 0  # of a long pair: all its predicted words
    entries: int = -1  # numbers on the shelf
    places: int = -1


@dataclass
class Entries:
    """The table's entries are sorted by given word, those of word s are from ``starts[s]`` to ``starts[s + 1]``."""

    chunks: List[Chunk]
    shelf: Shelf
    starts: np.ndarray  # int64 [given words + 1]
    predicted: np.ndarray  # int32 [entries], of each entry the predicted word


def chunks_of(text: Text, most: int) -> Iterator[Chunk]:
    """Of at most ``most`` links, unless a single predicted word has more."""
    given, predicted = (side.lengths[text.order].astype(np.int64) for side in (text.given, text.predicted))
    change = np.flatnonzero((np.diff(given) != 0) | (np.diff(predicted) != 0)) + 1
    begins, ends = np.append(0, change).tolist(), np.append(change, len(given)).tolist()
    runs, links, first = [], 0, [0, 0]  # first token of the chunk, predicted and given

    def chunk():
        sizes = [sum(run[0] for run in runs), sum(n * j for n, j, _ in runs), sum(n * i for n, _, i in runs)]
        done = Chunk(runs, sizes[0], slice(first[0], first[0] + sizes[1]), slice(first[1], first[1] + sizes[2]))
        first[0], first[1] = done.tokens.stop, done.given.stop
        return done

    for begin, end in zip(begins, ends):
        i, j = int(given[begin]), int(predicted[begin])
        left = end - begin
        if i * j > most and runs:
            yield chunk()
            runs, links = [], 0
        while left and i * j > most:
            yield from parts(first, j, i, max(1, most // i))
            first[0], first[1], left = first[0] + j, first[1] + i, left - 1
        while left:
            n = min(left, (most - links) // (i * j))
            if n:
                runs.append((n, j, i))
                links += n * i * j
                left -= n
            if left:
                yield chunk()
                runs, links = [], 0
    if runs:
        yield chunk()


def parts(first: List[int], j: int, i: int, most: int) -> Iterator[Chunk]:
    """A pair with too many links for a chunk, at most ``most`` predicted words at a time. ``first``: its first tokens,
    predicted and given."""
    for before in range(0, j, most):
        n = min(most, j - before)
        tokens, given = slice(first[0] + before, first[0] + before + n), slice(first[1], first[1] + i)
        yield Chunk([(1, n, i)], int(before + n == j), tokens, given, before, j)


def find_entries(text: Text, folder: str, threads: int, told: Callable[[int], None]) -> Entries:
    """``told`` hears how many pairs are done, of two passes."""
    shelf, keys, chunks, done = Shelf(folder), Keys(), list(chunks_of(text, CHUNK)), 0
    words = len(text.predicted.words)
    for chunk, (places, some) in in_turn(lambda chunk: distinct(text, chunk), chunks, threads):
        chunk.places, chunk.entries = shelf.put(places), shelf.put(some)
        keys.add(some)
        done += chunk.pairs
        told(done)
    every = keys.merged()
    if len(every) > MOST:
        raise MemoryError
    number = lambda chunk: np.searchsorted(every, shelf.get(chunk.entries)).astype(np.uint32)
    for chunk, entries in in_turn(number, chunks, threads):
        shelf.replace(chunk.entries, entries)
        done += chunk.pairs
        told(done)
    starts = np.searchsorted(every, np.arange(len(text.given.words) + 1, dtype=np.int64) * words)
    return Entries(chunks, shelf, starts, (every % words).astype(np.int32))


def distinct(text: Text, chunk: Chunk) -> Tuple[np.ndarray, np.ndarray]:
    """Of each link the place of its key among those of the chunk; these, int64, sorted (`keys_of`)."""
    given, rows = np.unique(text.given.tokens[chunk.given], return_inverse=True)
    predicted, columns = np.unique(text.predicted.tokens[chunk.tokens], return_inverse=True)
    cells = cells_of(chunk, rows * len(predicted), columns)
    found, places = each_cell_once(cells, len(given) * len(predicted))
    rows, columns = np.divmod(found, len(predicted))
    return places, keys_of(given[rows], predicted[columns], len(text.predicted.words))


def each_cell_once(cells: np.ndarray, size: int) -> Tuple[np.ndarray, np.ndarray]:
    """The cells, each once, sorted; and of each link the place of its cell among these.

    Instead of sorting links, they are ticked off in a grid, given words of the chunk by its predicted words. It often
    has some 20 cells a link. In short sentences nearly every word may be another, and the grid has thousands: there,
    links are sorted.

    Args:
        cells: intp [links]
        size: of the grid
    """
    if size > CELLS * len(cells):
        found, places = np.unique(cells, return_inverse=True)
        return found, places.astype(smallest(len(found)))
    there = np.zeros(size, dtype=bool)
    there[cells] = True
    found = np.flatnonzero(there)
    ranks = np.empty(size, dtype=smallest(len(found)))
    ranks[found] = np.arange(len(found), dtype=ranks.dtype)
    return found, ranks[cells]


def smallest(size: int) -> type:
    """The type for places among so many."""
    return np.uint16 if size <= 1 << 16 else np.uint32


def keys_of(given: np.ndarray, predicted: np.ndarray, words: int) -> np.ndarray:
    """int64: given word * words + predicted word. ``words``: how many predicted words there are in all"""
    return given.astype(np.int64) * words + predicted


def cells_of(chunk: Chunk, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Of each link ``rows`` of its given token + ``columns`` of its predicted token. intp [links]"""
    cells, at = np.empty(sum(n * j * i for n, j, i in chunk.runs), dtype=np.intp), [0, 0, 0]
    for n, j, i in chunk.runs:
        to = [at[0] + n * j * i, at[1] + n * i, at[2] + n * j]
        some, others = rows[at[1] : to[1]].reshape(n, 1, i), columns[at[2] : to[2]].reshape(n, j, 1)
        np.add(some, others, out=cells[at[0] : to[0]].reshape(n, j, i))
        at = to
    return cells


class Keys:
    """The union of arrays of sorted keys. Takes 24 bytes a key while merging."""

    def __init__(self):
        self.keys, self.waiting, self.size = np.zeros(0, dtype=np.int64), [], 0

    def add(self, keys: np.ndarray) -> None:
        self.waiting.append(keys)
        self.size += len(keys)
        if self.size >= max(BUFFER, len(self.keys) // 2):  # so each key is moved a few times only
            self.merge()

    def merge(self) -> None:
        new = np.concatenate(self.waiting)
        self.waiting, self.size = [], 0
        new.sort(kind="stable")  # finds that parts of it are sorted already
        new = np.concatenate([self.keys, each_once(new)])
        new.sort(kind="stable")
        self.keys = each_once(new)

    def merged(self) -> np.ndarray:
        if self.waiting:
            self.merge()
        return self.keys


def each_once(keys: np.ndarray) -> np.ndarray:
    return keys[np.append(True, keys[1:] != keys[:-1])]
