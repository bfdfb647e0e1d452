"""Turns the pages of a model's word tables to the partition that is trained."""

from typing import Optional

import numpy as np
import torch

from lv_fairseq.errors import UserError
from lv_fairseq.partitions import PartitionPlan, Sentences
from lv_fairseq.word_tables import Page, WordTable


class PageTurner:
    """Puts source embedding, target embedding and output table of a model on pages.

    A tau for which all words of the dictionary fit limits nothing: there is no page, and the softmax runs over all
    words, whether they occur or not. The unigram proposal has a page even then, since it weights words, and words that
    do not occur are no samples of it.

    Args:
        model: an encoder-decoder whose tables are `WordTable`s
        tau: most target words of a partition, without the special symbols
        source_tau: the same for source words; 0 = as many as the largest partition of a plan holds
        specials: how many special symbols each dictionary begins with
        unigram: take the partition's own word frequencies as the proposal Q, instead of a uniform one
    """

    def __init__(self, model, tau: int, source_tau: int, specials: int, unigram: bool = False):
        source, target = model.encoder.embed_tokens, model.decoder.embed_tokens
        output = model.decoder.output_projection
        if source.weight is target.weight:
            raise UserError("--tau cannot page one table for both languages: leave out --share-all-embeddings")
        self.unigram = unigram
        self.target: Optional[Page] = None
        self.source: Optional[Page] = None
        words = len(target.weight)
        if tau + specials < words or unigram:
            self.target = put_on_page(min(tau + specials, words), target, output)
        words = len(source.weight)
        self.fixed_source_rows = source_tau > 0
        if source_tau + specials < words:
            self.source = put_on_page(source_tau + specials if source_tau else words, source)
        self.plan: Optional[PartitionPlan] = None
        self.partition: Optional[int] = None

    def follow(self, plan: PartitionPlan, targets: Sentences) -> None:
        """Take the partitions of this plan from now on."""
        if self.source is not None and not self.fixed_source_rows:
            self.source.resize(max(map(len, plan.source_words)))
        self.plan, self.targets, self.partition = plan, targets, None

    def turn_to(self, partition: int) -> bool:
        """Put the words of a partition on the pages; False if they are there already."""
        if partition == self.partition:
            return False
        pages = [page for page in (self.source, self.target) if page is not None]
        if any(member.parameter.grad is not None for page in pages for member in page.members):
            raise RuntimeError("pages cannot be turned inside an update: their gradients are of other words")
        if self.source is not None:
            self.source.turn_to(self.plan.source_words[partition])
        if self.target is not None:
            words = self.plan.target_words[partition]
            self.target.turn_to(words, self.log_importance(partition, words) if self.unigram else None)
        self.partition = partition
        return True

    def log_importance(self, partition: int, words: np.ndarray) -> torch.Tensor:
        """-log Q_i(y) for the unigram proposal, Q_i being the frequencies of words in the partition.

        A special symbol that does not occur there is no sample of Q_i: it takes no part in the softmax.
        """
        sentences = self.plan.order[self.plan.bounds[partition] : self.plan.bounds[partition + 1]]
        tokens = np.concatenate([self.targets.tokens[slice(*self.targets.starts[i : i + 2])] for i in sentences])
        counts = np.bincount(np.searchsorted(words, tokens), minlength=len(words))
        offset = -torch.log(torch.from_numpy(counts / counts.sum()))
        return offset.masked_fill(torch.from_numpy(counts == 0), float("-inf")).float()


def put_on_page(rows: int, *tables: WordTable) -> Page:
    """A page for tables of one vocabulary."""
    page = Page(len(tables[0].weight), rows)
    for table in tables:
        table.put_on(page)
    return page
