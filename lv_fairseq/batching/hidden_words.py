"""Hides rare words of training sentences, so that a model with all words learns to ask for replacement.

A model whose dictionary holds every word of the training text never sees the unknown word: later it can neither read
nor write it, and no name is ever copied (paper, 4.5). Here a word that was seen n times is read as unknown with
probability A / (A + n), on both sides at once: a word that stands in both sentences (a name, a number), or a source
word together with the word of the target sentence that translates it; n is the count of the more frequent of the two.
Frequent words are practically never hidden.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset

NOTHING = -1
MOST_FOUND = 1 << 16  # words whose translations are remembered


def no_translations(word: int) -> Sequence[int]:
    return ()


class HiddenWords:
    """What is hidden is a function of seed, epoch and sentence: the same on every worker and after a resume.

    Args:
        strength: A
        source_counts, target_counts: how often each word was seen (words); 0 for one that is never hidden
        same: for each source word the number of the target word that is written alike, -1 where there is none
        translations: target words, the most likely first, of a source word; none if there is no lexicon
        unknown: number of the unknown word, on both sides
        seed: of the run
    """

    def __init__(
        self,
        strength: float,
        source_counts: np.ndarray,
        target_counts: np.ndarray,
        same: np.ndarray,
        translations: Callable[[int], Sequence[int]] = no_translations,
        unknown: int = 3,
        seed: int = 1,
    ):
        self.strength, self.same, self.translations = strength, same, translations
        self.source_counts, self.target_counts = source_counts, target_counts
        self.unknown, self.seed = unknown, seed

    def pairs(self, source: np.ndarray, target: np.ndarray, epoch: int, sentence: int) -> list[tuple[int, int]]:
        """Source words, and the target words that stand for them, that are hidden in a sentence this time."""
        words = list(dict.fromkeys(source.tolist()))  # each once, in an order that no hash decides
        # one number a word, whether it is used or not: what happens to one word does not depend on others
        chances = np.random.default_rng([self.seed, epoch, sentence]).random(len(words))
        there, hidden = set(target.tolist()), []
        for word, chance in zip(words, chances.tolist()):
            if chance >= self.probability(self.source_counts[word]):
                continue
            other = self.partner(word, there)
            if other != NOTHING and chance < self.probability(max(self.source_counts[word], self.target_counts[other])):
                hidden.append((word, other))
        return hidden

    def partner(self, word: int, target: set[int]) -> int:
        """The word of a target sentence that is the same as a source word, or its most likely translation there."""
        if self.same[word] in target:
            return int(self.same[word])
        return next((other for other in self.translations(word) if other in target), NOTHING)

    def probability(self, count: int) -> float:
        return self.strength / (self.strength + count) if count > 0 else 0.0

    def hide(
        self, source: torch.Tensor, target: torch.Tensor, epoch: int, sentence: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """A sentence pair (source length; target length) with its hidden words as unknown ones; new tensors if any."""
        pairs = self.pairs(source.numpy(), target.numpy(), epoch, sentence)
        if not pairs:
            return source, target
        sides = zip((source, target), zip(*pairs))
        return tuple(side.masked_fill(torch.isin(side, side.new_tensor(words)), self.unknown) for side, words in sides)


class HidingDataset(BaseWrapperDataset):
    """Sentence pairs, of which some words are hidden when they are read, others in every epoch.

    `src` and `tgt` are the true sentences: partitions and pages are made from them.
    """

    def __init__(self, dataset, hidden: HiddenWords):
        super().__init__(dataset)
        self.hidden = hidden
        self.src, self.tgt = dataset.src, dataset.tgt
        # shared with the data loader's processes, which fairseq keeps from epoch to epoch with a copy of this dataset
        self._epoch = torch.ones(1, dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self._epoch.fill_(epoch)

    def __getitem__(self, index):
        sample = self.dataset[index]
        source, target = self.hidden.hide(sample["source"], sample["target"], int(self._epoch), int(index))
        return {**sample, "source": source, "target": target}


def hidden_words(strength: float, source, target, lexicon, seed: int) -> HiddenWords:
    """
    Args:
        strength: A
        source, target: fairseq's dictionaries
        lexicon: a `Lexicon`, or None
    """

    translations = [Translations(source, target, lexicon)] if lexicon is not None else []
    sides = counts_of(source), counts_of(target), written_alike(source, target)
    unknown = source.unk()
    return HiddenWords(strength, *sides, *translations, unknown=unknown, seed=seed)


class Translations:
    """Target words, the most likely first, of a source word: a function that processes that read data can be given,
    however they are started."""

    def __init__(self, source, target, lexicon):
        self.source, self.target, self.lexicon = source, target, lexicon
        self._found: dict[int, list[int]] = {}

    def __call__(self, word: int) -> list[int]:
        if word not in self._found:
            if len(self._found) > MOST_FOUND:
                self._found.clear()
            numbers = (self.target.indices.get(x, NOTHING) for x, _ in self.lexicon.translations(self.source[word]))
            self._found[word] = [number for number in numbers if number >= self.target.nspecial]
        return self._found[word]


def counts_of(dictionary) -> np.ndarray:
    """How often each word of fairseq's dictionary was seen; 0 for special symbols."""
    counts = np.array(dictionary.count, dtype=np.int64)
    counts[: dictionary.nspecial] = 0
    return counts


def written_alike(source, target) -> np.ndarray:
    """For each word of one dictionary its number in the other, -1 where it is not there or special."""
    numbers = (target.indices.get(word, NOTHING) for word in source.symbols)
    same = np.fromiter(numbers, np.int64, len(source))
    same[: source.nspecial] = NOTHING
    return np.where(same < target.nspecial, NOTHING, same)
