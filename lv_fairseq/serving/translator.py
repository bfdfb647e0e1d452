"""A model that translates sentences, as fairseq-interactive loads it and runs it, and says where each word came from.

Nothing here knows of threads or requests: whoever calls it does so from one thread.
"""

import ast
import logging
import math
import time
from collections import OrderedDict
from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.tokenizer import tokenize_line

from lv_fairseq.errors import UserError
from lv_fairseq.large_vocabulary import LargeVocabulary, keep_attention
from lv_fairseq.serving.explain import explained, why
from lv_fairseq.serving.settings import Bounds, Settings

logger = logging.getLogger(__name__)

KEPT = 16  # settings whose generators and lists are kept
BATCH = 32  # sentences, unless flags say otherwise


class TooLongError(ValueError):
    """A sentence has more words than are allowed."""


class Translator:
    """
    Args:
        cfg: fairseq's configuration, of the flags of fairseq-interactive
        most_words: of a sentence, in the tokens of the model

    Attributes:
        bounds: what can be asked for
        at_once: how many sentences fill a batch
    """

    def __init__(self, cfg, most_words: int):
        check(cfg)
        self.cfg = cfg
        if cfg.dataset.max_tokens is None and cfg.dataset.batch_size is None:
            cfg.dataset.batch_size = BATCH
        self.at_once = cfg.dataset.batch_size or BATCH
        if cfg.common.seed is not None and not cfg.generation.no_seed_provided:
            np.random.seed(cfg.common.seed)
            utils.set_torch_seed(cfg.common.seed)
        self.task = tasks.setup_task(cfg.task)
        if not isinstance(self.task, LargeVocabulary):
            raise UserError(f"--task {cfg.task._name} knows no lists: take lv_translation, or another of its family")
        self.device = torch.device("cuda" if torch.cuda.is_available() and not cfg.common.cpu else "cpu")
        self.models = self._load()
        self.tokenizer, self.bpe = self.task.build_tokenizer(cfg.tokenizer), self.task.build_bpe(cfg.bpe)
        positions = [model.max_positions() for model in self.models]
        self.max_positions = utils.resolve_max_positions(self.task.max_positions(), *positions)
        frame = sum(self.task.source_frame)
        self.most_words = min(most_words, (self.max_positions[0] if self.max_positions else most_words) - frame)
        decoding = self.task.decoding
        self.bounds = Bounds(
            Settings(
                decoding.cfg.candidate_frequent, decoding.cfg.candidate_per_word, cfg.generation.beam, decoding.rule
            ),
            words=decoding.every_word.words - decoding.target.nspecial,
            lexicon=decoding.lexicon is not None,
        )
        self._made: OrderedDict[Settings, Tuple] = OrderedDict()  # task and generator, those used last at the end
        self._of(self.bounds.default)

    def about(self) -> Dict:
        """What a user may want to know of the model."""
        named = self.task.cfg.source_lang, self.task.cfg.target_lang
        return {
            "source_lang": named[0],
            "target_lang": named[1],
            "target_words": self.bounds.words,
            "lexicon": self.bounds.lexicon,
        }

    def _load(self) -> List:
        cfg = self.cfg
        logger.info("loading model(s) from %s", cfg.common_eval.path)
        models, _ = checkpoint_utils.load_model_ensemble(
            utils.split_paths(cfg.common_eval.path),
            arg_overrides=ast.literal_eval(cfg.common_eval.model_overrides),
            task=self.task,
            suffix=cfg.checkpoint.checkpoint_suffix,
            strict=(cfg.checkpoint.checkpoint_shard_count == 1),
            num_shards=cfg.checkpoint.checkpoint_shard_count,
        )
        for model in models:
            if cfg.common.fp16:
                model.half()
            model.to(self.device)
            model.prepare_for_inference_(cfg)
        return models

    def _of(self, settings: Settings) -> Tuple[LargeVocabulary, object]:
        """A task and a generator of these settings."""
        if settings not in self._made:
            frequent, per_word, beam, rule = settings
            default = self.bounds.default._replace(beam=beam) == settings
            task = self.task if default else self.task.with_decoding(frequent, per_word, rule)
            how = self.cfg.generation.copy()
            how.beam = beam
            self._made[settings] = task, task.build_generator(self.models, how)
            keep_attention(self.models)
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(settings)
        task, generator = self._made[settings]
        generator.model.set_decoder_beam_size(generator.beam_size)  # the generator that was built last has set another
        return task, generator

    def words(self, text: str) -> List[str]:
        """A sentence in the model's tokens. `TooLongError` if there are too many."""
        for encoder in filter(None, (self.tokenizer, self.bpe)):
            text = encoder.encode(text)
        words = tokenize_line(text)
        if len(words) > self.most_words:
            raise TooLongError(f"a sentence of {len(words):,} words: at most {self.most_words:,} are translated")
        return words

    def translate(self, sentences: Sequence[Sequence[str]], settings: Settings) -> Iterator[Tuple[int, Dict]]:
        """For each sentence its place and what is to be answered, batch by batch; in the order that suits the model."""
        task, generator = self._of(settings)
        same_length = self.cfg.generation.max_len_a or self.cfg.generation.match_source_len
        lengths = [len(words) if same_length else 0 for words in sentences]
        for length in sorted(set(lengths)):  # of a batch, the longest sentence decides how long translations may be
            mine = [place for place, other in enumerate(lengths) if other == length]
            for sample in self._batches(task, [sentences[place] for place in mine]):
                numbers = sample["id"].tolist()
                for number, answer in zip(numbers, self._decode(task, generator, sample)):
                    yield mine[number], answer

    def _batches(self, task, sentences: Sequence[Sequence[str]]) -> Iterator[Dict]:
        """As fairseq-interactive makes them, with their source words."""
        lines = [" ".join(words) for words in sentences]
        tokens, lengths = task.get_interactive_tokens_and_lengths(lines, lambda line: line)
        return task.get_batch_iterator(
            dataset=task.build_dataset_for_inference(tokens, lengths),
            max_tokens=self.cfg.dataset.max_tokens,
            max_sentences=self.cfg.dataset.batch_size,
            max_positions=self.max_positions,
            ignore_invalid_inputs=self.cfg.dataset.skip_invalid_size_inputs_valid_test,
        ).next_epoch_itr(shuffle=False)

    def _decode(self, task, generator, sample: Dict) -> List[Dict]:
        sample = utils.move_to_cuda(sample) if self.device.type == "cuda" else sample
        words, start = sample["source_words"], time.perf_counter()
        hypotheses = task.inference_step(generator, self.models, sample)
        milliseconds = round(1000 * (time.perf_counter() - start), 3)
        places = task.decoding.places(generator, sample, words)
        specials = task.target_dictionary.pad(), task.target_dictionary.bos()
        hidden = {*getattr(generator, "symbols_to_strip_from_output", {generator.eos}), *specials}
        answers = []
        for found, mine, where in zip(hypotheses, words, places):
            answer = {"text": "", "score": None, "milliseconds": milliseconds, "batch": len(words)}
            if found:
                answer["text"] = self._text(found[0]["tokens"], hidden)
                answer["score"] = float(found[0]["score"]) / math.log(2)  # as fairseq-interactive prints it
                answer.update(explained(task.decoding, found[0], mine, where, hidden))
            answers.append(answer)
        return answers

    def _text(self, tokens: torch.Tensor, hidden: set) -> str:
        """As fairseq's post_process_prediction makes it, which would also add new words to the dictionary."""
        how = self.cfg.common_eval.post_process
        text = self.task.target_dictionary.string(tokens.int().cpu(), how, extra_symbols_to_ignore=hidden)
        for decoder in filter(None, (self.bpe, self.tokenizer)):
            text = decoder.decode(text)
        return text

    def why(self, words: Sequence[str], asked: Sequence[str], settings: Settings) -> Dict:
        """Which of some target words are on the list of a sentence, and why."""
        task, generator = self._of(settings)
        return why(task.decoding, generator.beam_size, list(words), asked)


def check(cfg) -> None:
    """Refuse flags that make no sense for a server."""
    if not cfg.common_eval.path:
        raise UserError("--path is missing: name the checkpoint to serve")
    refused = {
        "--candidate-scope": str(getattr(cfg.task, "candidate_scope", "sentence")) != "sentence"
        and "a translation must not depend on what others ask for at the same time",
        "--print-candidates": getattr(cfg.task, "print_candidates", False) and "ask POST /why instead",
        "--constraints": cfg.generation.constraints and "requests have none",
        "--replace-unk": cfg.generation.replace_unk is not None and "take --unk-replacement instead",
        "--score-reference": cfg.generation.score_reference and "requests have no reference",
        "--prefix-size": cfg.generation.prefix_size and "requests have no reference",
    }
    for flag, why_not in refused.items():
        if why_not:
            raise UserError(f"{flag} does not work with lv-serve: {why_not}")
