"""One file that holds some arrays and says what they are; it is mapped, not read.

    magic  length of the header  header (JSON)  array  array ...

Every array starts at a multiple of 64 bytes. The header names version, size of the whole file, and for each array its
type, length and place, so that a file that was cut off is noticed when it is opened.
"""

import json
import mmap
from pathlib import Path
from typing import Dict, Tuple

import numpy as np

from lv_fairseq.errors import UnusableFileError
from lv_fairseq.files import written_whole

MAGIC = b"lv-lexicon\n"
VERSION = 1
ALIGN = 64


def write_arrays(path: Path, about: Dict, arrays: Dict[str, np.ndarray]) -> None:
    """Write one-dimensional arrays and a dictionary of facts about them."""
    places, place = {}, 0
    for name, array in arrays.items():
        places[name] = [array.dtype.newbyteorder("<").str, len(array), place]
        place = aligned(place + array.nbytes)
    header = {"version": VERSION, "bytes": place, "about": about, "arrays": places}
    text = json.dumps(header, ensure_ascii=False).encode()
    start = aligned(len(MAGIC) + 8 + len(text))
    with written_whole(path) as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + text)
        for name, array in arrays.items():
            file.write(bytes(start + places[name][2] - file.tell()))
            file.write(memoryview(np.ascontiguousarray(array, dtype=places[name][0])).cast("B"))
        file.write(bytes(start + place - file.tell()))


def map_arrays(path: Path) -> Tuple[Dict, Dict[str, np.ndarray]]:
    """What `write_arrays` has written: the facts, and the arrays, which are read from disk as they are used."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC) + 8)
            if start[: len(MAGIC)] != MAGIC:
                raise UnusableFileError(
                    f"{path} is no lexicon: make one with lv-lexicon build, or turn it into one with convert"
                )
            length = int.from_bytes(start[len(MAGIC) :], "little")
            try:
                header = json.loads(file.read(length))
            except ValueError:
                raise ValueError("it has no header, or only a part of it") from None
            if header["version"] != VERSION:
                raise UnusableFileError(
                    f"{path} is a lexicon of version {header['version']}, this program reads {VERSION}"
                )
            offset = aligned(len(start) + length)
            whole = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8)
            if len(whole) != offset + header["bytes"]:
                raise ValueError(f"{len(whole):,} bytes instead of {offset + header['bytes']:,}")
            arrays = {}
            for name, (kind, count, place) in header["arrays"].items():
                begin = offset + place
                arrays[name] = whole[begin : begin + count * np.dtype(kind).itemsize].view(kind)
            return header["about"], arrays
    except UnusableFileError:
        raise
    except OSError as error:
        raise UnusableFileError(f"cannot read the lexicon {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise UnusableFileError(f"the lexicon {path} is damaged, make it again: {error}") from None


def aligned(place: int) -> int:
    return -(-place // ALIGN) * ALIGN
