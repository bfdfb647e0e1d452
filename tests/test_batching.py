"""Every sentence is in exactly one batch, and neighbours have about the same length."""

import numpy as np
import pytest
from fairseq.data import data_utils
from hypothesis import given
from hypothesis import strategies as st

from lv_fairseq.batching.look_ahead import sorted_look_ahead


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=60),
    window=st.integers(1, 70),
    seed=st.integers(0, 99),
)
def test_look_ahead_sorts_inside_windows_and_nowhere_else(lengths, window, seed):
    order = np.random.default_rng(seed).permutation(len(lengths))
    ahead = sorted_look_ahead(order, np.array(lengths), window)
    for start in range(0, len(order), window):
        expected = sorted(order[start : start + window].tolist(), key=lambda i: (max(lengths[i]), lengths[i][1]))
        assert ahead[start : start + window].tolist() == expected


@pytest.mark.parametrize("sentences", [0, 1, 5, 8, 63, 200])
@pytest.mark.parametrize(
    "limits", [{"max_sentences": 1}, {"max_sentences": 3}, {"max_sentences": 64}, {"max_tokens": 90}]
)
def test_no_sentence_is_lost_when_batches_are_made(sentences, limits):
    lengths = np.sort(np.random.default_rng(1).integers(3, 20, sentences))
    batches = data_utils.batch_by_size(
        np.arange(sentences), lambda i: lengths[i], num_tokens_vec=lengths, required_batch_size_multiple=8, **limits
    )
    assert [i for batch in batches for i in batch] == list(range(sentences))
    assert all(len(batch) <= limits.get("max_sentences", sentences) for batch in batches)
