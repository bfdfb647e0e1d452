"""Turns the pages of a model's word tables to the partition that is trained."""

from functools import partial
from pathlib import Path
from typing import Callable, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import nn

from lv_fairseq.partitions import PartitionPlan, Sentences
from lv_fairseq.partitions.importance_weights import log_importance
from lv_fairseq.word_tables import ALONE, FileHome, Home, Page, SharedHome, Tables, Workers


class PageTurner:
    """Puts the word tables of a model on pages: source and target words each on their own, or, if both languages share
    their vectors, all on one, of which a partition's target words are scored.

    A tau for which all words of the dictionary fit limits nothing: there is no page, and the softmax runs over all
    words, whether they occur or not. The unigram proposal has a page even then, since it weights words, and words that
    do not occur are no samples of it.

    Args:
        tables: the model's
        tau: most target words of a partition, without the special symbols; of both languages if they share a page
        source_tau: most source words on a page of their own; 0 = as many as the largest partition of a plan holds
        specials: how many special symbols each dictionary begins with
        unigram: take the partition's own word frequencies as the proposal Q, instead of a uniform one
        workers: those of this machine, which turn pages together and share the rows of all words
        folder: where the rows of all words are in files; None = in memory
    """

    def __init__(
        self,
        tables: Tables,
        tau: int,
        source_tau: int,
        specials: int,
        unigram: bool = False,
        workers: Workers = ALONE,
        folder: Optional[Path] = None,
    ):
        home: Callable[[nn.Parameter], Home] = Home if workers is ALONE else partial(SharedHome, workers=workers)
        if folder is not None:
            home = partial(FileHome, folder=folder, workers=workers)
        self.unigram, self.joined = unigram, tables.joined
        self.fixed_source_rows = source_tau > 0
        self.plan: Optional[PartitionPlan] = None
        self.partition: Optional[int] = None
        self.target: Optional[Page] = None
        self.source: Optional[Page] = None  # of source words alone
        words = tables.target.words
        if tau + specials < words or unigram:
            self.target = Page(words, min(tau + specials, words), workers)
            for table in tables if self.joined else (tables.target, tables.output):
                table.put_on(self.target, home)
        words = tables.source.words
        if not self.joined and source_tau + specials < words:
            self.source = Page(words, source_tau + specials, workers)  # more when there is a plan, if not so many
            tables.source.put_on(self.source, home)

    def follow(self, plan: PartitionPlan, targets: Sentences) -> None:
        """Take the partitions of this plan from now on."""
        self.plan, self.targets, self.partition = plan, targets, None
        if self.source is not None and not self.fixed_source_rows:
            self.source.resize(max(map(len, plan.source_words)))
        if self.joined and self.target is not None:
            self.target.score_only(max(map(len, plan.target_words)))

    @property
    def pages(self) -> List[Page]:
        return [page for page in (self.source, self.target) if page is not None]

    def turn_to(self, partition: int) -> bool:
        """Put the words of a partition on the pages; False if they are there already."""
        if partition == self.partition:
            return False
        if any(member.parameter.grad is not None for page in self.pages for member in page.members):
            raise RuntimeError("pages cannot be turned inside an update: their gradients are of other words")
        if self.source is not None:
            self.source.turn_to(self.plan.source_words[partition])
        if self.target is not None:
            importance = log_importance(self.plan, self.targets, partition) if self.unigram else None
            offset = None if importance is None else torch.from_numpy(importance)
            self.target.turn_to(self.plan.target_words[partition], offset, self.read_only(partition))
        self.partition = partition
        return True

    def read_ahead(self, partition: int) -> None:
        """The pages will be turned to this partition next."""
        if self.source is not None:
            self.source.read_ahead(self.plan.source_words[partition])
        if self.target is not None:
            self.target.read_ahead(self.plan.target_words[partition], self.read_only(partition))

    def read_only(self, partition: int) -> Union[np.ndarray, Tuple[()]]:
        """Words on the page of a joined table that are not scored."""
        if not self.joined:
            return ()
        return np.setdiff1d(self.plan.source_words[partition], self.plan.target_words[partition])
