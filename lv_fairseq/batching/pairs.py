"""Datasets of sentence pairs as fairseq puts them together: of one language pair, or of many."""

from typing import List, Sequence, Tuple

import numpy as np
from fairseq.data import ConcatDataset, SampledMultiDataset, TransformEosLangPairDataset

from lv_fairseq.batching.sentences import sentences, starts_of
from lv_fairseq.partitions import Sentences
from lv_fairseq.partitions.plan import some


def language_pairs(dataset) -> List:
    """The datasets, one for each language pair, with source sentences ``src`` and target sentences ``tgt``."""
    if isinstance(dataset, (ConcatDataset, SampledMultiDataset)):
        return [pair for part in dataset.datasets for pair in language_pairs(part)]
    return [dataset.dataset if isinstance(dataset, TransformEosLangPairDataset) else dataset]


def sides(dataset) -> Tuple[Sentences, Sentences]:
    """Target and source sentences, by the numbers that the dataset has for them now."""
    pairs = language_pairs(dataset)
    if not isinstance(dataset, SampledMultiDataset):
        return sentences(dataset.tgt), sentences(dataset.src)
    drawn = drawn_from(dataset)
    return tuple(
        joined([chosen(sentences(getattr(pair, side)), numbers) for pair, numbers in zip(pairs, drawn)])
        for side in ("tgt", "src")
    )


def corpus_order(dataset) -> np.ndarray:
    """Numbers of all sentences in the order of the corpora, one after the other: neighbours have words in common."""
    if not drawn_anew(dataset):
        return np.arange(len(dataset))
    drawn = drawn_from(dataset)
    return np.lexsort((np.concatenate(drawn), np.repeat(np.arange(len(drawn)), list(map(len, drawn)))))


def drawn_anew(dataset) -> bool:
    """Whether a number stands for another sentence every epoch."""
    return isinstance(dataset, SampledMultiDataset) and dataset.sample_ratios is not None


def drawn_from(dataset: SampledMultiDataset) -> List[np.ndarray]:
    """For each language pair which of its sentences are in the epoch, in the order of their numbers in the dataset."""
    return np.split(np.asarray(dataset._cur_indices, dtype=np.int64), dataset.cumulated_sizes[:-1])


def chosen(corpus: Sentences, numbers: np.ndarray) -> Sentences:
    return some(corpus, numbers) if len(numbers) else Sentences(corpus.tokens[:0], np.zeros(1, np.int64))


def joined(parts: Sequence[Sentences]) -> Sentences:
    """One corpus after the other."""
    return Sentences(np.concatenate([x.tokens for x in parts]), starts_of(np.concatenate([x.lengths for x in parts])))
