"""Alignments of both directions become one, by the rules of a slow reference."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lv_fairseq.alignment import links
from lv_fairseq.alignment.links import LinkCounts
from lv_fairseq.alignment.symmetrize import MASK, SHIFT, grow_diag_final_and, intersection, parse


def numbers(points):
    return {i << SHIFT | j for i, j in points}


def points(links):
    return {(link >> SHIFT, link & MASK) for link in links}


def slow_grow_diag_final_and(forward, reverse, size):
    """With matrices, looking at every cell each time."""
    one, other = np.zeros((size, size), bool), np.zeros((size, size), bool)
    for matrix, side in ((one, forward), (other, reverse)):
        for i, j in side:
            matrix[i, j] = True
    union, result = one | other, one & other
    while True:
        before = result.copy()
        for i in range(size):
            for j in range(size):
                near = result[max(0, i - 1) : i + 2, max(0, j - 1) : j + 2].any()
                free = not result[i].any() or not result[:, j].any()
                if union[i, j] and near and free:
                    result[i, j] = True
        if (result == before).all():
            break
    for matrix in (one, other):
        for i in range(size):
            for j in range(size):
                if matrix[i, j] and not result[i].any() and not result[:, j].any():
                    result[i, j] = True
    return {(int(i), int(j)) for i, j in zip(*result.nonzero())}


SIZE = 6
alignments = st.sets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=14)


@given(alignments, alignments)
@settings(max_examples=300, deadline=None)
def test_symmetrisation_is_that_of_a_slow_reference(forward, reverse):
    fast = points(grow_diag_final_and(numbers(forward), numbers(reverse)))
    assert fast == slow_grow_diag_final_and(forward, reverse, SIZE)
    assert points(intersection(numbers(forward), numbers(reverse))) == forward & reverse


@pytest.mark.parametrize(
    "forward, reverse, expected",
    [
        ("", "", ""),
        ("0-0 1-1", "0-0 1-1", "0-0 1-1"),
        ("0-0 1-1", "0-0 2-2", "0-0 1-1 2-2"),  # one next to the other, diagonally
        ("0-0 0-1", "0-0", "0-0 0-1"),  # a second target word of a source word, since it has no link yet
        ("0-0 3-3", "0-0 3-2", "0-0 3-3"),  # far from all: forward goes first, then both words have a link
        ("0-0 3-3", "0-0 5-5", "0-0 3-3 5-5"),
        ("0-0 0-4", "0-0", "0-0"),  # far, and the source word has a link
        ("0-0 1-1 1-0", "0-0 1-1 0-1", "0-0 1-1"),  # near, but all words have a link
        ("1-1", "0-0", "0-0 1-1"),  # nothing to grow from: both are final
        ("0-0 1-1 2-2", "2-1 0-0 3-2", "0-0 1-1 2-1 2-2 3-2"),
    ],
)
def test_symmetrisation_by_hand(forward, reverse, expected):
    assert grow_diag_final_and(parse(forward.encode()), parse(reverse.encode())) == parse(expected.encode())


@pytest.mark.parametrize("line", [b"0", b"0-", b"-1", b"a-b", b"0-1 2", b"0:1"])
def test_lines_that_are_no_alignment(line):
    with pytest.raises(ValueError):
        parse(line)


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=12))
def test_links_are_counted_however_often_they_are_merged(batches):
    counts = LinkCounts()
    before, links.BUFFER = links.BUFFER, 5
    try:
        for batch in batches:
            counts.add([pair << 32 | pair % 3 for pair in batch])
        counts.merge()
    finally:
        links.BUFFER = before
    expected = collections.Counter(pair << 32 | pair % 3 for batch in batches for pair in batch)
    assert counts.pairs.tolist() == sorted(expected)
    assert counts.counts.tolist() == [expected[pair] for pair in sorted(expected)]
