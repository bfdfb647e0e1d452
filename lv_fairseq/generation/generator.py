"""Fits candidate lists under fairseq's search."""

import time
from typing import Callable, Dict, List, Optional

import numpy as np
import torch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.token_generation_constraints import pack_constraints, unpack_constraints
from torch import Tensor

from lv_fairseq.candidates.lists import CandidateLists, union
from lv_fairseq.generation.columns import Columns, columns_of
from lv_fairseq.generation.ensemble import CandidateEnsemble, CandidateLanguageModel
from lv_fairseq.generation.statistics import Statistics

TRIES = 2  # with longer lists, if no hypothesis ends by itself


class CandidateGenerator(SequenceGenerator):
    """fairseq's generator, which searches over columns of candidate lists as if they were words.

    Words that come in (prefixes, constraints) are turned into columns, hypotheses that come out into words; all that
    fairseq does in between, from n-gram blocking to sampling, works on columns.

    A sample must have the source words of its sentences, as text, under "source_words".

    Args:
        lists: makes candidate lists
        scope: who shares a list: "sentence", "batch" or "corpus"
        corpus: for "corpus", gives the words of its list beyond the common ones; is asked once
        mean: how an ensemble takes the mean
        statistics: counts what was done
    """

    def __init__(
        self,
        models,
        tgt_dict,
        lists: CandidateLists,
        scope: str = "sentence",
        corpus: Optional[Callable[[], np.ndarray]] = None,
        mean: str = "probability",
        statistics: Optional[Statistics] = None,
        **kwargs,
    ):
        models = list(models.models) if isinstance(models, EnsembleModel) else models
        super().__init__(CandidateEnsemble(models, mean), tgt_dict, **kwargs)
        self.lists, self.scope = lists, scope
        self._corpus, self._corpus_words = corpus, None
        self.statistics = statistics or Statistics()
        if self.lm_model is not None:
            self.lm_model = CandidateLanguageModel(self.lm_model, self.model)
        self.listed: List[np.ndarray] = []  # the words, beyond the first `common`, of the last batch's lists
        self.common = 0

    def _generate(
        self,
        sample: Dict,
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict]]:
        lists, everything = self.lists, list(range(len(sample["source_words"])))
        result = self._search_lists(lists, sample, prefix_tokens, constraints, bos_token)
        again = [i for i in everything if not self._ended(result[i], sample)]
        for attempt in range(TRIES):
            if not again or lists.whole:
                break
            self.statistics.expanded += len(again) if attempt == 0 else 0
            lists = lists.longer()
            part = torch.tensor(again, device=sample["net_input"]["src_tokens"].device)
            inputs = {name: value.index_select(0, part) for name, value in sample["net_input"].items() if name in KEPT}
            some = {"net_input": inputs, "source_words": [sample["source_words"][i] for i in again]}
            prefix = None if prefix_tokens is None else prefix_tokens[part]
            constraint = None if constraints is None else constraints[part.to(constraints.device)]
            for i, hypotheses in zip(again, self._search_lists(lists, some, prefix, constraint, bos_token)):
                result[i] = hypotheses or result[i]
            again = [i for i in again if not self._ended(result[i], sample)]
        return result

    def _ended(self, hypotheses: List[Dict], sample: Dict) -> bool:
        """Whether a hypothesis came to its end by itself, before the longest length that is allowed."""
        if self.match_source_len:
            return True
        length = sample["net_input"]["src_tokens"].size(1)
        most = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
        return any(len(hypothesis["tokens"]) <= most for hypothesis in hypotheses)

    def _search_lists(self, lists: CandidateLists, sample: Dict, prefix_tokens, constraints, bos_token) -> List:
        """fairseq's search over the lists of a batch."""
        start = time.perf_counter()
        named = named_words(len(sample["source_words"]), prefix_tokens, constraints)
        columns = self._columns(lists, sample, named)
        self.statistics.list_seconds += time.perf_counter() - start
        self.model.columns, self.vocab_size = columns, columns.width
        if prefix_tokens is not None:
            prefix_tokens = columns.of_words(prefix_tokens)
        if constraints is not None:
            constraints = self._constraints_in_columns(constraints, columns)
        result = super()._generate(sample, prefix_tokens, constraints, bos_token)
        for sentence, hypotheses in enumerate(result):
            row = columns.others[0 if columns.shared else sentence]
            for hypothesis in hypotheses:
                tokens = hypothesis["tokens"]
                places = (tokens - columns.common).clamp(min=0)
                if len(row):
                    hypothesis["tokens"] = torch.where(tokens < columns.common, tokens, row[places])
        self.statistics.search_seconds += time.perf_counter() - start
        return result

    def _columns(self, lists: CandidateLists, sample: Dict, named: List[np.ndarray]) -> Columns:
        # fairseq's search wants more columns than twice the beam
        common = min(max(lists.common, 2 * self.beam_size + lists.dictionary.nspecial), len(lists.dictionary))
        if self.scope == "corpus" and lists is self.lists:
            if self._corpus_words is None:
                self._corpus_words = self._corpus()
            others = [union([self._corpus_words, *named])]
        else:
            others = [np.union1d(lists.others(words), more) for words, more in zip(sample["source_words"], named)]
            if self.scope != "sentence":
                others = [union(others)]
        others = [words[words >= common] for words in others]
        shared = self.scope != "sentence"
        sentences = len(sample["source_words"])
        self.common, self.listed = common, others * sentences if shared else others
        self.statistics.add_lists(np.array([common + len(words) for words in self.listed]))
        device = sample["net_input"]["src_tokens"].device
        return columns_of(common, others, self.pad, self.beam_size, device, shared)

    def _constraints_in_columns(self, constraints: Tensor, columns: Columns) -> Tensor:
        packed = []
        for sentence, row in enumerate(constraints):
            one = (
                columns
                if columns.shared
                else columns._replace(
                    others=columns.others[sentence : sentence + 1], empty=columns.empty[sentence : sentence + 1]
                )
            )
            packed.append(
                [one.of_words(words.to(one.others.device).view(1, -1))[0] for words in unpack_constraints(row)]
            )
        return pack_constraints(packed).to(constraints.device)


class AligningCandidateGenerator(SequenceGeneratorWithAlignment, CandidateGenerator):
    """The same for --print-alignment, whose own class calls `_generate` of the next."""


KEPT = ("src_tokens", "src_lengths")


def named_words(sentences: int, prefix_tokens: Optional[Tensor], constraints: Optional[Tensor]) -> List[np.ndarray]:
    """Word numbers that prefixes and constraints of each sentence name: they join its list."""
    named = [np.zeros(0, dtype=np.int64)] * sentences
    if prefix_tokens is not None:
        named = [np.union1d(words, row) for words, row in zip(named, prefix_tokens.cpu().numpy())]
    if constraints is not None:
        for i, row in enumerate(constraints.cpu()):
            named[i] = np.union1d(
                named[i], np.concatenate([named[i][:0], *(x.numpy() for x in unpack_constraints(row))])
            )
    return named
