"""Why a word is or is not on the list of a sentence."""

from typing import List, NamedTuple, Optional, Sequence

import numpy as np

from lv_fairseq.candidates.lexicon_numbers import LexiconNumbers
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.lexicon import phrases


class Best(NamedTuple):
    """A target word as a translation in the lexicon."""

    number: int  # which one of its key, from 1
    key: str  # source words of the sentence; empty: it is a candidate in every sentence
    probability: float


class Translations(NamedTuple):
    """What the lexicon has for a sentence, entry by entry."""

    keys: List[str]
    owners: np.ndarray  # the place of each entry's key
    numbers: np.ndarray  # which one of its key it is, from 1
    words: np.ndarray  # as numbers of the dictionary
    scores: np.ndarray  # ln p

    def best(self, word: int) -> Optional[Best]:
        """Where a word stands first among the translations of one key; those of the empty key are before all others."""
        found = np.flatnonzero(self.words == word)
        if not len(found):
            return None
        first = min(found, key=lambda i: (self.keys[self.owners[i]] != "", self.numbers[i]))
        return Best(int(self.numbers[first]), self.keys[self.owners[first]], float(np.exp(self.scores[first])))


def translations_of(lexicon: Lexicon, numbers: LexiconNumbers, source_words: Sequence[str]) -> Translations:
    """
    Args:
        numbers: of the lexicon's target words in the dictionary
    """
    keys = ["", *phrases(source_words, lexicon.longest_key)]
    found = lexicon.find(keys)
    owners, entries = lexicon.entries_of(found)
    places = entries - lexicon.starts[found[owners]] + 1
    return Translations(keys, owners, places, numbers[lexicon.targets[entries]], lexicon.scores[entries])


class Reason(NamedTuple):
    """What decides whether a word is on a list."""

    on_list: bool
    rank: Optional[int]  # by frequency, from 1; None: whatever K is, it is on every list, or on none
    frequent: int  # K
    per_word: int  # K'
    best: Optional[Best]
    known: bool  # whether the lexicon was asked
    alike: bool  # a source word that is written alike brings it
    never: bool

    @property
    def origin(self) -> str:
        """What brings a word that is on the list."""
        if self.rank is None:
            return "always"
        if self.rank <= self.frequent:
            return "frequent"
        if self.best is not None and (not self.best.key or self.best.number <= self.per_word):
            return "lexicon"
        return "source"

    def missing(self) -> str:
        """Of a word that is not on the list, in words."""
        if self.never:
            return "a token that stands in no translation"
        reason = f"number {self.rank:,} by frequency, K = {self.frequent:,}"
        if not self.known:
            return reason
        if self.best is None:
            return f"{reason}; no translation of a source word in the lexicon"
        return f"{reason}; translation {self.best.number} of {self.best.key!r}, K' = {self.per_word}"

    def text(self) -> str:
        """Of any word."""
        if not self.on_list:
            return self.missing()
        if self.origin == "always":
            return "on every list"
        if self.origin == "frequent":
            return f"number {self.rank:,} by frequency, K = {self.frequent:,}"
        if self.origin == "source":
            return "written like a word of the source sentence"
        if not self.best.key:
            return "the lexicon has it for every sentence"
        return f"translation {self.best.number} of {self.best.key!r}, K' = {self.per_word}"
