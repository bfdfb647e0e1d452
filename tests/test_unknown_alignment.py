"""Which source word an unknown word stands for."""

import numpy as np
import pytest
import torch
from conftest import WORDS, dictionary, generate_here, hypotheses
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lv_fairseq.decoding.unknown_alignment import ALIGNMENTS, alignment, largest, unknown_first
from lv_fairseq.decoding.unknown_words import OpenDictionary, replace_unknown

shapes = st.tuples(st.integers(1, 6), st.integers(0, 5))
weights = shapes.flatmap(lambda shape: arrays(np.float32, shape, elements=st.sampled_from([0, 0.125, 0.25, 0.5, 1])))
cases = weights.flatmap(lambda a: st.tuples(st.just(a), arrays(bool, len(a)), st.sampled_from([0.0, 0.25, 0.5, 1.0])))


def slowly(attention, outside, near):
    """Again and again the pair with the largest weight among those that are left, the first of several."""
    chosen = [max(range(len(row)), key=row.__getitem__) for row in attention.T.tolist()]
    allowed = [
        (-attention[source, target], source, target)
        for target in range(attention.shape[1])
        for source in range(len(attention))
        if outside[source] and attention[source, target] >= near * attention[:, target].max()
    ]
    while allowed:
        _, source, target = min(allowed)
        chosen[target] = source
        allowed = [pair for pair in allowed if pair[1] != source and pair[2] != target]
    return chosen


@given(cases)
def test_it_is_what_a_slow_search_finds(case):
    assert unknown_first(*case).tolist() == slowly(*case)


@given(cases)
def test_a_word_outside_goes_to_one_word_unless_the_paper_says_so_too(case):
    attention, outside, near = case
    by_paper, chosen = largest(attention), unknown_first(*case)
    for target in np.flatnonzero(chosen != by_paper):
        assert outside[chosen[target]] and attention[chosen[target], target] >= near * attention[:, target].max()
    moved = chosen[chosen != by_paper].tolist()
    assert len(set(moved)) == len(moved)


@given(cases)
def test_without_a_word_outside_it_is_the_papers_rule(case):
    attention, _, near = case
    assert (unknown_first(attention, np.zeros(len(attention), bool), near) == largest(attention)).all()


@given(cases)
def test_no_fewer_words_outside_arrive_than_by_the_papers_rule(case):
    attention, outside, _ = case
    arrived = lambda chosen: len({source for source in chosen.tolist() if outside[source]})
    assert arrived(unknown_first(*case)) >= arrived(largest(attention))


A, B, C = "Quetzal", "known", "77:41"


def outside(dictionary):
    return lambda word: dictionary.index(word) == dictionary.unk()


@pytest.mark.parametrize(
    "words, attention, by_paper, chosen",
    [
        ((A, B), [[0.4, 0.6]], [B], [A]),  # a neighbour
        ((A, B), [[0.001, 0.999]], [B], [B]),  # far below the largest: the word is another one's
        ((A, C), [[0.8, 0.2], [0.6, 0.4]], [A, A], [A, C]),  # the same name twice, and the other lost
        ((A, C), [[0.6, 0.4], [0.8, 0.2]], [A, A], [C, A]),
        ((A, B, A), [[0.5, 0.1, 0.4], [0.5, 0.1, 0.4]], [A, A], [A, A]),  # a name that is there twice
        ((A, B), [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [A, A, B], [A, A, B]),  # more unknown words than names
        ((A, C), [[0.5, 0.5], [0.5, 0.5]], [A, A], [A, C]),  # ties go to the first
        ((B, B), [[0.3, 0.7]], [B], [B]),
    ],
)
def test_examples(words, attention, by_paper, chosen):
    source = dictionary(5)
    source.add_symbol(B)
    weights = np.array(attention).T  # source words x target words
    for rule, expected in zip(ALIGNMENTS, (by_paper, chosen)):
        assert [words[place] for place in alignment(rule, outside(source))(weights, words)] == expected


def test_replacement_follows_it():
    target, source = OpenDictionary(), dictionary(5)
    unk, end = target.unk(), target.eos()
    attention = torch.tensor([[0.0, 0.0, 0.0], [0.6, 0.7, 0.1], [0.4, 0.3, 0.1]])  # padding, two words
    for rule, expected in (("largest", f"{A} {A}"), ("unknown-first", f"{C} {A}")):
        hypothesis = {"tokens": torch.tensor([unk, unk, end]), "attention": attention}
        replace_unknown(
            hypothesis,
            [A, C],
            torch.tensor([1, 2]),
            "copy",
            target,
            None,
            alignment(rule, outside(source)),
        )
        assert target.string(hypothesis["tokens"]) == expected


@pytest.mark.parametrize("rule", ALIGNMENTS)
def test_both_are_options_of_the_task(names, rule):
    """The network looks at one word only, so that both give what it looked at."""
    options = ("--beam", 2, "--unk-replacement", "copy", "--unk-alignment", rule, "--source-text", names / "test.src")
    lines = (names / "test.src").read_text("utf-8").splitlines()
    expected = [" ".join(WORDS[word] if word[0] == "s" else word for word in line.split()) for line in lines]
    assert hypotheses(generate_here(names / "data", names / "model.pt", *options)) == expected
