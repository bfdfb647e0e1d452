"""Weights that are laid out for the processor once, and not at each product (--pack-weights).

A step of a search multiplies few rows, its hypotheses, by large matrices. Before each such product MKL, which torch
calls, lays a part of the matrix out anew; oneDNN takes one that has been laid out before. The copy needs as much memory
again as the weight. Sums are added in another order, so that last digits may differ.
"""

from typing import Any, Dict, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TYPICAL_ROWS = 5  # for which oneDNN chooses a layout; others work with it too


def available() -> bool:
    """Whether this torch can lay weights out."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def can_be_packed(weight: Tensor) -> bool:
    """On a CPU, in single precision, and not about to learn."""
    suitable = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() > 0
    return suitable and not torch.is_grad_enabled()


class PackedWeight:
    """A copy of a weight (outputs x inputs)."""

    def __init__(self, weight: Tensor):
        self._laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), TYPICAL_ROWS)

    def product(self, features: Tensor, bias: Optional[Tensor]) -> Tensor:
        """Features (... x inputs) to features weight^T + bias (... x outputs)."""
        return torch.ops.mkldnn._linear_pointwise(features, self._laid_out, bias, "none", [], "")


def linear(features: Tensor, weight: Union[Tensor, PackedWeight], bias: Optional[Tensor]) -> Tensor:
    """``F.linear``, also of a weight that is packed."""
    if isinstance(weight, PackedWeight):
        return weight.product(features, bias)
    return F.linear(features, weight, bias)


class PackedLinear(nn.Linear):
    """An ``nn.Linear`` that packs its weight when it is first used to decode, and forgets that when it changes.

    Its weight stays where it is: parts of fairseq's attention read it and multiply by themselves.
    """

    _packed: Optional[PackedWeight] = None

    def forward(self, features: Tensor) -> Tensor:
        if self.training or not can_be_packed(self.weight) or features.dtype != torch.float32 or not features.numel():
            return super().forward(features)
        if self._packed is None:
            self._packed = PackedWeight(self.weight)
        return self._packed.product(features, self.bias)

    def train(self, mode: bool = True):
        self._packed = None if mode else self._packed
        return super().train(mode)

    def _apply(self, *args, **kwargs):
        self._packed = None
        return super()._apply(*args, **kwargs)

    def _load_from_state_dict(self, *args, **kwargs):
        self._packed = None
        super()._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # oneDNN's layout cannot be copied


def pack_layers(model: nn.Module) -> None:
    """Let every plain ``nn.Linear`` of a model pack its weight. They stay the same objects, wherever they are kept;
    one whose weight is computed from other parameters stays as it is."""
    for module in model.modules():
        if type(module) is nn.Linear and "weight" in module._parameters:
            module.__class__ = PackedLinear
