"""One vector, and maybe one bias, for each word of a vocabulary V."""

from typing import Iterator, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables.page import HostRows, Page


class WordTable(nn.Module):
    """The rows that a model looks words up in and scores words with.

    Everyone outside speaks word numbers of the whole vocabulary; only the table knows which row is whose. Without a
    page it is an ordinary embedding. On a page (`put_on`), training sees the rows of the page, evaluation all words,
    and a checkpoint holds all words under the same names.

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
        self.bias = nn.Parameter(torch.zeros(words)) if bias else None
        self.page: Optional[Page] = None

    def put_on(self, page: Page) -> None:
        """Move all rows to host memory and keep only those of the page as parameters."""
        self.page = page
        for parameter in self.parameters():
            if not hasattr(parameter, "host"):
                HostRows(parameter, page)

    def embed(self, words: Tensor) -> Tensor:
        """Word numbers (any shape) to their vectors (the same shape x dim)."""
        if self.page is None:
            return F.embedding(words, self.weight)
        if self.training:
            self.page.changed = True
            return F.embedding(self.page.rows_of(words), self.weight)
        self.page.write_back()
        return F.embedding(words.to(self.weight.host.full.device), self.weight.host.full).to(self.weight)

    def project(self, features: Tensor) -> Tensor:
        """Features (... x dim) to a score for each word (... x words): the energy E(y) of the paper."""
        if self.page is None:
            return F.linear(features, self.weight, self.bias)
        return torch.cat([F.linear(features, weight, bias) for _, weight, bias in self.chunks()], dim=-1)

    def active(self, words: Tensor) -> Tuple[Tensor, Tensor, Optional[Tensor], Optional[Tensor]]:
        """What the softmax of training needs: rows of ``words``; weight, bias and offset of all active rows."""
        if self.page is None:
            return words, self.weight, self.bias, None
        self.page.changed = True
        return self.page.rows_of(words).long(), self.weight, self.bias, self.page.offset(words.device)

    def rows(self, words: Union[slice, Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight (... x dim) and bias (...) of some words; a slice of word numbers is a view of the table."""
        if self.page is not None:
            self.page.write_back()
        weight, bias = (self._whole(parameter) for parameter in (self.weight, self.bias))
        if torch.is_tensor(words):
            words = words.to(weight.device)
        return weight[words].to(self.weight), None if bias is None else bias[words].to(self.weight)

    def chunks(self, rows: int = 16384) -> Iterator[Tuple[int, Tensor, Optional[Tensor]]]:
        """The whole table, some rows at a time on the model's device: first word number, weight and bias."""
        if self.page is not None:
            self.page.write_back()
        weight, bias = (self._whole(parameter) for parameter in (self.weight, self.bias))
        for start in range(0, len(weight), rows):
            part = None if bias is None else bias[start : start + rows].to(self.weight, non_blocking=True)
            yield start, weight[start : start + rows].to(self.weight, non_blocking=True), part

    @staticmethod
    def _whole(parameter: Optional[nn.Parameter]) -> Optional[Tensor]:
        return parameter.host.full if hasattr(parameter, "host") else parameter

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        if self.page is not None:
            self.page.write_back()
        for name, parameter in self.named_parameters():
            whole = self._whole(parameter)
            destination[prefix + name] = whole if keep_vars else whole.detach()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected, errors):
        if self.page is None:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected, errors)
            return
        for name, parameter in self.named_parameters():
            saved = state_dict.get(prefix + name)
            if saved is None:
                missing_keys.append(prefix + name)
            elif saved.shape != parameter.host.full.shape:
                sizes = f"{tuple(saved.shape)} in the checkpoint, {tuple(parameter.host.full.shape)} in this model"
                errors.append(f"{prefix + name} is of another size: {sizes}")
            else:
                parameter.host.load(saved)


def need_tables(there: bool, what: str) -> None:
    """Refuse ``what`` if there are no word tables in a model."""
    if not there:
        raise UserError(f"{what} needs a model with word tables: --arch rnnsearch or rnnsearch_small")
