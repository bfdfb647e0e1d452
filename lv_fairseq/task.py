"""``--task lv_translation``: fairseq's translation task, connected to the rest of this package."""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

import numpy as np
from fairseq import metrics, utils
from fairseq.dataclass import ChoiceEnum
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from lv_fairseq.batching.look_ahead import LookAheadDataset
from lv_fairseq.batching.partitioned import PartitionedDataset, keep_partitions_together
from lv_fairseq.data_folder import check_subset, languages, load_dictionary
from lv_fairseq.errors import UserError
from lv_fairseq.page_turner import PageTurner
from lv_fairseq.partitions import partition
from lv_fairseq.partitions.sentences import sentences
from lv_fairseq.word_tables import WordTable

logger = logging.getLogger(__name__)


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class LVTranslationConfig(TranslationConfig):
    tau: int = _option(
        0,
        "training runs over partitions of the corpus with at most this many target words each, every update over the "
        "words of its partition only; needs --criterion partition_cross_entropy; 0 = no partitions, all words always",
    )
    source_tau: int = _option(0, "most source words of a partition; 0 = as many as its sentences hold")
    reshuffle_partitions: bool = _option(
        False,
        "a new order of sentences and new partitions every epoch, so that words meet other words (default: the "
        "order of the corpus, the same partitions every epoch)",
    )
    freeze_word_tables: bool = _option(
        False, "the paper's last stage: word vectors stay as they are, the rest of the model is tuned"
    )
    proposal: ChoiceEnum(["uniform", "unigram"]) = _option(
        "uniform",
        "the proposal Q of the paper's importance weights: all words of a partition alike, which cancels out, or as "
        "frequent as they are in it",
    )
    sort_window: int = _option(
        0,
        "training sentences read ahead and sorted by length together (the paper's 20 batches of 80: 1600); "
        "0 = sort the whole corpus, as fairseq does, or the whole partition",
    )
    # fairseq's own options that partitions depend on
    update_freq: Any = II("optimization.update_freq")
    store_ema: bool = II("ema.store_ema")
    fp16: bool = II("common.fp16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")
    distributed_world_size: int = II("distributed_training.distributed_world_size")
    ddp_backend: Any = II("distributed_training.ddp_backend")


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
        self.pages: Optional[PageTurner] = None
        self._warned = False
        self._partitioned = {}  # dataset: its partitions, where they stay the same in every epoch

    def build_model(self, cfg, from_checkpoint=False):
        model = super().build_model(cfg, from_checkpoint)
        tables = [module for module in model.modules() if isinstance(module, WordTable)]
        if self.cfg.freeze_word_tables:
            freeze(model, tables)
        if self.cfg.tau:
            if not tables:
                raise UserError("--tau needs a model with word tables: --arch rnnsearch or rnnsearch_small")
            unigram = str(self.cfg.proposal) == "unigram"
            self.pages = PageTurner(model, self.cfg.tau, self.cfg.source_tau, self.tgt_dict.nspecial, unigram)
        return model

    def build_criterion(self, cfg, *args):
        criterion = super().build_criterion(cfg, *args)
        if self.cfg.tau and cfg._name != "partition_cross_entropy":
            raise UserError(f"--tau needs --criterion partition_cross_entropy, not {cfg._name}")
        return criterion

    @classmethod
    def load_dictionary(cls, filename):
        return load_dictionary(filename)

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        for folder in utils.split_paths(self.cfg.data):
            check_subset(folder, split)
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except FileNotFoundError as error:
            raise UserError(f"{error}: make it with fairseq-preprocess, or name another subset") from None
        if self.cfg.sort_window > 0 and not self.cfg.tau and split == self.cfg.train_subset:
            self.datasets[split] = LookAheadDataset(self.datasets[split], self.cfg.sort_window)

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        try:
            return super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        except Exception as error:  # upstream raises a bare Exception with a helpful text
            raise UserError(str(error)) from None

    def get_batch_iterator(self, dataset, *args, seed=1, epoch=1, num_shards=1, **kwargs):
        partitioned = None
        if self.cfg.tau and dataset is self.datasets.get(self.cfg.train_subset):
            partitioned = self._partitioned.get(dataset) or self.partition(dataset, seed, epoch, num_shards)
            if not self.cfg.reshuffle_partitions and len(self.cfg.update_freq) == 1:
                self._partitioned = {dataset: partitioned}
        try:
            iterator = super().get_batch_iterator(
                partitioned or dataset, *args, seed=seed, epoch=epoch, num_shards=num_shards, **kwargs
            )
        except AssertionError as error:  # upstream's answer to a sentence that fills more than a batch
            raise UserError(f"{error}: raise it, or leave such sentences out with --max-source-positions") from None
        if partitioned is not None:
            keep_partitions_together(iterator, partitioned)
            self.pages.follow(partitioned.plan, partitioned.targets)
        return iterator

    def partition(self, dataset, seed: int, epoch: int, num_shards: int) -> PartitionedDataset:
        update_freq = self.cfg.update_freq[min(epoch, len(self.cfg.update_freq)) - 1]
        order = np.arange(len(dataset))
        if self.cfg.reshuffle_partitions:
            order = np.random.default_rng([seed, epoch]).permutation(order)
        plan = partial(
            partition,
            sentences(dataset.tgt),
            tau=self.cfg.tau,
            specials=range(self.tgt_dict.nspecial),
            source=sentences(dataset.src),
            source_tau=self.cfg.source_tau,
        )
        result = PartitionedDataset(dataset, plan, order, self.cfg.sort_window, num_shards * update_freq)
        result.targets = plan.args[0]
        return result

    def inference_step(self, generator, models, sample, *args, **kwargs):
        """An empty line gets an empty translation; the model would invent one."""
        hypotheses = super().inference_step(generator, models, sample, *args, **kwargs)
        if isinstance(generator, SequenceGenerator):
            for sentence, length in zip(hypotheses, sample["net_input"]["src_lengths"].tolist()):
                if length <= 1:  # the end of the sentence alone
                    for hypothesis in sentence:
                        hypothesis["tokens"] = hypothesis["tokens"][-1:]
                        hypothesis["positional_scores"] = hypothesis["positional_scores"][-1:]
        return hypotheses

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


def check(cfg: LVTranslationConfig) -> None:
    """Say what is wrong or missing before fairseq runs into it."""
    for name in ("tau", "source_tau", "sort_window"):
        if getattr(cfg, name) < 0:
            raise UserError(f"--{name.replace('_', '-')} must be 0 or more, not {getattr(cfg, name)}")
    if cfg.tau:
        if cfg.store_ema:
            raise UserError("--store-ema walks over all words at every update: leave it out, or leave out --tau")
        if cfg.fp16 or cfg.memory_efficient_fp16 or cfg.memory_efficient_bf16:
            raise UserError("--tau pages float32 parameters: take --amp for half precision, not --fp16 and its kin")
        if cfg.distributed_world_size > 1 and str(cfg.ddp_backend) not in ("legacy_ddp", "no_c10d"):
            if str(cfg.ddp_backend) not in ("c10d", "pytorch_ddp"):
                raise UserError(f"--tau works with --ddp-backend legacy_ddp or pytorch_ddp, not {cfg.ddp_backend}")
            if not cfg.source_tau:
                raise UserError(
                    f"--ddp-backend {cfg.ddp_backend} cannot follow source pages that change their size: give "
                    "--source-tau N (lv-partition shows how many words there are), or take --ddp-backend legacy_ddp"
                )
    elif cfg.source_tau or cfg.reshuffle_partitions or str(cfg.proposal) != "uniform":
        raise UserError("--source-tau, --reshuffle-partitions and --proposal only work with partitions: give --tau N")
    languages(utils.split_paths(cfg.data)[0], cfg.source_lang, cfg.target_lang)
