"""What a translation task of fairseq gains here: pages of its words in training, candidate lists in decoding, and the
replacement of unknown words. It connects the rooms of this package, and holds no algorithm."""

import copy
import logging
from functools import cached_property, partial
from typing import List, Optional, Sequence

from fairseq import metrics, utils

from lv_fairseq import fairseq_patches
from lv_fairseq.batching.epochs import PartitionedIterator
from lv_fairseq.batching.hidden_words import HiddenWords, HidingDataset, hidden_words
from lv_fairseq.batching.look_ahead import LookAheadDataset
from lv_fairseq.batching.pairs import language_pairs, sides
from lv_fairseq.batching.partitioned import in_partitions
from lv_fairseq.data_folder import check_subset, load_dictionary, reading
from lv_fairseq.decoding import Decoding, OpenDictionary
from lv_fairseq.decoding.attention import heads_of
from lv_fairseq.decoding.source_text import PLAIN, Frame
from lv_fairseq.errors import UserError
from lv_fairseq.models.families import adopt_model, pack_model
from lv_fairseq.page_turner import PageTurner
from lv_fairseq.task_config import check, check_folders, complete, leave_out_training
from lv_fairseq.word_tables import ALONE, Tables, freeze, to_be_drawn, to_be_loaded
from lv_fairseq.workers import same_rest, workers_of_this_machine

logger = logging.getLogger(__name__)


class LargeVocabulary:
    """To be mixed into a task of sentence pairs, before it: ``class Task(LargeVocabulary, TranslationTask)``.

    With none of its own flags the task behaves as it would without, and says in one line what is wrong.

    A task that puts more around its sentences than an end says so: `source_frame`, `marks`, `target_marks`,
    `first_target_word`.
    """

    @property
    def source_frame(self) -> Frame:
        """What is around the words of a source sentence."""
        return PLAIN

    def marks(self, dictionary) -> List[int]:
        """Words that are no words of a text, such as language tokens: they are on every page."""
        return []

    def target_marks(self) -> List[int]:
        """Those of them that a translation may have: they are on every list, the others on none."""
        return []

    @property
    def first_target_word(self) -> Optional[int]:
        """The word before the first one of a translation; None: the generator's end of sentence."""
        return None

    def complete_dictionaries(self) -> None:
        """Take words into the dictionaries that only the checkpoint has which will be opened."""

    @classmethod
    def check_data(cls, cfg) -> None:
        """Say what is wrong with the data before fairseq runs into it."""
        check_folders(cfg)

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        complete(cfg)
        if kwargs.get("from_checkpoint"):
            leave_out_training(cfg, fairseq_patches.overrides.get() or {})
        check(cfg)
        cls.check_data(cfg)
        return super().setup_task(cfg, **kwargs)

    def __init__(self, cfg, *others):
        super().__init__(cfg, *others)
        self.cfg = cfg  # which fairseq's older tasks call args
        self.complete_dictionaries()
        dictionaries = self.source_dictionary, self.target_dictionary
        marks = [self.marks(dictionary) for dictionary in dictionaries]
        always = self.target_marks()
        self.decoding = Decoding(
            cfg,
            *dictionaries,
            frame=self.source_frame,
            always=always,
            never=sorted({*marks[1]} - {*always}),
            first=self.first_target_word,
            text_words=[min(numbers, default=None) for numbers in marks],
        )
        self.pages: Optional[PageTurner] = None
        self._without_tables = ""  # why the model that was built last has none
        self._warned = False
        self._iterator: Optional[PartitionedIterator] = None  # over the training data, of this epoch or of all
        self._always_on_page = len(self.always_on_page(self.target_dictionary))

    def build_model(self, cfg, from_checkpoint=False):
        build = partial(super().build_model, cfg, from_checkpoint)
        sizes = len(self.source_dictionary), len(self.target_dictionary)
        if from_checkpoint:  # to decode with: what its training did with the tables is over
            for name in ("encoder_embed_path", "decoder_embed_path"):  # initial values, of a file that may be gone
                if getattr(cfg, name, None):
                    setattr(cfg, name, None)
            model = to_be_loaded(build, self.adopt, *sizes)
            if self.cfg.pack_weights:
                pack_model(model)
                logger.info("--pack-weights: large weights are laid out when they are first multiplied by few rows")
            return model
        fairseq_patches.copy_checkpoints(link=bool(self.cfg.tau))
        workers = workers_of_this_machine() if self.cfg.tau else ALONE
        try:
            if not workers.first:
                model = to_be_loaded(build, self.adopt, *sizes)
            elif self.cfg.word_table_dir is not None:
                model = to_be_drawn(build, self.adopt, *sizes, seed=self.cfg.seed)
            else:
                model = build()
        except ValueError as error:  # fairseq's models say so which of their flags do not go together
            raise UserError(str(error)) if str(error).startswith("--") else error from None
        tables = self.adopt(model)
        if getattr(self.cfg, "load_alignments", False):
            heads_of(model, None, None)  # says it if the layer that is to learn them does not exist
        if self.cfg.freeze_word_tables:
            freeze(model, tables)
        if self.cfg.tau:
            unigram = str(self.cfg.proposal) == "unigram"
            specials = max(len(self.always_on_page(x)) for x in (self.source_dictionary, self.target_dictionary))
            limits = self.cfg.tau, self.cfg.source_tau, specials
            self.pages = PageTurner(tables, *limits, unigram, workers, self.cfg.word_table_dir)
            self.check_backend()
            for table in tables:
                table.give_memory()  # to what has no page
            same_rest(model, workers)
        return model

    def always_on_page(self, dictionary) -> Sequence[int]:
        """Special symbols and marks."""
        return sorted({*range(dictionary.nspecial), *self.marks(dictionary)})

    def check_backend(self) -> None:
        """Of two backends that average gradients one wants parameters to keep their size."""
        resized = self.pages.source is not None and not self.pages.fixed_source_rows
        if resized and self.cfg.distributed_world_size > 1 and str(self.cfg.ddp_backend) in ("c10d", "pytorch_ddp"):
            raise UserError(
                f"--ddp-backend {self.cfg.ddp_backend} cannot follow source pages that change their size: give "
                "--source-tau N (lv-partition shows how many words there are), or take --ddp-backend legacy_ddp"
            )

    def adopt(self, model) -> Optional[Tables]:
        """Put word tables into a model. One that has no place for them stays as it is, if no option needs them."""
        needs = {"--tau": self.cfg.tau, "--freeze-word-tables": self.cfg.freeze_word_tables}
        self._without_tables = ""
        try:
            return adopt_model(model)
        except UserError as error:
            self._without_tables = str(error)
            for flag in (flag for flag, given in needs.items() if given):
                raise UserError(f"{flag}: {error}") from None
            return None

    def build_criterion(self, cfg, *args):
        criterion = super().build_criterion(cfg, *args)
        own = cfg._name == "partition_cross_entropy"
        if self.cfg.tau and not own:
            raise UserError(f"--tau needs --criterion partition_cross_entropy, not {cfg._name}")
        if str(self.cfg.validation_vocab) == "candidates" and not own:
            raise UserError("--validation-vocab candidates needs --criterion partition_cross_entropy")
        if own and self._without_tables:  # the criterion finds out by itself too, but not before the data are read
            raise UserError(f"--criterion partition_cross_entropy: {self._without_tables}")
        if own and self.cfg.find_unused_parameters and str(self.cfg.ddp_backend) in ("c10d", "pytorch_ddp"):
            raise UserError(
                "--find-unused-parameters takes the rows that words are scored with for unused, since --criterion "
                "partition_cross_entropy scores them, not the model: leave it out, or take --ddp-backend legacy_ddp"
            )
        return criterion

    @classmethod
    def load_dictionary(cls, filename):
        return load_dictionary(filename, OpenDictionary)

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        if split not in self.datasets:  # all shards, before any is trained
            for folder in utils.split_paths(self.cfg.data):
                check_subset(folder, split)
        with reading(split):
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        if split != self.cfg.train_subset:
            self.datasets[split] = self.with_words(split, self.datasets[split])
            return
        if self.cfg.hide_rare_words:
            self.datasets[split] = HidingDataset(self.datasets[split], self.hidden_words)
            self.datasets[split].set_epoch(epoch)
        if self.cfg.sort_window > 0 and not self.cfg.tau:
            self.datasets[split] = LookAheadDataset(self.datasets[split], self.cfg.sort_window)

    def with_words(self, split: str, dataset):
        """A subset that brings its source words as text; one of several language pairs, in which a number stands for a
        sentence of each, does not: its words are those of the dictionary."""
        pairs = language_pairs(dataset)
        if len(pairs) == 1:
            return self.decoding.with_words(split, dataset, pairs[0].src)
        if self.cfg.source_text is not None:
            raise UserError("--source-text is of one language pair: give --source-lang and --target-lang")
        return dataset

    @cached_property
    def hidden_words(self) -> HiddenWords:
        dictionaries = self.source_dictionary, self.target_dictionary
        return hidden_words(self.cfg.hide_rare_words, *dictionaries, self.decoding.lexicon, self.cfg.seed)

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        try:
            return super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        except Exception as error:  # upstream raises a bare Exception with a helpful text
            raise UserError(str(error)) from None

    def get_batch_iterator(self, dataset, *args, **options):
        training = self.cfg.tau and dataset is self.datasets.get(self.cfg.train_subset)
        make = self.iterate_partitions if training else super().get_batch_iterator
        try:
            return make(dataset, *args, **options)
        except AssertionError as error:  # upstream's answer to a sentence that fills more than a batch
            raise UserError(f"{error}: raise it, or leave such sentences out with --max-source-positions") from None
        finally:
            if all(dataset is not subset for subset in self.datasets.values()):  # typed: it does not come again
                self.dataset_to_epoch_iter.pop(dataset, None)

    def iterate_partitions(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        ignore_invalid_inputs=False,
        required_batch_size_multiple=1,
        seed=1,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        skip_remainder_batch=False,
        **unused,
    ) -> PartitionedIterator:
        """fairseq's `get_batch_iterator`, with partitions kept together. Only the latest iterator is remembered."""
        dataset.set_epoch(epoch)
        kept, self._iterator = self._iterator, None
        if kept is None or kept.dataset.dataset is not dataset or not kept.dataset.every_epoch:
            if kept is not None:
                kept.close()
            specials, others = map(self.always_on_page, (self.target_dictionary, self.source_dictionary))
            how = self.cfg, self.pages.joined, specials, seed, epoch, num_shards
            parts = in_partitions(dataset, *sides(dataset), *how, source_specials=others)
            indices = parts.ordered_indices()
            if max_positions is not None:
                indices = self.filter_indices_by_size(indices, parts, max_positions, ignore_invalid_inputs)
            kept = PartitionedIterator(
                parts,
                parts.collater,
                parts.batch_by_size(
                    indices,
                    max_tokens=max_tokens,
                    max_sentences=max_sentences,
                    required_batch_size_multiple=required_batch_size_multiple,
                ),
                seed=seed,
                num_shards=num_shards,
                shard_id=shard_id,
                num_workers=num_workers,
                epoch=epoch,
                buffer_size=data_buffer_size,
                skip_remainder_batch=skip_remainder_batch,
                reuse_dataloader=True,
            )
        self._iterator = kept
        self.pages.follow(kept.dataset.plan, kept.dataset.targets)
        return kept

    def build_generator(self, models, args, *others, **kwargs):
        if self.decoding.rule != "none":
            keep_attention(models)
        generator = super().build_generator(models, args, *others, **kwargs)
        return self.decoding.wrap(generator, models, args, kwargs.get("prefix_allowed_tokens_fn"))

    def with_decoding(self, frequent: int, per_word: Optional[int], rule: str):
        """This task with another K, K' and rule for unknown words, to build a generator with; the rest is shared."""
        task = copy.copy(self)
        task.decoding = self.decoding.changed(frequent, per_word, rule)
        return task

    def candidate_lists(self, sample):
        """For validation: the words that are on every list, and the other words of each sentence."""
        return self.decoding.lists_of_batch(sample)

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        lines = self.decoding.read_lines(lines, encode_fn, self.cfg.max_source_positions - sum(self.source_frame))
        return super().get_interactive_tokens_and_lengths(lines, lambda line: line)

    def build_bpe(self, args):
        self.decoding.follow_bpe(args if isinstance(args, str) else getattr(args, "_name", None))
        return super().build_bpe(args)

    def build_dataset_for_inference(self, src_tokens, *args, **kwargs):
        dataset = super().build_dataset_for_inference(src_tokens, *args, **kwargs)
        return self.decoding.with_input(dataset, src_tokens)

    def inference_step(self, generator, models, sample, *args, **kwargs):
        search = lambda sample: super(LargeVocabulary, self).inference_step(generator, models, sample, *args, **kwargs)
        return self.decoding.step(generator, sample, search)

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False, **kwargs):
        if self.cfg.freeze_word_tables and update_num == 0 and not self._warned:
            self._warned = True
            logger.warning("word vectors are frozen at the first update: was there no checkpoint to start from?")
        filler = sample.get("filler", False)
        if self.pages is not None and not ignore_grad:
            metrics.log_start_time("swap", priority=900, round=2)
            if self.pages.turn_to(sample["partition"]) and sample["partition"] in self._iterator.following:
                self.pages.read_ahead(self._iterator.following[sample["partition"]])
            metrics.log_stop_time("swap")
            # counted as lv-partition does: from 1, words without special symbols
            metrics.log_scalar("partition", sample["partition"] + 1, weight=0, priority=910, round=0)
            words = len(self.pages.plan.target_words[sample["partition"]]) - self._always_on_page
            metrics.log_scalar("partition_words", words, weight=0, priority=911, round=0)
            metrics.log_derived("swap_share", swap_share, priority=912)
        loss, sample_size, logging_output = super().train_step(
            sample, model, criterion, optimizer, update_num, ignore_grad or filler, **kwargs
        )
        if filler:  # only there to keep the workers together
            sample_size, logging_output = 0, {name: value * 0 for name, value in logging_output.items()}
        return loss, sample_size, logging_output


def keep_attention(models) -> None:
    """fairseq's recurrent and convolutional decoders throw it away for decoding unless alignments are printed."""
    for model in models:
        if hasattr(model.decoder, "need_attn"):
            model.decoder.make_generation_fast_(need_attn=True)


def swap_share(meters) -> float:
    """Share of the training time that went into turning pages."""
    wall = meters["train_wall"].sum if "train_wall" in meters else 0
    return round(meters["swap"].sum / wall, 4) if wall else 0.0
