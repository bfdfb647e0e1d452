"""Adam's bias correction for rows that are not on every page.

Adam divides its running means by 1 - beta^t, since they begin at zero. Its t counts the updates of a parameter, but a
word that first comes after many updates has means that begin now: its first step would be (1 - beta1) /
sqrt(1 - beta2) times as long as it should, about 3.2 times. Here each row counts its own updates k, and its step gets
the length that k asks for. Weight decay that an optimiser applies beside the gradient's step is no part of that: a late
row shrinks as much as any other.
"""

import math
from typing import Callable, Dict, Optional

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lv_fairseq.word_tables.optimizer_rows import first_step, paged, paged_groups, what_it_keeps

COUNTS = "row_updates"  # in the optimiser's state, so that it is paged and saved like any statistic
NEGLIGIBLE = 0.01  # a row that has had so many updates that its correction is nearer to 1 than this has none


def adam(k, beta1: float, beta2: float):
    """What Adam multiplies its step by after k updates."""
    return (1 - beta2**k) ** 0.5 / (1 - beta1**k)


def adamax(k, beta1: float, beta2: float):
    """Adamax divides by a maximum, which needs no correction, in place of the root of the mean square."""
    return 1 / (1 - beta1**k)


# by what an optimiser keeps of a parameter
CORRECTIONS: Dict[frozenset, Callable] = {
    frozenset({"step", "exp_avg", "exp_avg_sq"}): adam,
    frozenset({"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}): adam,
    frozenset({"step", "exp_avg", "exp_inf"}): adamax,
}


def correct_late_rows(optimizer: Optimizer) -> None:
    """Must be called after `carry_rows`."""
    length = correction(optimizer)
    if length is None:
        return
    beside = decays_beside_the_step(optimizer)
    late: Dict[nn.Parameter, tuple] = {}  # parameter: words of the page, rows that are late
    before: Dict[nn.Parameter, Tensor] = {}  # parameter: what these rows would be without a gradient

    def remember(optimizer, *unused):
        before.clear()
        for group, parameter in paged_groups(optimizer):
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            if COUNTS not in state:  # statistics from a run without pages: every row has been there all the time
                count_all_rows(parameter, updates(group, state), state)
            words = parameter.host.page.words
            if late.get(parameter, (None,))[0] is not words:  # once a page
                k = state[COUNTS][: len(words)].flatten()
                late[parameter] = words, ((k != updates(group, state)) & (k < enough(group))).nonzero().squeeze(1)
            if len(late[parameter][1]):
                decay = group["lr"] * group["weight_decay"] if beside else 0
                before[parameter] = parameter.detach()[late[parameter][1]] * (1 - decay)

    def correct(optimizer, *unused):
        for group, parameter in paged_groups(optimizer):
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            if COUNTS not in state:
                state[COUNTS] = parameter.new_zeros(len(parameter), *[1] * (parameter.dim() - 1))
            state[COUNTS] += 1
            if parameter in before:
                rows, betas = late[parameter][1], group["betas"]
                k = state[COUNTS][rows]
                factor = length(k, *betas) / length(updates(group, state), *betas)
                # by the row's own count alone, so that a resume in the middle of a page makes no difference
                factor = factor.masked_fill(k > enough(group), 1).expand_as(before[parameter])
                with torch.no_grad():
                    parameter[rows] = torch.lerp(before[parameter], parameter[rows], factor)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(correct)


def correction(optimizer: Optimizer) -> Optional[Callable]:
    """By which formula this optimiser corrects its means; None if it has no pages or does not correct."""
    if next(paged(optimizer), None) is None or not optimizer.defaults.get("bias_correction", True):
        return None
    return CORRECTIONS.get(frozenset(what_it_keeps(optimizer)[1]))


def decays_beside_the_step(optimizer: Optimizer) -> bool:
    """Whether weight decay shrinks a parameter, as in fairseq's Adam, or joins its gradient, as in torch's."""
    values, _ = first_step(optimizer, gradient=0.0, lr=0.5, weight_decay=0.5)
    return bool(torch.allclose(values, torch.full_like(values, 1 - 0.5 * 0.5)))


def enough(group: Dict) -> float:
    """So many updates need no correction: beta^k is small for both betas."""
    return math.log(NEGLIGIBLE) / math.log(max(*group["betas"], 1e-9))


def updates(group: Dict, state: Dict) -> float:
    """Of a parameter so far."""
    return float(state["step"] if "step" in state else group["step"])


def count_all_rows(parameter: nn.Parameter, count: float, state: Dict) -> None:
    shape = [1] * (parameter.dim() - 1)
    state[COUNTS] = parameter.new_full((len(parameter), *shape), count)
    parameter.host.home.add(COUNTS, tuple(shape), torch.float32, count)
