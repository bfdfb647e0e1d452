"""Many tensors between host and device at once: a device is waited for at every single copy."""

from typing import List, Sequence

import torch
from torch import Tensor


def to_host(tensors: Sequence[Tensor]) -> List[Tensor]:
    """Tensors of one type on one device, of any shapes, as tensors of the CPU."""
    if not tensors or tensors[0].device.type == "cpu":
        return list(tensors)
    together = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = together.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors)]


def to_device(tensors: Sequence[Tensor], device: torch.device) -> List[Tensor]:
    """The way back, of tensors with one dimension."""
    if not tensors or device.type == "cpu":
        return list(tensors)
    return list(torch.cat(list(tensors)).to(device, non_blocking=True).split([len(tensor) for tensor in tensors]))
