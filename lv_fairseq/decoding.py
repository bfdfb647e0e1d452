"""What the task does around fairseq's generator: candidate lists before a search, unknown words after it."""

import atexit
import logging
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Type

import numpy as np
import torch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tokenizer import tokenize_line

from lv_fairseq.candidates import CandidateLists
from lv_fairseq.candidates.lists import check_lexicon, union
from lv_fairseq.errors import UserError
from lv_fairseq.generation import AligningCandidateGenerator, CandidateGenerator, SourceText, replace_unknown
from lv_fairseq.generation.statistics import Statistics
from lv_fairseq.lexicon import Lexicon

logger = logging.getLogger(__name__)

DEFAULT_PER_WORD = 10  # K' of the paper


class Decoding:
    """
    Args:
        cfg: the task's options
        source, target: the dictionaries; the target's an `OpenDictionary`
    """

    def __init__(self, cfg, source, target):
        self.cfg, self.source, self.target = cfg, source, target
        self.rule = str(cfg.unk_replacement)
        self.text = SourceText()
        self.statistics = Statistics(replacing=self.rule != "none")
        self.named: List[List[str]] = []  # words to look for in the lists of the lines just typed
        self.lexicon: Optional[Lexicon] = None
        if cfg.lexicon is not None:
            self.lexicon = Lexicon.load(cfg.lexicon)
            check_lexicon(self.lexicon, cfg.lexicon, source, target)
        self.lists = self._lists()
        if self.lexicon is not None and self.lists is None and not self.rule.startswith("lexicon"):
            logger.warning("--lexicon is not used without --candidate-frequent or --unk-replacement lexicon")
        if self.lists is not None or self.rule != "none":
            atexit.register(self._tell)

    def _lists(self) -> Optional[CandidateLists]:
        """None if every word may be chosen."""
        frequent, per_word = self.cfg.candidate_frequent, self.cfg.candidate_per_word
        if not frequent and not per_word:
            return None
        words = len(self.target) - self.target.nspecial
        if frequent > words:
            raise UserError(f"--candidate-frequent {frequent} is more than the {words} words of the target dictionary")
        if per_word is None:
            per_word = 0 if self.lexicon is None else DEFAULT_PER_WORD
        return CandidateLists(self.target, frequent, self.lexicon, per_word)

    def generator(
        self, args, corpus: Callable[[], Iterable]
    ) -> Tuple[Optional[Type[SequenceGenerator]], Dict[str, Any]]:
        """The class of generator that the options ask for, None for fairseq's own, and its arguments.

        Args:
            args: fairseq's options for generation
            corpus: gives all source sentences
        """
        mean = str(self.cfg.ensemble_mean)
        if self.lists is None and mean == "probability":
            return None, {}
        if getattr(args, "score_reference", False):
            raise UserError(
                "--score-reference is over all words: leave out --candidate-frequent, --candidate-per-word and "
                "--ensemble-mean"
            )
        kwargs = {
            "lists": self.lists or CandidateLists(self.target, len(self.target)),
            "scope": str(self.cfg.candidate_scope),
            "corpus": lambda: union(self.lists.others(words) for words in self._corpus_words(corpus())),
            "mean": mean,
            "statistics": self.statistics if self.lists is not None else None,
        }
        if getattr(args, "print_alignment", None):
            return AligningCandidateGenerator, {**kwargs, "print_alignment": args.print_alignment}
        return CandidateGenerator, kwargs

    def _corpus_words(self, dataset) -> Iterable[Sequence[str]]:
        if self.text.sentences is not None:
            return self.text.sentences
        return ([self.source[i] for i in sentence.tolist()[:-1]] for sentence in dataset)

    def read_source_text(self, dataset) -> None:
        if self.cfg.source_text is not None:
            self.text.read(self.cfg.source_text, self.source, dataset)

    def typed(self, lines: Sequence[str], encode: Callable[[str], str], most: int) -> List[str]:
        """Lines of fairseq-interactive, as text in words of at most ``most`` words each."""
        self.named = [[] for _ in lines]
        if self.cfg.print_candidates:
            parted = [line.split("\t", 1) for line in lines]
            lines, self.named = [part[0] for part in parted], [tokenize_line(" ".join(part[1:])) for part in parted]
        sentences = [tokenize_line(encode(line)) for line in lines]
        for number, words in enumerate(sentences):
            if len(words) > most:
                print(
                    f"a line of {len(words):,} words: only the first {most:,} are translated (--max-source-positions)",
                    file=sys.stderr,
                )
                sentences[number] = words[:most]
        self.text.type(sentences)
        return [" ".join(words) for words in sentences]

    def step(self, generator, sample: Dict, search: Callable[[Dict], List[List[Dict]]]) -> List[List[Dict]]:
        """One batch: its source words, the search, and what is done with its hypotheses."""
        numbers, words = self.text.of_batch(sample, self.source)
        hypotheses = search({**sample, "source_words": words})
        if not isinstance(generator, SequenceGenerator):
            return hypotheses
        tokens = sample["net_input"]["src_tokens"]
        ignored = torch.tensor([self.source.pad(), self.source.eos()], device=tokens.device)
        real = ~torch.isin(tokens, ignored)  # sentences x source length
        self.statistics.sentences += len(tokens)
        for i, sentence in enumerate(hypotheses):
            places = torch.nonzero(real[i]).flatten()
            for hypothesis in sentence:
                if not len(places):  # an empty line gets an empty translation; the model would invent one
                    hypothesis["tokens"] = hypothesis["tokens"][-1:]
                    hypothesis["positional_scores"] = hypothesis["positional_scores"][-1:]
                elif self.rule != "none":
                    counts = replace_unknown(hypothesis, words[i], places, self.rule, self.target, self.lexicon)
                    if hypothesis is sentence[0]:
                        self.statistics.unknown += counts[0]
                        self.statistics.replaced += counts[1]
        if self.cfg.print_candidates and isinstance(generator, CandidateGenerator):
            for i, number in enumerate(numbers):
                print(f"L-{number}\t{self._explain(generator, i, words[i], self._wanted(sample, i, number))}")
        return hypotheses

    def _wanted(self, sample: Dict, sentence: int, number: int) -> List[Tuple[str, int]]:
        """Words of the reference, or that were typed after a tab, and their numbers."""
        if sample.get("target") is not None:
            ignored = (self.target.pad(), self.target.eos())
            numbers = [i for i in sample["target"][sentence].tolist() if i not in ignored]
            return [(self.target[i], i) for i in dict.fromkeys(numbers)]
        words = self.named[number - self.text.first] if self.named else []
        return [(word, self.target.index(word)) for word in dict.fromkeys(words)]

    def _explain(self, generator: CandidateGenerator, sentence: int, source: List[str], wanted: List) -> str:
        common, others = generator.common, generator.listed[sentence]
        reasons = []
        for text, number in wanted:
            if number == self.target.unk():
                reasons.append(f"{text} (not in the dictionary)")
            elif number >= common and number not in others:
                reasons.append(f"{text} ({self.lists.reason(number, source)})")
        outside = f"{len(reasons)} of {len(wanted)} words outside" if wanted else "no reference"
        return f"{common + len(others)} words\t{outside}" + ("\t" + "; ".join(reasons) if reasons else "")

    def _tell(self) -> None:
        if self.statistics.sentences:
            print(self.statistics.summary(), file=sys.stderr)

    def lists_of_batch(self, sample: Dict) -> Tuple[int, List[np.ndarray]]:
        """How many words are on every list, and the other words of each sentence of a batch."""
        _, words = self.text.of_batch(sample, self.source)
        return self.lists.common, [self.lists.others(sentence) for sentence in words]
