"""The gated recurrent unit of Cho et al. (2014), and the variant that torch and cuDNN fuse.

Both take the products of their inputs ready-made (``input_products``, one matrix product for a whole sentence) and only
do in ``step`` what depends on the previous state.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lv_fairseq.rnnsearch.initialisation import weight


class GRU(nn.Module):
    """The paper's unit: the reset gate is applied *before* the recurrent product.

    | r = sigmoid(W_r x + U_r h)
    | u = sigmoid(W_u x + U_u h)
    | candidate = tanh(W x + U (r * h) + b)
    | h' = u * candidate + (1 - u) * h

    Args:
        input_dim: size of x
        hidden: size of h
        stack: leading dimensions of the recurrent weights; ``(2,)`` holds two units that step at the same time
    """

    def __init__(self, input_dim: int, hidden: int, stack: tuple = ()):
        super().__init__()
        self.input = weight(*stack, input_dim, 3 * hidden)  # W_r | W_u | W
        self.gates = weight(*stack, hidden, 2 * hidden)  # U_r | U_u
        self.candidate = weight(*stack, hidden, hidden)  # U
        self.bias = weight(*stack, 1, hidden)  # b

    def input_products(self, x: Tensor) -> Tensor:
        """x (... x rows x input_dim) to W_r x | W_u x | W x + b (... x rows x 3 hidden)."""
        return torch.matmul(x, self.input) + F.pad(self.bias, (2 * self.bias.size(-1), 0))

    def step(self, products: Tensor, h: Tensor) -> Tensor:
        """Input products (... x rows x 3 hidden) and the state (... x rows x hidden) to the next state."""
        hidden = h.size(-1)
        gates, candidate = products.split([2 * hidden, hidden], dim=-1)
        r, u = torch.sigmoid(gates + torch.matmul(h, self.gates)).chunk(2, dim=-1)
        return torch.lerp(h, torch.tanh(candidate + torch.matmul(r * h, self.candidate)), u)


class FusedGRU(nn.Module):
    """torch's unit: the reset gate is applied *after* the recurrent product, and every product has a bias.

    One recurrent matrix product a step instead of two that wait for each other.

    | r = sigmoid(W_r x + U_r h + b_r)
    | u = sigmoid(W_u x + U_u h + b_u)
    | candidate = tanh(W x + b + r * (U h + b'))
    | h' = u * candidate + (1 - u) * h
    """

    def __init__(self, input_dim: int, hidden: int):
        super().__init__()
        self.input = weight(input_dim, 3 * hidden)
        self.recurrent = weight(hidden, 3 * hidden)
        self.input_bias = weight(3 * hidden)
        self.recurrent_bias = weight(hidden)

    def input_products(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.input) + self.input_bias

    def step(self, products: Tensor, h: Tensor) -> Tensor:
        hidden = h.size(-1)
        gates, candidate = products.split([2 * hidden, hidden], dim=-1)
        recurrent_gates, recurrent = torch.matmul(h, self.recurrent).split([2 * hidden, hidden], dim=-1)
        r, u = torch.sigmoid(gates + recurrent_gates).chunk(2, dim=-1)
        return torch.lerp(h, torch.tanh(candidate + r * (recurrent + self.recurrent_bias)), u)
