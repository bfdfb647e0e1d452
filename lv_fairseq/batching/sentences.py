"""From fairseq's dataset of one side to flat arrays of word numbers."""

from typing import Callable, Optional

import numpy as np
from fairseq.data import ConcatDataset, indexed_dataset

from lv_fairseq.errors import UserError
from lv_fairseq.partitions.plan import Sentences

BLOCK = 10000  # sentences read one by one before progress is told


def sentences(dataset, progress: Optional[Callable[[int], None]] = None) -> Sentences:
    """All sentences of one side of a corpus.

    Files that fairseq-preprocess writes by default (mmap) are mapped and not copied; several of them (train, train1,
    ...) are copied once. Any other dataset is read sentence by sentence, at one or two million words a second.

    Args:
        dataset: such as ``LanguagePairDataset.tgt``
        progress: is told now and then how many sentences are done
    """
    # the very classes: a subclass may give other sentences than are in the file
    if type(dataset) is indexed_dataset.MMapIndexedDataset:
        result = mapped(dataset)
        if result is not None:
            if progress is not None:
                progress(len(dataset))
            return result
    if type(dataset) is ConcatDataset and min(dataset.sample_ratios) >= 0:
        return concatenated(dataset, progress)
    return one_by_one(dataset, progress)


def mapped(dataset: indexed_dataset.MMapIndexedDataset) -> Optional[Sentences]:
    """The file's own array, or None if its sentences do not follow each other without a gap.

    The file is mapped once more, since the dataset closes its own map when it is deleted, whoever still reads it.
    """
    index = dataset._index
    starts = starts_of(index.sizes)
    if not np.array_equal(index._pointers, starts[:-1] * np.dtype(index.dtype).itemsize):
        return None
    path = indexed_dataset.data_file_path(dataset._path)
    try:
        tokens = np.memmap(path, dtype=index.dtype, mode="r", shape=(int(starts[-1]),))
    except ValueError:
        raise UserError(f"{path} is shorter than its index says: make it again with fairseq-preprocess") from None
    return Sentences(np.asarray(tokens), starts)


def concatenated(dataset: ConcatDataset, progress: Optional[Callable[[int], None]]) -> Sentences:
    """Each part as often as its sample ratio says; the last time maybe not all of it."""
    tokens, lengths, done = [np.zeros(0, np.uint16)], [np.zeros(0, np.int64)], 0
    for part, ratio in zip(dataset.datasets, dataset.sample_ratios):
        flat, end = sentences(part), done + int(ratio * len(part))
        while done < end:
            some = min(end - done, len(part))
            tokens.append(flat.tokens[: flat.starts[some]])
            lengths.append(flat.lengths[:some])
            done += some
        if progress is not None:
            progress(done)
    return Sentences(np.concatenate(tokens), starts_of(np.concatenate(lengths)))


def one_by_one(dataset, progress: Optional[Callable[[int], None]]) -> Sentences:
    tokens, lengths = [np.zeros(0, np.int32)], []
    for begin in range(0, len(dataset), BLOCK):
        numbers = range(begin, min(begin + BLOCK, len(dataset)))
        if getattr(dataset, "supports_prefetch", False):
            dataset.prefetch(numbers)
        block = [np.asarray(dataset[i]) for i in numbers]
        lengths.extend(map(len, block))
        tokens.append(np.concatenate(block).astype(np.int32))
        if progress is not None:
            progress(numbers.stop)
    return Sentences(np.concatenate(tokens), starts_of(lengths))


def starts_of(lengths) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
