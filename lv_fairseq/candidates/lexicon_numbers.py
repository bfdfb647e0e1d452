"""From the numbers that target words have in a lexicon to those that they have in a dictionary."""

import numpy as np

from lv_fairseq.lexicon import Lexicon


class LexiconNumbers:
    """Indexed with numbers of the lexicon, gives those of the dictionary, the unknown word's for words that it lacks.

    Words are looked up when sentences need them: most of a large lexicon is never asked for.

    Args:
        lexicon: whose target words they are
        dictionary: the target dictionary
        size: words of it that count: fairseq adds others when it scores translations
    """

    def __init__(self, lexicon: Lexicon, dictionary, size: int):
        self.words, self.dictionary, self.size = lexicon.target_words, dictionary, size
        self._found = np.full(len(self.words), -1)  # -1: not looked up yet

    def __getitem__(self, words: np.ndarray) -> np.ndarray:
        numbers = self._found[words]
        new = np.unique(words[numbers < 0])
        if len(new):
            found = np.fromiter(map(self.dictionary.index, self.words.take(new)), np.int64, len(new))
            self._found[new] = np.where(found < self.size, found, self.dictionary.unk())
            numbers = self._found[words]
        return numbers
