"""One file that holds some arrays and says what they are; parts of it are read, and checked, when they are first used.

    magic  length of the header  header (JSON)  checksums  checksum of all before  array  array ...

Every array starts at a multiple of 64 bytes. The header names version, size of the whole file, and for each array its
type, length and place, so that a file that was cut off is noticed when it is opened. Each array is checked in blocks
of 16 KB, of which the checksums (CRC-32) are in the file: opening reads these, 4 bytes of each block, and no damaged
block is ever used. Besides, a `Rule` says what the numbers of an array must be like, for files that are whole and yet
wrong, and for those of version 1, which have no checksums.

The file is not mapped: a map would follow changes of the file, and end the process (SIGBUS) where the file was cut
off. What was read once stays as it was; what is read later is noticed to be of another file. A file that
`written_whole` has replaced is still there for those who have it open.
"""

import json
import mmap
import os
import stat
import zlib
from pathlib import Path
from typing import BinaryIO, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from lv_fairseq.errors import UnusableFileError

MAGIC = b"lv-lexicon\n"
VERSION = 2
ALIGN = 64
BLOCK = 1 << 14  # bytes that share a checksum
MOST = 1 << 20  # bytes that are read at a time
KINDS = ("|u1", "<i4", "<i8", "<u8", "<f8")
CRC = np.dtype("<u4")


class Rule(NamedTuple):
    """What the numbers of an array must be like."""

    least: float
    most: float
    rising: bool = False  # none smaller than the one before
    whole: bool = False  # from the least to the most


class File:
    """An open file whose parts are read by many. ``damaged`` says in one line what is wrong with it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            # a pipe without a writer must not make us wait
            self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise self.unreadable(error.strerror or str(error)) from None
        self.found = os.fstat(self.number)
        if not stat.S_ISREG(self.found.st_mode):
            raise self.unreadable("it is a folder" if stat.S_ISDIR(self.found.st_mode) else "it is no ordinary file")

    def __del__(self):
        if hasattr(self, "number"):
            os.close(self.number)

    def read(self, place: int, size: int) -> bytes:
        try:
            text = os.pread(self.number, size, place)
        except OSError as error:
            raise self.unreadable(error.strerror or str(error)) from None
        if len(text) < size:
            raise self.damaged("it ends too early; was it changed while in use?")
        return text

    def changed(self) -> bool:
        """Whether somebody has written to the file since it was opened."""
        now = os.fstat(self.number)
        return (now.st_size, now.st_mtime_ns) != (self.found.st_size, self.found.st_mtime_ns)

    def damaged(self, what: str) -> UnusableFileError:
        return UnusableFileError(f"the lexicon {self.path} is damaged, make it again: {what}")

    def unreadable(self, why: str) -> UnusableFileError:
        return UnusableFileError(f"cannot read the lexicon {self.path}: {why}")


class StoredArray:
    """An array in a file. Used like a numpy array: an index gives numbers, or an array that is in memory.

    Args:
        file: where it is
        name: what the file calls it
        kind: of its numbers
        count: how many
        place: where it starts
        checksums: of its blocks; None: the file has none
    """

    def __init__(
        self, file: File, name: str, kind: str, count: int, place: int, checksums: Optional[np.ndarray] = None
    ):
        self.file, self.name, self.place, self.checksums = file, name, place, checksums
        self.dtype, self.size = np.dtype(kind), count
        self.nbytes = count * self.dtype.itemsize
        self.rule: Optional[Rule] = None
        self._shift = (BLOCK // self.dtype.itemsize).bit_length() - 1  # number of an element >> this: its block
        # memory that costs nothing before it is written to, and is no one else's after a fork
        memory = mmap.mmap(-1, max(self.nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory = np.frombuffer(memory, self.dtype, count)
        self._values = self._memory[:]
        self._values.flags.writeable = False
        self._known = np.zeros(blocks(self.nbytes), dtype=bool)  # blocks that are in memory
        self._missing = len(self._known)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        if self._missing:
            if isinstance(index, slice) and index.step in (None, 1):
                begin, end, _ = index.indices(self.size)
                self._want(slice(begin >> self._shift, blocks(end, 1 << self._shift)))
            elif type(index) is int or isinstance(index, np.integer):
                if -self.size <= index < self.size:
                    self._want(int(index) % self.size >> self._shift)
            elif isinstance(index, np.ndarray) and index.dtype.kind == "i" and (not index.size or index.min() >= 0):
                self._want(index >> self._shift)
            else:
                self._want(slice(None))
        return self._values[index]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(self[:], dtype=dtype) if copy else np.asarray(self[:], dtype=dtype)

    def __reduce__(self):
        return np.array, (self[:],)

    def _want(self, some) -> None:
        """Have these blocks in memory."""
        if self._known[some].all():
            return
        wanted = np.zeros_like(self._known)
        wanted[some] = True
        missing = np.flatnonzero(wanted & ~self._known)
        for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
            step = MOST // BLOCK
            for begin in range(run[0], run[-1] + 1, step):
                self._read(begin, min(begin + step, run[-1] + 1))

    def _read(self, begin: int, end: int) -> None:
        """Blocks from ``begin`` to before ``end``."""
        first, size = begin * BLOCK, min(end * BLOCK, self.nbytes) - begin * BLOCK
        text = self.file.read(self.place + first, size)
        if self.checksums is None:
            if self.file.changed():
                raise self.file.damaged("it was changed while in use")
        else:
            view = memoryview(text)
            for number in range(begin, end):
                start = number * BLOCK - first
                if zlib.crc32(view[start : start + BLOCK]) != self.checksums[number]:
                    raise self.file.damaged(f"a part of its {self.name} is not what was written")
        elements = slice(begin << self._shift, min(end << self._shift, self.size))
        self._memory[elements] = np.frombuffer(text, self.dtype)
        self._check(elements, begin, end)
        self._missing -= end - begin - int(np.count_nonzero(self._known[begin:end]))
        self._known[begin:end] = True

    def _check(self, some: slice, begin: int, end: int) -> None:
        if self.rule is None:
            return
        values = self._values[some]
        right = bool((values >= self.rule.least).all() and (values <= self.rule.most).all())  # not so for NaN
        if right and self.rule.rising:
            # with the neighbours, where they are known: else they are compared when they are read
            before = some.start - (begin > 0 and bool(self._known[begin - 1]))
            after = some.stop + (end < len(self._known) and bool(self._known[end]))
            values = self._values[before:after]
            right = bool((values[1:] >= values[:-1]).all())
        if not right:
            raise self.file.damaged(f"its {self.name} cannot be right")

    def expect(self, rule: Rule) -> None:
        """What its numbers must be like: is looked at when they are read."""
        self.rule = rule
        if rule.whole and (self.size == 0 or self[0] != rule.least or self[self.size - 1] != rule.most):
            raise self.file.damaged(f"its {self.name} cannot be right")


def damaged(array, what: str) -> UnusableFileError:
    """What is wrong with the file of an array; or with an array that was never in a file."""
    return array.file.damaged(what) if isinstance(array, StoredArray) else UnusableFileError(f"not a lexicon: {what}")


def blocks(size: int, block: int = BLOCK) -> int:
    return -(-size // block)


def write_arrays(file: BinaryIO, about: Dict, arrays: Dict[str, np.ndarray]) -> None:
    """Write one-dimensional arrays and a dictionary of facts about them."""
    places, place, contents = {}, 0, {}
    for name, array in arrays.items():
        kind = array.dtype.newbyteorder("<").str
        contents[name] = memoryview(np.ascontiguousarray(array, dtype=kind)).cast("B")
        places[name] = [kind, len(array), place]
        place = aligned(place + array.nbytes)
    header = {"version": VERSION, "bytes": place, "block": BLOCK, "about": about, "arrays": places}
    text = json.dumps(header, ensure_ascii=False).encode()
    checksums = [zlib.crc32(content[i : i + BLOCK]) for content in contents.values() for i in every_block(content)]
    start = MAGIC + len(text).to_bytes(8, "little") + text + np.array(checksums, dtype=CRC).tobytes()
    start += zlib.crc32(start).to_bytes(4, "little")
    offset = aligned(len(start))
    file.write(start)
    for name, content in contents.items():
        file.write(bytes(offset + places[name][2] - file.tell()))
        file.write(content)
    file.write(bytes(offset + place - file.tell()))


def every_block(content: memoryview) -> range:
    return range(0, len(content), BLOCK)


def open_arrays(path: Path) -> Tuple[Dict, Dict[str, StoredArray]]:
    """What `write_arrays` has written: the facts, and the arrays."""
    file = File(path)
    start = file.read(0, min(len(MAGIC) + 8, file.found.st_size))
    if start[: len(MAGIC)] != MAGIC:
        raise UnusableFileError(
            f"{path} is no lexicon: make one with lv-lexicon build, or turn it into one with convert"
        )
    length = int.from_bytes(start[len(MAGIC) :], "little")
    if len(start) < len(MAGIC) + 8 or length > file.found.st_size:
        raise file.damaged("it has no header, or only a part of it")
    start = file.read(0, len(start) + length)
    try:
        header = json.loads(start[len(MAGIC) + 8 :])
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise file.damaged("it has no header, or only a part of it") from None
    if version not in (1, VERSION):
        raise UnusableFileError(f"{path} is a lexicon of version {version}, this program reads {VERSION}")
    try:
        places = [(name, *place(entry)) for name, entry in header["arrays"].items()]
        about, size = dict(header["about"]), int(header["bytes"])
        if version > 1 and header["block"] != BLOCK:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise file.damaged("its header is wrong") from None
    counts = [blocks(count * np.dtype(kind).itemsize) if version > 1 else 0 for _, kind, count, _ in places]
    checksums, end = read_checksums(file, start, sum(counts)) if version > 1 else (None, len(start))
    offset = aligned(end)
    if file.found.st_size != offset + size:
        raise file.damaged(f"{file.found.st_size:,} bytes instead of {offset + size:,}")
    arrays, done = {}, 0
    for (name, kind, count, begin), some in zip(places, counts):
        if begin + count * np.dtype(kind).itemsize > size:
            raise file.damaged("its header is wrong")
        own = None if checksums is None else checksums[done : done + some]
        arrays[name], done = StoredArray(file, name, kind, count, offset + begin, own), done + some
    return about, arrays


def read_checksums(file: File, start: bytes, count: int) -> Tuple[np.ndarray, int]:
    """The checksums that follow the header, and where they end. They and the header are checked by the last of them."""
    size = count * CRC.itemsize
    if size > file.found.st_size:
        raise file.damaged("its header is wrong")
    text = file.read(len(start), size + 4)
    if zlib.crc32(text[:size], zlib.crc32(start)) != int.from_bytes(text[size:], "little"):
        raise file.damaged("its header is not what was written")
    return np.frombuffer(text[:size], CRC), len(start) + len(text)


def place(entry: List) -> Tuple[str, int, int]:
    """Type, length and place of an array, as the header has it."""
    kind, count, begin = entry
    if kind not in KINDS or type(count) is not int or type(begin) is not int or count < 0 or begin < 0 or begin % ALIGN:
        raise ValueError(f"{entry} is no array")
    return kind, count, begin


def aligned(place: int) -> int:
    return -(-place // ALIGN) * ALIGN
