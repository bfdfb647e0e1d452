"""Fits candidate lists under fairseq's search."""

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np
import torch
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from fairseq.token_generation_constraints import pack_constraints, unpack_constraints
from torch import Tensor

from lv_fairseq.candidates.lists import CandidateLists, union
from lv_fairseq.decoding.ensemble import ListedEnsemble, ListedLanguageModel
from lv_fairseq.decoding.statistics import Statistics
from lv_fairseq.word_tables import Tables
from lv_fairseq.word_tables.columns import Columns, columns_of
from lv_fairseq.word_tables.number_spaces import ListColumns, WordNumbers


@dataclass(frozen=True)
class Candidates:
    """The list with which a hypothesis was decoded."""

    lists: CandidateLists
    others: np.ndarray  # its words beyond those that are on every list

    def __len__(self) -> int:
        return len(self.lists.common) + len(self.others)

    def __contains__(self, word: int) -> bool:
        return word in self.others or not len(self.lists.beyond_common(np.array([word])))


class ListedSearch:
    """A generator of fairseq's, any that a task has built, which searches over columns of candidate lists as if they
    were words.

    Words that come in (prefixes, constraints, beginning and end of sentence) are turned into columns, hypotheses that
    come out into words; all that fairseq does in between, from n-gram blocking to sampling, works on columns.

    A sample must have the source words of its sentences, as text, under "source_words". A hypothesis has its
    `Candidates` under "candidates".

    Args:
        generator: fairseq's
        tables: of its models
        lists: makes candidate lists; None: fairseq's search as it is, over all words
        scope: who shares a list: "sentence", "batch" or "corpus"
        corpus: for "corpus", gives the words of its list beyond the common ones; is asked once for each K and K'
        retries: how often a sentence of which no hypothesis ends by itself is decoded again, with longer lists
        mean: how an ensemble takes the mean
        statistics: counts what was done
    """

    def __init__(
        self,
        generator: SequenceGenerator,
        tables: List[Tables],
        lists: Optional[CandidateLists],
        scope: str = "sentence",
        corpus: Optional[Callable[[CandidateLists], np.ndarray]] = None,
        retries: int = 2,
        mean: str = "probability",
        statistics: Optional[Statistics] = None,
    ):
        self.generator, self.tables = generator, tables
        self.scope, self.retries = scope, retries
        self._corpus = corpus
        self._corpus_words: Dict[CandidateLists, np.ndarray] = {}
        self.statistics = statistics or Statistics()
        self.lists = lists
        generator.model = ListedEnsemble(generator.model, mean)
        if generator.lm_model is not None:
            generator.lm_model = ListedLanguageModel(generator.lm_model, generator.model)

    def __getattr__(self, name: str):
        if "generator" not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        return getattr(self.generator, name)

    def forward(
        self, sample: Dict, prefix_tokens: Optional[WordNumbers] = None, bos_token: Optional[int] = None
    ) -> List:
        """The other way in that fairseq's generators have."""
        return self.generate(self.generator.model.models, sample, prefix_tokens, bos_token=bos_token)

    __call__ = forward

    @torch.no_grad()
    def generate(
        self,
        models,
        sample: Dict,
        prefix_tokens: Optional[WordNumbers] = None,
        constraints: Optional[WordNumbers] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict]]:
        if self.lists is None:
            return self._generate(sample, prefix_tokens, constraints, bos_token)
        source_words, lists = sample["source_words"], self.lists
        named = named_words(len(source_words), prefix_tokens, constraints)
        result: List[List[Dict]] = [[] for _ in source_words]
        again = list(range(len(source_words)))
        for attempt in range(1 + self.retries):
            self.statistics.expanded += len(again) if attempt == 1 else 0
            start = time.perf_counter()
            # fairseq's search wants more columns than twice the beam
            wide = lists.at_least(2 * self.beam_size + lists.dictionary.nspecial)
            candidates = self._candidates(wide, source_words, named)
            self.statistics.list_seconds += time.perf_counter() - start
            self.statistics.add_lists(np.array([len(candidates[i]) for i in again]))
            searched = again
            if len(again) < len(result):  # with the longest one, a part of a batch is as wide as the batch
                searched = sorted({*again, int(sample["net_input"]["src_tokens"].ne(self.pad).sum(dim=1).argmax())})
            rows = torch.tensor(searched, device=sample["net_input"]["src_tokens"].device)
            part = sample if len(searched) == len(result) else part_of(sample, rows)
            prefix = None if prefix_tokens is None else prefix_tokens[rows]
            constraint = None if constraints is None else constraints[rows.to(constraints.device)]
            found = self._search([candidates[i] for i in searched], part, prefix, constraint, bos_token)
            for i, hypotheses in zip(searched, found):
                if i in again:
                    result[i] = hypotheses or result[i]
            self.statistics.search_seconds += time.perf_counter() - start
            again = [i for i in again if not self._ended(result[i], sample)]
            if not again or lists.whole:
                break
            lists = lists.longer()
        return result

    def _generate(self, sample: Dict, prefix_tokens, constraints, bos_token) -> List[List[Dict]]:
        given = {"prefix_tokens": prefix_tokens, "constraints": constraints, "bos_token": bos_token}
        given = {name: value for name, value in given.items() if value is not None}
        return self.generator.generate(self.generator.model.models, sample, **given)

    def _ended(self, hypotheses: List[Dict], sample: Dict) -> bool:
        """Whether a hypothesis came to its end by itself, before the longest length that is allowed."""
        if self.generator.match_source_len:
            return True
        length = sample["net_input"]["src_tokens"].size(1)
        most = min(int(self.max_len_a * length + self.max_len_b), self.max_len - 1)
        return any(len(hypothesis["tokens"]) <= most for hypothesis in hypotheses)

    def _candidates(self, lists: CandidateLists, source_words: List[List[str]], named: List) -> List[Candidates]:
        """The list of each sentence of a batch; the same one for all if it is shared."""
        if self.scope == "sentence":
            both = (np.union1d(lists.others(words), more) for words, more in zip(source_words, named))
            return [Candidates(lists, lists.beyond_common(words)) for words in both]
        if self.scope == "batch":
            shared = union([*map(lists.others, source_words), *named])
        else:
            if lists not in self._corpus_words:
                self._corpus_words[lists] = self._corpus(lists)
            shared = union([self._corpus_words[lists], *named])
        return [Candidates(lists, lists.beyond_common(shared))] * len(source_words)

    def _search(self, candidates: List[Candidates], sample: Dict, prefix_tokens, constraints, bos_token) -> List:
        """fairseq's search over the lists of some sentences."""
        columns = self._columns(candidates, bos_token, sample["net_input"]["src_tokens"].device)
        if prefix_tokens is not None:
            prefix_tokens = columns.of_words(prefix_tokens)
        if constraints is not None:
            constraints = constraints_in_columns(constraints, columns)
        if bos_token is not None:
            bos_token = column_of(columns, bos_token)
        with self._speaking(columns), self.generator.model.over(columns, self.tables):
            result = self._generate(sample, prefix_tokens, constraints, bos_token)
        for sentence, hypotheses in enumerate(result):
            mine = columns.of_sentence(sentence)
            for hypothesis in hypotheses:
                hypothesis["tokens"] = mine.words(hypothesis["tokens"].unsqueeze(0))[0]
                hypothesis["candidates"] = candidates[sentence]
        return result

    def _columns(self, candidates: List[Candidates], bos_token: Optional[int], device: torch.device) -> Columns:
        """Of some sentences. Words that fairseq knows by one number have one column in all sentences: the ends of a
        sentence, which are on every list, and words that are never to be chosen, which may be on some of them."""
        one_list, never = self.scope != "sentence", self.generator.token_indices_to_suppress
        lists, others = candidates[0].lists, [words.others for words in candidates[: 1 if one_list else None]]
        named = (self.generator.eos, self.generator.search.eos, bos_token)
        ends = lists.beyond_common(np.unique([word for word in named if word is not None]))
        never = [] if never is None else np.intersect1d(never.cpu().numpy(), union(others))
        known = np.union1d(ends, never).astype(np.int64)
        if len(known):
            heads = [np.where(np.isin(known, np.union1d(ends, words)), known, -1) for words in others]
            others = [np.concatenate([head, np.setdiff1d(words, known)]) for head, words in zip(heads, others)]
        first = len(lists.common) if lists.prefix else lists.common
        return columns_of(first, others, self.pad, self.beam_size, device, one_list)

    @contextlib.contextmanager
    def _speaking(self, columns: Columns) -> Iterator[None]:
        """In this block the numbers that a generator and its search know by themselves are columns."""
        own: Dict[Any, Dict[str, Any]] = {
            x: {"vocab_size": columns.width, "eos": column_of(columns, x.eos)} for x in (self.generator, self.search)
        }
        if self.token_indices_to_suppress is not None:
            own[self.generator]["token_indices_to_suppress"] = columns_with(columns, self.token_indices_to_suppress)
        if isinstance(self.search, Sampling):
            own[self.search]["sampling_topk"] = min(self.search.sampling_topk, columns.width)
        before = {thing: {name: getattr(thing, name) for name in values} for thing, values in own.items()}
        try:
            set_all(own)
            yield
        finally:
            set_all(before)


def set_all(values: Dict[object, Dict]) -> None:
    """Set attributes of some things."""
    for thing, attributes in values.items():
        for name, value in attributes.items():
            setattr(thing, name, value)


def column_of(columns: Columns, word: int) -> int:
    """The column of a word that has the same one in every sentence."""
    if columns.shared_words is None and word < columns.count:
        return word
    numbers = WordNumbers(columns.others.new_tensor([[word]]))
    return int(columns.of_sentence(0).of_words(numbers)[0, 0])


def columns_with(columns: Columns, words: WordNumbers) -> ListColumns:
    """The columns of those words that are on any list; each of them has the same column on all that hold it."""
    here = words.to(columns.others.device)
    first = columns.of_sentence(0).of_words(WordNumbers(here.unsqueeze(0)))[0]
    others = (torch.isin(columns.others, here) & ~columns.empty).any(dim=0).nonzero()[:, 0]
    return ListColumns(torch.cat([first[first < columns.count], others + columns.count]))


def constraints_in_columns(constraints: WordNumbers, columns: Columns) -> ListColumns:
    """fairseq's packed constraints (sentences x length)."""
    packed = []
    for sentence, row in enumerate(constraints):
        mine = columns.of_sentence(sentence)
        packed.append([mine.of_words(words.to(mine.others.device).view(1, -1))[0] for words in unpack_constraints(row)])
    return pack_constraints(packed).to(constraints.device)


def part_of(sample: Dict, sentences: Tensor) -> Dict:
    """Some sentences of a batch, as far as a search reads it. It takes the numbers of sentences, which are optional,
    for their places in the batch."""
    inputs = {
        name: value.index_select(0, sentences) if torch.is_tensor(value) else value
        for name, value in sample["net_input"].items()
    }
    return {"net_input": inputs}


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
