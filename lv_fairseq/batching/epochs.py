"""Epochs of training on partitions: a partition's batches follow each other, in another order every epoch."""

import gc
import logging
from types import MappingProxyType
from typing import Dict, List, Mapping

import numpy as np
from fairseq.data.iterators import EpochBatchIterator

from lv_fairseq.batching.partitioned import PartitionedDataset
from lv_fairseq.fairseq_patches.readers import end_readers

logger = logging.getLogger(__name__)


class PartitionedIterator(EpochBatchIterator):
    """Shuffles the partitions of an epoch, and the batches inside each; fairseq would shuffle all batches."""

    dataset: PartitionedDataset
    following: Mapping[int, int] = MappingProxyType({})  # a partition: the one that is trained after it

    def ordered_batches(self, epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> List:
        batches = self.frozen_batches
        order, partitions = np.arange(len(batches)), self.dataset.partitions_of(batches)
        if shuffle:
            # a function of seed and epoch alone: the same on every worker and after a resume
            random = np.random.default_rng([self.seed, epoch])
            places = random.permutation(int(partitions.max(initial=-1)) + 1)
            order = np.lexsort((random.permutation(len(batches)), places[partitions]))
        visited = list(dict.fromkeys(partitions[order].tolist()))
        self.following = dict(zip(visited, visited[1:]))
        return [batches[i] for i in order[self.shard_id :: self.num_shards]]

    def close(self) -> None:
        """End the data loader's processes and free what earlier epochs have left.

        Both would happen when nobody holds the iterator any more. But functions that have ended do, in circles of
        references that exceptions of omegaconf leave behind, until Python collects them by itself, maybe epochs later.
        """
        end_readers(self)
        gc.collect()

    def state_dict(self) -> Dict:
        return {**super().state_dict(), "batches": len(self.frozen_batches), "shards": self.num_shards}

    def load_state_dict(self, state_dict: Dict) -> None:
        """A checkpoint in the middle of an epoch counts the batches of a worker. With another number of workers that is
        another place; with another tau batches are others, which is told. An update never begins in the middle of what
        is one now: it would reach into the next partition."""
        now = len(self.frozen_batches)
        then, place = state_dict.get("batches", now), state_dict.get("iterations_in_epoch", 0)
        done = place * state_dict.get("shards", self.num_shards)  # by all workers
        if place and then != now:
            logger.warning(
                f"the checkpoint's epoch had {then:,} batches, with these flags it has {now:,}: training goes on at "
                "the same part of the epoch, over other partitions"
            )
            done = done * now // then
        whole = done // self.dataset.group * self.dataset.group  # updates
        super().load_state_dict({**state_dict, "iterations_in_epoch": whole // self.num_shards})
