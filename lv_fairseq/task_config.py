"""The options that a task gains here, and what can be wrong with them."""

import logging
import os
import sys
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, Optional

from fairseq import utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks.translation import TranslationConfig
from omegaconf import II

from lv_fairseq.candidates.common_list import need_file
from lv_fairseq.data_folder import check_shards, languages
from lv_fairseq.decoding import ALIGNMENTS, RULES
from lv_fairseq.errors import UserError

logger = logging.getLogger(__name__)


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class LargeVocabularyConfig(FairseqDataclass):
    """Of every task. Where a task takes its options from argparse they are added to the parser (`add_options`)."""

    tau: int = _option(
        0,
        "training runs over partitions of the corpus with at most this many target words each (words of both languages "
        "if they share one table), every update over the words of its partition only; needs --criterion "
        "partition_cross_entropy; 0 = no partitions, all words always",
    )
    source_tau: int = _option(0, "most source words of a partition; 0 = as many as its sentences hold")
    reshuffle_partitions: bool = _option(
        False,
        "a new order of sentences and new partitions every epoch, so that words meet other words (default: the "
        "order of the corpus, the same partitions every epoch)",
    )
    word_table_dir: Optional[str] = _option(
        None,
        "a folder on a local disk: all words, with the optimiser's statistics, live there in files without a name, of "
        "which memory holds what is in use, for tables larger than memory; a row is drawn when its word first comes. "
        "Checkpoints get a folder for the tables beside a small .pt (move both; lv-checkpoint makes one ordinary .pt)",
    )
    freeze_word_tables: bool = _option(
        False, "the paper's last stage: word vectors stay as they are, the rest of the model is tuned"
    )
    proposal: ChoiceEnum(["uniform", "unigram"]) = _option(
        "uniform",
        "the proposal Q of the paper's importance weights: all words of a partition alike, which cancels out, or as "
        "frequent as they are in it",
    )
    hide_rare_words: float = _option(
        0.0,
        "A: in training a word seen n times is read as unknown with probability A / (A + n), on both sides at once (a "
        "word of both sentences, or with --lexicon a word and its translation), so that a model with all words learns "
        "to ask for the replacement of names; 0 = off",
    )
    sort_window: int = _option(
        0,
        "training sentences read ahead and sorted by length together (the paper's 20 batches of 80: 1600); "
        "0 = sort the whole corpus, as fairseq does, or the whole partition",
    )
    validation_vocab: ChoiceEnum(["full", "candidates"]) = _option(
        "full",
        "what partition_cross_entropy validates over: all words, exactly, in bounded memory, or each sentence's "
        "candidate list, where a word outside the list counts as unknown",
    )
    lexicon: Optional[str] = _option(None, "translations of source words, made by lv-lexicon build")
    candidate_frequent: int = _option(
        0, "K: each candidate list holds the K most frequent target words; 0 without --candidate-per-word = all words"
    )
    candidate_per_word: Optional[int] = _option(
        None,
        "K': and at most K' translations from --lexicon of each source word (default: 10 if K and --lexicon are given)",
    )
    frequent_words: Optional[str] = _option(
        None,
        "which words are the K most frequent: by the counts of this tokenised target text or of this dictionary with "
        "counts (each line a word and its count), which is read faster; give it if the dictionary is joined or is not "
        "sorted by target frequency (default: the order of the target dictionary)",
    )
    candidate_source_words: bool = _option(
        False,
        "source words that are also in the target dictionary, written alike, join the list: names, numbers, subwords "
        "of a joined dictionary",
    )
    candidate_scope: ChoiceEnum(["sentence", "batch", "corpus"]) = _option(
        "sentence",
        "who shares a list: nobody, so that a translation does not depend on what else is in its batch; the sentences "
        "of a batch; or all of the input, as in the paper",
    )
    candidate_retries: int = _option(
        2,
        "how often a sentence of which no hypothesis comes to its end inside its list, before the longest length that "
        "is allowed, is decoded again with twice the K and K'; 0 = never",
    )
    unk_replacement: ChoiceEnum(list(RULES)) = _option(
        "none",
        "what to put in the place of an unknown word, by the source word that it stands for: that word (copy); its "
        "best translation in --lexicon, if there is one (lexicon); the same, but only if the source word begins with a "
        "lowercase letter, the paper's rule (lexicon-lowercase)",
    )
    unk_alignment: ChoiceEnum(list(ALIGNMENTS)) = _option(
        "unknown-first",
        "which source word an unknown word stands for: a source word outside the dictionary that has none yet, if its "
        "attention weight is not far below the largest, else the one with the largest (unknown-first: on held-out text "
        "646 of 721 made-up names arrived, 520 with the other rule); the one with the largest, always, the paper's "
        "rule (largest)",
    )
    copy_rare_words: int = _option(
        0,
        "source words that were seen at most this often in training, that the target dictionary has too, written "
        "alike (names, numbers), and that --lexicon translates by no other word, unless capitalised, are read as "
        "unknown, and so copied by --unk-replacement: for models trained with --hide-rare-words A, A or more; 0 = off",
    )
    alignment_layer: Optional[int] = _option(
        None,
        "the layer of a transformer's decoder, from 0, whose attention --unk-replacement goes by (default: the "
        "one that transformer_align was trained to align with, else the last)",
    )
    alignment_heads: Optional[int] = _option(
        None,
        "how many heads of that layer, from the first on: their mean is taken (default: those that transformer_align "
        "was trained to align with, else all)",
    )
    source_text: Optional[str] = _option(
        None,
        "for fairseq-generate: the tokenised source text of the subset, so that words outside the dictionary can be "
        "copied (fairseq-interactive needs no flag)",
    )
    print_candidates: bool = _option(
        False,
        "print for each sentence (L-) the size of its candidate list, and which words of the reference, or words typed "
        "after a tab in fairseq-interactive, were outside it and why",
    )
    ensemble_mean: ChoiceEnum(["probability", "log-probability"]) = _option(
        "probability",
        "an ensemble takes the mean of probabilities, as fairseq does, or of log-probabilities, as the paper's code",
    )
    pack_weights: bool = _option(
        False,
        "on a CPU in single precision: large weights are laid out for the processor once and not at each product, "
        "which takes as much memory again and is faster with few hypotheses at a time (small batches with a beam); "
        "last digits of scores may differ; training takes no notice",
    )
    # fairseq's own option by which it joins pieces of words
    post_process: Optional[str] = II("common_eval.post_process")
    # fairseq's own options that partitions depend on
    update_freq: Any = II("optimization.update_freq")
    seed: int = II("common.seed")
    store_ema: bool = II("ema.store_ema")
    tpu: bool = II("common.tpu")
    use_bmuf: bool = II("optimization.use_bmuf")
    zero_sharding: Any = II("distributed_training.zero_sharding")
    find_unused_parameters: bool = II("distributed_training.find_unused_parameters")
    distributed_world_size: int = II("distributed_training.distributed_world_size")
    ddp_backend: Any = II("distributed_training.ddp_backend")
    # and those that name the checkpoint whose words are read
    path: Optional[str] = II("common_eval.path")
    save_dir: Optional[str] = II("checkpoint.save_dir")
    restore_file: Optional[str] = II("checkpoint.restore_file")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


@dataclass
class LVTranslationConfig(LargeVocabularyConfig, TranslationConfig):
    pass


@dataclass
class LVTranslationFromPretrainedBARTConfig(LVTranslationConfig):
    langs: Optional[str] = _option(
        None, "all languages of the pretrained model, separated by commas, in the order of their tokens"
    )
    prepend_bos: bool = _option(False, "begin each sentence with <s>, as the pretraining of mBART does")


def add_options(parser) -> None:
    """To the parser of a task that has no dataclass."""
    gen_parser_from_dataclass(parser, LargeVocabularyConfig())


def complete(cfg) -> None:
    """Let settings that argparse made have every option: a command lacks those that it has no use for."""
    if isinstance(cfg, Namespace):
        for name, option in LargeVocabularyConfig.__dataclass_fields__.items():
            if not hasattr(cfg, name):
                elsewhere = str(option.default).startswith("${")
                setattr(cfg, name, None if elsewhere else option.default)


TRAINING = (
    "tau",
    "word_table_dir",
    "source_tau",
    "reshuffle_partitions",
    "freeze_word_tables",
    "proposal",
    "hide_rare_words",
)
TRAINING += ("sort_window",)
LISTS = ("lexicon", "frequent_words", "candidate_frequent", "candidate_per_word", "candidate_source_words")
LISTS += ("candidate_scope", "print_candidates", "validation_vocab")


def leave_out_training(cfg: LargeVocabularyConfig, overrides: Dict[str, Any]) -> None:
    """Of settings that come from a checkpoint: its training is over, and files that it read may be gone.

    Args:
        overrides: what a user has named in their place, and what stays therefore
    """
    named = {**overrides, **(overrides["task"] if isinstance(overrides.get("task"), dict) else {})}
    files = {name: getattr(cfg, name) for name in ("lexicon", "frequent_words", "source_text") if name not in named}
    gone = {name: path for name, path in files.items() if path and not os.path.exists(path)}
    needless = {*TRAINING, *gone, *(LISTS if {"lexicon", "frequent_words"} & set(gone) else ())}
    if "lexicon" in gone and str(cfg.unk_replacement).startswith("lexicon"):
        needless |= {"unk_replacement", "copy_rare_words"}
    if gone:
        what = " and ".join(f"--{name.replace('_', '-')} {path}" for name, path in gone.items())
        logger.warning("the checkpoint was trained with %s, which is gone: left out, with all that needs it", what)
    for name in needless - set(named):
        setattr(cfg, name, LargeVocabularyConfig.__dataclass_fields__[name].default)


def check(cfg: LargeVocabularyConfig) -> None:
    """Say what is wrong or missing before fairseq runs into it."""
    for name in ("tau", "source_tau", "sort_window", "hide_rare_words"):
        if not getattr(cfg, name) >= 0:
            raise UserError(f"--{name.replace('_', '-')} must be 0 or more, not {getattr(cfg, name)}")
    if cfg.tau:
        if cfg.store_ema:
            raise UserError("--store-ema walks over all words at every update: leave it out, or leave out --tau")
        if cfg.tpu:
            raise UserError(
                "--tau trains on GPUs and CPUs: leave out --tpu (and --bf16, which implies it with torch_xla)"
            )
        if cfg.use_bmuf:
            raise UserError("--use-bmuf averages pages of different words: leave it out, or leave out --tau")
        if str(cfg.zero_sharding) != "none":
            raise UserError(f"--zero-sharding {cfg.zero_sharding} cannot divide pages among workers: leave it out")
        if cfg.distributed_world_size > 1 and str(cfg.ddp_backend) not in ("legacy_ddp", "no_c10d"):
            if str(cfg.ddp_backend) not in ("c10d", "pytorch_ddp"):
                raise UserError(f"--tau works with --ddp-backend legacy_ddp or pytorch_ddp, not {cfg.ddp_backend}")
        if cfg.word_table_dir is not None and not os.path.isdir(cfg.word_table_dir):
            raise UserError(f"there is no folder {cfg.word_table_dir} for --word-table-dir: make one on a local disk")
    elif cfg.word_table_dir is not None:
        raise UserError("--word-table-dir only works with partitions: give --tau N")
    elif cfg.source_tau or cfg.reshuffle_partitions or str(cfg.proposal) != "uniform":
        raise UserError("--source-tau, --reshuffle-partitions and --proposal only work with partitions: give --tau N")
    check_decoding(cfg)


def check_folders(cfg: TranslationConfig) -> None:
    """The same of data of one language pair."""
    folders = utils.split_paths(cfg.data)
    check_shards(folders, *languages(folders[0], cfg.source_lang, cfg.target_lang))


def check_decoding(cfg: LargeVocabularyConfig) -> None:
    """What can be said of the flags for decoding before dictionaries and lexicon are read."""
    per_word = cfg.candidate_per_word
    for name in ("candidate_frequent", "candidate_per_word", "candidate_retries", "copy_rare_words"):
        if (getattr(cfg, name) or 0) < 0:
            raise UserError(f"--{name.replace('_', '-')} must be 0 or more, not {getattr(cfg, name)}")
    if per_word and cfg.lexicon is None:
        raise UserError("--candidate-per-word takes words from a lexicon: name one with --lexicon")
    if str(cfg.unk_replacement).startswith("lexicon") and cfg.lexicon is None:
        raise UserError(
            f"--unk-replacement {cfg.unk_replacement} needs a lexicon: name one with --lexicon, or take copy"
        )
    if cfg.lexicon is not None and not os.path.exists(cfg.lexicon):
        raise UserError(f"there is no lexicon {cfg.lexicon}: make it with lv-lexicon build")
    if cfg.source_text is not None and not os.path.isfile(cfg.source_text):
        raise UserError(f"there is no text {cfg.source_text} for --source-text")
    if cfg.frequent_words is not None:
        if not cfg.candidate_frequent:
            raise UserError("--frequent-words says which words are the K most frequent: give --candidate-frequent K")
        need_file(cfg.frequent_words)
    lists = cfg.candidate_frequent or per_word
    about_lists = {
        "--candidate-scope": str(cfg.candidate_scope) != "sentence",
        "--candidate-source-words": cfg.candidate_source_words,
        "--print-candidates": cfg.print_candidates,
    }
    for flag, given in about_lists.items():
        if given and not lists:
            raise UserError(f"{flag} is about candidate lists: give --candidate-frequent K")
    if str(cfg.candidate_scope) == "corpus" and "fairseq_cli.interactive" in sys.modules:
        raise UserError(
            "--candidate-scope corpus needs the whole input at once, which fairseq-interactive does not have: take "
            "sentence or batch, or fairseq-generate"
        )
    if not lists and str(cfg.validation_vocab) == "candidates":
        raise UserError("--validation-vocab candidates needs candidate lists: give --candidate-frequent K")
