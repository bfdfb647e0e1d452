"""The columns of a score matrix whose rows are hypotheses and whose words are those of candidate lists.

fairseq's search takes a column for a word. Here column c is word c as long as c is one of the common words, special
symbols included, which are on every list. The columns after these are other words in each sentence, as many as the
longest list of the batch has; where a list is shorter, the score is minus infinity.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lv_fairseq.word_tables import WordTable

Rows = Tuple[Tensor, Optional[Tensor]]  # weight and bias


class Columns(NamedTuple):
    """What the columns of a batch mean, and the rows of the output tables that belong to them."""

    common: int  # columns that are the word of the same number
    others: Tensor  # sentences x other columns: word numbers, the padding symbol where there is none
    empty: Tensor  # sentences x other columns: True where there is none
    beam: int  # hypotheses of a sentence, one after the other
    shared: bool  # all sentences have the words of the first
    rows: Sequence[Tuple[Rows, Rows]] = ()  # of each model: common rows, and other rows (sentences x columns x dim)

    @property
    def width(self) -> int:
        return self.common + self.others.size(1)

    def with_rows(self, tables: Sequence[WordTable]) -> "Columns":
        """Gather the rows of the other words; those of the common words are a view."""
        rows: List[Tuple[Rows, Rows]] = []
        for table in tables:
            weight, bias = table.rows(self.others)
            bias = weight.new_zeros(self.others.shape) if bias is None else bias
            rows.append((table.rows(slice(self.common)), (weight, bias.masked_fill(self.empty, float("-inf")))))
        return self._replace(rows=rows)

    def reorder(self, order: Tensor) -> "Columns":
        """The columns of hypotheses ``order``. They change their order within a sentence, and sentences disappear."""
        sentences = len(order) // self.beam
        if self.shared or sentences == len(self.others):
            return self
        kept = order.view(sentences, self.beam)[:, 0].div(self.beam, rounding_mode="floor")
        rows = [
            (common, (weight.index_select(0, kept), bias.index_select(0, kept))) for common, (weight, bias) in self.rows
        ]
        return self._replace(others=self.others[kept], empty=self.empty[kept], rows=rows)

    def project(self, model: int, features: Tensor) -> Tensor:
        """Features (hypotheses x 1 x dim) of a model to scores (hypotheses x 1 x columns)."""
        common, (weight, bias) = self.rows[model]
        if not self.others.size(1):
            return F.linear(features, *common)
        scores = features.new_empty(len(features), 1, self.width)
        flat, features = scores.squeeze(1), features.squeeze(1)
        write_linear(flat[:, : self.common], features, *common)
        if self.shared:
            write_linear(flat[:, self.common :], features, weight[0], bias[0])
        else:
            by_sentence = features.view(len(weight), self.beam, -1)
            others = torch.baddbmm(bias.unsqueeze(1), by_sentence, weight.transpose(1, 2))
            flat[:, self.common :] = others.view(len(features), -1)
        return scores

    def words(self, columns: Tensor) -> Tensor:
        """Columns (hypotheses x length) to word numbers."""
        if not self.others.size(1):
            return columns
        places = (columns - self.common).clamp(min=0)
        others = self.others.expand(len(columns) // self.beam, -1).repeat_interleave(self.beam, dim=0)
        return torch.where(columns < self.common, columns, others.gather(1, places))

    def of_words(self, words: Tensor) -> Tensor:
        """Word numbers (sentences x length), all of them on the lists, to columns."""
        if not self.others.size(1):
            return words
        others = self.others.expand(len(words), -1).masked_fill(self.empty.expand(len(words), -1), -1)
        places = words.unsqueeze(-1).eq(others.unsqueeze(1)).int().argmax(dim=-1)
        return torch.where(words < self.common, words, places + self.common)


def write_linear(out: Tensor, features: Tensor, weight: Tensor, bias: Optional[Tensor]) -> None:
    """out := features weight^T + bias, without a copy of that size."""
    if bias is None:
        torch.mm(features, weight.t(), out=out)
    else:
        torch.addmm(bias, features, weight.t(), out=out)


def columns_of(
    common: int, others: Sequence[np.ndarray], pad: int, beam: int, device: torch.device, shared: bool = False
) -> Columns:
    """The columns for lists of the sentences of a batch; one list if it is shared."""
    width = max(map(len, others))
    words = np.full((len(others), width), -1, dtype=np.int64)
    for row, numbers in zip(words, others):
        row[: len(numbers)] = numbers
    empty = torch.from_numpy(words < 0).to(device)
    return Columns(common, torch.from_numpy(words).to(device).masked_fill(empty, pad), empty, beam, shared)
