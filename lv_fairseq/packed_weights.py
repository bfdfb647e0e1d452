"""Weights that are laid out for the processor once, and not at each product (--pack-weights).

A step of a search multiplies few rows, its hypotheses, by large matrices. Before each such product MKL, which torch
calls, lays a part of the matrix out anew; oneDNN takes one that has been laid out before. The copy needs as much memory
again as the weight. Sums are added in another order, so that last digits may differ.
"""

from typing import Any, Dict, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# With how many rows oneDNN is faster (measured: docs/performance.md). It keeps some hundred KB for each number of rows
# that it has seen: above this many they are filled up to a multiple of it, so that there are few such numbers.
OF_A_LAYER, OF_WORDS = range(2, 17), range(1, 161)
ROUND = 16
LARGE = 1 << 18  # numbers of a weight: smaller ones stay in the processor's cache
TYPICAL_ROWS = 5  # for which oneDNN chooses a layout; others work with it too
LINEAR = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", None)


def available() -> bool:
    """Whether this torch can lay weights out."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedWeight:
    """A weight (outputs x inputs), and from its first suitable use on, if it is large, a copy of it that is laid out.

    Args:
        rows: how many rows of features the copy is used for
    """

    def __init__(self, weight: Tensor, rows: range):
        self.weight, self.rows = weight.detach(), rows
        self._laid_out: Optional[Tensor] = None
        self._version = -1  # of the weight, which in-place changes raise; of inference tensors torch does not say it
        single = weight.device.type == "cpu" and weight.dtype == torch.float32 and not weight.is_inference()
        self._suits = single and weight.numel() >= LARGE

    def product(self, features: Tensor, bias: Optional[Tensor]) -> Tensor:
        """Features (... x inputs) to features weight^T + bias (... x outputs)."""
        rows = features.numel() // max(features.size(-1), 1)
        whole = bias is None or bias.is_contiguous()  # oneDNN does not look at its strides
        if not (self._suits and whole and rows in self.rows and decodes(features)):
            return F.linear(features, self.weight, bias)
        if self._laid_out is None or self._version != self.weight._version:
            self._laid_out, self._version = laid_out(self.weight), self.weight._version
        if rows <= ROUND or rows % ROUND == 0:
            return LINEAR(features, self._laid_out, bias, "none", [], "")
        flat = F.pad(features.reshape(rows, -1), (0, 0, 0, -rows % ROUND))
        return LINEAR(flat, self._laid_out, bias, "none", [], "")[:rows].view(*features.shape[:-1], -1)


def decodes(features: Tensor) -> bool:
    """On a CPU, in single precision, and not about to learn."""
    single = features.dtype == torch.float32 and features.device.type == "cpu"
    return single and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def laid_out(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), TYPICAL_ROWS)


def linear(features: Tensor, weight: Union[Tensor, PackedWeight], bias: Optional[Tensor]) -> Tensor:
    """``F.linear``, also of a weight that may be packed."""
    if isinstance(weight, PackedWeight):
        return weight.product(features, bias)
    return F.linear(features, weight, bias)


class PackedLinear(nn.Linear):
    """An ``nn.Linear`` that packs its weight when it decodes.

    Its weight stays where it is: parts of fairseq's attention read it and multiply by themselves. In training, where
    optimisers may change it without a trace, nothing is packed.
    """

    _packed: Optional[PackedWeight] = None

    def forward(self, features: Tensor) -> Tensor:
        if self.training or torch.is_grad_enabled():
            return super().forward(features)
        if self._packed is None or self._packed.weight.data_ptr() != self.weight.data_ptr():
            self._packed = PackedWeight(self.weight, OF_A_LAYER)
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
