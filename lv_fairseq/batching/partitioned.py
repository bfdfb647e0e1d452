"""Batches that stay inside a partition, in an order that keeps partitions together.

sentences in training order -> partitions -> sorted look-ahead inside each -> batches, tagged with their partition
"""

import logging
from typing import Callable, Dict, List, Optional

import numpy as np
from fairseq.data import BaseWrapperDataset
from fairseq.data.iterators import EpochBatchIterator

from lv_fairseq.batching.look_ahead import sorted_look_ahead
from lv_fairseq.partitions import PartitionPlan

logger = logging.getLogger(__name__)


class PartitionedDataset(BaseWrapperDataset):
    """The sentences of a corpus, cut into partitions when fairseq makes its batches.

    fairseq asks for `ordered_indices`, leaves out sentences that are too long, and hands the rest to `batch_by_size`.
    A sample carries the number of its partition, since data loaders work ahead of training.

    Args:
        dataset: fairseq's dataset of sentence pairs
        plan: cuts sentences, given in training order, into partitions
        order: sentence numbers in training order
        window: sentences sorted by length together; 0 = all of a partition
        group: batches that make one update, over all workers
    """

    def __init__(
        self, dataset, plan: Callable[[np.ndarray], PartitionPlan], order: np.ndarray, window: int, group: int
    ):
        super().__init__(dataset)
        self._make_plan, self._order, self._window, self.group = plan, order, window, group
        self.plan: Optional[PartitionPlan] = None

    def ordered_indices(self) -> np.ndarray:
        return self._order

    def batch_by_size(self, indices, **limits) -> List:
        self.plan = self._make_plan(np.asarray(indices, dtype=np.int64))
        batches = []
        for start, end in zip(self.plan.bounds[:-1], self.plan.bounds[1:]):
            run = self.plan.order[start:end]
            run = sorted_look_ahead(run, self.sizes, self._window or len(run))
            batches.extend(super().batch_by_size(run, **limits))
            # An update must not reach into the next partition. What is missing to a whole one is filled up with
            # copies of a sentence whose gradient is ignored, marked by their complement: workers without a batch of
            # their own must still know which page to turn to, which fairseq's empty batches could not tell.
            batches.extend([[~int(run[0])]] * (-len(batches) % self.group))
        return batches

    def __getitem__(self, index):
        return self.dataset[index] if index >= 0 else {**self.dataset[~index], "filler": True}

    def num_tokens(self, index):
        return self.dataset.num_tokens(index if index >= 0 else ~index)

    def size(self, index):
        return self.dataset.size(index if index >= 0 else ~index)

    def collater(self, samples):
        batch = self.dataset.collater(samples)
        if batch:
            batch["partition"] = int(self.plan.partition_of[samples[0]["id"]])
            batch["filler"] = "filler" in samples[0]
        return batch


def keep_partitions_together(iterator: EpochBatchIterator, dataset: PartitionedDataset) -> None:
    """Shuffle the partitions of an epoch, and the batches inside each; fairseq would shuffle all batches."""

    def ordered_batches(epoch: int, fix_batches_to_gpus: bool, shuffle: bool) -> List:
        batches = list(iterator.frozen_batches)
        firsts = np.array([batch[0] for batch in batches])
        partitions = dataset.plan.partition_of[np.where(firsts < 0, ~firsts, firsts)]
        order = np.arange(len(batches))
        if shuffle:
            # a function of seed and epoch alone: the same on every worker and after a resume
            random = np.random.default_rng([iterator.seed, epoch])
            places = random.permutation(int(partitions.max()) + 1 if len(batches) else 0)
            order = np.lexsort((random.permutation(len(batches)), places[partitions]))
        return [batches[i] for i in order[iterator.shard_id :: iterator.num_shards]]

    iterator.ordered_batches = ordered_batches
    resume_where_batches_are_the_same(iterator, dataset)


def resume_where_batches_are_the_same(iterator: EpochBatchIterator, dataset: PartitionedDataset) -> None:
    """A checkpoint in the middle of an epoch counts batches; another tau makes other batches, which is told."""
    state_dict, load_state_dict = iterator.state_dict, iterator.load_state_dict

    def load(state: Dict) -> None:
        now, then, place = len(iterator.frozen_batches), state.get("batches"), state.get("iterations_in_epoch", 0)
        if place and then not in (None, now):
            logger.warning(
                f"the checkpoint's epoch had {then:,} batches, with these flags it has {now:,}: training goes on at "
                "the same part of the epoch, over other partitions"
            )
            step = max(dataset.group // iterator.num_shards, 1)  # whole updates
            state = {**state, "iterations_in_epoch": place * now // then // step * step}
        load_state_dict(state)

    iterator.state_dict = lambda: {**state_dict(), "batches": len(iterator.frozen_batches)}
    iterator.load_state_dict = load
