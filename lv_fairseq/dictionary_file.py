"""Reads a dictionary of fairseq at once, where fairseq goes from line to line, which takes twice as long or more."""

from itertools import count as numbers_from
from pathlib import Path
from typing import List, Optional, Tuple, Type

import numpy as np
from fairseq.data import Dictionary

SPACE, NEWLINE = 32, 10


def read_dictionary(path: str, kind: Type[Dictionary] = Dictionary) -> Dictionary:
    """What ``kind.load(path)`` gives, errors included. Only a file as fairseq-preprocess writes it is read at once."""
    parsed = words_and_counts(Path(path).read_bytes()) if adds_lines_only(kind) else None
    if parsed is not None:
        words, counts = parsed
        dictionary = kind(add_special_symbols=True)
        dictionary.indices.update(zip(words, numbers_from(len(dictionary))))
        dictionary.symbols += words
        dictionary.count += counts
        if len(dictionary.indices) == len(dictionary.symbols):  # else a word is there twice, or a special symbol
            return dictionary
    return kind.load(path)


def adds_lines_only(kind: Type[Dictionary]) -> bool:
    """Whether a kind of dictionary reads files as fairseq's own does, without a heading of its own."""
    reading = ("load", "add_from_file", "add_symbol", "_load_meta", "__contains__", "__len__")
    return all(inner(getattr(kind, name)) is inner(getattr(Dictionary, name)) for name in reading)


def inner(method):
    return getattr(method, "__func__", method)


def words_and_counts(text: bytes) -> Optional[Tuple[List[str], List[int]]]:
    """Of lines that are all a word, a space and digits, and nothing else; None if one of them is not."""
    values = np.frombuffer(text, np.uint8)
    places = np.flatnonzero(values <= SPACE)  # also other controls, such as a tab or a carriage return
    if not len(places) or places[-1] != len(text) - 1 or len(places) % 2:
        return None
    spaces, ends = places[0::2], places[1::2]
    if (values[spaces] != SPACE).any() or (values[ends] != NEWLINE).any() or (np.diff(places, prepend=-1) < 2).any():
        return None
    if not digits_only(values, spaces, ends):
        return None
    try:
        parts = text.decode().replace("\n", " ").split(" ")
        return parts[0:-1:2], list(map(int, parts[1::2]))
    except ValueError:  # not UTF-8, or more digits than Python reads
        return None


def digits_only(values: np.ndarray, spaces: np.ndarray, ends: np.ndarray) -> bool:
    """Whether all bytes between a space and the end of its line are digits."""
    others = np.flatnonzero((values < ord("0")) | (values > ord("9")))
    # the last byte before the end of each line that is no digit must be its space
    return bool((others[np.searchsorted(others, ends) - 1] == spaces).all())
