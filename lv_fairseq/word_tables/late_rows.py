"""Adam's bias correction for rows that are not on every page.

Adam divides its running means by 1 - beta^t, since they begin at zero. Its t counts the updates of a parameter, but a
word that first comes after many updates has means that begin now: its first step would be (1 - beta1) /
sqrt(1 - beta2) times as long as it should, about 3.2 times. Here each row counts its own updates k, and its step gets
the length that k asks for, with any optimiser that has ``betas`` and ``step``.
"""

import math
from typing import Dict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lv_fairseq.word_tables.optimizer_rows import paged

COUNTS = "row_updates"  # in the optimiser's state, so that it is paged and saved like any statistic
NEGLIGIBLE = 0.01  # a row that has had so many updates that its correction is nearer to 1 than this has none


def correct_late_rows(optimizer: Optimizer) -> None:
    """Must be called after `carry_rows`."""
    if "betas" not in optimizer.defaults:
        return
    late: Dict[nn.Parameter, tuple] = {}  # parameter: words of the page, rows that are late
    before: Dict[nn.Parameter, Tensor] = {}  # parameter: values of these rows before the step

    def remember(optimizer, *unused):
        before.clear()
        for parameter in paged(optimizer):
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            if COUNTS not in state:  # statistics from a run without pages: every row has been there all the time
                count_all_rows(parameter, state)
            words = parameter.host.page.words
            if late.get(parameter, (None,))[0] is not words:  # once a page
                k = state[COUNTS][: len(words)].flatten()
                late[parameter] = words, ((k != float(state["step"])) & (k < enough(optimizer))).nonzero().squeeze(1)
            if len(late[parameter][1]):
                before[parameter] = parameter.detach()[late[parameter][1]]

    def correct(optimizer, *unused):
        for parameter in paged(optimizer):
            state = optimizer.state.get(parameter)
            if parameter.grad is None or not state:
                continue
            if COUNTS not in state:
                state[COUNTS] = parameter.new_zeros(len(parameter), *[1] * (parameter.dim() - 1))
            state[COUNTS] += 1
            if parameter in before:
                rows = late[parameter][1]
                k = state[COUNTS][rows]
                # by the row's own count alone, so that a resume in the middle of a page makes no difference
                correction = factor(k, state["step"], optimizer).masked_fill(k > enough(optimizer), 1)
                with torch.no_grad():
                    parameter[rows] = torch.lerp(
                        before[parameter], parameter[rows], correction.expand_as(before[parameter])
                    )

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(correct)


def enough(optimizer: Optimizer) -> float:
    """So many updates need no correction: beta^k is small for both betas."""
    return math.log(NEGLIGIBLE) / math.log(max(optimizer.param_groups[0]["betas"]))


def factor(k: Tensor, t, optimizer: Optimizer) -> Tensor:
    """Length of a step after k updates of a row, relative to that after t updates of its parameter."""
    (first, second), t = optimizer.param_groups[0]["betas"], float(t)
    return ((1 - second**k).sqrt() / (1 - first**k)) / ((1 - second**t) ** 0.5 / (1 - first**t))


def count_all_rows(parameter: nn.Parameter, state: Dict) -> None:
    shape = [1] * (parameter.dim() - 1)
    state[COUNTS] = parameter.new_full((len(parameter), *shape), float(state["step"]))
    parameter.host.statistics[COUNTS] = torch.full((len(parameter.host.full), *shape), float(state["step"]))
