"""The original's initial values: recurrent weights orthogonal, all others drawn from N(0, 0.01), biases zero."""

import torch
from torch import nn


def gaussian(*shape: int, std: float = 0.01) -> nn.Parameter:
    return nn.Parameter(nn.init.normal_(torch.empty(*shape), std=std))


def zeros(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape))


def orthogonal(*shape: int) -> nn.Parameter:
    """(... x hidden x n hidden): each of the square matrices side by side is orthogonal by itself."""
    weight = torch.empty(*shape)
    hidden = shape[-2]
    for square in weight.view(-1, *shape[-2:]):
        for block in square.split(hidden, dim=-1):
            block.copy_(nn.init.orthogonal_(torch.empty(hidden, hidden)))
    return nn.Parameter(weight)
