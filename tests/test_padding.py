"""Batches of a partition share out their sentences anew: the same limits, as many batches, less padding."""

from functools import partial

import numpy as np
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from hypothesis import example, given
from hypothesis import strategies as st
from small_corpus import TAU, configure, train_iterator, write_corpus

from lv_fairseq import fairseq_patches
from lv_fairseq.batching.look_ahead import sorted_look_ahead
from lv_fairseq.batching.padding import Limits, shared_out, with_less_padding
from lv_fairseq.batching.partitioned import PartitionedDataset
from lv_fairseq.partitions.plan import Sentences, partition

fairseq_patches.apply()  # keeps the last sentences

LONGEST = 12
PAIRS = st.lists(st.tuples(st.integers(1, LONGEST), st.integers(1, LONGEST)), min_size=1, max_size=80)
LIMITS = st.builds(
    Limits,
    st.none() | st.integers(LONGEST, 120),
    st.none() | st.integers(1, 20),
    st.sampled_from([1, 2, 3, 8]),
)


def within(batch, tokens, limits) -> bool:
    """Whether fairseq would cut such a batch."""
    size, multiple = len(batch), limits.required_batch_size_multiple
    return (
        (limits.max_tokens is None or size * max(tokens[i] for i in batch) <= limits.max_tokens)
        and (limits.max_sentences is None or size <= limits.max_sentences)
        and (size < multiple or size % multiple == 0)
    )


def positions(batch, lengths) -> int:
    """Of a batch with its padding."""
    return len(batch) * sum(max(lengths[i][side] for i in batch) for side in range(len(lengths[0])))


def best_of_all_cuts(lengths, tokens, limits) -> float:
    """The smallest number of positions in two batches, by trying all cuts one by one."""
    best = np.inf
    for key in (lambda i: lengths[i][0], lambda i: lengths[i][1], lambda i: lengths[i][0] - lengths[i][1]):
        order = sorted(range(len(lengths)), key=key)
        for cut in range(1, len(order)):
            parts = order[:cut], order[cut:]
            if all(within(part, tokens, limits) for part in parts):
                best = min(best, sum(positions(part, lengths) for part in parts))
    return best


@given(PAIRS, LIMITS)
@example([(7, 8), (3, 3), (5, 7), (3, 9), (11, 7), (5, 11)], Limits(None, 3))  # best sorted by the difference
def test_sentences_are_shared_out_as_by_trying_all_cuts(lengths, limits):
    tokens = [max(pair) for pair in lengths]
    parts, total = shared_out(np.array(lengths), np.array(tokens), limits)
    assert total == best_of_all_cuts(lengths, tokens, limits)
    if parts is not None:
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(lengths)))
        assert total == sum(positions(part, lengths) for part in parts)
        assert all(within(part, tokens, limits) for part in parts)


def fairseq_cut(run, tokens, limits):
    return data_utils.batch_by_size(run, tokens.__getitem__, num_tokens_vec=tokens[run], **limits._asdict())


@given(PAIRS, LIMITS, st.integers(0, 99))
def test_the_same_sentences_in_as_many_batches_with_no_more_padding(lengths, limits, seed):
    sizes = np.array(lengths)
    tokens = sizes.max(axis=1)
    order = np.random.default_rng(seed).permutation(len(sizes))[: 1 + len(sizes) // 2]  # others are elsewhere
    cut = fairseq_cut(sorted_look_ahead(order, sizes, len(order)), tokens, limits)
    before = [batch.tolist() for batch in cut]
    batches = with_less_padding(cut, sizes, tokens, limits)
    assert [batch.tolist() for batch in cut] == before  # not written to
    assert len(batches) == len(cut) and all(len(batch) for batch in batches)
    assert sorted(np.concatenate(batches).tolist()) == sorted(order.tolist())
    assert all(within(batch, tokens, limits) for batch in batches)
    assert sum(positions(batch, lengths) for batch in batches) <= sum(positions(batch, lengths) for batch in cut)


def test_long_sources_and_long_targets_part():
    """Sorted by the larger length they are mixed, and a third of all positions is padding."""
    sizes = np.array([(9, 3), (3, 9)] * 8)
    batches = with_less_padding([np.arange(8), np.arange(8, 16)], sizes, sizes.max(axis=1), Limits(72, None, 8))
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[*range(0, 16, 2)], [*range(1, 16, 2)]]


def test_what_is_counted_need_not_be_a_length():
    """--max-tokens limits what the dataset counts."""
    sizes, tokens = np.array([(9, 3), (3, 9)] * 2), np.array([9, 9, 9, 10])
    cut = [np.array([0, 1]), np.array([2, 3])]
    for most, changed in ((20, True), (19, False)):
        batches = with_less_padding(cut, sizes, tokens, Limits(most))
        assert (sorted(batches[0].tolist()) != [0, 1]) == changed


def test_one_length_is_enough():
    sizes = np.array([1, 5, 1, 5])
    batches = with_less_padding([np.array([0, 1]), np.array([2, 3])], sizes, sizes, Limits(10))
    assert [batch.tolist() for batch in batches] == [[0, 2], [1, 3]]


class InMemory(LanguagePairDataset):
    """Pairs of which only the lengths count, and target words for partitions."""

    def __init__(self, lengths):
        sizes = np.array(lengths)
        super().__init__([None] * len(sizes), sizes[:, 0], Dictionary(), [None] * len(sizes), sizes[:, 1], Dictionary())


class OneByOne(InMemory):
    """As datasets that cannot count many sentences at once."""

    def num_tokens_vec(self, indices):
        raise NotImplementedError


@given(PAIRS, LIMITS, st.integers(LONGEST, 40), st.integers(1, 4), st.sampled_from([0, 7]), st.integers(0, 99))
def test_every_sentence_once_within_the_limits_and_in_its_partition(lengths, limits, tau, group, window, seed):
    draw = np.random.default_rng(seed)
    tokens = [draw.integers(4, 60, target) for _, target in lengths]
    targets = Sentences(np.concatenate(tokens), np.cumsum([0, *(target for _, target in lengths)]))
    plan = partial(partition, targets, tau=tau, specials=range(4))
    order = draw.permutation(len(lengths))
    made = [PartitionedDataset(kind(lengths), targets, plan, order, window, group) for kind in (InMemory, OneByOne)]
    batches, again = [dataset.batch_by_size(order, **limits._asdict()) for dataset in made]
    assert [list(batch) for batch in batches] == [list(batch) for batch in again]
    own = [batch for batch in batches if batch[0] >= 0]
    assert sorted(np.concatenate(own).tolist()) == list(range(len(lengths)))
    for batch in own:
        assert within(batch, [max(pair) for pair in lengths], limits)
        assert len(set(made[0].plan.partition_of[batch].tolist())) == 1
    assert all(np.diff(made[0].partitions_of(batches)) >= 0)
    assert all(np.bincount(made[0].partitions_of(batches)) % group == 0)


def test_training_has_less_padding_than_sorted_batches(tmp_path):
    cfg, task, _, _ = configure(write_corpus(tmp_path / "corpus"), *TAU, 40)
    iterator = train_iterator(cfg, task)
    dataset, cut = iterator.dataset, []
    for start, end in zip(dataset.plan.bounds[:-1], dataset.plan.bounds[1:]):
        run = sorted_look_ahead(dataset.plan.order[start:end], dataset.sizes, len(dataset))
        cut += dataset.dataset.batch_by_size(run, max_tokens=60, required_batch_size_multiple=8)
    batches, lengths = iterator.frozen_batches, dataset.sizes.tolist()
    assert len(batches) == len(cut)
    assert sum(positions(batch, lengths) for batch in batches) < sum(positions(batch, lengths) for batch in cut)
