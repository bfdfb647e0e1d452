"""The columns of a score matrix whose rows are hypotheses and whose words are those of candidate lists.

A search takes a column for a word. The first columns are words that are on every list, special symbols before all
others, so that column c is word c for these; where the dictionary is sorted by frequency it is so for all of them, and
their rows are a slice of the table. The columns after these are other words in each sentence, as many as the longest
list of the batch has; where a list is shorter, the score is minus infinity.
"""

from typing import Dict, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lv_fairseq.packed_weights import PackedWeight, linear
from lv_fairseq.word_tables.number_spaces import ListColumns, WordNumbers


class Columns(NamedTuple):
    """What the columns of a batch mean."""

    shared_words: Optional[WordNumbers]  # the first columns: word numbers; None if column c is word c
    count: int  # type: ignore[assignment]  # how many these are
    others: WordNumbers  # sentences x other columns: word numbers, the padding symbol where there is none
    empty: Tensor  # sentences x other columns: True where there is none
    beam: int  # hypotheses of a sentence, one after the other
    one_list: bool  # all sentences have the words of the first

    @property
    def width(self) -> int:
        return self.count + self.others.size(1)

    def first_words(self) -> Union[slice, WordNumbers]:
        return slice(self.count) if self.shared_words is None else self.shared_words

    def kept(self, order: Tensor) -> Optional[Tensor]:
        """Which sentences the hypotheses ``order`` are of; None if all are still there. Hypotheses change their order
        within a sentence, and sentences disappear."""
        sentences = len(order) // self.beam
        if self.one_list or sentences == len(self.others):
            return None
        return order.view(sentences, self.beam)[:, 0].div(self.beam, rounding_mode="floor")

    def of_sentence(self, sentence: int) -> "Columns":
        part = slice(0, 1) if self.one_list else slice(sentence, sentence + 1)
        return self._replace(others=WordNumbers(self.others[part]), empty=self.empty[part])

    def words(self, columns: ListColumns) -> WordNumbers:
        """Columns (hypotheses x length) to word numbers."""
        if not self.others.size(1):
            return WordNumbers(columns if self.shared_words is None else self.shared_words[columns])
        first: Tensor = columns.clamp(max=self.count - 1)
        first = first if self.shared_words is None else self.shared_words[first]
        by_sentence = (columns - self.count).clamp(min=0).view(len(self.others), -1)
        later = self.others.gather(1, by_sentence).view_as(columns)
        return WordNumbers(torch.where(columns < self.count, first, later))

    def of_words(self, words: WordNumbers) -> ListColumns:
        """Word numbers (sentences x length), all of them on the lists, to columns."""
        first: Tensor = words
        if self.shared_words is not None:
            first = places_in(self.shared_words.expand(len(words), -1), words, self.count)
        if not self.others.size(1):
            return ListColumns(first)
        others = self.others.expand(len(words), -1).masked_fill(self.empty.expand(len(words), -1), -1)
        return ListColumns(torch.where(first < self.count, first, places_in(others, words, 0) + self.count))


def places_in(lists: Tensor, words: WordNumbers, default: int) -> Tensor:
    """Where each of the words (sentences x length) stands in the list of its sentence (sentences x list length)."""
    same = words.unsqueeze(-1).eq(lists.unsqueeze(1))
    return torch.where(same.any(dim=-1), same.int().argmax(dim=-1), default)


class HasRows(Protocol):
    """A table, as a search sees it."""

    def rows(self, words: Union[slice, WordNumbers]) -> Tuple[Tensor, Optional[Tensor]]:
        """Weight and bias of some words."""

    def shared_rows(self, words: Union[slice, WordNumbers]) -> Tuple[Union[Tensor, PackedWeight], Optional[Tensor]]:
        """The same of words that all sentences of a search share."""


class Searched:
    """The columns of the sentences that a search still works on, and the rows of tables that belong to them."""

    def __init__(self, columns: Columns):
        self.columns = columns
        self._first: Dict[HasRows, Tuple] = {}  # table: weight and bias of the first columns
        self._others: Dict[HasRows, Tuple] = {}  # table: those of the others (sentences x columns x dim)

    def reorder(self, order: Tensor) -> None:
        """From now on, scores are of hypotheses ``order``."""
        kept = self.columns.kept(order)
        if kept is None:
            return
        others = WordNumbers(self.columns.others[kept])
        self.columns = self.columns._replace(others=others, empty=self.columns.empty[kept])
        for table, (weight, bias) in self._others.items():
            self._others[table] = weight.index_select(0, kept), bias.index_select(0, kept)

    def rows(self, table: HasRows) -> Tuple[Tuple, Tuple]:
        """Weight and bias of the first columns and of the others, gathered when they are asked for first."""
        if table not in self._first:
            self._first[table] = table.shared_rows(self.columns.first_words())
            weight, bias = table.rows(self.columns.others)
            bias = weight.new_zeros(self.columns.others.shape) if bias is None else bias
            self._others[table] = weight, bias.masked_fill(self.columns.empty, float("-inf"))
        return self._first[table], self._others[table]


def embedding_over(searched: Searched, table: HasRows, columns: ListColumns) -> Tensor:
    """Columns (hypotheses x length) to vectors of a table (hypotheses x length x dim)."""
    (first, _), (others, _) = searched.rows(table)
    count, width = len(first), others.size(1)
    vectors = F.embedding(columns.clamp(max=count - 1), first)
    if not width:
        return vectors
    starts = torch.arange(0, others.size(0) * width, width, device=columns.device).unsqueeze(1)
    by_sentence = (columns - count).clamp(min=0).view(len(others), -1) + starts
    later = F.embedding(by_sentence.view_as(columns), others.flatten(0, 1))
    return torch.where(columns.lt(count).unsqueeze(-1), vectors, later)


def linear_over(searched: Searched, table: HasRows, features: Tensor) -> Tensor:
    """Features (hypotheses x length x dim) to scores of a table (hypotheses x length x columns)."""
    first, (weight, bias) = searched.rows(table)
    columns = searched.columns
    if not columns.others.size(1):
        return linear(features, *first)
    flat = features.reshape(-1, features.size(-1))
    scores = flat.new_empty(len(flat), columns.width)
    write_linear(scores[:, : columns.count], flat, *first)
    if columns.one_list:
        write_linear(scores[:, columns.count :], flat, weight[0], bias[0])
    else:
        by_sentence = flat.view(len(weight), -1, flat.size(-1))  # hypotheses of a sentence stand together
        others = torch.baddbmm(bias.unsqueeze(1), by_sentence, weight.transpose(1, 2))
        scores[:, columns.count :] = others.view(len(flat), -1)
    return scores.view(*features.shape[:-1], -1)


def write_linear(out: Tensor, features: Tensor, weight: Union[Tensor, PackedWeight], bias: Optional[Tensor]) -> None:
    """out := features weight^T + bias, unless it is packed without a copy of that size."""
    if isinstance(weight, PackedWeight):
        out.copy_(weight.product(features, bias))
    elif bias is None:
        torch.mm(features, weight.t(), out=out)
    else:
        torch.addmm(bias, features, weight.t(), out=out)


def columns_of(
    first: Union[int, np.ndarray],
    others: Sequence[np.ndarray],
    pad: int,
    beam: int,
    device: torch.device,
    one_list: bool = False,
) -> Columns:
    """The columns for the lists of a batch.

    Args:
        first: words that are on every list; a number stands for all words below it
        others: the other words of each list, -1 for a column that is empty; of one list if it is shared
    """
    width = max(map(len, others))
    words = np.full((len(others), width), -1, dtype=np.int64)
    for row, numbers in zip(words, others):
        row[: len(numbers)] = numbers
    empty = torch.from_numpy(words < 0).to(device, non_blocking=True)
    padded = WordNumbers(torch.from_numpy(words).to(device, non_blocking=True).masked_fill(empty, pad))
    if isinstance(first, int):
        return Columns(None, first, padded, empty, beam, one_list)
    shared = WordNumbers(torch.from_numpy(first).to(device, non_blocking=True))
    return Columns(shared, len(first), padded, empty, beam, one_list)
