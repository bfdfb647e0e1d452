"""How many of the words that a translation needs are in candidate lists, for many K and K' at once."""

from itertools import zip_longest
from pathlib import Path
from typing import Iterator, List, Sequence, Tuple

import numpy as np

from lv_fairseq.errors import UserError
from lv_fairseq.files import open_text
from lv_fairseq.lexicon.lexicon import Lexicon, phrases

FAR = np.iinfo(np.int64).max


class Coverage:
    """Counts over the sentences of a text.

    A reference word is in the list of a sentence if it is one of the K most frequent words, or among the first K'
    translations of one of its source words. So two numbers say it all: how frequent the word is (its number), and the
    best rank that any source word of the sentence gives it.

    Args:
        lexicon: translations
        target_numbers: for each target word of the lexicon its number by frequency
        words: how many words the vocabulary has; a word with this number or a higher one is in no list
        frequent: the K to try
        per_word: the K' to try
    """

    def __init__(
        self,
        lexicon: Lexicon,
        target_numbers: np.ndarray,
        words: int,
        frequent: Sequence[int],
        per_word: Sequence[int],
    ):
        self.lexicon, self.target_numbers, self.words = lexicon, target_numbers, words
        self.frequent, self.per_word = list(frequent), list(per_word)
        self.sentences = self.tokens = 0
        self.held = np.zeros((len(self.frequent), len(self.per_word)), dtype=np.int64)
        self.sizes = np.zeros_like(self.held)

    def add(self, source_words: List[str], reference: np.ndarray, joining: Sequence[int] = ()) -> None:
        """One more sentence: its source words, and as numbers by frequency its reference words and words that join its
        list whatever K and K' are."""
        targets, ranks = self.translations(source_words, joining)
        places = np.searchsorted(targets, reference)
        places[places == len(targets)] = 0
        rank = np.full(len(reference), FAR)
        if len(targets):
            rank = np.where(targets[places] == reference, ranks[places], FAR)
        known = reference < self.words
        for i, k in enumerate(self.frequent):
            for j, per_word in enumerate(self.per_word):
                self.held[i, j] += np.count_nonzero(known & ((reference < k) | (rank < per_word)))
                self.sizes[i, j] += min(k, self.words) + np.count_nonzero((targets >= k) & (ranks < per_word))
        self.sentences += 1
        self.tokens += len(reference)

    def translations(self, source_words: List[str], joining: Sequence[int]) -> Tuple[np.ndarray, np.ndarray]:
        """Numbers of the words that the lexicon gives for a sentence, sorted, and the best rank of each, from 0; -1 for
        those that join its list in any case."""
        lexicon = self.lexicon
        keys = lexicon.find(phrases(source_words, lexicon.longest_key))
        owner, entries = lexicon.entries_of(keys, max(self.per_word))
        always = lexicon.entries_of(lexicon.find([""]))[1]
        numbers = self.target_numbers[lexicon.targets[np.r_[entries, always]]]
        numbers = np.r_[numbers, np.array(joining, dtype=np.int64)]
        ranks = np.r_[entries - lexicon.starts[keys[owner]], np.full(len(always) + len(joining), -1)]
        order = np.lexsort((ranks, numbers))
        numbers, ranks = numbers[order], ranks[order]
        first = np.ones(len(numbers), dtype=bool)
        first[1:] = numbers[1:] != numbers[:-1]
        first &= numbers < self.words
        return numbers[first], ranks[first]

    def table(self) -> Iterator[Tuple[int, int, float, float]]:
        """K, K', share of reference words that are held, mean length of a list."""
        for i, k in enumerate(self.frequent):
            for j, per_word in enumerate(self.per_word):
                yield k, per_word, self.held[i, j] / max(self.tokens, 1), self.sizes[i, j] / max(self.sentences, 1)


def parallel_lines(source: Path, target: Path) -> Iterator[Tuple[str, str, int]]:
    """Pairs of lines, and the bytes of the first."""
    try:
        with open_text(source) as left, open_text(target) as right:
            for number, (a, b) in enumerate(zip_longest(left, right), start=1):
                if a is None or b is None:
                    ended = source if a is None else target
                    raise UserError(f"{ended} ends before line {number}, the other text does not")
                yield decoded(source, number, a), decoded(target, number, b), len(a)
    except OSError as error:
        raise UserError(f"cannot read {error.filename or f'{source} and {target}'}: {error.strerror}") from None


def decoded(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UserError(f"{path}, line {number}: not UTF-8") from None
