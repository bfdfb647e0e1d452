"""A folder that fairseq-preprocess has made: what must be there, and one line where it is not."""

import contextlib
import glob
import os
from pathlib import Path
from typing import Iterator, Optional, Sequence, Tuple, Type

from fairseq.data import Dictionary, data_utils

from lv_fairseq.dictionary_file import read_dictionary
from lv_fairseq.errors import UserError
from lv_fairseq.index_file import check_index


def languages(folder: str, source: Optional[str], target: Optional[str]) -> Tuple[str, str]:
    """Source and target language, from the names of the files where they are not given."""
    check_folder(folder)
    if source is None or target is None:
        source, target = data_utils.infer_language_pair(folder)
    if source is None or target is None:
        raise UserError(
            f"{folder} holds no binarised sentence pairs: make them with fairseq-preprocess --destdir {folder}, "
            "or name the languages with --source-lang and --target-lang"
        )
    return source, target


def check_folder(folder: str) -> None:
    if not os.path.isdir(folder):
        raise UserError(f"there is no data folder {folder}: make it with fairseq-preprocess --destdir {folder}")


def check_shards(folders: Sequence[str], source: str, target: str) -> None:
    """fairseq reads the dictionaries of the first shard only; those of the others, if there, must be the same."""
    for name in (f"dict.{source}.txt", f"dict.{target}.txt"):
        first = Path(folders[0], name)
        for path in (Path(folder, name) for folder in folders[1:]):
            if path.is_file() and first.is_file() and path.read_bytes() != first.read_bytes():
                raise UserError(
                    f"{path} is another dictionary than {first}: binarise all shards with the same ones "
                    "(fairseq-preprocess --srcdict, --tgtdict)"
                )


def load_dictionary(path: str, kind: Type[Dictionary] = Dictionary) -> Dictionary:
    if not os.path.isfile(path):
        raise UserError(f"there is no dictionary {path}: fairseq-preprocess writes it beside the data")
    try:
        return read_dictionary(path, kind)
    except Exception as error:  # fairseq raises nothing more special for bytes that are not UTF-8
        raise UserError(f"{path} is no dictionary of fairseq: {' '.join(str(error).split())}") from None


def check_subset(folder: str, subset: str) -> None:
    """Say of empty and damaged files in one line what fairseq would say in a stack trace."""
    for path in sorted(Path(folder).glob(f"{glob.escape(subset)}*.bin")):
        if path.stat().st_size == 0:
            raise UserError(f"{path} holds no sentences: was the text that fairseq-preprocess read empty?")
        if path.with_suffix(".idx").is_file():
            check_index(path.with_suffix(".idx"), path)


@contextlib.contextmanager
def reading(subset: str) -> Iterator[None]:
    """The same of what fairseq finds missing while it reads a subset in this block."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(f"{error}: make it with fairseq-preprocess, or name another subset") from None
    except AssertionError:
        raise UserError(
            f"{subset} has not as many source as target sentences: make it again with fairseq-preprocess"
        ) from None
