"""Training on pages equals training a full table of which only the rows of the page are touched."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables import Page, ReadingTable, ScoringTable, carry_rows, correct_late_rows, freeze
from lv_fairseq.word_tables.page import has_rows_of

WORDS, DIM, ROWS = 12, 3, 6
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.01),
    "nag": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0, rho=0.95, eps=1e-6),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.999)),
}


class Model(nn.Module):
    """A word predicts the next one: reads and scores with tables, and has one other weight."""

    def __init__(self, tied=False):
        super().__init__()
        torch.manual_seed(1)
        self.read = ReadingTable(nn.Embedding(WORDS, DIM))
        linear = nn.Linear(DIM, WORDS)
        if tied:
            linear.weight = self.read.weight
        self.score = ScoringTable(linear)
        self.other = nn.Parameter(torch.randn(DIM, DIM))
        for parameter in self.parameters():
            nn.init.normal_(parameter)
        self.double()

    def loss(self, words, following):
        features = self.read(words) @ self.other
        rows, weight, bias, offset = self.score.active(following)
        scores = features @ weight.t() + bias
        return nn.functional.cross_entropy(scores if offset is None else scores + offset, rows, reduction="sum")


def on_pages(model, optimizer_name):
    """Put the model on a page; returns the page and its optimiser."""
    page = Page(WORDS, ROWS)
    model.read.put_on(page)
    model.score.put_on(page)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    carry_rows(optimizer)
    return page, optimizer


def update(model, optimizer, words, following):
    optimizer.zero_grad()
    loss = model.loss(words, following)
    loss.backward()
    optimizer.step()
    return loss.item()


def reference_update(model, optimizer, page_words, words, following):
    """The full table: scores of other words are masked, their rows and statistics put back after the step."""
    outside = torch.tensor([w for w in range(WORDS) if w not in page_words])
    tables = {p for p in model.parameters() if len(p) == WORDS}
    optimizer.zero_grad()
    features = model.read(words) @ model.other
    scores = (features @ model.score.weight.t() + model.score.bias).index_fill(1, outside, float("-inf"))
    loss = nn.functional.cross_entropy(scores, following, reduction="sum")
    loss.backward()
    before = {p: p.detach().clone() for p in tables}
    states = {p: copy.deepcopy(optimizer.state.get(p, {})) for p in tables}
    optimizer.step()
    with torch.no_grad():
        for p in tables:
            p[outside] = before[p][outside]
            for name, value in optimizer.state[p].items():
                if has_rows_of(value, p):
                    value[outside] = states[p][name][outside] if name in states[p] else 0
    return loss.item()


def partitions(seed, count=4):
    """Pages of words, each with some batches of (words, following words)."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        words = np.sort(random.choice(WORDS, random.integers(2, ROWS + 1), replace=False))
        yield words, [torch.from_numpy(random.choice(words, (2, 5))) for _ in range(random.integers(1, 4))]


@pytest.mark.parametrize("name", ["sgd", "nag", "adagrad", "adadelta"])
@pytest.mark.parametrize("tied", [False, True])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_pages_equal_a_full_table_of_which_only_some_rows_are_touched(name, tied, seed):
    paged, full = Model(tied), Model(tied)
    page, optimizer = on_pages(paged, name)
    full_optimizer = OPTIMIZERS[name](full.parameters())
    for words, batches in partitions(seed):
        page.turn_to(words)
        for batch in batches:
            loss = update(paged, optimizer, *batch)
            assert loss == pytest.approx(reference_update(full, full_optimizer, words, *batch), abs=1e-9)
    for key, value in full.state_dict().items():
        torch.testing.assert_close(paged.state_dict()[key], value, rtol=0, atol=1e-9)
    mine, theirs = optimizer.state_dict()["state"], full_optimizer.state_dict()["state"]
    for number, state in theirs.items():
        for key, value in state.items():
            torch.testing.assert_close(torch.as_tensor(mine[number][key]), torch.as_tensor(value), rtol=0, atol=1e-9)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_adam_counts_the_updates_of_each_row(seed):
    """Plain numpy: each row of a table has an Adam of its own, which only runs while the row is on the page."""
    paged = Model()
    page, optimizer = on_pages(paged, "adam")
    correct_late_rows(optimizer)
    plain = {name: value.clone().numpy() for name, value in paged.state_dict().items()}
    m, v = ({name: np.zeros_like(value) for name, value in plain.items()} for _ in range(2))
    k = {name: np.zeros((len(value), *[1] * (value.ndim - 1))) for name, value in plain.items()}
    for words, batches in partitions(seed, count=6):
        page.turn_to(words)
        for batch in batches:
            update(paged, optimizer, *batch)
            for name, parameter in paged.named_parameters():
                rows = words if hasattr(parameter, "host") else np.arange(DIM)
                g = parameter.grad[: len(rows)].numpy()
                k[name][rows] += 1
                m[name][rows] = 0.9 * m[name][rows] + 0.1 * g
                v[name][rows] = 0.999 * v[name][rows] + 0.001 * g**2
                mean, square = m[name][rows] / (1 - 0.9 ** k[name][rows]), v[name][rows] / (1 - 0.999 ** k[name][rows])
                plain[name][rows] -= 0.1 * mean / (np.sqrt(square) + 1e-8)
    for name, value in paged.state_dict().items():
        np.testing.assert_allclose(value.numpy(), plain[name], atol=0.004)  # up to what is called negligible there


@pytest.mark.parametrize("corrected, length", [(False, 0.316), (True, 0.1)])
def test_the_first_step_of_a_row_that_comes_late_is_as_long_as_the_learning_rate(corrected, length):
    model = Model()
    page, optimizer = on_pages(model, "adam")
    if corrected:
        correct_late_rows(optimizer)
    page.turn_to([0, 1, 2, 3])
    for _ in range(4000):
        update(model, optimizer, torch.tensor([0, 1]), torch.tensor([2, 3]))
    before = model.score.state_dict()["bias"].clone()
    page.turn_to([0, 1, 2, 8])
    update(model, optimizer, torch.tensor([0, 1]), torch.tensor([8, 8]))
    step = (model.score.state_dict()["bias"] - before).abs()
    assert step[8] == pytest.approx(length, rel=0.03)
    assert not step[[3, 4, 5, 6, 7, 9]].any()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_that_is_saved_and_resumed_is_the_same_bit_for_bit(name):
    def run(stop_after):
        model = Model()
        page, optimizer = on_pages(model, name)
        correct_late_rows(optimizer)
        for number, (words, batches) in enumerate(partitions(3, count=6)):
            if number == stop_after:
                saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
                model = Model()
                for parameter in model.parameters():
                    nn.init.zeros_(parameter)
                page, optimizer = on_pages(model, name)
                correct_late_rows(optimizer)
                model.load_state_dict(saved[0])
                optimizer.load_state_dict(saved[1])
            page.turn_to(words)
            for batch in batches:
                update(model, optimizer, *batch)
        return model.state_dict(), optimizer.state_dict()["state"]

    (whole, statistics), (parts, resumed) = run(None), run(3)
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    for number in statistics:
        for key, value in statistics[number].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(resumed[number][key])), key


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_checkpoint_without_pages_goes_on_with_pages_and_back(name):
    full, batch = Model(), torch.tensor([[0, 1, 2], [3, 4, 5]])
    optimizer = OPTIMIZERS[name](full.parameters())
    update(full, optimizer, *batch)

    paged = Model()
    page, paged_optimizer = on_pages(paged, name)
    correct_late_rows(paged_optimizer)
    paged.load_state_dict(full.state_dict())
    paged_optimizer.load_state_dict(optimizer.state_dict())
    page.turn_to(range(ROWS))
    update(paged, paged_optimizer, *batch)

    again = Model()
    again_optimizer = OPTIMIZERS[name](again.parameters())
    again.load_state_dict(paged.state_dict())
    again_optimizer.load_state_dict(paged_optimizer.state_dict())
    update(again, again_optimizer, *batch)
    assert all(value.shape[0] in (WORDS, DIM) for value in again.state_dict().values())


def test_evaluation_reads_and_scores_all_words():
    paged, full = Model(), Model()
    page, optimizer = on_pages(paged, "sgd")
    page.turn_to([1, 5, 7])
    update(paged, optimizer, torch.tensor([1, 5]), torch.tensor([5, 7]))
    full.load_state_dict(paged.state_dict())
    words, features = torch.arange(WORDS), torch.randn(4, DIM, dtype=torch.double)
    paged.eval()
    assert torch.equal(paged.read(words), full.read(words))
    torch.testing.assert_close(paged.score(features), full.score(features))
    chunks = list(paged.score.chunks(rows=5))
    assert [start for start, _, _ in chunks] == [0, 5, 10]
    assert torch.equal(torch.cat([weight for _, weight, _ in chunks]), full.score.weight)


def test_words_outside_the_page_map_to_some_row_and_spare_rows_stay_zero():
    model = Model()
    page, optimizer = on_pages(model, "sgd")
    page.turn_to([2, 3, 11])
    assert page.rows_of(torch.tensor([[2, 3], [11, 7]])).tolist() == [[0, 1], [2, 0]]
    update(model, optimizer, torch.tensor([2, 3]), torch.tensor([3, 11]))
    assert not model.score.weight[3:].any() and not model.score.weight.grad[3:].any()
    with pytest.raises(ValueError, match="7 words do not fit on a page of 6 rows"):
        page.turn_to(range(7))


def test_a_page_may_get_another_number_of_rows():
    model, plain = Model(), Model()
    page, optimizer = on_pages(model, "adam")
    plain_page, plain_optimizer = on_pages(plain, "adam")
    for number, (words, batches) in enumerate(partitions(5, count=5)):
        page.resize(ROWS + number % 2)
        page.turn_to(words)
        plain_page.turn_to(words)
        for batch in batches:
            update(model, optimizer, *batch)
            update(plain, plain_optimizer, *batch)
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=1e-12)


def test_frozen_tables_are_read_but_never_written_back():
    model = Model()
    for table in (model.read, model.score):
        table.requires_grad_(False)
    page, optimizer = on_pages(model, "adam")
    before = copy.deepcopy(model.state_dict())
    for words, batches in partitions(2):
        page.turn_to(words)
        for batch in batches:
            update(model, optimizer, *batch)
    after = model.state_dict()
    assert not torch.equal(before["other"], after["other"])
    assert all(torch.equal(before[key], after[key]) for key in before if key != "other")
    assert [tuple(p.shape) for p in optimizer.state] == [(DIM, DIM)]


def test_an_optimizer_without_statistics_for_each_row_is_refused():
    class Factored(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["columns"] = p.grad.pow(2).mean(0)

    model = Model()
    page = Page(WORDS, ROWS)
    model.read.put_on(page)
    with pytest.raises(UserError, match="columns.*take another one"):
        carry_rows(Factored(model.parameters()))


def test_a_checkpoint_of_another_vocabulary_is_refused_and_nothing_overwritten():
    model = Model()
    on_pages(model, "sgd")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="another size"):
        model.load_state_dict({**before, "read.weight": torch.zeros(WORDS + 1, DIM)})
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_page_has_room_for_no_more_scored_words_than_the_softmax_runs_over():
    page = Page(WORDS, ROWS)
    page.score_only(3)
    page.turn_to(range(3), unscored=range(3, ROWS))
    assert page.offset(torch.device("cpu")).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="4 words do not fit on a page of 3 rows"):
        page.turn_to(range(4))
    page.resize(ROWS - 1)
    assert page.scored == ROWS - 1


def test_freezing_numbers_the_parameters_that_an_optimiser_knows():
    model = Model()
    model.other.requires_grad_(False)
    freeze(model, [model.read])
    assert not hasattr(model.other, "place")
    places = [parameter.place for parameter in model.parameters() if hasattr(parameter, "place")]
    assert places == [(0, 3), (1, 3), (2, 3)] and not model.read.weight.requires_grad
