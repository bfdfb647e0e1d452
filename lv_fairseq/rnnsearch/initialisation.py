"""Initial values of an RNNsearch model: the original's, or scaled to the model's sizes."""

import torch
from torch import Tensor, nn

RECURRENT = ("gates", "candidate", "recurrent", "weight_hh_l0", "weight_hh_l0_reverse")
ATTENTION = ("decoder.attention.query", "encoder.keys")
ROWS_ARE_OUTPUTS = (
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
    "encoder.gru.unit.weight_ih_l0",
    "encoder.gru.unit.weight_ih_l0_reverse",
)


def weight(*shape: int) -> nn.Parameter:
    """A parameter to be drawn by `initialise`."""
    return nn.Parameter(torch.zeros(*shape))


@torch.no_grad()
def initialise(model: nn.Module, scaled: bool) -> None:
    """Recurrent weights are orthogonal, biases and v zero, all other weights drawn from a normal distribution.

    Its standard deviation is the original's (0.001 in the alignment model, 0.01 elsewhere), chosen for layers of 1000
    units, or else the inverse root of the number of inputs, which keeps signals alive in a model of any size.
    """
    for name, parameter in model.named_parameters():
        own_name = name.rsplit(".", 1)[-1]
        if "bias" in own_name or own_name == "v":
            parameter.zero_()
        elif own_name in RECURRENT:
            orthogonal_(parameter)
        elif scaled:
            parameter.normal_(std=parameter.size(-1 if name in ROWS_ARE_OUTPUTS else -2) ** -0.5)
        else:
            parameter.normal_(std=0.001 if name in ATTENTION else 0.01)


def orthogonal_(weight: Tensor) -> None:
    """Make each of the square matrices that stand side by side, or one above the other, orthogonal by itself."""
    hidden = min(weight.shape[-2:])
    for matrix in weight.view(-1, *weight.shape[-2:]):
        for square in matrix.split(hidden, dim=int(matrix.size(0) == hidden)):
            square.copy_(nn.init.orthogonal_(torch.empty(hidden, hidden)))
