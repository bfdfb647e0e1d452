"""Less padding: two batches of a partition share out their sentences anew.

Batches are cut from sentences sorted by length. A partition has too few of them to sort by both lengths, source and
target: of two neighbours one may take the sentences with a long source, the other those with a long target. Neither
gets more than a batch may hold, and there are as many batches as before.
"""

from functools import cache
from typing import List, NamedTuple, Optional, Sequence

import numpy as np

AHEAD = 2  # batches, in the order of length, that one shares out with
PASSES = 2  # over all batches of a partition; more gain nothing, nor does a larger AHEAD


class Limits(NamedTuple):
    """What a batch may hold, as fairseq counts it: the longest sentence times their number, their number, and what
    that is a multiple of if it is not smaller. None: no limit."""

    max_tokens: Optional[int] = None
    max_sentences: Optional[int] = None
    required_batch_size_multiple: int = 1


def with_less_padding(
    batches: Sequence[np.ndarray], sizes: np.ndarray, tokens: np.ndarray, limits: Limits
) -> List[np.ndarray]:
    """The same sentences in as many batches, with no more padding than before.

    Args:
        batches: of one partition, sentence numbers, neighbours of about the same length
        sizes: (sentences x sides, or sentences) length of each sentence, by number: what padding is added to
        tokens: (sentences) what fairseq counts for each against ``max_tokens``
    """
    batches, sizes = list(batches), np.asarray(sizes).reshape(len(tokens), -1)
    areas = [area(sizes[batch]) for batch in batches]
    for _ in range(PASSES):
        before = sum(areas)
        for i in range(len(batches)):
            for j in range(i + 1, min(i + 1 + AHEAD, len(batches))):
                both = np.concatenate((batches[i], batches[j]))
                parts, total = shared_out(sizes[both], tokens[both], limits)
                if total < areas[i] + areas[j]:
                    batches[i], batches[j] = (both[part] for part in parts)
                    areas[i] = area(sizes[batches[i]])
                    areas[j] = total - areas[i]
        if sum(areas) == before:
            break
    return batches


def area(lengths: np.ndarray) -> int:
    """Positions of a batch on all sides, padding included, of (sentences x sides) lengths."""
    return len(lengths) * int(lengths.max(axis=0).sum())


def shared_out(lengths: np.ndarray, tokens: np.ndarray, limits: Limits) -> tuple:
    """The two parts of some sentences with the smallest area, among those that a cut of sorted sentences gives.

    Args:
        lengths: (sentences x sides)
        tokens: (sentences) as counted against ``max_tokens``
    Returns:
        two arrays of places in ``lengths``, and their area: a number larger than any if no cut is within the limits
    """
    cuts = possible_cuts(len(lengths), limits.max_sentences, limits.required_batch_size_multiple)
    if len(cuts) == 0:
        return None, np.inf
    order = np.argsort(sorting_keys(lengths), axis=1, kind="stable")  # (keys x sentences)
    columns = np.concatenate((lengths, tokens[:, None]), axis=1).T[:, order]  # (sides + 1 x keys x sentences)
    first = np.maximum.accumulate(columns, axis=2)[:, :, cuts - 1]  # (sides + 1 x keys x cuts) longest of each part
    second = np.maximum.accumulate(columns[:, :, ::-1], axis=2)[:, :, len(lengths) - cuts - 1]
    areas = first[:-1].sum(axis=0) * cuts + second[:-1].sum(axis=0) * (len(lengths) - cuts)  # (keys x cuts)
    if limits.max_tokens is not None:
        fits = (first[-1] * cuts <= limits.max_tokens) & (second[-1] * (len(lengths) - cuts) <= limits.max_tokens)
        areas = np.where(fits, areas, np.iinfo(np.int64).max)
    key, cut = divmod(int(areas.argmin()), len(cuts))
    if areas[key, cut] == np.iinfo(np.int64).max:
        return None, np.inf
    return np.split(order[key], cuts[cut : cut + 1]), int(areas[key, cut])


def sorting_keys(lengths: np.ndarray) -> np.ndarray:
    """(keys x sentences) What sentences may be sorted by before they are cut: each length, or their difference."""
    source, target = lengths[:, 0], lengths[:, -1]
    return np.stack((source, target, source - target))


@cache
def possible_cuts(sentences: int, most: Optional[int], multiple: int) -> np.ndarray:
    """How many of some sentences may be in one batch, so that the others may be in another."""
    sizes = np.arange(sentences + 1)
    allowed = (sizes < multiple) | (sizes % multiple == 0)
    allowed &= sizes <= (sentences if most is None else most)
    cuts = np.arange(1, sentences)
    return cuts[allowed[cuts] & allowed[sentences - cuts]]
