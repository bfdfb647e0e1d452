"""Tells one dictionary from another."""

import hashlib
from pathlib import Path
from typing import Iterable, List

from lv_fairseq.errors import UserError
from lv_fairseq.files import open_file

SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]  # fairseq puts them before the words of a file


def fingerprint(words: Iterable[str]) -> int:
    """A number for words in their order, special symbols first; the same on every machine."""
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:7], "big")


def dictionary_words(path: Path) -> List[str]:
    """The words of a dictionary that fairseq-preprocess has written, by word number, without importing fairseq."""
    try:
        with open_file(path) as file:
            rows = [line.decode().rstrip("\n").rsplit(" ", 1) for line in file]
    except UnicodeDecodeError:
        raise UserError(f"{path} is no dictionary of fairseq: it is not text") from None
    except OSError as error:
        raise UserError(f"cannot read the dictionary {path}: {error.strerror or error}") from None
    if rows and rows[0][0].startswith("\ufeff"):
        raise UserError(f"{path} starts with a byte order mark, which fairseq takes for a part of a word: remove it")
    words = []
    for number, row in enumerate(rows, start=1):
        if len(row) == 2 and row[1] == "#fairseq:overwrite":
            row = row[0].rsplit(" ", 1)
        if len(row) != 2 or not row[1].isdigit():
            raise UserError(f"{path} is no dictionary of fairseq: line {number} is not a word and its count")
        words.append(row[0])
    return [*SPECIALS, *words] if words[: len(SPECIALS)] != SPECIALS else words
