"""First values of words, drawn for a word when it is needed: whenever that is, and wherever, they are the same.

A row is a function of a key, made of the run's seed and the name of its parameter, and of the word's number. Only whole
numbers and single additions and products are computed with, which every CPU rounds alike.
"""

import hashlib
from functools import cache
from statistics import NormalDist
from typing import NamedTuple, Tuple

import numpy as np

NORMAL, UNIFORM, CONSTANT = "normal", "uniform", "constant"
BINS = 1 << 16  # of equal probability, among which a number is chosen first, then its place in the bin
STEP = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64 (Steele, Lea and Flood 2014)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
AT_A_TIME = 1 << 20  # numbers: what they are made of stays in the processor's cache


class Recipe(NamedTuple):
    """How the rows of a parameter are drawn.

    Args:
        kind: ``normal``, of mean ``first`` and standard deviation ``second``; ``uniform`` between ``first`` and
            ``second``; or ``constant``, ``first``
        zero: words whose rows are zero
        key: what makes the rows of one parameter others than those of another
    """

    kind: str
    first: float
    second: float = 0.0
    zero: Tuple[int, ...] = ()
    key: int = 0

    def keyed(self, seed: int, name: str) -> "Recipe":
        return self._replace(key=int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little"))


def draw(recipe: Recipe, words: np.ndarray, numbers: int) -> np.ndarray:
    """(words x numbers) The rows of ``words``, in single precision."""
    rows = np.full((len(words), numbers), recipe.first, dtype=np.float32)
    if recipe.kind != CONSTANT:
        some = max(1, AT_A_TIME // max(numbers, 1))
        for start in range(0, len(words), some):
            rows[start : start + some] = shaped(recipe, random_bits(recipe.key, words[start : start + some], numbers))
    rows[np.isin(words, recipe.zero)] = 0
    return rows


def random_bits(key: int, words: np.ndarray, numbers: int) -> np.ndarray:
    """(words x numbers) uint32, any two independent of each other."""
    pairs = (numbers + 1) // 2
    places = words.astype(np.uint64)[:, None] * np.uint64(pairs) + np.arange(pairs, dtype=np.uint64)
    bits = places * STEP + np.uint64(key)
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    bits ^= bits >> np.uint64(31)
    return bits.astype("<u8").view("<u4")[:, :numbers]


def shaped(recipe: Recipe, bits: np.ndarray) -> np.ndarray:
    first, second = np.float32(recipe.first), np.float32(recipe.second)
    if recipe.kind == UNIFORM:
        return (bits >> 8).astype(np.float32) * np.float32(2.0**-24) * (second - first) + first
    ends, bins = quantiles(), bits >> 16
    low = ends[bins]
    place = (bits & 0xFFFF).astype(np.float32) * np.float32(2.0**-16)
    return (low + (ends[bins + 1] - low) * place) * second + first


@cache
def quantiles() -> np.ndarray:
    """(BINS + 1) The ends of the bins; the outermost are as far out as half of what is beyond the next."""
    of = NormalDist().inv_cdf
    half = [of(max(i, 0.25) / BINS) for i in range(BINS // 2)]
    return np.array([*half, 0.0, *(-x for x in reversed(half))], dtype=np.float32)
