"""A row that comes late is trained as if it had an optimiser of its own, which runs while the row is on the page."""

import copy

import pytest
import torch
from fairseq.optim.adam import Adam as FairseqAdam
from fairseq.optim.adamax import Adamax as FairseqAdamax
from torch import nn

from lv_fairseq import UserError
from lv_fairseq.word_tables import Page, ScoringTable, carry_rows, correct_late_rows

WORDS, DIM, ROWS = 8, 3, 4


class AdamThatCountsGroups(torch.optim.Optimizer):
    """Keeps the number of updates with a group of parameters and not with each of them, as apex's FusedAdam does."""

    def __init__(self, params, lr=0.1, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, betas=(0.9, 0.999)))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            lr, (beta1, beta2), k = group["lr"], group["betas"], group["step"]
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                mean, square = (self.state[p][name] for name in ("exp_avg", "exp_avg_sq"))
                mean.lerp_(p.grad, 1 - beta1)
                square.lerp_(p.grad**2, 1 - beta2)
                p *= 1 - lr * group["weight_decay"]
                p -= lr * (mean / (1 - beta1**k)) / ((square / (1 - beta2**k)).sqrt() + 1e-9)


OPTIMIZERS = {
    "fairseq's adam": FairseqAdam,
    "fairseq's adam with amsgrad": lambda p, **how: FairseqAdam(p, amsgrad=True, **how),
    "adam that counts groups": AdamThatCountsGroups,
    "fairseq's adamax": FairseqAdamax,
    "fairseq's adamax, uncorrected": lambda p, **how: FairseqAdamax(p, bias_correction=False, **how),
    "torch's adam": torch.optim.Adam,
    "torch's adamw": torch.optim.AdamW,
    "torch's adamax": torch.optim.Adamax,
}


def on_page(optimizer_of):
    torch.manual_seed(1)
    table = ScoringTable(nn.Linear(DIM, WORDS)).double()
    for parameter in table.parameters():
        nn.init.normal_(parameter)
    page = Page(WORDS, ROWS)
    table.put_on(page)
    optimizer = optimizer_of(table.parameters())
    carry_rows(optimizer)
    correct_late_rows(optimizer)
    return table, page, optimizer


def step(table, page, optimizer, gradients):
    """One update with these gradients (words x dim, words); a page sees those of its words."""
    for parameter, gradient in zip((table.weight, table.bias), gradients):
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad[: len(page.words)] = gradient[page.words]
    page.changed = True
    optimizer.step()


class OptimizerForEachWord:
    """The slow reference: each word has parameters and an optimiser of its own."""

    def __init__(self, table, optimizer_of):
        rows = zip(table["weight"], table["bias"])
        self.rows = [[nn.Parameter(x.clone()) for x in (weight, bias.reshape(1))] for weight, bias in rows]
        self.optimizers = [optimizer_of(row) for row in self.rows]

    def step(self, words, gradients):
        for word in words:
            weight, bias = self.rows[word]
            weight.grad, bias.grad = gradients[0][word].clone(), gradients[1][word].reshape(1).clone()
            self.optimizers[word].step()

    def set_lr(self, lr):
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = lr


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_late_rows_are_trained_as_by_an_optimizer_started_for_them(name, weight_decay):
    optimizer_of = lambda p: OPTIMIZERS[name](p, lr=0.1, weight_decay=weight_decay)
    table, page, optimizer = on_page(optimizer_of)
    slow = OptimizerForEachWord(table.state_dict(), optimizer_of)
    random = torch.Generator().manual_seed(1)
    draw = lambda *shape: torch.randn(*shape, generator=random, dtype=torch.double)
    for number, words in enumerate([[0, 1, 2], [0, 1, 3], [4, 5], [0, 3, 5, 6], [1, 2, 7]]):
        page.turn_to(words)
        for _ in range(5):
            lr = 0.1 / (1 + number)  # a schedule changes it
            optimizer.param_groups[0]["lr"] = lr
            slow.set_lr(lr)
            gradients = draw(WORDS, DIM), draw(WORDS)
            step(table, page, optimizer, gradients)
            slow.step(words, gradients)
    result = table.state_dict()
    for word, (weight, bias) in enumerate(slow.rows):
        torch.testing.assert_close(result["weight"][word], weight.detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(result["bias"][word], bias.detach()[0], rtol=0, atol=1e-6)


class AdamWithAnAttribute(FairseqAdam):
    """As apex's fused Adam has them."""

    def __init__(self, params, **how):
        super().__init__(params, **how)
        self.own = True

    def step(self, closure=None):
        assert self.own
        super().step(closure)


class AdamInHalf(FairseqAdam):
    """Keeps its means in half precision and their scale with the parameter, as apex's does with --fp16-adam-stats."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["exp_avg_scale"] = state["exp_avg"].abs().max() / 65504
            state["exp_avg"] = (state["exp_avg"] / state["exp_avg_scale"]).half()


def test_means_in_half_precision_are_refused():
    with pytest.raises(UserError, match="fp16_adam_stats"):
        on_page(AdamInHalf)


@pytest.mark.parametrize(
    "optimizer_of", [AdamWithAnAttribute, lambda p: FairseqAdam(p, betas=(0.0, 0.0))], ids=["attribute", "no memory"]
)
def test_unusual_optimizers_train(optimizer_of):
    table, page, optimizer = on_page(optimizer_of)
    for words in ([0, 1], [1, 2], [0, 2]):
        page.turn_to(words)
        before = table.weight.detach().clone()
        step(table, page, optimizer, (torch.ones(WORDS, DIM), torch.ones(WORDS)))
        assert (table.weight[:2] < before[:2]).all()


@pytest.mark.parametrize("name", ["fairseq's adam", "fairseq's adamax", "torch's adam", "torch's adamw"])
def test_the_first_step_of_a_late_row_is_as_long_as_the_learning_rate(name):
    table, page, optimizer = on_page(lambda p: OPTIMIZERS[name](p, lr=0.1, weight_decay=0.0))
    ones = torch.ones(WORDS, DIM, dtype=torch.double), torch.ones(WORDS, dtype=torch.double)
    page.turn_to([0, 1])
    for _ in range(200):
        step(table, page, optimizer, ones)
    before = copy.deepcopy(table.state_dict())
    page.turn_to([0, 7])
    step(table, page, optimizer, ones)
    moved = before["weight"] - table.state_dict()["weight"]
    torch.testing.assert_close(moved[7], torch.full((DIM,), 0.1, dtype=torch.double), rtol=1e-3, atol=0)


@pytest.mark.parametrize("name", ["fairseq's adam", "fairseq's adamax", "torch's adamw"])
def test_a_late_row_without_a_gradient_decays_like_any_other(name):
    table, page, optimizer = on_page(lambda p: OPTIMIZERS[name](p, lr=0.1, weight_decay=0.05))
    none = torch.zeros(WORDS, DIM, dtype=torch.double), torch.zeros(WORDS, dtype=torch.double)
    page.turn_to([0, 1])
    for _ in range(5):
        step(table, page, optimizer, none)
    before = copy.deepcopy(table.state_dict())
    page.turn_to([0, 7])
    step(table, page, optimizer, none)
    after = table.state_dict()
    kept = 1 - 0.1 * 0.05
    torch.testing.assert_close(after["weight"][[0, 7]], before["weight"][[0, 7]] * kept, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", ["fairseq's adam", "fairseq's adamax", "torch's adamw"])
def test_a_word_decays_once_for_each_update_with_its_partition_where_plain_training_decays_it_in_every_update(name):
    optimizer_of = lambda p: OPTIMIZERS[name](p, lr=0.1, weight_decay=0.05)
    table, page, optimizer = on_page(optimizer_of)
    before = copy.deepcopy(table.state_dict()["weight"])
    none = torch.zeros(WORDS, DIM, dtype=torch.double), torch.zeros(WORDS, dtype=torch.double)
    for words, updates in ([0, 1], 3), ([1, 2], 4), ([0, 2], 2):
        page.turn_to(words)
        for _ in range(updates):
            step(table, page, optimizer, none)
    shrunk = (1 - 0.1 * 0.05) ** torch.tensor([3 + 2, 3 + 4, 4 + 2, 0, 0, 0, 0, 0], dtype=torch.double)
    torch.testing.assert_close(table.state_dict()["weight"], before * shrunk[:, None], rtol=1e-9, atol=0)
    assert torch.equal(table.state_dict()["weight"][3:], before[3:])

    plain = nn.Parameter(before.clone())
    optimizer = optimizer_of([plain])
    for _ in range(9):
        plain.grad = torch.zeros_like(plain)
        optimizer.step()
    torch.testing.assert_close(plain.detach(), before * (1 - 0.1 * 0.05) ** 9, rtol=1e-9, atol=0)
