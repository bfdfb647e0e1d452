"""Translation probabilities t(predicted word | given word) from expected counts."""

from typing import Iterator, Tuple

import numpy as np

BLOCK = 1 << 20  # entries at a time
SHIFT = 6  # digamma's series is taken at x + 6, where it has 12 digits


def log_probabilities(counts: np.ndarray, starts: np.ndarray, alpha: float) -> Iterator[Tuple[slice, np.ndarray]]:
    """ln t, float64, of slices of the entries one after the other.

    Without prior (alpha = 0) t is count / sum of the given word's counts, with it exp(digamma(count + alpha)) /
    exp(digamma(sum of (count + alpha))), which variational Bayes with a Dirichlet prior takes for the mean.

    Args:
        counts: float64 [entries]
        starts: int64 [given words + 1]; entries of word s are from ``starts[s]`` to ``starts[s + 1]``
    """
    sums = sums_between(counts, starts) + alpha * np.diff(starts)
    with np.errstate(divide="ignore"):  # ln 0 = -inf
        totals = digamma(sums) if alpha else np.log(np.where(sums > 0, sums, 1))
        for begin in range(0, len(counts), BLOCK):
            block = slice(begin, min(begin + BLOCK, len(counts)))
            first, last = np.searchsorted(starts, [block.start, block.stop - 1], side="right") - 1
            inside = np.clip(starts[first : last + 2], block.start, block.stop)
            own = counts[block]
            yield (
                block,
                (digamma(own + alpha) if alpha else np.log(own)) - np.repeat(totals[first : last + 1], np.diff(inside)),
            )


def sums_between(counts: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """float64 [len(starts) - 1]"""
    sums = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        sums[filled] = np.add.reduceat(counts, starts[filled])
    return sums


def digamma(x: np.ndarray) -> np.ndarray:
    """The derivative of ln gamma(x), for x > 0: digamma(x) = digamma(x + 1) - 1/x, and an asymptotic series."""
    smaller = 0.0
    for k in range(SHIFT):
        smaller = smaller + 1 / (x + k)
    y = x + SHIFT
    z = 1 / (y * y)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))))))
    return np.log(y) - 0.5 / y - series - smaller
