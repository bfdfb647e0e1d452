"""``--task lv_translation``: fairseq's translation task, connected to the rest of this package."""

import logging
from contextlib import nullcontext
from functools import cached_property
from typing import Optional

import torch
from fairseq import metrics, utils
from fairseq.models import MODEL_REGISTRY
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask

from lv_fairseq.batching.epochs import PartitionedIterator
from lv_fairseq.batching.hidden_words import HiddenWords, HidingDataset, hidden_words
from lv_fairseq.batching.look_ahead import LookAheadDataset
from lv_fairseq.batching.partitioned import in_partitions
from lv_fairseq.data_folder import check_subset, load_dictionary, reading
from lv_fairseq.decoding import Decoding
from lv_fairseq.errors import UserError
from lv_fairseq.generation import OpenDictionary
from lv_fairseq.models.rnnsearch import RNNSearchModel
from lv_fairseq.page_turner import PageTurner
from lv_fairseq.partitions.sentences import sentences
from lv_fairseq.task_config import LVTranslationConfig, check
from lv_fairseq.word_tables import WordTable, need_tables

logger = logging.getLogger(__name__)


@register_task("lv_translation", dataclass=LVTranslationConfig)
class LVTranslationTask(TranslationTask):
    """With none of its own flags it behaves like ``--task translation``, and says in one line what is wrong."""

    cfg: LVTranslationConfig

    @classmethod
    def setup_task(cls, cfg: LVTranslationConfig, **kwargs) -> "LVTranslationTask":
        check(cfg)
        return super().setup_task(cfg, **kwargs)

    def __init__(self, cfg: LVTranslationConfig, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self.decoding = Decoding(cfg, src_dict, tgt_dict)
        self.pages: Optional[PageTurner] = None
        self._has_tables = True  # the model that was built last
        self._warned = False
        self._iterator: Optional[PartitionedIterator] = None  # over the training data, of this epoch or of all

    def build_model(self, cfg, from_checkpoint=False):
        # a model that is about to be loaded needs no memory and no initial values of its own
        own = issubclass(MODEL_REGISTRY.get(getattr(cfg, "_name", None), object), RNNSearchModel)
        with torch.device("meta") if from_checkpoint and own and not self.cfg.tau else nullcontext():
            model = super().build_model(cfg, from_checkpoint)
        tables = [module for module in model.modules() if isinstance(module, WordTable)]
        self._has_tables = bool(tables)
        if self.cfg.freeze_word_tables:
            need_tables(self._has_tables, "--freeze-word-tables")
            freeze(model, tables)
        if self.cfg.tau:
            need_tables(self._has_tables, "--tau")
            unigram = str(self.cfg.proposal) == "unigram"
            self.pages = PageTurner(model, self.cfg.tau, self.cfg.source_tau, self.tgt_dict.nspecial, unigram)
        return model

    def build_criterion(self, cfg, *args):
        criterion = super().build_criterion(cfg, *args)
        own = cfg._name == "partition_cross_entropy"
        if self.cfg.tau and not own:
            raise UserError(f"--tau needs --criterion partition_cross_entropy, not {cfg._name}")
        if str(self.cfg.validation_vocab) == "candidates" and not own:
            raise UserError("--validation-vocab candidates needs --criterion partition_cross_entropy")
        if own:  # the criterion finds out by itself too, but not before the data are read
            need_tables(self._has_tables, "--criterion partition_cross_entropy")
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
            self.decoding.follow_subset(split, self.datasets[split])
            return
        if self.cfg.hide_rare_words:
            self.datasets[split] = HidingDataset(self.datasets[split], self.hidden_words)
            self.datasets[split].set_epoch(epoch)
        if self.cfg.sort_window > 0 and not self.cfg.tau:
            self.datasets[split] = LookAheadDataset(self.datasets[split], self.cfg.sort_window)

    @cached_property
    def hidden_words(self) -> HiddenWords:
        return hidden_words(
            self.cfg.hide_rare_words, self.src_dict, self.tgt_dict, self.decoding.lexicon, self.cfg.seed
        )

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
        kept, self._iterator = self._iterator, None
        if kept is None or kept.dataset.dataset is not dataset or not kept.dataset.every_epoch:
            if kept is not None:
                kept.close()
            sides = sentences(dataset.tgt), sentences(dataset.src)
            parts = in_partitions(dataset, *sides, self.cfg, self.tgt_dict.nspecial, seed, epoch, num_shards)
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

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs):
        if self.decoding.rule != "none":
            keep_attention(models)
        if seq_gen_cls is None:
            seq_gen_cls, own = self.decoding.generator(args, kwargs.get("prefix_allowed_tokens_fn"))
            extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), **own}
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, **kwargs)

    def candidate_lists(self, sample):
        """For validation: how many words are on every list, and the other words of each sentence."""
        return self.decoding.lists_of_batch(sample)

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        lines = self.decoding.read_lines(lines, encode_fn, self.cfg.max_source_positions - 1)
        return super().get_interactive_tokens_and_lengths(lines, lambda line: line)

    def build_dataset_for_inference(self, *args, **kwargs):
        dataset = super().build_dataset_for_inference(*args, **kwargs)
        self.decoding.follow_input(dataset)
        return dataset

    def inference_step(self, generator, models, sample, *args, **kwargs):
        search = lambda sample: super(LVTranslationTask, self).inference_step(
            generator, models, sample, *args, **kwargs
        )
        return self.decoding.step(generator, sample, search)

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False, **kwargs):
        if self.cfg.freeze_word_tables and update_num == 0 and not self._warned:
            self._warned = True
            logger.warning("word vectors are frozen at the first update: was there no checkpoint to start from?")
        filler = sample.get("filler", False)
        if self.pages is not None and not ignore_grad:
            metrics.log_start_time("swap", priority=900, round=2)
            self.pages.turn_to(sample["partition"])
            metrics.log_stop_time("swap")
            # counted as lv-partition does: from 1, words without special symbols
            metrics.log_scalar("partition", sample["partition"] + 1, weight=0, priority=910, round=0)
            words = len(self.pages.plan.target_words[sample["partition"]]) - self.tgt_dict.nspecial
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
            model.decoder.need_attn = True


def swap_share(meters) -> float:
    """Share of the training time that went into turning pages."""
    wall = meters["train_wall"].sum if "train_wall" in meters else 0
    return round(meters["swap"].sum / wall, 4) if wall else 0.0


def freeze(model, tables) -> None:
    """Fix the word vectors. Parameters remember their place, so that an optimiser's checkpoint can still be read."""
    parameters = list(model.parameters())
    for number, parameter in enumerate(parameters):
        parameter.place = number, len(parameters)
    for table in tables:
        table.requires_grad_(False)
