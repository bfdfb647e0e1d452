"""`Lexicon`: opens at once, whatever its size, and looks up the candidates of a sentence.

A damaged file is noticed (`UnusableFileError`) when it is opened, or when the damaged part of it is first used: see
`arrays_file`. `verify` looks at all of it, and so does `save` before it replaces what was there.
"""

import logging
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from lv_fairseq.errors import UnusableFileError
from lv_fairseq.files import written_whole
from lv_fairseq.lexicon.arrays_file import Rule, StoredArray, damaged, open_arrays, write_arrays
from lv_fairseq.lexicon.entries import Entries, arrange
from lv_fairseq.lexicon.word_list import WordIndex, WordList, index, pack, ranges

logger = logging.getLogger(__name__)

KINDS = {
    "starts": "<i8",
    "targets": "<i4",
    "scores": "<f8",
    "source_text": "|u1",
    "source_starts": "<i8",
    "target_text": "|u1",
    "target_starts": "<i8",
    "source_hashes": "<u8",
    "source_order": "<i4",
}


class Lexicon:
    """Translations of source words, the most likely first.

    A key is a source word, several source words parted by blanks, or empty: the translations of the empty key are
    candidates in every sentence. Keys and target words have numbers of the lexicon's own; `keys` and `target_words`
    give their text. Words are text here, so that a lexicon serves any dictionary, and may hold words that are in none.

    Attributes:
        keys: the source words, in alphabetical order
        target_words: the target words, the most frequent first if `by_frequency`
        starts: where the entries of each key begin, and the end of the last (keys + 1)
        targets: the target word of each entry
        scores: ln p(target | source) of each entry
        longest_key: words of the longest key
        about: how it was made
    """

    def __init__(self, about: Dict, arrays: Dict[str, np.ndarray]):
        self.about, self._arrays = about, arrays
        self.keys = WordList(arrays["source_text"], arrays["source_starts"])
        self.target_words = WordList(arrays["target_text"], arrays["target_starts"])
        self.starts, self.targets, self.scores = arrays["starts"], arrays["targets"], arrays["scores"]
        self._index = WordIndex(self.keys, arrays["source_hashes"], arrays["source_order"])
        self.longest_key = about["longest_key"]  # words
        first = self.keys.starts[:2]
        empty = len(first) > 1 and first[0] == first[1]  # in alphabetical order, only the first key can be empty
        self._always = self.entries_of(np.zeros(int(empty), np.int64))[1]  # entries of the empty key

    @classmethod
    def load(cls, path) -> "Lexicon":
        """Open a file: a few blocks of it are read, the others as they are used."""
        about, arrays = open_arrays(Path(path))
        if not fit(about, arrays):
            raise UnusableFileError(f"the lexicon {path} is damaged, make it again: its header is wrong")
        expect(arrays)
        lexicon = cls(about, arrays)
        if not lexicon.has_checksums:
            logger.warning(
                f"the lexicon {path} is of version 1, without checksums: damage may change translations unnoticed; "
                f"lv-lexicon convert {path} --out NEW makes one of version 2"
            )
        return lexicon

    def save(self, path) -> None:
        with written_whole(Path(path)) as file:
            write_arrays(file, self.about, self._arrays)
            file.flush()
            Lexicon.load(file.name).verify()

    def verify(self) -> None:
        """Read all of it; `UnusableFileError` if anything is wrong."""
        for array in self._arrays.values():
            array[:]
        words = [word.encode() for word in self.keys]
        if any(before >= word for before, word in zip(words, words[1:])):
            raise damaged(self.keys.text, "its keys are not in alphabetical order")
        for _ in self.target_words:  # are they UTF-8?
            pass
        self._index.verify(words)

    @property
    def has_checksums(self) -> bool:
        """Whether it comes from a file that has them: those of version 1 have none."""
        return all(getattr(array, "checksums", None) is not None for array in self._arrays.values())

    @classmethod
    def of(cls, entries: Entries, about: Dict, target_counts: Optional[Dict[bytes, int]] = None) -> "Lexicon":
        """A new lexicon.

        Args:
            entries: what it shall hold
            about: how it was made
            target_counts: how often target words occur, if known
        """
        keys, target_words, starts, targets, scores = arrange(entries, target_counts)
        longest = max((key.count(b" ") + 1 for key in keys), default=1)
        about = {**about, "by_frequency": target_counts is not None, "longest_key": longest}
        arrays = {"starts": starts, "targets": targets, "scores": scores}
        for side, words in (("source", keys), ("target", target_words)):
            arrays[f"{side}_text"], arrays[f"{side}_starts"] = pack(words)
        arrays.update({f"source_{name}": array for name, array in index(keys).items()})
        return cls(about, arrays)

    def limited_to(self, k: int) -> "Lexicon":
        """The same with the k best entries of each key."""
        owner, kept = self.entries_of(np.arange(len(self.keys)), k)
        starts = np.searchsorted(owner, np.arange(len(self.keys) + 1))
        changed = {"starts": starts, "targets": self.targets[kept], "scores": self.scores[kept]}
        return Lexicon({**self.about, "max_per_word": k}, {**self._arrays, **changed})

    @property
    def by_frequency(self) -> bool:
        """Whether target words are numbered by their frequency in the text that the lexicon was made from."""
        return self.about["by_frequency"]

    def find(self, keys: Sequence[str]) -> np.ndarray:
        """The number of each key, -1 where there is none."""
        return self._index.find(keys)

    def entries_of(self, keys: np.ndarray, k: Optional[int] = None) -> Tuple[np.ndarray, np.ndarray]:
        """Of key numbers (-1 has no entries) the first k entries: which key each is of, by its place, and its place."""
        known = np.flatnonzero(keys >= 0)
        begins = self.starts[keys[known]]
        counts = self.starts[keys[known] + 1] - begins
        if k is not None:
            counts = np.minimum(counts, min(k, len(self.targets)))
        return np.repeat(known, counts), ranges(begins, counts)

    def candidate_numbers(self, source_words: Sequence[str], k: Optional[int] = None) -> np.ndarray:
        """Numbers of the target words that may translate a sentence: the k best of each of its words and phrases,
        and those of the empty key. Sorted, each once."""
        if isinstance(source_words, str):
            raise TypeError("give the source words as a list, not as one text")
        if k is not None and k < 0:
            raise ValueError(f"k must be 0 or more, not {k}")
        keys = self.find(phrases(source_words, self.longest_key))
        entries = self.entries_of(keys, k)[1]
        if len(self._always):
            entries = np.concatenate([entries, self._always])
        return np.unique(self.targets[entries])

    def candidates(self, source_words: Sequence[str], k: Optional[int] = None) -> List[str]:
        """The target words that may translate a sentence, each once: the k best of each source word."""
        return self.target_words.take(self.candidate_numbers(source_words, k))

    def translations(self, key: str) -> List[Tuple[str, float]]:
        """Target words and their probabilities, the most likely first; none for a word that is not there."""
        entries = self.entries_of(self.find([key]))[1]
        words = self.target_words.take(self.targets[entries])
        return list(zip(words, np.exp(self.scores[entries]).tolist()))

    def best(self, word: str) -> Optional[str]:
        """The most likely translation of a source word."""
        number = int(self.find([word])[0])
        if number < 0 or self.starts[number] == self.starts[number + 1]:
            return None
        return self.target_words[self.targets[self.starts[number]]]


def fit(about: Dict, arrays: Dict[str, StoredArray]) -> bool:
    """Whether arrays and facts of a file are those of a lexicon, and fit each other."""
    if {name: array.dtype.str for name, array in arrays.items()} != KINDS:
        return False
    size = {name: len(array) for name, array in arrays.items()}
    longest, prints = about.get("longest_key"), about.get("dictionaries", {})
    return (
        size["scores"] == size["targets"]
        and size["starts"] == size["source_starts"] == size["source_hashes"] + 1 == size["source_order"] + 1
        and size["target_starts"] > 0
        and type(about.get("by_frequency")) is bool
        and type(longest) is int
        and 1 <= longest <= size["source_text"] + 1  # blanks between words are bytes too
        and type(prints) is dict
        and all(type(number) is int for number in prints.values())
    )


def expect(arrays: Dict[str, StoredArray]) -> None:
    """Say what the numbers of each array must be like."""
    for name, of in (("starts", "targets"), ("source_starts", "source_text"), ("target_starts", "target_text")):
        arrays[name].expect(Rule(0, len(arrays[of]), rising=True, whole=True))
    arrays["targets"].expect(Rule(0, len(arrays["target_starts"]) - 2))
    arrays["source_order"].expect(Rule(0, len(arrays["source_hashes"]) - 1))
    arrays["source_hashes"].expect(Rule(0, np.iinfo(np.uint64).max, rising=True))
    arrays["scores"].expect(Rule(np.finfo(np.float64).min, np.finfo(np.float64).max))


def phrases(words: Sequence[str], longest: int) -> List[str]:
    """The distinct runs of at most ``longest`` words of a sentence."""
    found = dict.fromkeys(words)
    for length in range(2, min(longest, len(words)) + 1):
        found.update(dict.fromkeys(" ".join(words[i : i + length]) for i in range(len(words) - length + 1)))
    return list(found)
