"""The home of rows in a file, for tables that are larger than memory."""

import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

from lv_fairseq.files import share_or_copy
from lv_fairseq.word_tables.homes import Home
from lv_fairseq.word_tables.number_spaces import WordNumbers
from lv_fairseq.word_tables.page import deliver
from lv_fairseq.word_tables.table_file import VALUES, Field, Layout, TableFile, make, named_errors
from lv_fairseq.word_tables.workers import ALONE, Workers

_numbers = itertools.count()


class Told(NamedTuple):
    """What all workers know of a file."""

    number: int
    path: str
    layout: Layout
    statistics: Tuple[str, ...]


class FileHome(Home):
    """A file of rows without a name in a folder: it ends with the last process that has it, however that one ends, and
    a run that is resumed begins with the rows of its checkpoint. All workers of a machine have one; the first writes.

    A row is drawn when it is taken, and written when it comes back from its page.

    Args:
        parameter: has values, or, without memory, a recipe (`to_be_drawn`)
        folder: where the file is
    """

    in_memory = False

    def __init__(self, parameter: nn.Parameter, folder: Path, workers: Workers = ALONE):
        self._folder, self._workers, self.writes = Path(folder), workers, workers.first
        self._told: Optional[Told] = None
        self._live: Tuple[str, ...] = ()  # those of the file's statistics that mean something
        self._loaded: Optional[TableFile] = None  # of which this one is a copy, without a change
        self._reading: Optional[threading.Thread] = None
        if self.writes:
            values = Field(VALUES, tuple(parameter.shape[1:]), parameter.dtype)
            self._take_file(make(Layout(len(parameter), (values,), getattr(parameter, "recipe", None)), self._folder))
            if not parameter.is_meta:
                self.load(parameter.detach())
        self.settle()

    def _take_file(self, table: TableFile) -> None:
        self.table, self._number = table, next(_numbers)

    @property
    def shape(self) -> torch.Size:
        return self.table.views[VALUES].shape

    @property
    def statistics(self) -> List[str]:
        return list(self._live)

    def whole(self, name: str = VALUES) -> Tensor:
        return self.table.whole(name)

    def rows(self, words: Union[slice, WordNumbers], name: str = VALUES) -> Tensor:
        if isinstance(words, slice):
            return self.table.rows(words, name)
        rows = self.table.rows(WordNumbers(words.flatten().cpu()), name)
        return rows.view(*words.shape, *rows.shape[1:])

    def to_save(self, name: str = VALUES) -> "InFile":
        return InFile(self, name)

    def add(self, name: str, row: Tuple[int, ...], dtype: torch.dtype, value: float = 0.0) -> None:
        self._add(Field(name, row, dtype, value))

    def _add(self, *fields: Field) -> None:
        """Another file, with these statistics too. It is written as far as this one is."""
        if not self.writes or not fields:
            return
        before, added = self.table, {field.name for field in fields}
        kept = [field for field in before.layout.fields if field.name in (VALUES, *self._live)]
        kept = [field for field in kept if field.name not in added]
        self._take_file(make(before.layout._replace(fields=(*kept, *fields)), self._folder))
        for words in before.written.split(self.table.layout.some):
            few = WordNumbers(words)
            self.table.write(few, {field.name: before.rows(few, field.name) for field in kept})
        self._live += tuple(sorted(added - set(self._live)))
        self._loaded = None

    def forget_statistics(self) -> None:
        if self.writes:
            self._live = ()

    def load(self, rows: Tensor, name: str = VALUES) -> None:
        if not self.writes:
            return
        stored = getattr(rows, "stored", None)
        if stored is not None and name == VALUES:
            self._take_file(make(stored.table.layout, self._folder))
            with named_errors(self._folder):
                share_or_copy(stored.table.file.fileno(), self.table.file.fileno())
            self._live, self._loaded = (), stored.table
            return
        if name != VALUES and name not in self._live:
            self._add(field_of(name, rows))
        words = torch.arange(self.table.layout.words)
        if stored is not None:
            words = words[(self.table.places > 0) | (stored.table.places > 0)]
        for some in words.split(self.table.layout.some):
            few = WordNumbers(some)
            self.table.put(few, rows[few] if stored is None else stored.table.rows(few, stored.name), name)
        self._loaded = None

    def load_statistics(self, rows: Dict[str, Tensor]) -> None:
        if not self.writes:
            return
        stored = [getattr(some, "stored", None) for some in rows.values()]
        if self._loaded is not None and all(found and found.table is self._loaded for found in stored):
            self._live = tuple(rows)  # which came with the values
            self._loaded = None
            return
        self.forget_statistics()
        self._add(*(field_of(name, some) for name, some in rows.items()))
        for name, some in rows.items():
            self.load(some, name)

    def put(self, words: WordNumbers, rows: Tensor, name: str = VALUES) -> None:
        if self.writes:
            self._loaded = None
            self.table.put(words, rows[: len(words)].cpu(), name)

    def take(self, words: WordNumbers, rows: Tensor, name: str = VALUES, spare: float = 0.0) -> None:
        deliver(self.table.rows(words, name), rows, spare)

    def read_ahead(self, words: WordNumbers) -> None:
        """Have the rows of these words in memory soon, if they are on the disk: a thread looks at both ends of each."""
        if not self.writes:  # the first worker does it for all
            return
        if self._reading is not None:
            self._reading.join()
        places = self.table.places[words].long() - 1
        places = places[places >= 0]
        views = [*self.table.views.values()]  # in the order of the record
        ends = [view if view.dim() == 1 else view[:, place] for view, place in ((views[0], 0), (views[-1], -1))]
        look = lambda: [end.index_select(0, places) for end in ends]
        self._reading = threading.Thread(target=look, name="read-ahead")
        self._reading.start()

    def settle(self) -> None:
        told = None
        if self.writes:
            path = f"/proc/{os.getpid()}/fd/{self.table.file.fileno()}"
            told = Told(self._number, path, self.table.layout, self._live)
        told = self._workers.tell(told)
        if not self.writes and (self._told is None or told[:3] != self._told[:3]):
            self.table = TableFile(open(told.path, "rb", buffering=0), told.layout)
        if not self.writes:
            self._live = told.statistics
        if told != self._told:
            self._told = told
            self._workers.wait()  # the first one keeps what the others are about to open


@dataclass(frozen=True)
class InFile:
    """Stands for the rows of all words in what is about to be saved."""

    home: FileHome
    name: str


def field_of(name: str, rows: Tensor) -> Field:
    """A statistic that a checkpoint holds."""
    stored = getattr(rows, "stored", None)
    if stored is not None:
        return stored.table.layout.field(stored.name)._replace(name=name)
    return Field(name, tuple(rows.shape[1:]), rows.dtype)
