"""Homes: where the rows of all words live, as one small interface.

A home holds what there is of one parameter: its values from the beginning and, from the first step of an optimiser on,
this one's statistics, a tensor (words x ...) under each name. Pages take rows out and put them back; saving and
validation look at a whole tensor. There are three kinds: `Home`, the memory of this process; `SharedHome`, one copy for
all workers of a machine; and `FileHome` (`file_home.py`), files.
"""

import itertools
import mmap
import os
import weakref
from typing import Any, Dict, List, NamedTuple, Tuple, Union

import torch
from torch import Tensor

from lv_fairseq.word_tables.number_spaces import WordNumbers
from lv_fairseq.word_tables.page import gather, scatter, selected
from lv_fairseq.word_tables.stored_rows import filled
from lv_fairseq.word_tables.table_file import VALUES
from lv_fairseq.word_tables.workers import Workers


class Home:
    """The memory of this process."""

    writes = True  # whether what this process puts back is kept
    in_memory = True

    def __init__(self, values: Tensor):
        self._rows = {VALUES: values.detach()}

    @property
    def shape(self) -> torch.Size:
        """Words x ..."""
        return self.whole().shape

    @property
    def statistics(self) -> List[str]:
        """The names of the optimiser's statistics that are here."""
        return [name for name in self._rows if name != VALUES]

    def whole(self, name: str = VALUES) -> Tensor:
        """The rows of all words, to look at."""
        return self._rows[name]

    def rows(self, words: Union[slice, WordNumbers], name: str = VALUES) -> Tensor:
        """(words x ...) The rows of some words, to look at; of a slice a view, where that is possible."""
        return selected(self.whole(name), words)

    def to_save(self, name: str = VALUES) -> Any:
        """What a checkpoint gets for the rows of all words."""
        return self.whole(name)

    def add(self, name: str, row: Tuple[int, ...], dtype: torch.dtype, value: float = 0.0) -> None:
        """A statistic, of this shape for each word, with one value for all words."""
        self._rows[name] = torch.zeros(len(self.whole()), *row, dtype=dtype)
        if value:
            self._rows[name].fill_(value)

    def load(self, rows: Tensor, name: str = VALUES) -> None:
        """The rows of all words, from a checkpoint."""
        if name not in self._rows:
            self.add(name, tuple(rows.shape[1:]), rows.dtype)
        self._rows[name].copy_(filled(rows))

    def load_statistics(self, rows: Dict[str, Tensor]) -> None:
        """The rows of all words, of all statistics that there are."""
        self.forget_statistics()
        for name, some in rows.items():
            self.load(some, name)

    def forget_statistics(self) -> None:
        for name in self.statistics:
            del self._rows[name]

    def put(self, words: WordNumbers, rows: Tensor, name: str = VALUES) -> None:
        """The rows of ``words`` := the first rows of a page."""
        scatter(self._rows[name], words, rows)

    def take(self, words: WordNumbers, rows: Tensor, name: str = VALUES, spare: float = 0.0) -> None:
        """The first rows of a page := the rows of ``words``; the others := ``spare``."""
        gather(self._rows[name], words, rows, spare)

    def read_ahead(self, words: WordNumbers) -> None:
        """The rows of these words will be taken next."""

    def settle(self) -> None:
        """All workers call this before any reads what has been written."""


class SharedHome(Home):
    """One copy for all workers of a machine. The first one writes; what it has added or written, the others see after
    the next `settle`.

    The memory has no name in any file system: it ends with the last process that has it, however that one ends, and no
    limit of /dev/shm (64 MB in many containers) is in its way. Others open it as a file of the first worker.
    """

    def __init__(self, values: Tensor, workers: Workers):
        self._workers, self.writes = workers, workers.first
        self._files: Dict[str, Shared] = {}  # by name, of the tensors that are here
        self._told: Dict[str, Shared] = {}  # what all knew of them the last time
        self._rows: Dict[str, Tensor] = {}
        self._words = len(values)
        if self.writes:
            self.add(VALUES, tuple(values.shape[1:]), values.dtype)
            self._rows[VALUES].copy_(values.detach())
        self.settle()

    def add(self, name: str, row: Tuple[int, ...], dtype: torch.dtype, value: float = 0.0) -> None:
        if self.writes:
            self._files[name], self._rows[name] = make_shared((self._words, *row), dtype)
            if value:
                self._rows[name].fill_(value)

    def forget_statistics(self) -> None:
        if self.writes:
            super().forget_statistics()
            self._files = {VALUES: self._files[VALUES]}

    def load(self, rows: Tensor, name: str = VALUES) -> None:
        if self.writes:
            super().load(rows, name)

    def put(self, words: WordNumbers, rows: Tensor, name: str = VALUES) -> None:
        if self.writes:
            super().put(words, rows, name)

    def settle(self) -> None:
        files = self._workers.tell(self._files)
        if not self.writes:
            known = {name: self._rows[name] for name, file in files.items() if self._files.get(name) == file}
            self._rows = {name: known[name] if name in known else open_shared(file) for name, file in files.items()}
            self._files = files
        if files != self._told:
            self._told = dict(files)
            self._workers.wait()  # the first one keeps what the others are about to open


class Shared(NamedTuple):
    """Memory of a process that others of its machine can open."""

    number: int  # which of the process's, since one that is gone may leave its file number to another
    path: str
    shape: Tuple[int, ...]
    dtype: torch.dtype


NAME = "word-table"  # in a list of what a process has mapped, such as /proc/PID/smaps
_numbers = itertools.count()


def make_shared(shape: Tuple[int, ...], dtype: torch.dtype) -> Tuple[Shared, Tensor]:
    """New memory, all zeros, which others can open as long as the tensor is there."""
    file = os.memfd_create(NAME)
    os.ftruncate(file, torch.Size(shape).numel() * dtype.itemsize)
    memory = mmap.mmap(file, 0)
    weakref.finalize(memory, os.close, file)  # what others have opened stays
    return Shared(next(_numbers), f"/proc/{os.getpid()}/fd/{file}", tuple(shape), dtype), view(memory, shape, dtype)


def open_shared(shared: Shared) -> Tensor:
    file = os.open(shared.path, os.O_RDWR)
    try:
        return view(mmap.mmap(file, 0), shared.shape, shared.dtype)
    finally:
        os.close(file)


def view(memory: mmap.mmap, shape: Tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(memory, dtype=dtype).view(shape)
