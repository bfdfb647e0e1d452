"""Which source word an unknown target word stands for, by the attention.

The paper takes the source word with the largest weight (3.3). That forgets what is known of a sentence: a source word
outside the dictionary, a name as a rule, has an unknown word as its translation, and one of its own.
"""

from collections.abc import Callable, Sequence

import numpy as np

ALIGNMENTS = ("largest", "unknown-first")
NEAR = 0.05  # c: which part of the largest weight is enough for a source word outside the dictionary

Alignment = Callable[[np.ndarray, Sequence[str]], np.ndarray]


def alignment(rule: str, is_unknown: Callable[[str], bool]) -> Alignment:
    """One of ALIGNMENTS, as a function of the attention (source words x unknown target words) and the source words.

    Args:
        is_unknown: whether the model has read a source word as unknown
    """
    if rule == "largest":
        return lambda attention, words: largest(attention)
    outside = lambda words: np.array([is_unknown(word) for word in words], dtype=bool)
    return lambda attention, words: unknown_first(attention, outside(words))


def largest(attention: np.ndarray) -> np.ndarray:
    """The paper's rule: for each target word the source word with the largest weight, the first of several.

    Args:
        attention: source words x unknown target words
    """
    return attention.argmax(axis=0)


def unknown_first(attention: np.ndarray, outside: np.ndarray, near: float = NEAR) -> np.ndarray:
    """Each source word outside the dictionary goes to one target word, the pairs with the largest weights first, if
    its weight is at least ``near`` times the largest of that target word; other target words follow the paper's rule.

    Args:
        attention: source words x unknown target words
        outside: whether a source word is outside the dictionary (source words)
    """
    chosen = largest(attention)
    sources = np.flatnonzero(outside)
    weights = attention[sources]  # source words outside x unknown target words
    free, without = np.ones(len(sources), dtype=bool), np.ones(len(chosen), dtype=bool)
    for pair in np.argsort(-weights, axis=None, kind="stable"):
        source, target = divmod(int(pair), len(chosen))
        if free[source] and without[target] and weights[source, target] >= near * attention[chosen[target], target]:
            chosen[target] = sources[source]
            free[source] = without[target] = False
    return chosen
