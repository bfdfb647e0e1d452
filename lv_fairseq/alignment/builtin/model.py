"""fast_align's model (Dyer, Chahuneau and Smith 2013): a predicted word comes from a given word near the diagonal, or
from none, which is called NULL.

    p(predicted word f at j of J | given words e_1 ... e_I) =
        p0 t(f | NULL)  +  (1 - p0) sum_i t(f | e_i) prior(i | j, J, I)

An iteration of expectation maximisation estimates t from expected counts (`translation.py`) and the prior's tension
from how close to the diagonal links are expected to be (`diagonal.py`).

What is added up does not depend on the number of threads: they compute chunks, which are added in one order. Links are
computed in 4 bytes, sums over them in 8.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Callable, Iterator, Tuple

import numpy as np

from .diagonal import TENSION, Tension, feature, prior
from .entries import Chunk, Entries
from .text import Text
from .threads import in_turn
from .translation import log_probabilities

# Variational Bayes makes probabilities as small as 1e-51, which 4 bytes do not hold: they hold p * SCALE. A sum over
# a sentence still fits, however long it is: that of the prior is 1.
SCALE = 2.0**96
BLOCK = 1 << 20  # tokens that are counted at a time


@dataclass
class Settings:
    p_null: float = 0.08  # p0
    alpha: float = 0.0  # of the Dirichlet prior on t; 0: none


class Model:
    """Takes 12 bytes an entry, 6 a predicted token."""

    def __init__(self, text: Text, entries: Entries, settings: Settings, threads: int = 1):
        self.text, self.entries, self.settings, self.threads = text, entries, settings, threads
        self.tension, self.iterations = TENSION, 0
        shapes = Counter()
        for chunk in entries.chunks:
            for n, j, i in chunk.runs if chunk.before == 0 else ():  # a pair in several chunks is one
                shapes[chunk.whole or j, i] += n
        self.tensions = Tension(shapes)
        self.counts = np.zeros(len(entries.predicted))
        self.null_counts = np.zeros(len(text.predicted.words))
        # t * SCALE; at first all are the same
        self.t = np.full(len(self.counts), SCALE, dtype=np.float32)
        self.null_t = np.full(len(self.null_counts), SCALE, dtype=np.float32)
        self.from_null = np.empty(len(text.predicted.tokens), dtype=np.float32)  # of tokens: p(comes from NULL)

    def learn(self, told: Callable[[int], None]) -> None:
        """An iteration; ``told`` hears how many pairs are done."""
        self.counts[:] = 0
        observed, done = 0.0, 0
        for chunk, (entries, counts, some) in in_turn(self.expected, self.entries.chunks, self.threads):
            self.counts[entries] += counts  # each entry is in a chunk once
            observed += some
            done += chunk.pairs
            told(done)
        self.null_counts = summed(self.text.predicted.tokens, self.from_null, len(self.null_counts))
        if self.iterations > 0:
            self.tension = self.tensions.better(self.tension, observed / len(self.from_null))
        self.iterations += 1
        for some, log_t in self.log_t():
            self.t[some] = np.exp(log_t) * SCALE
        self.null_t[:] = np.exp(self.null_log_t()) * SCALE

    def log_t(self) -> Iterator[Tuple[slice, np.ndarray]]:
        """ln t of the entries, block by block."""
        return log_probabilities(self.counts, self.entries.starts, self.settings.alpha)

    def null_log_t(self) -> np.ndarray:
        """float64 [predicted words]"""
        starts = np.array([0, len(self.null_counts)])
        blocks = log_probabilities(self.null_counts, starts, self.settings.alpha)
        return np.concatenate([log_t for _, log_t in blocks])

    def expected(self, chunk: Chunk) -> Tuple[np.ndarray, np.ndarray, float]:
        """The entries of a chunk, their expected counts, and the expected feature of its links, summed."""
        entries, places, links, null = self.joint(chunk)
        observed = 0.0
        for (n, j, i), block, token in blocks(chunk, links, null):
            totals = block.reshape(n * j, i) @ np.ones(i, dtype=np.float32) + token
            token /= totals
            block *= (1 / totals).reshape(n, j, 1)
            # fast_align counts predicted positions from 0 here, from 1 elsewhere
            sums = np.ones(n, dtype=np.float32) @ block.reshape(n, j * i)
            observed += float(sums @ feature(chunk.before + np.arange(j), chunk.whole or j, i).ravel())
        self.from_null[chunk.tokens] = null
        return entries, np.bincount(places, weights=links, minlength=len(entries)), observed

    def joint(self, chunk: Chunk) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The entries of a chunk; of each link its place among these, and p(given position, predicted word) * SCALE;
        of each predicted token p(NULL, predicted word) * SCALE."""
        entries = self.entries.shelf.get(chunk.entries).astype(np.intp)
        places = self.entries.shelf.get(chunk.places).astype(np.intp)
        links = self.t[entries][places]
        null = self.null_t[self.text.predicted.tokens[chunk.tokens]]
        null *= np.float32(self.settings.p_null)
        for (_, j, i), block, _ in blocks(chunk, links, null):
            near = prior(chunk.before + np.arange(1, j + 1), chunk.whole or j, i, self.tension)
            block *= ((1 - self.settings.p_null) * near).astype(np.float32)
        return entries, places, links, null

    def align(self, told: Callable[[int], None]) -> np.ndarray:
        """Of each predicted token the given position it most likely comes from, counted from 1; 0: NULL. int16, or
        int32 if a sentence needs it"""
        dtype = np.int16 if self.text.given.lengths.max() < 1 << 15 else np.int32
        positions, done = np.empty(len(self.from_null), dtype=dtype), 0
        for chunk, best in in_turn(self.best, self.entries.chunks, self.threads):
            positions[chunk.tokens] = best
            done += chunk.pairs
            told(done)
        return positions

    def best(self, chunk: Chunk) -> np.ndarray:
        _, _, links, null = self.joint(chunk)
        best = []
        for (n, j, i), block, token in blocks(chunk, links, null):
            rows = block.reshape(n * j, i)
            where = rows.argmax(axis=1)
            best.append(np.where(rows[np.arange(n * j), where] > token, where + 1, 0))
        return np.concatenate(best)


def blocks(chunk: Chunk, links: np.ndarray, tokens: np.ndarray):
    """Of each run (n, J, I): views of its links [n, J, I] and of its predicted tokens [n * J]."""
    at = [0, 0]
    for n, j, i in chunk.runs:
        to = [at[0] + n * j * i, at[1] + n * j]
        yield (n, j, i), links[at[0] : to[0]].reshape(n, j, i), tokens[at[1] : to[1]]
        at = to


def summed(words: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Of each word the sum of its weights. float64 [size]"""
    result = np.zeros(size)
    for begin in range(0, len(words), BLOCK):
        block = slice(begin, begin + BLOCK)
        result += np.bincount(words[block], weights=weights[block], minlength=size)
    return result
