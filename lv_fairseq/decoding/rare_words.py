"""Names and numbers that were seen too seldom to be learned are read as unknown, and so are copied.

A model that was trained with --hide-rare-words knows how to copy, but reads a name that is in its dictionary as a word
like any other, though it has seen it hardly ever, and writes the name that it knows better.
"""

import numpy as np
import torch
from torch import Tensor

from lv_fairseq.decoding.unknown_words import replacement
from lv_fairseq.lexicon import Lexicon


class Reading:
    """What a model is given to read for each source word: its own number, or that of the unknown word.

    Args:
        source, target: fairseq's dictionaries
        most: how often a word was seen, at most, that is read as unknown; 0: none is
        lexicon: if there is one, a word that it translates by another one is not copied, unless its first letter is
            no lowercase letter (the paper's rule)
        words: how many words the source dictionary has before any token of another kind; None: all
    """

    def __init__(
        self,
        source,
        target,
        most: int = 0,
        lexicon: Lexicon | None = None,
        words: int | None = None,
    ):
        self.source = source
        copied = rare_copies(source, target, most, lexicon) if most else np.array([], dtype=np.int64)
        self.rare = copied[copied < (len(source) if words is None else words)]
        self._table: Tensor | None = None  # of numbers, where the sentences are

    def __call__(self, tokens: Tensor) -> Tensor:
        """Word numbers of sentences, as the model is to read them."""
        if not len(self.rare):
            return tokens
        if self._table is None or self._table.device != tokens.device:
            self._table = torch.arange(len(self.source), device=tokens.device)
            self._table[torch.from_numpy(self.rare).to(tokens.device)] = self.source.unk()
        return self._table[tokens]

    def is_unknown(self, word: str) -> bool:
        number = self.source.index(word)
        place = int(np.searchsorted(self.rare, number))
        return number == self.source.unk() or place < len(self.rare) and int(self.rare[place]) == number


def rare_copies(source, target, most: int, lexicon: Lexicon | None) -> np.ndarray:
    """The numbers, in order, of source words that were seen at most so often, that the target dictionary has too,
    written alike, and that replacement would copy."""
    rule = "copy" if lexicon is None else "lexicon-lowercase"
    counts = np.array(source.count, dtype=np.int64)
    counts[: source.nspecial] = 0
    rare = np.flatnonzero((counts > 0) & (counts <= most))
    alike = (i for i in rare.tolist() if target.indices.get(source[i], 0) >= target.nspecial)
    return np.array([i for i in alike if replacement(source[i], rule, lexicon) == source[i]], dtype=np.int64)
