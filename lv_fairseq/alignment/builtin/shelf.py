"""Keeps arrays: in memory as long as they are few, then in a file without a name, which is gone when we are."""

import errno
import os
import tempfile
from typing import List, NamedTuple, Union

import numpy as np

MEMORY = 1 << 28  # bytes that are kept in memory


class Place(NamedTuple):
    """Of an array in the file."""

    offset: int
    dtype: np.dtype
    length: int


class Shelf:
    """Arrays of one dimension, each with a number. One thread puts them there, several may get them at a time.

    Args:
        folder: for the file
        memory: bytes to keep in memory before there is a file
    """

    def __init__(self, folder: str, memory: int = MEMORY):
        self.folder, self.memory = folder, memory
        self.arrays: List[Union[np.ndarray, Place]] = []
        self.file, self.end = None, 0

    def put(self, array: np.ndarray) -> int:
        self.arrays.append(self.keep(array))
        return len(self.arrays) - 1

    def keep(self, array: np.ndarray) -> Union[np.ndarray, Place]:
        if array.nbytes <= self.memory:
            self.memory -= array.nbytes
            return array
        if self.file is None:
            self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)
        place = Place(self.end, array.dtype, len(array))
        self.write(array, place.offset)
        self.end += array.nbytes
        return place

    def write(self, array: np.ndarray, offset: int) -> None:
        left = memoryview(np.ascontiguousarray(array)).cast("B")
        while left:
            done = os.pwrite(self.file.fileno(), left, offset)
            if done == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left, offset = left[done:], offset + done

    def get(self, number: int) -> np.ndarray:
        kept = self.arrays[number]
        if not isinstance(kept, Place):
            return kept
        array = np.empty(kept.length, dtype=kept.dtype)
        left, offset = memoryview(array).cast("B"), kept.offset
        while left:
            done = os.preadv(self.file.fileno(), [left], offset)
            if done == 0:
                raise OSError(errno.EIO, "a temporary file has become shorter")
            left, offset = left[done:], offset + done
        return array

    def replace(self, number: int, array: np.ndarray) -> None:
        """By an array that is not larger."""
        kept = self.arrays[number]
        if isinstance(kept, Place):
            self.write(array, kept.offset)
            self.arrays[number] = Place(kept.offset, array.dtype, len(array))
        else:
            self.memory += kept.nbytes - array.nbytes
            self.arrays[number] = array
