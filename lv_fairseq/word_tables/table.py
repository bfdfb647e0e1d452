"""One vector, and maybe one bias, for each word of a vocabulary V."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class WordTable(nn.Module):
    """The rows that a model looks words up in and scores words with.

    Everyone outside speaks word numbers of the whole vocabulary; only the table knows which row is whose.

    Args:
        words: size of the vocabulary
        dim: size of a word vector
        bias: one more number a word, added to its score (b_t in the paper)
        tied_to: another table whose vectors this one shares
    """

    def __init__(self, words: int, dim: int, bias: bool = False, tied_to: Optional["WordTable"] = None):
        super().__init__()
        new = nn.Parameter(nn.init.normal_(torch.empty(words, dim), std=0.01)) if tied_to is None else tied_to.weight
        if new.shape != (words, dim):
            raise ValueError(f"cannot share a table of shape {tuple(new.shape)} with one of shape {(words, dim)}")
        self.weight = new
        self.bias = nn.Parameter(torch.empty(words).zero_()) if bias else None

    def embed(self, words: Tensor) -> Tensor:
        """Word numbers (any shape) to their vectors (the same shape x dim)."""
        return F.embedding(words, self.weight)

    def project(self, features: Tensor) -> Tensor:
        """Features (... x dim) to a score for each word (... x words): the energy E(y) of the paper."""
        return F.linear(features, self.weight, self.bias)
