"""Sorted look-ahead: read a window of sentences in random order, sort them by length, cut them into batches.

Sentences of a batch then have about the same length, and yet the batches of an epoch come from a shuffled corpus. The
original reads 20 batches ahead. fairseq itself sorts the whole corpus, which is a window without end.
"""

import numpy as np
from fairseq.data import BaseWrapperDataset


def sorted_look_ahead(order: np.ndarray, lengths: np.ndarray, window: int) -> np.ndarray:
    """Sort each run of ``window`` sentences of ``order`` by length; ties keep their order.

    Args:
        order: sentence numbers in the order in which they are read
        lengths: length of each sentence, by number; of several columns (source, target) the largest is compared, since
            that is what ``--max-tokens`` counts, then the last
        window: how many sentences are sorted together
    """
    lengths = np.asarray(lengths)[order]
    lengths = lengths[:, None] if lengths.ndim == 1 else lengths
    windows = np.arange(len(order)) // window
    return order[np.lexsort((lengths[:, -1], lengths.max(axis=1, initial=0), windows))]


class LookAheadDataset(BaseWrapperDataset):
    """Gives fairseq the sentences of a dataset in sorted look-ahead order."""

    def __init__(self, dataset, window: int):
        super().__init__(dataset)
        self.window = window

    def ordered_indices(self) -> np.ndarray:
        # fairseq seeds numpy around this call (fairseq.tasks.FairseqTask.get_batch_iterator)
        return sorted_look_ahead(np.random.permutation(len(self)), self.sizes, self.window)
