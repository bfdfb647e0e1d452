"""Partitions of the training corpus: runs of sentences that together use at most tau target words."""

from lv_fairseq.partitions.plan import PartitionPlan, Sentences, partition

__all__ = ["PartitionPlan", "Sentences", "partition"]
