"""A binarised corpus of a few hundred sentences in a moment, and what fairseq-train makes of its flags for it."""

import copy
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from conftest import PLUGIN, SIZES
from fairseq import options, tasks, utils
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.iterators import GroupedIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.trainer import Trainer

MODEL = (
    "--arch",
    "rnnsearch_small",
    *(x for name, size in SIZES.items() for x in (f"--{name.replace('_', '-')}", size)),
)
TAU = ("--criterion", "partition_cross_entropy", "--tau")


def write_corpus(
    folder: Path, pairs: int = 200, words: int = 61, seed: int = 1, splits=("train", "valid"), joined: bool = False
) -> Path:
    """Sentences of 1 to 9 words, all of which occur; the dictionaries get filler words up to a multiple of 8.

    Args:
        words: of each language
        joined: both languages have one dictionary, and every fifth word in common
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    dictionaries = {"src": Dictionary(), "tgt": Dictionary()}
    if joined:
        dictionaries["tgt"] = dictionaries["src"]
    numbers = np.array([[add(*pair, i, words, joined) for pair in dictionaries.items()] for i in range(words)])
    for side, (language, dictionary) in enumerate(dictionaries.items()):
        dictionary.pad_to_multiple_(8)
        dictionary.save(str(folder / f"dict.{language}.txt"))
        for split in splits:
            builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{folder}/{split}.src-tgt.{language}.bin", np.uint16)
            for i in range(pairs):
                others = random.zipf(1.2, random.integers(0, 9)) % words
                builder.add_item(torch.tensor([*numbers[[i % words, *others], side], 2]))
            builder.finalize(f"{folder}/{split}.src-tgt.{language}.idx")
    return folder


def add(language: str, dictionary: Dictionary, i: int, words: int, joined: bool) -> int:
    """Add word i of a language to its dictionary; the number that it gets."""
    return dictionary.add_symbol(f"both{i}" if joined and i % 5 == 0 else f"{language}{i}", words - i)


def configure(data, *flags, model=MODEL):
    """Configuration, task, model and criterion, before the first update."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(x) for x in (data, *PLUGIN, *model, "--max-tokens", 60, *flags)])
    cfg = converted(args)
    utils.set_torch_seed(cfg.common.seed)
    np.random.seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    return cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion)


CONVERTED = {}
NAMED = ("task", "arch", "criterion", "optimizer", "lr_scheduler")


def converted(args: Namespace):
    """fairseq's configuration. It takes a third of a second to make, so flags that differ in values only share one."""
    named = frozenset(vars(args)), *(getattr(args, name, None) for name in NAMED)
    if named not in CONVERTED:
        CONVERTED[named] = args, convert_namespace_to_omegaconf(args)
    first, cfg = CONVERTED[named][0], copy.deepcopy(CONVERTED[named][1])
    others = {name: value for name, value in vars(args).items() if vars(first)[name] != value}
    with omegaconf_no_object_check():
        for part, settings in cfg.items():
            if isinstance(settings, Namespace):  # which deepcopy has not copied
                cfg[part] = Namespace(**{**vars(settings), **others})
            elif settings is not None:
                settings.update({name: others[name] for name in others.keys() & settings.keys()})
    return cfg


def train_iterator(cfg, task, epoch: int = 1, num_shards: int = 1, num_workers: int = 0):
    """The iterator of an epoch, asked for as fairseq's trainer does."""
    if "train" not in task.datasets:
        task.load_dataset("train", epoch=epoch, combine=True)
    return task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=cfg.dataset.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), (int(1e5), int(1e5)), cfg.dataset.max_tokens),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
        seed=cfg.common.seed,
        num_shards=num_shards,
        num_workers=num_workers,
        epoch=epoch,
        data_buffer_size=cfg.dataset.data_buffer_size,
    )


def train_epochs(cfg, task, model, criterion, epochs=(1,), resume=None, save=None, **reset) -> Trainer:
    """fairseq's trainer, from a checkpoint if there is one (but for what is to be reset), through some epochs."""
    cfg.common.cpu = True
    trainer = Trainer(cfg, task, model, criterion)
    if resume is not None:
        trainer.load_checkpoint(str(resume), **reset)
    for epoch in epochs:
        iterator = trainer.get_train_iterator(epoch, load_dataset=epoch == epochs[0])
        trainer.begin_epoch(epoch)
        for samples in GroupedIterator(iterator.next_epoch_itr(), 1):
            trainer.train_step(samples)
    if save is not None:
        trainer.consolidate_optimizer()
        place = {"train_iterator": iterator.state_dict()} if epochs else {}
        trainer.save_checkpoint(str(save), {**place, "val_loss": 0.0})
    return trainer
