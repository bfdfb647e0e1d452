"""Fits candidate lists under fairseq's search."""

import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Candidates:
    """The list with which a hypothesis was decoded."""

    lists: CandidateLists
    common: int  # words with a smaller number are on it
    others: np.ndarray  # the other words, sorted

    def __len__(self) -> int:
        return self.common + len(self.others)

    def __contains__(self, word: int) -> bool:
        return word < self.common or word in self.others


class CandidateGenerator(SequenceGenerator):
    """fairseq's generator, which searches over columns of candidate lists as if they were words.

    Words that come in (prefixes, constraints) are turned into columns, hypotheses that come out into words; all that
    fairseq does in between, from n-gram blocking to sampling, works on columns.

    A sample must have the source words of its sentences, as text, under "source_words". A hypothesis has its
    `Candidates` under "candidates".

    Args:
        lists: makes candidate lists
        scope: who shares a list: "sentence", "batch" or "corpus"
        corpus: for "corpus", gives the words of its list beyond the common ones; is asked once for each K'
        retries: how often a sentence of which no hypothesis ends by itself is decoded again, with longer lists
        mean: how an ensemble takes the mean
        statistics: counts what was done
    """

    def __init__(
        self,
        models,
        tgt_dict,
        lists: CandidateLists,
        scope: str = "sentence",
        corpus: Optional[Callable[[CandidateLists], np.ndarray]] = None,
        retries: int = 2,
        mean: str = "probability",
        statistics: Optional[Statistics] = None,
        **kwargs,
    ):
        models = list(models.models) if isinstance(models, EnsembleModel) else models
        super().__init__(CandidateEnsemble(models, mean), tgt_dict, **kwargs)
        self.lists, self.scope, self.retries = lists, scope, retries
        self._corpus, self._corpus_words = corpus, {}
        self.statistics = statistics or Statistics()
        if self.lm_model is not None:
            self.lm_model = CandidateLanguageModel(self.lm_model, self.model)

    def _generate(
        self,
        sample: Dict,
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict]]:
        source_words, lists = sample["source_words"], self.lists
        named = named_words(len(source_words), prefix_tokens, constraints)
        result, again = [[] for _ in source_words], list(range(len(source_words)))
        for attempt in range(1 + self.retries):
            self.statistics.expanded += len(again) if attempt == 1 else 0
            start = time.perf_counter()
            candidates = self._candidates(lists, source_words, named)
            self.statistics.list_seconds += time.perf_counter() - start
            rows = torch.tensor(again, device=sample["net_input"]["src_tokens"].device)
            part = sample if len(again) == len(result) else part_of(sample, rows)
            prefix = None if prefix_tokens is None else prefix_tokens[rows]
            constraint = None if constraints is None else constraints[rows.to(constraints.device)]
            found = self._search([candidates[i] for i in again], part, prefix, constraint, bos_token)
            for i, hypotheses in zip(again, found):
                result[i] = hypotheses or result[i]
            self.statistics.search_seconds += time.perf_counter() - start
            again = [i for i in again if not self._ended(result[i], sample)]
            if not again or lists.whole:
                break
            lists = lists.longer()
        return result

    def _ended(self, hypotheses: List[Dict], sample: Dict) -> bool:
        """Whether a hypothesis came to its end by itself, before the longest length that is allowed."""
        if self.match_source_len:
            return True
        length = sample["net_input"]["src_tokens"].size(1)
        most = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
        return any(len(hypothesis["tokens"]) <= most for hypothesis in hypotheses)

    def _candidates(self, lists: CandidateLists, source_words: List[List[str]], named: List) -> List[Candidates]:
        """The list of each sentence of a batch; the same one for all if it is shared."""
        # fairseq's search wants more columns than twice the beam
        common = min(max(lists.common, 2 * self.beam_size + lists.dictionary.nspecial), lists.words)
        if self.scope == "sentence":
            others = [np.union1d(lists.others(words), more) for words, more in zip(source_words, named)]
            return [Candidates(lists, common, words[words >= common]) for words in others]
        if self.scope == "batch":
            shared = union([*map(lists.others, source_words), *named])
        else:
            if lists.per_word not in self._corpus_words:
                self._corpus_words[lists.per_word] = self._corpus(lists)
            shared = union([self._corpus_words[lists.per_word], *named])
        return [Candidates(lists, common, shared[shared >= common])] * len(source_words)

    def _search(self, candidates: List[Candidates], sample: Dict, prefix_tokens, constraints, bos_token) -> List:
        """fairseq's search over the lists of some sentences."""
        self.statistics.add_lists(np.array(list(map(len, candidates))))
        shared, device = self.scope != "sentence", sample["net_input"]["src_tokens"].device
        others = [words.others for words in candidates[: 1 if shared else None]]
        columns = columns_of(candidates[0].common, others, self.pad, self.beam_size, device, shared)
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
                hypothesis["candidates"] = candidates[sentence]
        return result

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


def part_of(sample: Dict, sentences: Tensor) -> Dict:
    """Some sentences of a batch, as far as a search reads it."""
    inputs = {
        name: value.index_select(0, sentences) if torch.is_tensor(value) else value
        for name, value in sample["net_input"].items()
    }
    part = {"net_input": inputs}
    if torch.is_tensor(sample.get("id")):
        part["id"] = sample["id"].to(sentences.device).index_select(0, sentences)
    return part


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
