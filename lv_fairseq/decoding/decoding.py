"""What the task does around fairseq's generator: candidate lists before a search, unknown words after it."""

import atexit
import logging
import sys
from copy import copy as copy_of
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tokenizer import tokenize_line

from lv_fairseq import results
from lv_fairseq.candidates import CandidateLists, ranking_from
from lv_fairseq.candidates.lists import check_lexicon, union
from lv_fairseq.decoding.attention import check_heads, heads_of, look_again
from lv_fairseq.decoding.rare_words import Reading
from lv_fairseq.decoding.search import Candidates, ListedSearch
from lv_fairseq.decoding.source_text import (
    PLAIN,
    Frame,
    SourceWords,
    WithSourceWords,
    read_text,
    word_places,
    words_of_batch,
)
from lv_fairseq.decoding.statistics import Statistics
from lv_fairseq.decoding.subwords import segmentation
from lv_fairseq.decoding.transfers import to_device, to_host
from lv_fairseq.decoding.unknown_alignment import alignment
from lv_fairseq.decoding.unknown_words import replace_unknown, with_unknown
from lv_fairseq.errors import UserError
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.models.families import adopt_model, word_tables
from lv_fairseq.word_tables import Tables

logger = logging.getLogger(__name__)

DEFAULT_PER_WORD = 10  # K' of the paper


class Decoding:
    """
    Args:
        cfg: the task's options
        source, target: the dictionaries; the target's an `OpenDictionary`
        frame: of source sentences in batches
        always: target words that are on every list, such as the token of the target language
        never: target words that are on no list, such as the tokens of other languages
        first: the word before the first one of a translation; None: its end
        text_words: how many words source and target dictionary have before any token of another kind; None: all
    """

    def __init__(
        self,
        cfg,
        source,
        target,
        frame: Frame = PLAIN,
        always: Sequence[int] = (),
        never: Sequence[int] = (),
        first: Optional[int] = None,
        text_words: Sequence[Optional[int]] = (None, None),
    ):
        self.cfg, self.source, self.target = cfg, source, target
        self.frame, self.always, self.never, self.first = frame, always, never, first
        self.rule = str(cfg.unk_replacement)
        self.segmentation = segmentation(cfg.post_process, getattr(cfg, "eval_bleu_remove_bpe", None))
        self.statistics = Statistics(replacing=self.rule != "none")
        self.inputs: Dict[Optional[str], SourceWords] = {}  # of each subset; None: what a program or a user typed
        self.typed: Optional[Typed] = None
        self.lexicon: Optional[Lexicon] = None
        if cfg.lexicon is not None:
            self.lexicon = Lexicon.load(cfg.lexicon)
            check_lexicon(self.lexicon, cfg.lexicon, source, target, text_words)
        self.reading = Reading(source, target, cfg.copy_rare_words, self.lexicon, text_words[0])
        self.align = alignment(str(cfg.unk_alignment), self.reading.is_unknown)
        self.every_word = CandidateLists(target, len(target))
        self._made: Optional[CandidateLists] = None  # the first lists, of which others are made
        self.lists = self._lists(cfg.candidate_frequent, cfg.candidate_per_word)
        used = self.lists is not None or self.rule.startswith("lexicon") or cfg.hide_rare_words
        if self.lexicon is not None and not used:
            logger.warning("--lexicon is not used without --candidate-frequent or --unk-replacement lexicon")
        own_command = any(name.startswith("fairseq_cli.") for name in sys.modules)  # and not somebody's program
        if own_command and (self.lists is not None or self.rule != "none"):
            atexit.register(self._tell)

    def _lists(self, frequent: int, per_word: Optional[int]) -> Optional[CandidateLists]:
        """None if every word may be chosen."""
        if not frequent and not per_word:
            return None
        words = self.every_word.words - self.target.nspecial
        if frequent > words:
            raise UserError(f"--candidate-frequent {frequent} is more than the {words} words of the target dictionary")
        if per_word is None:
            per_word = 0 if self.lexicon is None else DEFAULT_PER_WORD
        everything = frequent == words
        if self._made is not None and not everything:
            return self._made.limited(frequent, per_word)
        ranking = None if self.cfg.frequent_words is None else ranking_from(self.cfg.frequent_words, self.target)
        own = {"ranking": ranking, "source_words": self.cfg.candidate_source_words, "always": self.always}
        never = () if everything else self.never  # who asks for all words gets them
        lists = CandidateLists(self.target, frequent, self.lexicon, per_word, never=never, **own)
        if not everything:
            self._made = lists
        return lists

    def changed(self, frequent: int, per_word: Optional[int], rule: str) -> "Decoding":
        """The same with another K, K' and rule for unknown words, as the flags would set them."""
        made = copy_of(self)
        made.lists, made.rule = self._lists(frequent, per_word), rule
        made.statistics = Statistics(replacing=rule != "none")
        return made

    def wrap(self, generator, models: Sequence, args, prefix_function: Optional[Callable] = None):
        """A generator that a task has built, with what the options ask for: candidate lists, another mean.

        Args:
            args: fairseq's options for generation
            prefix_function: fairseq's prefix_allowed_tokens_fn
        """
        if self.cfg.copy_rare_words and self.segmentation is not None:
            raise UserError("--copy-rare-words is for words, not for pieces of words: leave it out")
        if self.rule != "none":
            check_heads(models, self.cfg.alignment_layer, self.cfg.alignment_heads)
            if len({turns(model) for model in models}) > 1:
                raise UserError(
                    "--unk-replacement: an lstm turns its sentences round where others do not, and so their attentions "
                    "have no mean: decode with models of its kind alone"
                )
        mean = str(self.cfg.ensemble_mean)
        if self.lists is None and mean == "probability":
            return generator
        if not isinstance(generator, SequenceGenerator):
            what = "--score-reference" if getattr(args, "score_reference", False) else type(generator).__name__
            raise UserError(
                f"{what} is over all words: leave out --candidate-frequent, --candidate-per-word and --ensemble-mean"
            )
        if prefix_function is not None or getattr(args, "prefix_allowed_tokens_fn", None) is not None:
            raise UserError("prefix_allowed_tokens_fn chooses among all words: leave out candidate lists")
        tables = [self.tables(model) for model in models]
        return ListedSearch(
            generator,
            tables,
            self.lists or (self.every_word if None not in tables else None),
            scope=str(self.cfg.candidate_scope),
            corpus=lambda lists: union(lists.others(words) for text in self.inputs.values() for words in text),
            retries=self.cfg.candidate_retries,
            mean=mean,
            statistics=self.statistics if self.lists is not None else None,
        )

    def tables(self, model) -> Optional[Tables]:
        """The word tables of a model, without which there are no candidate lists."""
        try:
            return adopt_model(model)
        except UserError as error:
            if self.lists is not None:
                raise UserError(f"candidate lists: {error}") from None
            return None

    def with_words(self, name: str, dataset, sources: Sequence[torch.Tensor]) -> WithSourceWords:
        """A subset of the data, whose batches bring their source words.

        Args:
            sources: the source sentences, by the numbers that the batches have for them
        """
        text = None
        if self.cfg.source_text is not None:
            text = read_text(self.cfg.source_text, self.source, sources, self.cfg.truncate_source, self.frame)
        self.inputs[name] = SourceWords(sources, self.source, text, self.frame)
        return WithSourceWords(dataset, self.inputs[name])

    def with_input(self, dataset, sources: Sequence[torch.Tensor]) -> WithSourceWords:
        """The same of sentences that a program encoded, or that were typed.

        Args:
            sources: before a task has put anything around them but an end of sentence
        """
        self.inputs[None] = SourceWords(sources, self.source)
        remember = self.typed.batches.append if self.typed is not None else None
        return WithSourceWords(dataset, self.inputs[None], remember)

    def follow_bpe(self, name: Optional[str]) -> None:
        """Translations will be joined from pieces as this one of fairseq's --bpe does it."""
        self.segmentation = self.segmentation or segmentation(name)

    def read_lines(self, lines: Sequence[str], encode: Callable[[str], str], most: int) -> List[str]:
        """Lines of fairseq-interactive, as text in words of at most ``most`` words each."""
        first = 0 if self.typed is None else self.typed.first + len(self.typed.named)
        named: List[List[str]] = [[] for _ in lines]
        if self.cfg.print_candidates:
            parted = [line.split("\t", 1) for line in lines]
            lines, named = [part[0] for part in parted], [tokenize_line(" ".join(part[1:])) for part in parted]
        self.typed = Typed(first, named, [])
        sentences = [tokenize_line(encode(line)) for line in lines]
        for number, words in enumerate(sentences):
            if len(words) > most:
                print(
                    f"a line of {len(words):,} words: only the first {most:,} are translated (--max-source-positions)",
                    file=sys.stderr,
                )
                sentences[number] = words[:most]
        return [" ".join(words) for words in sentences]

    def step(self, generator, sample: Dict, search: Callable[[Dict], List[List[Dict]]]) -> List[List[Dict]]:
        """One batch: its source words, the search, and what is done with its hypotheses."""
        typed = None if self.typed is None or "source_words" in sample else self.typed.find(sample)
        words, tokens = self.words_of(typed or sample), sample["net_input"]["src_tokens"]
        searches = isinstance(generator, (SequenceGenerator, ListedSearch))
        if searches and self.lists is None:
            for tables in filter(None, map(word_tables, generator.model.models)):
                tables.hold()
        sample = {**sample, "net_input": {**sample["net_input"], "src_tokens": self.reading(tokens)}}
        hypotheses = search({**sample, "source_words": words})
        if not searches:
            return hypotheses
        self.statistics.sentences += len(words)
        for sentence, mine in zip(hypotheses, words):
            for hypothesis in sentence if not mine else ():
                make_empty(hypothesis)
        if self.rule != "none":
            self._look_again(generator, sample, hypotheses)
            self._replace_unknown(generator, sample, words, hypotheses)
        if self.cfg.print_candidates and self.lists is not None:
            self._print_candidates(sample, typed, words, hypotheses)
        return hypotheses

    def _replace_unknown(self, generator, sample: Dict, words: List[List[str]], hypotheses: List[List[Dict]]) -> None:
        """On the host, to which all hypotheses of the batch come at once."""
        places = self.places(generator, sample, words)
        found = with_unknown(hypotheses, self.target.unk())
        copies = [{"tokens": numbers, "attention": x["attention"]} for _, x, numbers in found]
        seen = [copy for copy in copies if copy["attention"] is not None]
        for copy, attention in zip(seen, to_host([copy["attention"] for copy in seen])):
            copy["attention"] = attention
        how = self.rule, self.target, self.lexicon, self.align, self.segmentation
        for (i, hypothesis, _), copy in zip(found, copies):
            counts = replace_unknown(copy, words[i], places[i], *how)
            if hypothesis is hypotheses[i][0]:
                self.statistics.unknown += counts[0]
                self.statistics.replaced += counts[1]
        new = to_device([copy["tokens"] for copy in copies], sample["net_input"]["src_tokens"].device)
        for (_, hypothesis, _), copy, numbers in zip(found, copies, new):
            hypothesis.update(tokens=numbers, searched=copy["searched"], stands_for=copy["stands_for"])
            self.target.forget_with(numbers, copy["tokens"].tolist())

    def places(self, generator, sample: Dict, words: List[List[str]]) -> List[torch.Tensor]:
        """Where the attention of each sentence of a batch has its words, among the source positions."""
        pad = self.source.pad()
        tokens = sample["net_input"]["src_tokens"].cpu()
        turned = turns(generator.model.single_model) and bool(tokens[:, 0].eq(pad).any())
        return [word_places(row, len(mine), pad, turned, self.frame) for row, mine in zip(tokens, words)]

    def _look_again(self, generator, sample: Dict, hypotheses: List[List[Dict]]) -> None:
        """Hypotheses with unknown words get the attention that options or models name, if the search keeps another."""
        models = list(generator.model.models)
        heads = [heads_of(model, self.cfg.alignment_layer, self.cfg.alignment_heads) for model in models]
        if any(heads):
            first = generator.eos if self.first is None else self.first
            numbers = {"unknown": self.target.unk(), "first": first, "pad": self.target.pad()}
            look_again(models, heads, sample, hypotheses, **numbers)

    def words_of(self, sample: Dict) -> List[List[str]]:
        """The source words of a batch; without a text, those of the dictionary."""
        if "source_words" in sample:
            return sample["source_words"]
        return words_of_batch(sample["net_input"]["src_tokens"], self.source, self.frame)

    def _print_candidates(self, sample: Dict, typed: Optional[Dict], words: List, hypotheses: List) -> None:
        numbers = (typed or sample).get("id", torch.arange(len(words))).tolist()
        references = None if sample.get("target") is None else sample["target"].tolist()
        for i, number in enumerate(numbers):
            if not hypotheses[i]:
                continue
            if references is not None:
                wanted = self._reference(references[i])
            else:
                wanted = self._asked(self.typed.named[number] if typed else [])
            shown = number + self.typed.first if typed else number  # as fairseq prints it
            print(f"L-{shown}\t{self._explain(hypotheses[i][0]['candidates'], words[i], wanted)}")

    def _reference(self, numbers: List[int]) -> List[Tuple[str, int]]:
        """The words of a reference, and their numbers."""
        ignored = (self.target.pad(), self.target.eos())
        return [(self.target[i], i) for i in dict.fromkeys(numbers) if i not in ignored]

    def _asked(self, words: List[str]) -> List[Tuple[str, int]]:
        """Words that were typed after a tab, and their numbers."""
        numbers = [(word, self.target.index(word)) for word in dict.fromkeys(words)]
        return [(word, i if i < self.every_word.words else self.target.unk()) for word, i in numbers]

    def _explain(self, candidates: Candidates, source: List[str], wanted: List[Tuple[str, int]]) -> str:
        reasons = []
        for text, number in wanted:
            if number == self.target.unk():
                reasons.append(f"{text} (not in the dictionary)")
            elif number not in candidates:
                reasons.append(f"{text} ({candidates.lists.reason(number, source)})")
        outside = f"{len(reasons)} of {len(wanted)} words outside" if wanted else "no reference"
        return f"{len(candidates)} words\t{outside}" + ("\t" + "; ".join(reasons) if reasons else "")

    def _tell(self) -> None:
        if self.statistics.sentences:
            print(self.statistics.summary(), results.line_of(self.statistics.figures()), sep="\n", file=sys.stderr)

    def lists_of_batch(self, sample: Dict) -> Tuple[CandidateLists, List[np.ndarray]]:
        """What knows the words that are on every list, and the other words of each sentence of a batch."""
        return self.lists, [self.lists.others(words) for words in self.words_of(sample)]


class Typed(NamedTuple):
    """The lines that fairseq-interactive has read last."""

    first: int  # how many were read before
    named: List[List[str]]  # words to look for in the list of each
    batches: List[Dict]  # made of them, and not decoded yet

    def find(self, sample: Dict) -> Optional[Dict]:
        """The batch that is decoded: fairseq-interactive hands on nothing but its word numbers. Of several that look
        alike it is the first."""
        tokens = sample["net_input"]["src_tokens"].cpu()
        for place, batch in enumerate(self.batches):
            if torch.equal(batch["net_input"]["src_tokens"], tokens):
                return self.batches.pop(place)
        return None


def turns(model) -> bool:
    """Whether a model turns padded sentences round, as fairseq's lstm does."""
    return bool(getattr(getattr(model, "encoder", None), "left_pad", False))


def make_empty(hypothesis: Dict) -> None:
    """The translation of an empty line, for sure; the model would invent one."""
    hypothesis["tokens"] = hypothesis["tokens"][-1:]
    hypothesis["attention"] = hypothesis["attention"][..., -1:]
    hypothesis["alignment"] = hypothesis["alignment"][:0]
    hypothesis["positional_scores"] = torch.zeros_like(hypothesis["positional_scores"][-1:])
    hypothesis["score"] = torch.zeros_like(hypothesis["score"])
