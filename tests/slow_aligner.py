"""fast_align's model, word by word: slow and plain, to compare the built-in aligner with."""

import math
from collections import defaultdict

NULL = "<eps>"


def digamma(x: float) -> float:
    """digamma(x) = digamma(x + n) - sum of 1/(x + k) for k < n, and the first terms of its series for large numbers."""
    n = 100
    return math.log(x + n) - 0.5 / (x + n) - 1 / (12 * (x + n) ** 2) - sum(1 / (x + k) for k in range(n))


def distance(i: int, j: float, all_i: int, all_j: int) -> float:
    return abs(i / all_i - j / all_j)


class SlowAligner:
    """
    Args:
        pairs: (given words, predicted words) of each sentence pair
        alpha: of the Dirichlet prior; 0: none
    """

    def __init__(self, pairs, iterations: int = 5, p_null: float = 0.08, alpha: float = 0.0):
        self.pairs, self.p_null, self.alpha = pairs, p_null, alpha
        self.tension, self.t = 4.0, defaultdict(lambda: 1.0)  # all the same at first
        self.tokens = sum(len(predicted) for _, predicted in pairs)
        for iteration in range(iterations - 1):
            self.learn(iteration)

    def joint(self, given, predicted, j: int):
        """p(NULL, word j), p(position 1, word j), ..."""
        weights = [
            math.exp(-self.tension * distance(i, j, len(given), len(predicted))) for i in range(1, len(given) + 1)
        ]
        word, z = predicted[j - 1], sum(weights)
        return [self.p_null * self.t[NULL, word]] + [
            (1 - self.p_null) * weight / z * self.t[source, word] for source, weight in zip(given, weights)
        ]

    def learn(self, iteration: int) -> None:
        counts, observed = defaultdict(float), 0.0
        for given, predicted in self.pairs:
            for j, word in enumerate(predicted, start=1):
                joint = self.joint(given, predicted, j)
                for i, p in enumerate(joint):
                    counts[given[i - 1] if i else NULL, word] += p / sum(joint)
                    if i:  # fast_align counts j from 0 here
                        observed -= distance(i, j - 1, len(given), len(predicted)) * p / sum(joint)
        if iteration > 0:
            for _ in range(8):
                self.tension += 20 * (observed - self.expected()) / self.tokens
                self.tension = min(14.0, max(0.1, self.tension))
        totals = defaultdict(float)
        for (source, _), count in counts.items():
            totals[source] += count + self.alpha
        if self.alpha:
            memory = {total: digamma(total) for total in set(totals.values())}
            self.t = {
                pair: math.exp(digamma(count + self.alpha) - memory[totals[pair[0]]]) for pair, count in counts.items()
            }
        else:
            self.t = {pair: count / totals[pair[0]] for pair, count in counts.items()}

    def expected(self) -> float:
        """The feature, minus the distance, that the prior expects, summed over predicted words."""
        result = 0.0
        for given, predicted in self.pairs:
            for j in range(1, len(predicted) + 1):
                distances = [distance(i, j, len(given), len(predicted)) for i in range(1, len(given) + 1)]
                weights = [math.exp(-self.tension * d) for d in distances]
                result -= sum(d * weight for d, weight in zip(distances, weights)) / sum(weights)
        return result
