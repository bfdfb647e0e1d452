"""The matrix products of an update, alone: the least that any program must do for it.

What is multiplied in an update is written down as shapes and strides, and multiplied again with random numbers into
memory that is there already: no table is read, no softmax taken, no gradient stepped along.
"""

import math
import time
from typing import Callable, Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# which arguments of an operation are its factors
FACTORS = {aten.mm: (0, 1), aten.bmm: (0, 1), aten.mv: (0, 1)}
FACTORS.update({aten.addmm: (1, 2), aten.addmm_: (1, 2), aten.addmv: (1, 2), aten.addmv_: (1, 2)})
FACTORS.update({aten.baddbmm: (1, 2), aten.baddbmm_: (1, 2)})
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu
ATTENTION_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward


class Matrix(NamedTuple):
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Matrix":
        dense = 0 not in tensor.stride()  # else rows that are one in memory
        return cls(tuple(tensor.shape), tensor.stride() if dense else torch.empty(tensor.shape, device="meta").stride())


Product = Tuple[Matrix, Matrix]


class Recorder(TorchDispatchMode):
    """Writes down the products of what runs inside it."""

    def __init__(self):
        super().__init__()
        self.products: List[Product] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        packet = getattr(function, "overloadpacket", None)
        if packet in FACTORS:
            self.add(*(args[place] for place in FACTORS[packet]))
        elif packet is ATTENTION:
            self.add_attention(*args[:3])
        elif packet is ATTENTION_BACKWARD:
            self.add_attention(*args[1:4], backward=True)
        return function(*args, **(kwargs or {}))

    def add(self, a: Tensor, b: Tensor) -> None:
        self.products.append((Matrix.of(a), Matrix.of(b)))

    def add_attention(self, query: Tensor, key: Tensor, value: Tensor, backward: bool = False) -> None:
        """(... x length x dim) torch's fused attention, which is two products forward and four, or five with the
        weights that it computes again, backward: four are counted."""
        query, key, value = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
        weights = query.new_empty(len(query), query.size(1), key.size(1))
        if not backward:
            self.add(query, key.transpose(1, 2))
            self.add(weights, value)
            return
        self.add(weights.transpose(1, 2), query)  # of the output's gradient, which has the query's shape
        self.add(query, value.transpose(1, 2))
        self.add(weights, key)
        self.add(weights.transpose(1, 2), query)


def operations(products: List[Product]) -> int:
    """Multiplications and additions."""
    return sum(2 * math.prod(a.shape) * (b.shape[-1] if len(b.shape) > 1 else 1) for a, b in products)


class Replay:
    """Multiplies again. Matrices of one shape are one in memory, which favours them a little."""

    def __init__(self, products: List[Product]):
        self.memory: Dict[Matrix, Tensor] = {}
        self.calls: List[Tuple[Callable, Tensor, Tensor, Tensor]] = []
        for a, b in products:
            multiply = torch.bmm if len(a.shape) == 3 else torch.mm if len(b.shape) == 2 else torch.mv
            shape = (*a.shape[:-1], *b.shape[-1:]) if len(b.shape) > 1 else a.shape[:-1]
            result = Matrix(shape, torch.empty(shape, device="meta").stride())
            self.calls.append((multiply, *map(self.tensor, (a, b, result))))

    def tensor(self, matrix: Matrix) -> Tensor:
        if matrix not in self.memory:
            self.memory[matrix] = torch.empty_strided(*matrix).uniform_(-0.1, 0.1)
        return self.memory[matrix]

    @torch.no_grad()
    def seconds(self, clock: Callable[[], float] = time.process_time) -> float:
        start = clock()
        for multiply, a, b, result in self.calls:
            multiply(a, b, out=result)
        return clock() - start
