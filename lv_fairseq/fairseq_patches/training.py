"""Training: which sentences are in a batch, and which optimisers there are."""

import copy
from typing import Callable, Dict

import torch
from fairseq import optim
from fairseq.data import data_utils


def keep_every_sentence() -> None:
    """Give back the sentences that fairseq-fixed loses when it makes batches.

    Its ``batch_by_size`` throws the last batch away if its size is not a multiple of
    ``--required-batch-size-multiple`` (8): fairseq-generate then leaves sentences out without a word, and a corpus of a
    few sentences has no batch at all.
    """
    cut = data_utils.batch_by_size

    def cut_and_keep(indices, *args, **kwargs):
        if len(indices) == 0:
            return []
        batches = cut(indices, *args, **kwargs)
        rest = indices[sum(map(len, batches)) :]
        return [*batches, rest] if len(rest) else batches

    data_utils.batch_by_size = cut_and_keep


def meet_every_optimizer(meet: Callable[[torch.optim.Optimizer], None]) -> None:
    """Call ``meet`` with each optimiser that fairseq builds; its trainer builds one late and another on a resume."""
    build = optim.build_optimizer

    def build_and_meet(*args, **kwargs):
        optimizer = build(*args, **kwargs)
        # --optimizer composite holds one for each group of parameters, and is none itself, whatever its class says
        for part in getattr(optimizer, "optimizers", {"all": optimizer}).values():
            meet(part.optimizer)
            part.optimizer.register_load_state_dict_pre_hook(own_statistics)
        return optimizer

    optim.build_optimizer = build_and_meet


def own_statistics(optimizer: torch.optim.Optimizer, state_dict: Dict) -> Dict:
    """A copy of what an optimiser loads, which it would keep and write to: it may be a file that is mapped."""
    return {**state_dict, "state": copy.deepcopy(state_dict["state"])}
