"""A checkpoint holds the settings of its training. Where it is used they are not in the way."""

import logging

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from fairseq import checkpoint_utils
from fairseq.models.transformer import TransformerModel
from fairseq.trainer import Trainer
from networks import save
from small_corpus import TAU, configure, train_epochs, write_corpus
from test_plain_checkpoints import decode

from lv_fairseq import Lexicon, UserError
from lv_fairseq.batching.hidden_words import HidingDataset
from lv_fairseq.lexicon.entries import Entries

FLAGS = ARCHITECTURES["transformer-joined"].flags
ADAM = ("--optimizer", "adam", "--lr", 0.01, "--num-workers", 0)
LINES = ["src1 src2 both5 src3", "src7 both0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data; a checkpoint trained with every flag of ours, own.pt; the files that these name, in a folder; and a plain
    checkpoint of the same weights, plain.pt."""
    folder = tmp_path_factory.mktemp("settings")
    data = write_corpus(folder / "data", pairs=24, splits=("train", "valid", "test"), joined=True)
    files = folder / "files"
    files.mkdir()
    entries = Entries()
    entries.add([b"src1", b"src2"], [b"tgt1", b"tgt2"], np.array([-0.1, -0.1]))
    Lexicon.of(entries, {"dictionaries": {}}).save(files / "lexicon")
    (files / "counts").write_text((data / "dict.tgt.txt").read_text())
    (files / "text").write_text("anything\n")
    flags = (*TAU, 30, "--source-tau", 60, "--reshuffle-partitions", "--proposal", "unigram", "--freeze-word-tables")
    flags += ("--hide-rare-words", 5, "--sort-window", 9, "--validation-vocab", "candidates", "--lexicon")
    flags += (files / "lexicon", "--candidate-frequent", 20, "--candidate-per-word", 2, "--candidate-source-words")
    flags += ("--frequent-words", files / "counts", "--candidate-scope", "batch", "--source-text", files / "text")
    flags += ("--unk-replacement", "lexicon")
    train_epochs(*configure(data, *ADAM, *flags, model=FLAGS), save=folder / "own.pt")
    weights = torch.load(folder / "own.pt", weights_only=True)["model"]
    cfg, *_ = configure(data, *ADAM, "--criterion", "cross_entropy", model=FLAGS)
    save(folder / "plain.pt", cfg, weights)
    return folder


@pytest.fixture
def gone(folder):
    """The files of the training are somewhere else for a while."""
    (folder / "files").rename(folder / "elsewhere")
    yield folder
    (folder / "elsewhere").rename(folder / "files")


def hub(folder, name="own.pt", **options):
    return TransformerModel.from_pretrained(str(folder), name, str(folder / "data"), **options)


def translations(model) -> list:
    return model.translate(LINES, beam=3, max_len_a=0, max_len_b=8)


def said(caplog) -> list:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_in_fairseq_generate_flags_decide(gone, caplog):
    with caplog.at_level(logging.WARNING):
        for options in ((), ("--candidate-frequent", 10), ("--unk-replacement", "copy")):
            own, plain = (decode(gone / "data", gone / name, *options) for name in ("own.pt", "plain.pt"))
            assert own == plain and "D-" in own
    assert not said(caplog)


def test_in_the_hub_training_is_over_and_what_is_gone_is_told_in_one_line(gone, caplog):
    with caplog.at_level(logging.WARNING):
        model = hub(gone)
    (line,) = said(caplog)
    assert all(name in line for name in ("lexicon", "counts", "text", "gone")) and "\n" not in line
    assert model.task.decoding.lists is None and model.task.cfg.tau == 0
    assert all(parameter.requires_grad for parameter in model.models[0].parameters())
    assert translations(model) == translations(hub(gone, "plain.pt"))
    model.task.load_dataset("train")
    assert not isinstance(model.task.dataset("train"), HidingDataset)
    assert hub(gone, fp16=True).task.cfg.tau == 0  # which --tau would refuse


def test_in_the_hub_what_is_named_now_decides(gone, folder):
    options = {"candidate_frequent": 10, "unk_replacement": "copy"}
    own, plain = (hub(gone, name, **options) for name in ("own.pt", "plain.pt"))
    assert len(own.task.decoding.lists.common) == 14 and own.task.decoding.rule == "copy"
    assert translations(own) == translations(plain)
    moved = hub(gone, lexicon=str(gone / "elsewhere" / "lexicon"))
    assert moved.task.decoding.lexicon is not None
    for wrong, what in (
        ({"lexicon": "/typed/wrong"}, "there is no lexicon /typed/wrong"),
        ({"source_text": "/typed/wrong"}, "there is no text /typed/wrong"),
        ({"candidate_frequent": 5, "frequent_words": "/typed/wrong"}, "/typed/wrong is not there"),
        ({"unk_replacement": "lexicon"}, "needs a lexicon"),
        ({"candidate_per_word": 5}, "needs? .*lexicon|takes words from a lexicon"),
    ):
        with pytest.raises(UserError, match=what):
            hub(gone, **wrong)


def test_in_the_hub_lists_of_the_training_are_used_while_their_files_are_there(folder, caplog):
    with caplog.at_level(logging.WARNING):
        model = hub(folder)
    assert not said(caplog) and len(model.task.decoding.lists.common) == 24


@pytest.mark.parametrize("flags", [("--finetune-from-model",), ("--reset-optimizer", "--restore-file")])
def test_a_training_that_starts_from_it_follows_its_own_flags(gone, tmp_path, flags):
    flags += (gone / "own.pt", "--save-dir", tmp_path)
    if "--restore-file" in flags:
        flags += ("--reset-dataloader", "--reset-meters", "--reset-lr-scheduler")
    cfg, task, model, criterion = configure(
        gone / "data", *ADAM, "--criterion", "partition_cross_entropy", *flags, model=FLAGS
    )
    cfg.common.cpu = True
    trainer = Trainer(cfg, task, model, criterion)
    _, iterator = checkpoint_utils.load_checkpoint(cfg.checkpoint, trainer)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    saved = torch.load(gone / "own.pt", weights_only=True)["model"]
    assert task.pages is None and all(torch.equal(before[name], saved[name]) for name in saved)
    trainer.begin_epoch(1)
    trainer.train_step([next(iterator.next_epoch_itr())])
    after = model.state_dict()
    assert not torch.equal(after["decoder.embed_tokens.weight"], before["decoder.embed_tokens.weight"])
    assert task.decoding.lists is None
