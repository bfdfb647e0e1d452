"""Training any architecture over pages of its words equals a plain model of fairseq's whose other words are masked.

The plain model is built by ``--task translation`` and knows nothing of word tables. Numbers are compared in double
precision, which fairseq's own softmax is not.
"""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, REQUIRED
from small_corpus import TAU, configure, train_epochs, train_iterator, write_corpus
from torch.nn import functional as F

from lv_fairseq.models.families import word_tables

PAD = 1
PLAIN = ("--task", "translation", "--criterion", "cross_entropy")
SMOOTHED = ("--task", "translation", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing")
ADAM = ("--optimizer", "adam", "--lr", 0.01, "--num-workers", 0, "--max-tokens", 120)
FAIRSEQ_ROUNDS = dict(rtol=1e-5, atol=1e-6)  # its softmax is in single precision
SAME = dict(rtol=1e-6, atol=1e-9)  # but for the attention of transformers, which rounds to single precision


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """With one dictionary for both languages, and with two."""
    folder = tmp_path_factory.mktemp("corpora")
    return {joined: write_corpus(folder / str(joined), pairs=80, joined=joined) for joined in (False, True)}


@pytest.fixture(params=ARCHITECTURES)
def build(corpora, request):
    """Configuration, task, model and criterion of an architecture for some flags."""
    architecture = ARCHITECTURES[request.param]
    return lambda *flags: configure(corpora[architecture.joined], *ADAM, *flags, model=architecture.flags)


# a whole training of each of the others would show no more
trained = pytest.mark.parametrize("build", REQUIRED, indirect=True)


def in_double(build, *flags):
    cfg, task, model, criterion = build(*flags)
    return cfg, task, model.double(), criterion


def one_batch_of_each_partition(cfg, task) -> list:
    batches = train_iterator(cfg, task).next_epoch_itr(shuffle=False)
    return list({batch["partition"]: batch for batch in batches}.values())


def masked(model, sample, words) -> torch.Tensor:
    """The slow reference: all scores of a plain model, those of other words put out."""
    scores = model(**sample["net_input"])[0].flatten(0, 1)
    others = torch.ones(scores.size(-1), dtype=torch.bool).index_fill(0, words, False)
    scores = scores.masked_fill(others, float("-inf"))
    return F.cross_entropy(scores, sample["target"].flatten(), ignore_index=PAD, reduction="sum")


def gradient(parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def assert_same_gradients(model, plain, **close) -> None:
    """Rows of a page have the gradients of their words; spare rows, and words that have no row, none."""
    expected = {name: gradient(parameter) for name, parameter in plain.named_parameters()}
    assert sum(bool(x.any()) for x in expected.values()) > 5
    for name, parameter in model.named_parameters():
        found = gradient(parameter)
        if hasattr(parameter, "host"):
            words = parameter.host.page.words
            assert not expected[name].index_fill(0, words, 0).any() and not found[len(words) :].any()
            found, expected[name] = found[: len(words)], expected[name][words]
        torch.testing.assert_close(found, expected[name], **close)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_all_words_it_is_fairseqs_cross_entropy(build, smoothing):
    own = (*TAU, 1000, "--source-tau", 1000, "--label-smoothing", smoothing)
    cfg, task, model, criterion = in_double(build, *own)
    sample = next(train_iterator(cfg, task).next_epoch_itr())
    assert task.pages.pages == []
    _, _, plain, theirs = in_double(build, *((*SMOOTHED, smoothing) if smoothing else PLAIN))
    losses = [some(network, sample)[0] for network, some in ((model, criterion), (plain, theirs))]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses, **FAIRSEQ_ROUNDS, check_dtype=False)
    assert_same_gradients(model, plain, **FAIRSEQ_ROUNDS)


def test_on_a_page_it_is_a_full_table_whose_other_words_are_masked(build):
    cfg, task, model, criterion = in_double(build, *TAU, 30)
    _, _, plain, _ = in_double(build, *PLAIN)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=0.1)
    hosts = {name: x.host for name, x in model.named_parameters() if hasattr(x, "host")}
    batches, plan = one_batch_of_each_partition(cfg, task), task.pages.plan
    assert len(batches) > 3
    for sample in batches:
        task.pages.turn_to(sample["partition"])
        before = {name: value.clone() for name, value in model.state_dict().items()}
        plain.load_state_dict(before)
        plain.zero_grad()
        loss = criterion(model, sample)[0]
        expected = masked(plain, sample, torch.from_numpy(plan.target_words[sample["partition"]]))
        loss.backward()
        expected.backward()
        torch.testing.assert_close(loss, expected, **SAME)
        assert_same_gradients(model, plain, **SAME)
        read = set(sample["net_input"]["src_tokens"].unique().tolist())
        if task.pages.joined:
            assert read - set(plan.target_words[sample["partition"]].tolist())  # words that are read only
        optimizer.step()
        optimizer.zero_grad()
        for name, after in model.state_dict().items():
            if name in hosts:
                away = torch.ones(len(after), dtype=torch.bool).index_fill(0, hosts[name].page.words, False)
                assert away.any() and torch.equal(after[away], before[name][away])
                assert not torch.equal(after[~away], before[name][~away])


def test_a_joined_page_ends_with_words_that_are_read_and_trained_but_not_scored(corpora):
    architecture = ARCHITECTURES["transformer-joined"]
    cfg, task, model, criterion = configure(corpora[True], *TAU, 30, model=architecture.flags)
    (page,) = task.pages.pages
    for sample in one_batch_of_each_partition(cfg, task):
        task.pages.turn_to(sample["partition"])
        assert page.rows == 30 + task.tgt_dict.nspecial  # whatever the partition holds: that is what is trained
        targets, sources = (
            words[sample["partition"]] for words in (task.pages.plan.target_words, task.pages.plan.source_words)
        )
        only_read = np.setdiff1d(sources, targets)
        assert page.words.tolist() == [*targets, *only_read] and len(only_read) > 3
        rows, weight, _, offset = word_tables(model).output.active(sample["target"])
        assert len(weight) == len(offset) == page.scored and offset.isfinite().sum() == len(targets)
        assert rows.max() < len(targets)
        criterion(model, sample)[0].backward()
        moved = model.encoder.embed_tokens.weight.grad[len(targets) : len(page.words)].any(dim=1)
        read = np.isin(only_read, sample["net_input"]["src_tokens"].numpy())
        assert moved.tolist() == read.tolist() and read.any()
        model.zero_grad()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_validation_is_fairseqs_cross_entropy_over_all_words(build, smoothing):
    cfg, task, model, criterion = in_double(build, *TAU, 30, "--label-smoothing", smoothing)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sample = one_batch_of_each_partition(cfg, task)[1]
    task.pages.turn_to(sample["partition"])
    criterion(model, sample)[0].backward()
    optimizer.step()  # so that the page is ahead of the table
    _, _, plain, theirs = in_double(build, *((*SMOOTHED, smoothing) if smoothing else PLAIN))
    model.eval(), plain.eval()
    with torch.no_grad():
        (loss, size, log) = criterion(model, sample)
        plain.load_state_dict(model.state_dict())
        (expected, their_size, their_log) = theirs(plain, sample)
    assert size == their_size
    torch.testing.assert_close(loss, expected, **FAIRSEQ_ROUNDS, check_dtype=False)
    torch.testing.assert_close(
        log["nll_loss"], their_log.get("nll_loss", expected), **FAIRSEQ_ROUNDS, check_dtype=False
    )


def test_the_unigram_proposal_divides_by_the_frequencies_of_the_partition(build):
    cfg, task, model, criterion = in_double(build, *TAU, 30, "--proposal", "unigram")
    _, _, plain, _ = in_double(build, *PLAIN)
    for sample in one_batch_of_each_partition(cfg, task)[:3]:
        task.pages.turn_to(sample["partition"])
        plan = task.pages.plan
        sentences = plan.order[slice(*plan.bounds[sample["partition"] :][:2])]
        words, counts = np.unique(
            np.concatenate([task.dataset("train").tgt[i].numpy() for i in sentences]), return_counts=True
        )
        scores, target = plain(**sample["net_input"])[0].detach().numpy(), sample["target"].numpy()
        omega = np.exp(scores[..., words]) / (counts / counts.sum())  # sentences x length x words of the partition
        place = np.searchsorted(words, target).clip(max=len(words) - 1)
        right = np.take_along_axis(omega, place[..., None], axis=-1)[..., 0]
        expected = -np.log(right / omega.sum(axis=-1))[target != PAD].sum()
        assert criterion(model, sample)[0].item() == pytest.approx(expected, rel=1e-6)


@trained
def test_frozen_tables_keep_every_bit_and_all_else_moves(build):
    cfg, task, model, criterion = build(*TAU, 30, "--freeze-word-tables")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    train_epochs(cfg, task, model, criterion)
    tables = {id(parameter) for table in word_tables(model) for parameter in table.parameters()}
    others = {name for name, parameter in model.named_parameters() if id(parameter) not in tables}
    assert tables and others
    after = model.state_dict()
    for name, value in before.items():
        if name not in others:
            assert torch.equal(after[name], value), name
        elif not name.endswith("k_proj.bias"):  # which adds the same to all that a softmax compares
            assert not torch.equal(after[name], value), name


def assert_same_bits(one, other) -> None:
    """Of numbers, tensors, and whatever holds them."""
    assert type(one) is type(other)
    if torch.is_tensor(one):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same_bits(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for some, more in zip(one, other):
            assert_same_bits(some, more)
    else:
        assert one == other


def trained_bits(path) -> list:
    state = torch.load(path, weights_only=True)
    return [state["model"], state["last_optimizer_state"]]


@trained
def test_saved_and_resumed_it_ends_with_the_same_bits(build, tmp_path):
    flags = (*TAU, 30, "--dropout", 0.1, "--reshuffle-partitions")
    train_epochs(*build(*flags), epochs=(1, 2), save=tmp_path / "whole.pt")
    train_epochs(*build(*flags), save=tmp_path / "half.pt")
    train_epochs(*build(*flags), epochs=(2,), resume=tmp_path / "half.pt", save=tmp_path / "resumed.pt")
    assert_same_bits(trained_bits(tmp_path / "resumed.pt"), trained_bits(tmp_path / "whole.pt"))


def ties(model, names) -> list:
    """Which of the names mean the same parameter."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return [[other for other in names if parameters[other] is parameters[name]] for name in names]


def test_adopted_it_has_the_same_parameters(build):
    results = []
    for flags in (("--criterion", "cross_entropy"), PLAIN):
        results.append((build(*flags)[2], torch.get_rng_state(), np.random.get_state()[1]))
    (model, *chances), (plain, *others) = results
    assert word_tables(model) is not None and word_tables(plain) is None
    assert all(np.array_equal(one, other) for one, other in zip(chances, others))
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert_same_bits(dict(model.state_dict()), dict(plain.state_dict()))
    names = [name for name, _ in plain.named_parameters(remove_duplicate=False)]
    assert ties(model, names) == ties(plain, names)
    assert [x.requires_grad for x in model.parameters()] == [x.requires_grad for x in plain.parameters()]


@trained
def test_without_our_flags_it_trains_as_fairseqs_own_task_bit_for_bit(build, tmp_path):
    for name, flags in (("own", ("--criterion", "cross_entropy")), ("plain", PLAIN)):
        train_epochs(*build(*flags, "--dropout", 0.1), save=tmp_path / name)
    assert_same_bits(trained_bits(tmp_path / "own"), trained_bits(tmp_path / "plain"))
