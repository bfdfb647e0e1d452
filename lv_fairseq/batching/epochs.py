"""Epochs of training on partitions: a partition's batches follow each other, in another order every epoch."""

import logging
from functools import partial
from typing import Callable, Dict, List, Sequence

import numpy as np
from fairseq.data.iterators import EpochBatchIterator

from lv_fairseq.batching.partitioned import PartitionedDataset

logger = logging.getLogger(__name__)


class PartitionedIterator(EpochBatchIterator):
    """Shuffles the partitions of an epoch, and the batches inside each; fairseq would shuffle all batches."""

    dataset: PartitionedDataset

    @property
    def ordered_batches(self) -> Callable[[int, bool, bool], List]:
        # A function that does not know this iterator: fairseq keeps it in an object that the iterator keeps. A method
        # would close the circle, and the data loader's processes would outlive the iterator of their epoch.
        batches = self.frozen_batches
        mine = slice(self.shard_id, None, self.num_shards)
        return partial(partition_by_partition, batches, self.dataset.partitions_of(batches), mine, self.seed)

    def state_dict(self) -> Dict:
        return {**super().state_dict(), "batches": len(self.frozen_batches)}

    def load_state_dict(self, state_dict: Dict) -> None:
        """A checkpoint in the middle of an epoch counts batches; another tau makes other batches, which is told."""
        now, then = len(self.frozen_batches), state_dict.get("batches")
        place = state_dict.get("iterations_in_epoch", 0)
        if place and then not in (None, now):
            logger.warning(
                f"the checkpoint's epoch had {then:,} batches, with these flags it has {now:,}: training goes on at "
                "the same part of the epoch, over other partitions"
            )
            step = max(self.dataset.group // self.num_shards, 1)  # whole updates
            state_dict = {**state_dict, "iterations_in_epoch": place * now // then // step * step}
        super().load_state_dict(state_dict)


def partition_by_partition(
    batches: Sequence,
    partitions: np.ndarray,
    mine: slice,
    seed: int,
    epoch: int,
    fix_batches_to_gpus: bool,
    shuffle: bool,
) -> List:
    """One worker's batches in the order of an epoch.

    Args:
        batches: of all workers
        partitions: (batches) the partition of each
        mine: which of them, once they are in order, are this worker's
    """
    order = np.arange(len(batches))
    if shuffle:
        # a function of seed and epoch alone: the same on every worker and after a resume
        random = np.random.default_rng([seed, epoch])
        places = random.permutation(int(partitions.max(initial=-1)) + 1)
        order = np.lexsort((random.permutation(len(batches)), places[partitions]))
    return [batches[i] for i in order[mine]]
