"""Batches that stay inside a partition.

sentences in training order -> partitions -> sorted look-ahead inside each -> batches -> less padding in them

Each batch is tagged with its partition.
"""

from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import numpy as np
from fairseq.data import BaseWrapperDataset

from lv_fairseq.batching.look_ahead import sorted_look_ahead
from lv_fairseq.batching.padding import Limits, with_less_padding
from lv_fairseq.batching.pairs import corpus_order, drawn_anew
from lv_fairseq.partitions import PartitionPlan, Sentences, partition
from lv_fairseq.partitions.reshuffling import training_order


class Tagged(NamedTuple):
    """A sample of any dataset, which knows its partition."""

    sample: Any
    partition: int
    filler: bool  # its gradient is ignored


class PartitionedDataset(BaseWrapperDataset):
    """The sentences of a corpus, cut into partitions when fairseq makes its batches.

    fairseq asks for `ordered_indices`, leaves out sentences that are too long, and hands the rest to `batch_by_size`.
    A sample carries the number of its partition, since data loaders work ahead of training.

    Args:
        dataset: fairseq's dataset of sentence pairs
        targets: its target sentences
        plan: cuts sentences, given in training order, into partitions
        order: sentence numbers in training order
        window: sentences sorted by length together; 0 = all of a partition
        group: batches that make one update, over all workers
        every_epoch: whether all epochs have these partitions and batches
    """

    def __init__(
        self,
        dataset,
        targets: Sentences,
        plan: Callable[[np.ndarray], PartitionPlan],
        order: np.ndarray,
        window: int = 0,
        group: int = 1,
        every_epoch: bool = True,
    ):
        super().__init__(dataset)
        self.targets, self.group, self.every_epoch = targets, group, every_epoch
        self._make_plan, self._order, self._window = plan, order, window
        self.plan: Optional[PartitionPlan] = None

    def ordered_indices(self) -> np.ndarray:
        return self._order

    def batch_by_size(self, indices, **limits) -> List:
        self.plan = self._make_plan(np.asarray(indices, dtype=np.int64))
        sizes, tokens, batches = self.sizes, self._counted(self.plan.order), []
        for start, end in zip(self.plan.bounds[:-1], self.plan.bounds[1:]):
            run = self.plan.order[start:end]
            run = sorted_look_ahead(run, sizes, self._window or len(run))
            cut = super().batch_by_size(run, **limits)
            batches.extend(with_less_padding(cut, sizes, tokens, Limits(**limits)))
            # An update must not reach into the next partition. What is missing to a whole one is filled up with
            # copies of a sentence whose gradient is ignored, marked by their complement: workers without a batch of
            # their own must still know which page to turn to, which fairseq's empty batches could not tell.
            batches.extend([[~int(run[0])]] * (-len(batches) % self.group))
        return batches

    def _counted(self, numbers: np.ndarray) -> np.ndarray:
        """(all sentences) What fairseq counts of these sentences against ``--max-tokens``; 0 for the others."""
        tokens = np.zeros(len(self), dtype=np.int64)
        try:
            tokens[numbers] = self.dataset.num_tokens_vec(numbers)
        except NotImplementedError:  # as fairseq does if a dataset counts one by one only
            tokens[numbers] = [self.dataset.num_tokens(number) for number in numbers]
        return tokens

    def partitions_of(self, batches: Sequence[Sequence[int]]) -> np.ndarray:
        """(batches) The partition that each batch is in."""
        firsts = np.array([batch[0] for batch in batches], dtype=np.int64)
        return self.plan.partition_of[np.where(firsts < 0, ~firsts, firsts)]

    def __getitem__(self, index):
        number = index if index >= 0 else ~index
        return Tagged(self.dataset[number], int(self.plan.partition_of[number]), index < 0)

    def num_tokens(self, index):
        return self.dataset.num_tokens(index if index >= 0 else ~index)

    def size(self, index):
        return self.dataset.size(index if index >= 0 else ~index)

    def collater(self, samples):
        batch = self.dataset.collater([tagged.sample for tagged in samples])
        if batch:
            batch["partition"], batch["filler"] = samples[0].partition, bool(samples[0].filler)
        return batch


def in_partitions(
    dataset,
    targets: Sentences,
    sources: Sentences,
    flags,
    joined: bool,
    specials: Sequence[int],
    seed: int,
    epoch: int,
    workers: int,
    progress: Optional[Callable[[int], None]] = None,
    source_specials: Optional[Sequence[int]] = None,
) -> PartitionedDataset:
    """The training corpus as it is trained in an epoch. Training and ``lv-partition`` both ask here.

    Args:
        dataset: fairseq's dataset of sentence pairs
        targets, sources: its sentences
        flags: tau, source_tau, reshuffle_partitions, sort_window and update_freq
        joined: both languages share one table of words, and tau
        specials: word numbers of what is in every partition: special symbols, language tokens
        workers: how many processes share an update
        progress: is told now and then how many sentences are in partitions
        source_specials: the same for the source side, if they have other numbers there
    """
    order = corpus_order(dataset)[training_order(len(dataset), flags.reshuffle_partitions, seed, epoch)]
    plan = partial(
        partition,
        targets,
        tau=flags.tau,
        specials=specials,
        source_specials=source_specials,
        source=sources,
        source_tau=flags.source_tau,
        joined=joined,
        progress=progress,
    )
    update_freq = flags.update_freq[min(epoch, len(flags.update_freq)) - 1]
    every_epoch = not flags.reshuffle_partitions and len(flags.update_freq) == 1 and not drawn_anew(dataset)
    return PartitionedDataset(dataset, targets, plan, order, flags.sort_window, workers * update_freq, every_epoch)
