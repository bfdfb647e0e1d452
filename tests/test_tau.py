"""What --tau means below, at and above the number of words in the dictionary."""

import numpy as np
import pytest
import torch
from small_corpus import TAU, configure, train_iterator, write_corpus

WORDS, LINES = 61, 68  # words of the text; lines of the dictionary: these and 7 filler words
PARTITION, WHOLE = (LINES - 1,), (LINES, LINES + 1, LINES + 5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), words=WORDS)


@pytest.fixture(scope="module")
def plain(corpus):
    """A model without pages, with the same initial values, and its task."""
    _, task, model, _ = configure(corpus, "--criterion", "cross_entropy")
    task.load_dataset("train")
    return task, model


def step(corpus, *flags, samples=None):
    """The first two batches, their loss summed, and the model with its gradients."""
    cfg, task, model, criterion = configure(corpus, *flags)
    if samples is None:
        samples = list(train_iterator(cfg, task).next_epoch_itr(shuffle=False))[:2]
    total = 0.0
    for sample in samples:
        if task.pages is not None:
            task.pages.turn_to(sample["partition"])
        total = total + criterion(model, sample)[0]
    total.backward()
    return samples, total.item(), model


def over(model, samples, words, log_q=None):
    """The slow reference: cross entropy over some words of a plain model, probabilities divided by Q."""
    total = 0.0
    for sample in samples:
        scores = model(**sample["net_input"])[0].flatten(0, 1)[:, words]
        scores = scores if log_q is None else scores - log_q
        target, padding = sample["target"].flatten(), 1
        place = torch.searchsorted(words, target)
        kept = target != padding
        total += torch.nn.functional.cross_entropy(scores[kept], place[kept], reduction="sum").item()
    return total


@pytest.mark.parametrize("tau", WHOLE)
def test_a_tau_for_all_lines_of_the_dictionary_is_fairseqs_cross_entropy(corpus, tau):
    samples, loss, model = step(corpus, *TAU, tau)
    _, expected, plain = step(corpus, "--criterion", "cross_entropy", samples=samples)
    assert loss == pytest.approx(expected, rel=1e-6)
    mine, theirs = (m.decoder.output_projection.weight.grad for m in (model, plain))
    assert len(theirs) == LINES + 4 and theirs[-1].any()  # a filler word takes part
    torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("tau", PARTITION)
def test_below_it_the_words_of_the_partition_take_part(corpus, plain, tau):
    samples, loss, _ = step(corpus, *TAU, tau)
    words = torch.arange(4 + WORDS)  # no filler words
    assert loss == pytest.approx(over(plain[1], samples, words), rel=1e-6)


@pytest.mark.parametrize("tau", PARTITION + WHOLE)
def test_the_unigram_proposal_weights_words_whatever_tau_is(corpus, plain, tau):
    samples, loss, _ = step(corpus, *TAU, tau, "--proposal", "unigram")
    tokens = np.concatenate([plain[0].dataset("train").tgt[i].numpy() for i in range(200)])
    words, counts = np.unique(tokens, return_counts=True)
    log_q = torch.from_numpy(np.log(counts / counts.sum())).float()
    assert loss == pytest.approx(over(plain[1], samples, torch.from_numpy(words), log_q), rel=1e-5)


@pytest.mark.parametrize("source_tau, paged", [(0, True), (LINES - 1, True), (LINES, False), (LINES + 1, False)])
def test_a_source_tau_for_all_words_needs_no_page(corpus, source_tau, paged):
    _, task, _, _ = configure(corpus, *TAU, 30, "--source-tau", source_tau)
    assert (task.pages.source is not None) == paged
