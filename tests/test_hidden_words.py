"""Which words of a training sentence are read as unknown."""

import pickle

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from small_corpus import TAU, configure, train_iterator, write_corpus

from lv_fairseq import Lexicon, UserError
from lv_fairseq.batching.hidden_words import HiddenWords, HidingDataset, counts_of, written_alike
from lv_fairseq.lexicon.entries import Entries

WORDS = 30  # source word w is written like target word w + 40 if it is even; translations of odd ones are below
COUNTS = np.arange(100)
SAME = np.where(np.arange(WORDS) % 2 == 0, np.arange(WORDS) + 40, -1)
SENTENCES = st.lists(st.integers(4, WORDS - 1), min_size=1, max_size=12)
TARGETS = st.lists(st.integers(4, 99), min_size=1, max_size=12)


def translations(word):
    return [word + 50, word + 60] if word % 2 else []


def hiding(strength=5.0, seed=1, counts=COUNTS, **changes):
    given = dict(source_counts=counts, target_counts=counts, same=SAME, translations=translations, seed=seed)
    return HiddenWords(strength, **{**given, **changes})


@given(SENTENCES, TARGETS, st.integers(0, 1000), st.integers(1, 9))
@settings(deadline=None, derandomize=True)
def test_hidden_are_pairs_of_words_that_stand_in_both_sentences(source, target, sentence, epoch):
    pairs = hiding().pairs(np.array(source), np.array(target), epoch, sentence)
    assert len({word for word, _ in pairs}) == len(pairs)
    for word, other in pairs:
        assert word in source and other in target
        choices = [SAME[word], *translations(word)]
        assert other == next(x for x in choices if x in target)  # the first that is there
    changed = hiding().hide(torch.tensor(source), torch.tensor(target), epoch, sentence)
    for before, after, hidden in zip((source, target), changed, zip(*pairs) if pairs else ((), ())):
        assert after.tolist() == [3 if word in hidden else word for word in before]


@given(SENTENCES, TARGETS)
@settings(deadline=None, derandomize=True)
def test_nothing_is_hidden_with_strength_zero_and_everything_that_has_a_partner_with_a_very_large_one(source, target):
    arguments = np.array(source), np.array(target), 1, 7
    assert hiding(0.0).pairs(*arguments) == []
    expected = {word for word in source if {SAME[word], *translations(word)} & set(target)}
    assert {word for word, _ in hiding(1e18).pairs(*arguments)} == expected


def test_the_probability_is_that_of_the_more_frequent_of_both_words():
    counts = np.zeros(100, dtype=np.int64)
    for own, others, expected in ((5, 5, 0.5), (5, 15, 0.25), (15, 5, 0.25), (0, 5, 0.0)):
        counts[[10, 50]] = own, others
        hidden = hiding(5.0, source_counts=counts, target_counts=counts)
        times = sum(bool(hidden.pairs(np.array([10]), np.array([50]), 1, i)) for i in range(4000))
        # numpy's generator gives the same numbers everywhere; the bound is five standard deviations
        assert times / 4000 == pytest.approx(expected, abs=0.04)


def test_epochs_sentences_and_seeds_differ_and_nothing_else_does():
    source, target = np.arange(4, 30), np.arange(4, 100)
    same = [hiding().pairs(source, target, 2, 5) for _ in range(2)]
    assert same[0] == same[1]
    others = [hiding().pairs(source, target, 3, 5), hiding().pairs(source, target, 2, 6)]
    others.append(hiding(seed=2).pairs(source, target, 2, 5))
    assert all(pairs != same[0] for pairs in others)


def test_what_happens_to_a_word_does_not_depend_on_words_after_it():
    longer = hiding().pairs(np.array([10, 12, 14, 9]), np.arange(4, 100), 1, 1)
    shorter = hiding().pairs(np.array([10, 12]), np.arange(4, 100), 1, 1)
    assert [pair for pair in longer if pair[0] in (10, 12)] == shorter


def test_dictionaries_give_counts_and_words_that_are_written_alike():
    source, target = Dictionary(), Dictionary()
    for words, dictionary in (((("a", 7), ("b", 5), ("c", 1)), source), ((("x", 9), ("c", 2), ("b", 3)), target)):
        for word, count in words:
            dictionary.add_symbol(word, count)
    assert counts_of(source).tolist() == [0, 0, 0, 0, 7, 5, 1]
    assert written_alike(source, target).tolist() == [-1, -1, -1, -1, -1, 6, 5]


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """Data whose dictionaries hold the same words, so that many stand in both sentences."""
    data = write_corpus(tmp_path_factory.mktemp("alike"))
    (data / "dict.tgt.txt").write_text((data / "dict.src.txt").read_text())
    return data


def sentences(data, *flags, epochs=2, num_workers=0, num_shards=1) -> list:
    """What an epoch's batches read, by sentence number, of each epoch; and the partition plan of the last."""
    found, plan = [], None
    cfg, task, _, _ = configure(data, *flags)
    for epoch in range(1, epochs + 1):
        iterator = train_iterator(cfg, task, epoch, num_shards, num_workers)
        plan = getattr(iterator.dataset, "plan", None)
        found.append({})
        for batch in iterator.next_epoch_itr(shuffle=True):
            for i, number in enumerate(batch["id"].tolist()):
                sides = batch["net_input"]["src_tokens"][i], batch["target"][i]
                found[-1][number] = [[word for word in side.tolist() if word != 1] for side in sides]
    return found, plan


LOADERS = [(*TAU, 30, "--reshuffle-partitions"), *(pytest.param(x, marks=pytest.mark.slow) for x in ((*TAU, 30), ()))]


@pytest.mark.parametrize("partitions", LOADERS)
def test_every_worker_of_a_data_loader_hides_the_same_words_in_every_epoch(alike, partitions):
    flags = ("--hide-rare-words", 9, *(partitions or ("--criterion", "cross_entropy")))
    expected, _ = sentences(alike, *flags)
    assert expected[0] != expected[1] and any(3 in source for source, _ in expected[0].values())
    for source, target in expected[0].values():
        assert (3 in source) == (3 in target)
    assert sentences(alike, *flags, num_workers=2)[0] == expected


def test_partitions_are_those_of_the_true_words_and_off_is_as_before(alike):
    (hidden, *_), plan = sentences(alike, *TAU, 30, "--hide-rare-words", 9, epochs=1)
    (true, *_), without = sentences(alike, *TAU, 30, epochs=1)
    assert np.array_equal(plan.order, without.order) and np.array_equal(plan.bounds, without.bounds)
    assert all(map(np.array_equal, plan.target_words, without.target_words))
    changed = 0
    for number, pair in true.items():
        for before, after in zip(pair, hidden[number]):
            assert len(before) == len(after)
            assert all(old == new or new == 3 for old, new in zip(before, after))
            changed += before != after
    assert changed
    cfg, task, _, _ = configure(alike, *TAU, 30)
    task.load_dataset("train")
    assert not isinstance(task.dataset("train"), HidingDataset)


def test_workers_together_read_what_one_would(alike):
    flags = (*TAU, 30, "--hide-rare-words", 9)
    whole = sentences(alike, *flags, epochs=1)[0][0]
    half = sentences(alike, *flags, epochs=1, num_shards=2)[0][0]
    assert 0 < len(half) < len(whole) and all(whole[number] == pair for number, pair in half.items())


def test_a_lexicon_hides_a_word_together_with_its_translation(tmp_path):
    data = write_corpus(tmp_path / "data")
    entries = Entries()
    for i in range(61):
        entries.add([f"src{i}".encode()] * 2, [f"tgt{i}".encode(), b"tgt0"], np.array([-1.0, -2.0]))
    Lexicon.of(entries, {"dictionaries": {}}).save(tmp_path / "lexicon")
    flags = (*TAU, 30, "--hide-rare-words", 1e9)
    assert all(3 not in source for source, _ in sentences(data, *flags, epochs=1)[0][0].values())
    found = sentences(data, *flags, "--lexicon", tmp_path / "lexicon", epochs=1)[0][0]
    _, task, *_ = configure(data, *flags, "--lexicon", tmp_path / "lexicon")
    sent = pickle.loads(pickle.dumps(task.hidden_words))  # as it is to a process that was spawned to read data
    assert sent.translations(7) == task.hidden_words.translations(7) != []
    true = sentences(data, *TAU, 30, epochs=1)[0][0]
    for number, (source, target) in true.items():
        there = [word for word in source if word > 3 and {word, 4} & set(target)]
        assert found[number][0] == [3 if word in there else word for word in source]


@pytest.mark.parametrize("strength", [-1, "nan"])
def test_a_strength_that_is_none_is_refused(alike, strength):
    with pytest.raises(UserError, match="--hide-rare-words must be 0 or more"):
        configure(alike, *TAU, 30, "--hide-rare-words", strength)
