"""The prior on alignments: a link is the less likely the farther it is from the diagonal.

    p(i | j, J, I, not NULL) = exp(tension * feature(i, j)) / Z_j,    feature(i, j) = -|i/I - j/J|

for predicted word j of J, given word i of I.
"""

from collections import Counter
from typing import Tuple

import numpy as np

TENSION, LEAST, MOST = 4.0, 0.1, 14.0  # the first one; no other is beyond these
STEPS, RATE = 8, 20.0  # gradient steps for the tension in an iteration, and how far they go


def feature(j: np.ndarray, all_j: int, all_i: int) -> np.ndarray:
    """float64 [len(j), all_i]"""
    return -np.abs(np.arange(1, all_i + 1) / all_i - j[:, None] / all_j)


def prior(j: np.ndarray, all_j: int, all_i: int, tension: float) -> np.ndarray:
    """float64 [len(j), all_i]"""
    weights = np.exp(tension * feature(j, all_j, all_i))
    return weights / weights.sum(axis=1, keepdims=True)


class Tension:
    """Finds the tension at which the prior expects what was observed.

    Args:
        shapes: (J, I): how many pairs have these lengths
    """

    def __init__(self, shapes: Counter):
        pairs = np.array([(j, i, count) for (j, i), count in sorted(shapes.items())], dtype=np.int64)
        self.all_j, self.all_i, self.count = (np.repeat(column, pairs[:, 0]) for column in pairs.T)
        ends = np.cumsum(pairs[:, 0])
        self.j = np.arange(1, ends[-1] + 1) - np.repeat(ends - pairs[:, 0], pairs[:, 0])  # of each shape 1 ... J
        self.tokens = int((pairs[:, 0] * pairs[:, 2]).sum())

    def better(self, tension: float, observed: float) -> float:
        """A few gradient steps. ``observed``: the mean over all predicted tokens of the feature of their link."""
        for _ in range(STEPS):
            expected = float(self.count @ self.expected(tension)) / self.tokens
            tension = min(MOST, max(LEAST, tension + RATE * (observed - expected)))
        return tension

    def expected(self, tension: float) -> np.ndarray:
        """Of each predicted position of each shape: the sum over i of prior * feature, in closed form.

        Of the given positions ``left`` are not right of j/J. Distances on each side are nearest, nearest + 1/I,
        nearest + 2/I ...: geometric series.
        """
        left = self.j * self.all_i // self.all_j
        x = self.j / self.all_j
        one = side(x - left / self.all_i, left, self.all_i, tension)
        other = side((left + 1) / self.all_i - x, self.all_i - left, self.all_i, tension)
        return -(one[1] + other[1]) / (one[0] + other[0])


def side(nearest: np.ndarray, terms: np.ndarray, all_i: np.ndarray, tension: float) -> Tuple[np.ndarray, np.ndarray]:
    """Sums of exp(-tension * d) and of d * exp(-tension * d) over distances d = nearest + m/I, m = 0 ... terms - 1."""
    ratio = np.exp(-tension / all_i)
    power = ratio**terms
    weights = (1 - power) / (1 - ratio)  # sum of ratio ** m
    steps = (ratio * weights - terms * power) / (1 - ratio)  # sum of m * ratio ** m
    scale = np.exp(-tension * nearest)
    return scale * weights, scale * (nearest * weights + steps / all_i)
