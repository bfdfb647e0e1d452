"""A file of rows: all that there is of a parameter, weight and statistics of a word side by side, mapped into memory.

Rows follow each other in the order in which they were first written; the file begins with each word's place among them,
0 for a word without one: its row is what its recipe draws, and takes no place on the disk. So what is read, copied and
given back to the disk is as large as what was written, and in one piece.
"""

import mmap
import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables.drawing import CONSTANT, Recipe, draw
from lv_fairseq.word_tables.number_spaces import WordNumbers

VALUES = "values"  # the parameter itself; every other name is a statistic
ALIGNED, BLOCK = 8, 4096  # bytes
AT_A_TIME = 1 << 24  # bytes that are read or written together


class Field(NamedTuple):
    """What a row holds under a name.

    Args:
        row: its shape, for one word
        value: of a statistic, for words whose row has not been written
    """

    name: str
    row: Tuple[int, ...]
    dtype: torch.dtype
    value: float = 0.0

    @property
    def bytes(self) -> int:
        return torch.Size(self.row).numel() * self.dtype.itemsize


class Layout(NamedTuple):
    """Of a file of rows."""

    words: int
    fields: Tuple[Field, ...]
    recipe: Optional[Recipe] = None  # None: every row has been written

    @property
    def record(self) -> int:
        """Bytes of a word."""
        return sum(up_to(field.bytes, ALIGNED) for field in self.fields)

    @property
    def begin(self) -> int:
        """Where the first row is."""
        return up_to(4 * self.words, BLOCK)

    @property
    def size(self) -> int:
        return self.begin + up_to(self.words * self.record, BLOCK)

    @property
    def some(self) -> int:
        """Words that are read or written together."""
        return max(1, AT_A_TIME // max(self.record, 1))

    def field(self, name: str) -> Field:
        return {field.name: field for field in self.fields}[name]

    def views(self, memory: Tensor, words: int, begin: int = 0) -> Dict[str, Tensor]:
        """(words x ...) by name, in memory (bytes) that holds records from ``begin`` on."""
        found = {}
        for field in self.fields:
            unit = field.dtype.itemsize
            inner = torch.empty(field.row, device="meta").stride()
            strides = (self.record // unit, *inner)
            found[field.name] = memory.view(field.dtype).as_strided((words, *field.row), strides, begin // unit)
            begin += up_to(field.bytes, ALIGNED)
        return found


def up_to(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


class TableFile:
    """Rows in a file.

    Args:
        file: is closed when nobody has this table any more
        writes: whether what is put into this table goes to the file
        private: whether what a program does to the rows stays in its memory; else it must not touch them
        folder: where it is, and where others may be made; None: where temporary files are
    """

    def __init__(
        self,
        file: BinaryIO,
        layout: Layout,
        writes: bool = False,
        private: bool = False,
        folder: Optional[Path] = None,
    ):
        self.file, self.layout, self.folder = file, layout, folder
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writes or private else 0)
        flags = mmap.MAP_PRIVATE if private else mmap.MAP_SHARED
        memory = mmap.mmap(file.fileno(), layout.size, flags, protection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch has no tensors that are only read
            flat = torch.frombuffer(memory, dtype=torch.uint8)
        self.places = flat[: 4 * layout.words].view(torch.int32)  # (words) from 1; 0: none
        self.views = layout.views(flat, layout.words, layout.begin)  # by place
        self._last: Optional[int] = None  # the last place that is taken

    @property
    def written(self) -> Tensor:
        """The words that have rows here, in the order of these."""
        words = self.places.nonzero().squeeze(1)
        return words[self.places[words].argsort()]

    @property
    def in_order(self) -> bool:
        """Whether all words have rows, each in the place of its number."""
        return torch.equal(self.places, torch.arange(1, self.layout.words + 1, dtype=torch.int32))

    def rows(self, words: Union[slice, WordNumbers], name: str = VALUES) -> Tensor:
        """(words x ...) The rows of some words, written or not."""
        view, places = self.views[name], self.places[words].long() - 1
        here, missing = (places >= 0).nonzero().squeeze(1), (places < 0).nonzero().squeeze(1)
        if len(missing) == 0:
            return view.index_select(0, places)
        if isinstance(words, slice):
            words = WordNumbers(torch.arange(*words.indices(self.layout.words)))
        some = view.new_empty(len(words), *view.shape[1:])
        some[here] = view.index_select(0, places[here])
        some[missing] = first_rows(self.layout, name, WordNumbers(words[missing]))
        return some

    def put(self, words: WordNumbers, rows: Tensor, name: str = VALUES) -> None:
        """Rows of some words. What else there is of those that had none has its first value."""
        places, view = self.places[words].long() - 1, self.views[name]
        here, missing = (places >= 0).nonzero().squeeze(1), (places < 0).nonzero().squeeze(1)
        if len(here):
            view.index_copy_(0, places[here], rows[here].to(view))
        for some in missing.split(self.layout.some):
            self.write(WordNumbers(words[some]), {name: rows[some]})

    def write(self, words: WordNumbers, rows: Dict[str, Tensor]) -> None:
        """Whole records of words that have none yet. Not through the map: it takes a tenth of the time that way, and a
        disk that is full is an error, not the end of the process (as it is where blocks are shared with a checkpoint,
        and a known row is written to)."""
        records = torch.zeros(len(words) * self.layout.record, dtype=torch.uint8)
        for name, view in self.layout.views(records, len(words)).items():
            view.copy_(rows[name] if name in rows else first_rows(self.layout, name, words))
        if self._last is None:
            self._last = int(self.places.max())
        with named_errors(self.folder):
            place = self.layout.begin + self._last * self.layout.record
            write_all(self.file.fileno(), records.numpy().data, place)
        self.places[words] = torch.arange(self._last + 1, self._last + 1 + len(words), dtype=torch.int32)
        self._last += len(words)

    def whole(self, name: str) -> Tensor:
        """The rows of all words, without any memory of this process: a view of the file if it has them all in
        their order, else of one that is gone with the tensor."""
        return self.views[name] if self.in_order else self.copied(name, self.folder)

    def copied(
        self, name: str, folder: Optional[Path] = None, advance: Callable[[float], None] = lambda done: None
    ) -> Tensor:
        """(words x ...) The rows of all words in a file that holds nothing else.

        Args:
            advance: is told how many more bytes are there
        """
        field, words, some = self.layout.field(name), self.layout.words, self.layout.some
        file = unnamed(words * field.bytes, folder)
        for start in range(0, words, some):
            rows = self.rows(slice(start, min(start + some, words)), name).contiguous()
            with named_errors(folder):
                content = rows.flatten().view(torch.uint8).numpy().data
                write_all(file.fileno(), content, start * field.bytes)
            advance(len(content))
        memory = mmap.mmap(file.fileno(), words * field.bytes)
        return torch.frombuffer(memory, dtype=field.dtype).view(words, *field.row)


def first_rows(layout: Layout, name: str, words: WordNumbers) -> Tensor:
    """(words x ...) Of words that have no row in a file."""
    field = layout.field(name)
    numbers = torch.Size(field.row).numel()
    recipe = layout.recipe if name == VALUES else Recipe(CONSTANT, field.value)
    if recipe is None:
        return torch.zeros(len(words), *field.row, dtype=field.dtype)
    return torch.from_numpy(draw(recipe, words.numpy(), numbers)).view(len(words), *field.row).to(field.dtype)


def write_all(file: int, content: memoryview, place: int) -> None:
    while len(content):
        done = os.pwrite(file, content, place)
        content, place = content[done:], place + done


def make(layout: Layout, folder: Optional[Path] = None) -> TableFile:
    """A new file without rows."""
    file = unnamed(layout.size, folder)
    with named_errors(folder):
        os.posix_fallocate(file.fileno(), 0, layout.begin)
    return TableFile(file, layout, writes=True, folder=folder)


def unnamed(size: int, folder: Optional[Path]) -> BinaryIO:
    """A file of zeros. It has no name: it ends with the last process that has it, however that one ends."""
    with named_errors(folder):
        file = tempfile.TemporaryFile(dir=folder, buffering=0)
        os.ftruncate(file.fileno(), size)
        return file


@contextmanager
def named_errors(folder: Optional[Path]) -> Iterator[None]:
    """Such as a disk that is full."""
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise UserError(f"cannot write word tables to {where}: {error.strerror or error}") from None
