"""Memory of the host through which the rows of a page travel to a device: pinned, so that a GPU fetches them by itself,
and kept from one page to the next, since it takes longer to pin memory than to copy it."""

import math
from functools import cache
from typing import List, Optional

import torch
from torch import Tensor

BUFFERS = 2  # they take turns: one is filled while the device still reads the other


class Staging:
    """The buffers for one device. They grow to the largest page, and stay."""

    def __init__(self, device: torch.device):
        self.device = device
        self._memory: List[Tensor] = [torch.empty(0, dtype=torch.uint8)] * BUFFERS
        self._read: List[Optional[torch.cuda.Event]] = [None] * BUFFERS  # when the device has read what was in it
        self._turn = 0

    def buffer(self, like: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
        """Free memory for some rows as those of ``like``."""
        self._turn = (self._turn + 1) % BUFFERS
        read = self._read[self._turn]
        if read is not None:
            read.synchronize()
        size = rows * math.prod(like.shape[1:]) * dtype.itemsize
        if len(self._memory[self._turn]) < size:
            self._memory[self._turn] = torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        return self._memory[self._turn][:size].view(dtype).view(rows, *like.shape[1:])

    def send(self, buffer: Tensor, rows: Tensor) -> None:
        """Rows on the device := the buffer that was asked for last; does not wait."""
        rows.copy_(buffer, non_blocking=True)
        if self.device.type == "cuda":
            self._read[self._turn] = torch.cuda.current_stream(self.device).record_event()


@cache
def staging(device: torch.device) -> Staging:
    return Staging(device)
