"""The .idx file beside a .bin file of fairseq-preprocess: where each sentence begins and how long it is.

A damaged one is told in one line, before fairseq stumbles over it or reads past the end.
"""

import struct
from pathlib import Path
from typing import Optional

import numpy as np
from fairseq.data.huffman import HuffmanMMapIndex
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, _code_to_dtype

from lv_fairseq.errors import UserError

MAPPED, CACHED = MMapIndexedDataset.Index._HDR_MAGIC, IndexedDataset._HDR_MAGIC


def check_index(path: Path, data: Path) -> None:
    """Refuse an index that is damaged, or of other data than are in the file ``data``."""
    content = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.zeros(0, np.uint8)
    start, size = content[:9].tobytes(), data.stat().st_size
    if start == MAPPED:
        wrong = wrong_in_mapped(content, size)
    elif start[:8] == CACHED:
        wrong = wrong_in_cached(content, size)
    else:
        wrong = None if start == HuffmanMMapIndex._HDR_MAGIC else "it is no index of fairseq"
    if wrong is not None:
        raise UserError(f"{path} cannot be read, make it again with fairseq-preprocess: {wrong}")


def wrong_in_mapped(content: np.ndarray, data_size: int) -> Optional[str]:
    """``--dataset-impl mmap``: version, type and number of sentences; sizes (int32), then places in bytes (int64)."""
    header = struct.Struct("<QBQ")
    if len(content) < len(MAPPED) + header.size:
        return "it was cut off"
    version, code, count = header.unpack_from(content, len(MAPPED))
    begin = len(MAPPED) + header.size
    if version != 1 or np.dtype(_code_to_dtype.get(code, float)).kind not in "iu":
        return "it is of another version"
    if len(content) != begin + 12 * count:
        return f"it has not the size of an index of {count:,} sentences"
    sizes, places = content[begin : begin + 4 * count].view(np.int32), content[begin + 4 * count :].view(np.int64)
    room = data_size - places
    if ((sizes < 0) | (places < 0) | (room < sizes.astype(np.int64) * np.dtype(_code_to_dtype[code]).itemsize)).any():
        return "it is damaged, or the .bin file beside it is"
    return None


def wrong_in_cached(content: np.ndarray, data_size: int) -> Optional[str]:
    """``--dataset-impl cached``: version, type, its size, number of sentences and sizes; three arrays of int64."""
    header = struct.Struct("<QQQQQ")
    if len(content) < len(CACHED) + header.size:
        return "it was cut off"
    version, code, width, count, sizes = header.unpack_from(content, len(CACHED))
    kind = np.dtype(_code_to_dtype.get(code, float))
    if version != 1 or kind.kind not in "iu" or kind.itemsize != width:
        return "it is of another version"
    begin = len(CACHED) + header.size
    if count != sizes or len(content) != begin + 8 * (3 * count + 2):
        return f"it has not the size of an index of {count:,} sentences"
    dimensions, places, lengths = np.split(content[begin:].view(np.int64), [count + 1, 2 * count + 2])
    if not np.array_equal(dimensions, np.arange(count + 1)) or not np.array_equal(np.diff(places), lengths):
        return "it is damaged"
    if places[0] != 0 or lengths.min(initial=0) < 0 or int(places[-1]) * width != data_size:
        return "it is damaged, or the .bin file beside it is"
    return None
