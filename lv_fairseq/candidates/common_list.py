"""Which target words come first into the common list: by the counts of a text or a dictionary, instead of the place in
the dictionary."""

import os
import re
from itertools import islice
from pathlib import Path
from typing import Callable, Dict, Union

import numpy as np

from lv_fairseq.corpus_coverage.counting import count_words
from lv_fairseq.errors import UserError
from lv_fairseq.files import open_text

HEAD = 1000  # lines that tell a dictionary from a text
ENTRY = re.compile(rb"(\S+) (\d{1,15})( #fairseq:overwrite)?\s*")


def ranking_from(path: Union[str, Path], dictionary) -> np.ndarray:
    """The numbers of a target dictionary's words without special symbols, the most frequent first."""
    return most_frequent(path, dictionary.index, range(dictionary.nspecial, len(dictionary)))


def most_frequent(path: Union[str, Path], number_of: Callable[[str], int], numbers: range) -> np.ndarray:
    """Word numbers, the most frequent first; equally frequent ones, such as those that never occur, in their order.

    Args:
        path: a file that `counts_of` reads
        number_of: the number of a word; words whose numbers are not among ``numbers`` count for nothing
        numbers: of the vocabulary
    """
    counted = counts_of(path)
    places = np.fromiter(map(number_of, counted), np.int64, len(counted)) - numbers.start
    counts = np.fromiter(counted.values(), np.int64, len(counted))
    known = (places >= 0) & (places < len(numbers))
    share = counts[known].sum(dtype=np.float64) / counts.sum(dtype=np.float64)
    if share < 0.5:
        raise UserError(
            f"only {100 * share:.1f} % of the words counted in {path} are in the target dictionary: is it in another "
            "language, or in other tokens?"
        )
    of_places = np.zeros(len(numbers), dtype=np.int64)
    of_places[places[known]] = counts[known]
    return numbers.start + np.argsort(-of_places, kind="stable")


def counts_of(path: Union[str, Path]) -> Dict[str, int]:
    """How often each word occurs, by a tokenised text or by a dictionary with counts, as fairseq-preprocess writes it.

    It is a dictionary if at least half of its first 1000 lines are a word and a number; then all lines must be.
    """
    need_file(path)
    try:
        with open_text(Path(path)) as file:
            head = [ENTRY.fullmatch(line) is not None for line in islice(file, HEAD)]
        if head and 2 * sum(head) >= len(head):
            return dictionary_counts(Path(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    return count_words(Path(path)).words


def need_file(path: Union[str, Path]) -> None:
    """Refuse what cannot be read twice, and what is not there."""
    if not os.path.isfile(path):
        what = "is not an ordinary file" if os.path.exists(path) else "is not there"
        raise UserError(f"{path} {what}: name a tokenised target text, or a dictionary with counts (dict.LANG.txt)")


def dictionary_counts(path: Path) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    with open_text(path) as file:
        for number, line in enumerate(file, start=1):
            entry = ENTRY.fullmatch(line)
            if entry is None:
                raise UserError(
                    f"{path} is neither a text nor a dictionary: most of its first lines are a word and its count, "
                    f"line {number} is not"
                )
            try:
                word = entry[1].decode()
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: not UTF-8") from None
            if word in counts and entry[3] is None:
                raise UserError(
                    f"{path} is neither a text nor a dictionary: its lines are a word and its count, but line "
                    f"{number} has a word of a line before it"
                )
            counts[word] = int(entry[2])
    if len(set(counts.values()) - {0}) < 2:
        raise UserError(f"{path} counts all words alike: name a tokenised target text, or a dictionary with counts")
    return counts
