"""The optimiser's statistics of a word travel with its row, for any optimiser that keeps them in the row's shape."""

from collections import defaultdict
from functools import partial
from typing import Dict, Iterator, Tuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables.page import HostRows, has_rows_of
from lv_fairseq.word_tables.stored_rows import filled


def carry_rows(optimizer: Optimizer, advice: str = "make it anew") -> None:
    """Let ``optimizer`` and the pages of its parameters know of each other.

    From then on, turning a page moves the statistics too, the optimiser's ``state_dict`` holds those of all words, and
    ``load_state_dict`` takes such a one. An optimiser that is made anew for the same parameters replaces the old one.

    Args:
        advice: what to do with an optimiser that a checkpoint has no statistics for
    """
    for number, parameter in enumerate(paged(optimizer)):
        if number == 0:
            check(optimizer)
        host: HostRows = parameter.host
        host.optimizer_state = lambda parameter=parameter: optimizer.state.get(parameter, {})
        # Most optimisers begin at the first step, with zeros; Adagrad begins at once, with any one value.
        host.home.forget_statistics()
        for name, value in host.page_statistics():
            host.home.add(name, tuple(value.shape[1:]), value.dtype, value.flatten()[0].item())
    optimizer.register_state_dict_post_hook(_give_all_words)
    optimizer.register_load_state_dict_pre_hook(partial(_take_all_words, advice))


def paged(optimizer: Optimizer) -> Iterator[nn.Parameter]:
    for _, parameter in paged_groups(optimizer):
        yield parameter


def paged_groups(optimizer: Optimizer) -> Iterator[Tuple[Dict, nn.Parameter]]:
    """The parameters with pages, each with the group of settings it is in."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if hasattr(parameter, "host"):
                yield group, parameter


def first_step(optimizer: Optimizer, gradient: float = 1.0, **settings) -> Tuple[Tensor, Dict]:
    """What this optimiser makes of a new parameter of 5 x 3 ones in one step, and what it keeps of it; the count of
    updates too if it is kept with a group, as apex's FusedAdam does."""
    group, like = next(paged_groups(optimizer))
    parameter = nn.Parameter(torch.ones(5, 3, device=like.device))
    parameter.grad = torch.full_like(parameter, gradient)
    probe = object.__new__(type(optimizer))  # copy.copy leaves out what torch does not save, such as own attributes
    probe.__dict__.update(vars(optimizer), state=defaultdict(dict))
    group = {**group, **settings, "params": [parameter]}
    probe.param_groups = [group]
    probe.step()
    count = {"step": group["step"]} if "step" in group else {}
    return parameter.detach(), {**count, **probe.state[parameter]}


def what_it_keeps(optimizer: Optimizer) -> Tuple[Tensor, Dict]:
    """A parameter with a page and what this optimiser keeps of it; before the first step, of one like it."""
    parameter = next(paged(optimizer))
    state = optimizer.state.get(parameter)
    return (parameter, state) if state else first_step(optimizer)


def check(optimizer: Optimizer) -> None:
    """Refuse an optimiser that keeps something else than numbers and row-shaped statistics in single precision."""
    values, state = what_it_keeps(optimizer)
    for name, value in state.items():
        if torch.is_tensor(value) and value.dtype in (torch.float16, torch.bfloat16):
            raise UserError(
                f"this optimiser keeps {name} in half precision, with one scale for all rows of a page, whose words "
                "change: leave out fp16_adam_stats"
            )
        if torch.is_tensor(value) and value.dim() and not has_rows_of(value, values):
            raise UserError(
                f"this optimiser keeps {name} of shape {tuple(value.shape)} for a table of {tuple(values.shape)}, "
                "not a row for each word: for pages of words take another one, such as adam, adadelta, adagrad, nag or "
                "sgd"
            )


def _numbered(optimizer: Optimizer, state_dict: Dict) -> Iterator[Tuple[int, nn.Parameter]]:
    """The numbers that a state_dict gives to the parameters with pages."""
    for group, saved in zip(optimizer.param_groups, state_dict["param_groups"]):
        for parameter, number in zip(group["params"], saved["params"]):
            if hasattr(parameter, "host"):
                yield number, parameter


def _give_all_words(optimizer: Optimizer, state_dict: Dict) -> Dict:
    for page in {id(p.host.page): p.host.page for p in paged(optimizer)}.values():
        page.write_back(statistics=True)
    state = dict(state_dict["state"])
    for number, parameter in _numbered(optimizer, state_dict):
        if number in state:
            home = parameter.host.home
            state[number] = {**state[number], **{name: home.to_save(name) for name in home.statistics}}
    return {**state_dict, "state": state}


def _take_all_words(advice: str, optimizer: Optimizer, state_dict: Dict) -> Dict:
    state_dict = leave_out_frozen(optimizer, state_dict, advice)
    state = dict(state_dict["state"])
    for number, parameter in _numbered(optimizer, state_dict):
        host: HostRows = parameter.host
        whole = torch.empty(host.home.shape, device="meta")
        saved = {k: v for k, v in state.get(number, {}).items() if has_rows_of(v, whole)}
        pages = {k: torch.zeros(len(parameter), *v.shape[1:], dtype=v.dtype) for k, v in saved.items()}
        host.home.load_statistics(saved)
        host.home.settle()
        for name, rows in pages.items():
            host.home.take(host.page.words, rows, name)
        if number in state:
            state[number] = {**state[number], **pages}
    state = {number: {name: filled(value) for name, value in found.items()} for number, found in state.items()}
    return {**state_dict, "state": state}


def leave_out_frozen(optimizer: Optimizer, state_dict: Dict, advice: str) -> Dict:
    """A state_dict from before the tables were frozen, without what it says of them.

    Parameters of a model with frozen ones carry their place among all of them (``parameter.place``).
    """
    groups = [list(group["params"]) for group in optimizer.param_groups]
    saved = [list(group["params"]) for group in state_dict["param_groups"]]
    places = [getattr(parameter, "place", None) for parameter in groups[0]]
    if list(map(len, groups)) == list(map(len, saved)):
        return state_dict
    if len(groups) != 1 or len(saved) != 1 or None in places or len(saved[0]) != places[0][1]:
        raise UserError(
            f"the checkpoint's optimiser knows {sum(map(len, saved))} parameters, this run trains "
            f"{sum(map(len, groups))}: {advice}"
        )
    kept = [saved[0][place] for place, _ in places]
    state = {number: value for number, value in state_dict["state"].items() if number in kept}
    return {**state_dict, "state": state, "param_groups": [{**state_dict["param_groups"][0], "params": kept}]}
