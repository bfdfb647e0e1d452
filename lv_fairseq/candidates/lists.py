"""From source words to target word numbers."""

import copy
from typing import Iterable, Optional, Sequence

import numpy as np

from lv_fairseq.errors import UserError
from lv_fairseq.fingerprint import fingerprint
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.lexicon import phrases


class CandidateLists:
    """For a sentence the K most frequent target words, and at most K' translations of each of its source words.

    fairseq sorts a dictionary by frequency, after the special symbols: every word with a number below `common` is on
    every list, and a list is told by its other words alone.

    Args:
        dictionary: the target dictionary
        frequent: K
        lexicon: translations of source words
        per_word: K'
    """

    def __init__(self, dictionary, frequent: int, lexicon: Optional[Lexicon] = None, per_word: int = 0):
        self.dictionary, self.lexicon = dictionary, lexicon
        self.frequent, self.per_word = frequent, per_word
        self.words = len(dictionary)  # as the model has them: fairseq adds others when it scores translations
        self._numbers = np.zeros(0, dtype=np.int64)  # of the lexicon's target words in the dictionary
        if lexicon is not None and per_word:
            words = lexicon.target_words
            self._numbers = np.fromiter(map(dictionary.index, words), np.int64, len(words))

    @property
    def common(self) -> int:
        return min(self.dictionary.nspecial + self.frequent, self.words)

    @property
    def whole(self) -> bool:
        """Whether every list holds all words."""
        return self.common == self.words

    def others(self, source_words: Sequence[str]) -> np.ndarray:
        """The words of a sentence's list beyond the common ones: sorted numbers."""
        if not self.per_word or self.lexicon is None:
            return np.zeros(0, dtype=np.int64)
        numbers = self._numbers[self.lexicon.candidate_numbers(source_words, self.per_word)]
        return np.unique(numbers[numbers >= self.common])

    def longer(self) -> "CandidateLists":
        """Lists with twice the K and twice the K'."""
        result = copy.copy(self)
        result.frequent, result.per_word = 2 * self.frequent, 2 * self.per_word
        return result

    def reason(self, word: int, source_words: Sequence[str]) -> str:
        """Why a word of the dictionary is not on the list of a sentence."""
        rank = word - self.dictionary.nspecial + 1
        reason = f"number {rank:,} by frequency, K = {self.frequent:,}"
        if self.lexicon is None or not self.per_word:
            return reason
        text, best = self.dictionary[word], None
        for key in phrases(source_words, self.lexicon.longest_key):
            translations = [translation for translation, _ in self.lexicon.translations(key)]
            if text in translations and (best is None or translations.index(text) < best[0]):
                best = translations.index(text), key
        if best is None:
            return f"{reason}; no translation of a source word in the lexicon"
        return f"{reason}; translation {best[0] + 1} of {best[1]!r}, K' = {self.per_word}"


def check_lexicon(lexicon: Lexicon, path: str, source, target) -> None:
    """Refuse a lexicon that was made for other dictionaries, or for text in other words than the model's.

    Args:
        source, target: the model's dictionaries
    """
    for side, dictionary in (("source", source), ("target", target)):
        made_for = lexicon.about.get("dictionaries", {}).get(side)
        if made_for is not None and made_for != fingerprint(dictionary.symbols):
            raise UserError(
                f"the lexicon {path} was made for another {side} dictionary: make one with lv-lexicon build "
                f"--{side}-dict of this data, or name another one with --lexicon"
            )
    frequent = source.symbols[source.nspecial : source.nspecial + 1000]
    known = int(np.count_nonzero(lexicon.find(frequent) >= 0))
    if 2 * known < len(frequent):
        raise UserError(
            f"the lexicon {path} knows {known:,} of the {len(frequent):,} most frequent source words: was it made from "
            "text in another language, or with other tokens?"
        )


def union(lists: Iterable[np.ndarray]) -> np.ndarray:
    """All words that are on any of the lists: sorted numbers."""
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *lists]))
