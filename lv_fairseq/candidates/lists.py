"""From source words to target word numbers."""

import copy
from typing import Dict, Iterable, Optional, Sequence, Tuple

import numpy as np

from lv_fairseq.candidates.lexicon_numbers import LexiconNumbers
from lv_fairseq.candidates.reasons import Reason, Translations, translations_of
from lv_fairseq.errors import UserError
from lv_fairseq.fingerprint import fingerprint
from lv_fairseq.lexicon import Lexicon

NONE = np.zeros(0, dtype=np.int64)
LOOKED_AT = 1000  # words that tell whether a lexicon is of the model's language


class CandidateLists:
    """For a sentence the K most frequent target words, and at most K' translations of each of its source words.

    Most of a list is the same for every sentence (`common`) and is put together once; a sentence has few words beyond
    it (`others`). Where the K most frequent words are the first ones of the dictionary, which fairseq sorts by
    frequency, `common` is 0, 1, 2, ...: a model's rows of these words are a slice. So that it stays one, words of
    ``always`` with higher numbers are then among the others of every sentence.

    Args:
        dictionary: the target dictionary
        frequent: K; more than there are means all words
        lexicon: translations of source words
        per_word: K'
        always: words that are on every list beside the special symbols, such as the token of the target language
        never: words that are on no list unless a prefix or a constraint names them, such as tokens of other languages
        ranking: the numbers of all words but special symbols, the most frequent first (default: the dictionary's order)
        source_words: whether words of the sentence that are target words too join its list

    Attributes:
        words: size of the vocabulary as the model has it: fairseq adds words when it scores translations
        common: words on every list, each once: special symbols, at the places of their numbers, then ``always``, then
            the most frequent ones
        prefix: whether `common` is 0, 1, 2, ...
        whole: whether every list holds all words
    """

    def __init__(
        self,
        dictionary,
        frequent: int,
        lexicon: Optional[Lexicon] = None,
        per_word: int = 0,
        always: Sequence[int] = (),
        never: Sequence[int] = (),
        ranking: Optional[np.ndarray] = None,
        source_words: bool = False,
    ):
        self.dictionary, self.lexicon, self.source_words = dictionary, lexicon, source_words
        self.words, special = len(dictionary), dictionary.nspecial
        self._ranking = np.arange(special, self.words) if ranking is None else ranking
        self._rank = np.full(self.words, -1)  # by frequency, from 0; -1 for what is on every list whatever K is
        self._rank[self._ranking] = np.arange(len(self._ranking))
        if len(self._ranking) != self.words - special or (self._rank[special:] < 0).any():
            raise ValueError("a ranking has every word of the dictionary once, and no special symbol")
        self._always = np.array([word for word in dict.fromkeys(always) if word >= special], dtype=np.int64)
        self._never = np.zeros(self.words, dtype=bool)
        self._never[[word for word in never if word >= special]] = True
        self._ranking = self._ranking[~self._never[self._ranking]]
        self._rank[self._ranking] = np.arange(len(self._ranking))
        self._rank[self._never] = self.words
        self._rank[self._always] = -1
        self._numbers: Optional[LexiconNumbers] = None
        self._made: Dict[Tuple[int, int], CandidateLists] = {}  # the same with other K and K', each made once
        self._read_lexicon(per_word)
        self._hold(frequent, per_word)

    def _read_lexicon(self, per_word: int) -> None:
        if self.lexicon is not None and per_word and self._numbers is None:
            self._numbers = LexiconNumbers(self.lexicon, self.dictionary, self.words)

    def _hold(self, frequent: int, per_word: int) -> None:
        """Put together what is on every list."""
        self.frequent, self.per_word = min(frequent, len(self._ranking)), per_word
        special, best = np.arange(self.dictionary.nspecial), self._ranking[: self.frequent]
        self.common = np.concatenate([special, self._always, best[~np.isin(best, self._always)]])
        self._beyond = NONE  # words that are on every list without being common
        self.prefix = are_first(self.common)
        if not self.prefix and are_first(np.concatenate([special, best])):
            self.prefix = True
            self._beyond = self._always[self._always >= len(special) + len(best)]
        if self.prefix:
            self.common = np.arange(len(self.common) - len(self._beyond))
        self.whole = len(self.common) == self.words

    def _with(self, frequent: int, per_word: int) -> "CandidateLists":
        if (frequent, per_word) not in self._made:
            made = self._made[frequent, per_word] = copy.copy(self)
            made._hold(frequent, per_word)
        return self._made[frequent, per_word]

    def others(self, source_words: Sequence[str]) -> np.ndarray:
        """The words of a sentence's list beyond the common ones: sorted numbers."""
        numbers = NONE
        if self.lexicon is not None and self.per_word:
            numbers = self._numbers[self.lexicon.candidate_numbers(source_words, self.per_word)]
        if self.source_words:
            known = np.fromiter(map(self.dictionary.index, source_words), np.int64, len(source_words))
            numbers = np.concatenate([numbers, known[known < self.words]])
        numbers = numbers[~self._never[numbers]]
        return np.unique(np.concatenate([self._beyond, numbers[self._rank[numbers] >= self.frequent]]))

    def beyond_common(self, words: np.ndarray) -> np.ndarray:
        """Those of some words that are not among the common ones."""
        return words[words >= len(self.common) if self.prefix else self._rank[words] >= self.frequent]

    def longer(self) -> "CandidateLists":
        """Lists with twice the K and twice the K'."""
        return self._with(2 * self.frequent, 2 * self.per_word)

    def at_least(self, words: int) -> "CandidateLists":
        """Lists with so many more frequent words that at least ``words`` of them are common, or all that there are."""
        lists, words = self, min(words, self.words - int(self._never.sum()))
        while len(lists.common) < words:  # again if some of the new words were common before
            lists = self._with(lists.frequent + words - len(lists.common), self.per_word)
        return lists

    def limited(self, frequent: int, per_word: int) -> "CandidateLists":
        """Lists with another K and K', which nobody here remembers: who asks for many of them decides what is kept."""
        self._read_lexicon(per_word)
        made = copy.copy(self)
        made._made = {}
        made._hold(frequent, per_word)
        return made

    def translations(self, source_words: Sequence[str]) -> Optional[Translations]:
        """What the lexicon has for a sentence; None if no list is made from it."""
        if self.lexicon is None or not self.per_word:
            return None
        return translations_of(self.lexicon, self._numbers, source_words)

    def why(self, word: int, source_words: Sequence[str], translations: Optional[Translations]) -> Reason:
        """What decides whether a word of the dictionary is on the list of a sentence.

        Args:
            translations: those of the sentence
        """
        rank, alike = int(self._rank[word]), self.source_words and self.dictionary[word] in source_words
        best = None if translations is None else translations.best(word)
        never = bool(self._never[word])
        listed = best is not None and (best.key == "" or best.number <= self.per_word)
        return Reason(
            on_list=not never and (rank < self.frequent or alike or listed),
            rank=None if never or rank < 0 else rank + 1,
            frequent=self.frequent,
            per_word=self.per_word,
            best=best,
            known=translations is not None,
            alike=alike,
            never=never,
        )

    def reason(self, word: int, source_words: Sequence[str]) -> str:
        """Why a word of the dictionary is not on the list of a sentence."""
        return self.why(word, source_words, self.translations(source_words)).missing()


def are_first(numbers: np.ndarray) -> bool:
    """Whether distinct numbers are 0, 1, 2, ... in some order."""
    return int(numbers.max(initial=-1)) == len(numbers) - 1


def check_lexicon(
    lexicon: Lexicon, path: str, source, target, text_words: Sequence[Optional[int]] = (None, None)
) -> None:
    """Refuse a lexicon that was made for other dictionaries, or for text in other words than the model's.

    Args:
        source, target: the model's dictionaries
        text_words: how many words each has before any token of another kind, as its file has them; None: all
    """
    for side, dictionary, size in zip(("source", "target"), (source, target), text_words):
        made_for = lexicon.about.get("dictionaries", {}).get(side)
        own = (fingerprint(dictionary.symbols[:end]) for end in (None, size))
        if made_for is not None and made_for not in own:
            raise UserError(
                f"the lexicon {path} was made for another {side} dictionary: make one with lv-lexicon build "
                f"--{side}-dict of this data, or name another one with --lexicon"
            )
    if source != target:
        frequent = source.symbols[source.nspecial : source.nspecial + LOOKED_AT]
        known = int(np.count_nonzero(lexicon.find(frequent) >= 0))
        said = f"the lexicon {path} knows {known:,} of the {len(frequent):,} most frequent source words"
    else:  # a joined dictionary begins with words of both languages, or of many: ask for those of the lexicon
        frequent = lexicon.target_words[:LOOKED_AT] if lexicon.by_frequency else []
        known = sum(word in target for word in frequent)
        said = f"of the {len(frequent):,} most frequent target words of the lexicon {path} the dictionary has {known:,}"
    if 2 * known < len(frequent):
        raise UserError(f"{said}: was it made from text in another language, or with other tokens?")


def union(lists: Iterable[np.ndarray]) -> np.ndarray:
    """All words that are on any of the lists: sorted numbers."""
    return np.unique(np.concatenate([NONE, *lists]))
