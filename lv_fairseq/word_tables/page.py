"""A page: the rows of some words of a vocabulary, taken out of tables that live in host memory.

Device, optimiser and gradients only ever see the page, whose number of rows does not change, so that their cost does
not depend on the size of the vocabulary.
"""

from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor, nn

from lv_fairseq.word_tables.number_spaces import PageRows, WordNumbers
from lv_fairseq.word_tables.staging import staging
from lv_fairseq.word_tables.workers import ALONE, Workers

if TYPE_CHECKING:
    from lv_fairseq.word_tables.homes import Home

Numbers = Union[Sequence[int], np.ndarray]


class Page:
    """Which words have a row now, for all tables of one vocabulary.

    Args:
        vocabulary: how many words there are
        rows: how many of them fit on the page
        workers: those that turn this page together
    """

    def __init__(self, vocabulary: int, rows: int, workers: Workers = ALONE):
        self.vocabulary, self.rows, self.workers = vocabulary, rows, workers
        self.scored = rows  # how many of the rows a softmax runs over, the first ones
        self.words = WordNumbers(torch.empty(0, dtype=torch.long))  # the words on the page, in the order of its rows
        self.members: List[HostRows] = []
        self.changed = False  # the page may differ from the host's rows
        self._row_of = torch.zeros(vocabulary, dtype=torch.int32)  # 0 for a word that is not on the page
        self._offset = torch.full((self.scored,), float("-inf"))

    def rows_of(self, words: WordNumbers) -> PageRows:
        """Word numbers (any shape) to rows of the page; a word that is not on the page gets some row, no error."""
        self._row_of = self._row_of.to(words.device)
        return PageRows(self._row_of[words])

    def offset(self, device: torch.device) -> Tensor:
        """What is added to the scores of the scored rows: minus infinity takes a row out of the softmax."""
        self._offset = self._offset.to(device)
        return self._offset

    def turn_to(self, words: Numbers, offset: Optional[Tensor] = None, unscored: Numbers = ()) -> None:
        """Put the rows of the page back and take out those of ``words``.

        Args:
            words: distinct word numbers, at most as many as the page has rows
            offset: for each of the words, what to add to its score (default: nothing)
            unscored: other words, which are read only
        """
        scored = len(words)
        both = (torch.as_tensor(numbers, dtype=torch.long) for numbers in (words, unscored))
        on_page = WordNumbers(torch.cat([*both]))
        for number, rows in ((len(on_page), self.rows), (scored, self.scored)):
            if number > rows:
                raise ValueError(f"{number} words do not fit on a page of {rows} rows")
        self.write_back(statistics=True)
        self.settle()
        device = self._row_of.device
        self._row_of[self.words.to(device)] = 0
        self._row_of[on_page.to(device)] = torch.arange(len(on_page), dtype=torch.int32, device=device)
        self._offset.fill_(float("-inf"))
        self._offset[:scored] = 0 if offset is None else offset.to(self._offset)
        self.words = on_page
        for member in self.members:
            member.take_out(on_page)
        self.workers.wait()  # before the first one writes again

    def read_ahead(self, words: Numbers, unscored: Numbers = ()) -> None:
        """The page will be turned to these words next."""
        both = WordNumbers(torch.cat([torch.as_tensor(numbers, dtype=torch.long) for numbers in (words, unscored)]))
        for member in self.members:
            member.home.read_ahead(both)

    def settle(self) -> None:
        """Let all workers see what the first one has written."""
        for member in self.members:
            member.home.settle()

    def change_use(self) -> None:
        """Between training, which changes rows, and validation, which reads those of all words."""
        self.write_back()
        self.settle()
        self.workers.wait()

    def write_back(self, statistics: bool = False) -> None:
        """Bring the host's rows up to date, and the optimiser's statistics too if asked."""
        if len(self.words) and (self.changed or statistics):
            for member in self.members:
                member.put_back(self.words, statistics)
        self.changed = False

    def resize(self, rows: int) -> None:
        """Another number of rows. The page is empty afterwards, and all rows are scored."""
        if rows != self.rows:
            self.turn_to([])
            self.rows = rows
            self.score_only(rows)
            for member in self.members:
                member.resize(rows)

    def score_only(self, rows: int) -> None:
        """Let a softmax run over the first ``rows`` of the page from its next turn on."""
        self.scored = rows
        self._offset = self._offset.new_full((rows,), float("-inf"))


class HostRows:
    """A parameter and its home, where all its rows are, in host memory; the parameter itself becomes its page.

    The full rows are neither parameter nor buffer of a module: nobody moves, halves, clips or averages them. They
    can be found as ``parameter.host``.

    Args:
        spare: what fills rows of the page that hold no word
    """

    def __init__(self, parameter: nn.Parameter, page: Page, home: "Home", spare: float = 0.0):
        self.parameter, self.page, self.home, self.spare = parameter, page, home, spare
        self.optimizer_state: Callable[[], Dict] = dict  # gives the optimiser's state of this parameter
        self.resize(page.rows)
        parameter.host = self
        page.members.append(self)

    @property
    def full(self) -> Tensor:
        """The rows of all words: words x ..."""
        return self.home.whole()

    def resize(self, rows: int) -> None:
        for name, tensor in self.page_statistics():
            self.optimizer_state()[name] = tensor.new_zeros(rows, *tensor.shape[1:])
        self.parameter.data = self.parameter.data.new_full((rows, *self.home.shape[1:]), self.spare)
        self.parameter.grad = None

    def page_statistics(self) -> Iterator:
        """Names and tensors of the optimiser's statistics with a row for each row of the page."""
        for name, value in list(self.optimizer_state().items()):
            if has_rows_of(value, self.parameter):
                yield name, value

    def put_back(self, words: WordNumbers, statistics: bool) -> None:
        if not self.parameter.requires_grad:
            return
        kept = dict(self.page_statistics()) if statistics else {}
        for name, tensor in kept.items():
            if name not in self.home.statistics:  # the optimiser's first step is over; before rows are written, if any
                self.home.add(name, tuple(tensor.shape[1:]), tensor.dtype)
        self.home.put(words, self.parameter.data)
        for name, tensor in kept.items():
            self.home.put(words, tensor, name)

    def take_out(self, words: WordNumbers) -> None:
        self.home.take(words, self.parameter.data, spare=self.spare)
        for name, tensor in self.page_statistics():
            if name in self.home.statistics:
                self.home.take(words, tensor, name)
            else:
                tensor.zero_()

    def load(self, full: Tensor) -> None:
        """Replace the values of all words."""
        self.home.load(full)
        self.home.settle()
        self.home.take(self.page.words, self.parameter.data, spare=self.spare)


def has_rows_of(value, parameter: Tensor) -> bool:
    """A statistic that is kept row by row: the shape of the parameter, or 1 where it is the same along a row."""
    return (
        torch.is_tensor(value)
        and value.dim() == parameter.dim()
        and value.size(0) == parameter.size(0)
        and all(size in (1, whole) for size, whole in zip(value.shape[1:], parameter.shape[1:]))
    )


def scatter(full: Tensor, words: WordNumbers, rows: Tensor) -> None:
    """Host rows of ``words`` := the first rows of a page."""
    taken = rows[: len(words)]
    if rows.device != full.device and len(words):
        taken = staging(rows.device).buffer(rows, len(words), rows.dtype).copy_(taken)
    full.index_copy_(0, words, taken.to(full))


def gather(full: Tensor, words: WordNumbers, rows: Tensor, spare: float = 0.0) -> None:
    """The first rows of a page := host rows of ``words``; the others := ``spare``."""
    if rows.device == full.device:
        rows[: len(words)].copy_(full.index_select(0, words))
    elif len(words):
        buffer = staging(rows.device).buffer(full, len(words), full.dtype)
        staging(rows.device).send(torch.index_select(full, 0, words, out=buffer), rows[: len(words)])
    rows[len(words) :].fill_(spare)


def deliver(taken: Tensor, rows: Tensor, spare: float = 0.0) -> None:
    """The first rows of a page := rows that have been taken out in host memory; the others := ``spare``."""
    if rows.device != taken.device and len(taken):
        buffer = staging(rows.device).buffer(taken, len(taken), taken.dtype)
        staging(rows.device).send(buffer.copy_(taken), rows[: len(taken)])
    else:
        rows[: len(taken)].copy_(taken)
    rows[len(taken) :].fill_(spare)


def selected(rows: Tensor, words: Union[slice, WordNumbers]) -> Tensor:
    """The rows of some words (any shape) among those of all."""
    if isinstance(words, slice):
        return rows if words == slice(None) else rows[words]
    numbers = words.to(rows.device)  # several times as fast as rows[words]
    return rows.index_select(0, numbers.flatten()).view(*numbers.shape, *rows.shape[1:])
