"""Files of version 0.1.0: still read, with the same translations, and trained on."""

import shutil

import pytest
import torch
from conftest import PLUGIN, ROOT, hypotheses, run

DATA = ROOT / "tests" / "data" / "0.1.0"
LANGUAGES = ("-s", "src", "-t", "tgt", "--cpu")
SIZES = {"encoder_embed": 8, "decoder_embed": 8, "decoder_out_embed": 8, "attention": 8, "readout": 8}
MODEL = ["--arch", "rnnsearch_small", "--encoder-hidden-size", 8, "--decoder-hidden-size", 12]
MODEL += [x for name, size in SIZES.items() for x in (f"--{name.replace('_', '-')}-dim", size)]
TRAINING = (
    "--tau",
    10,
    "--criterion",
    "partition_cross_entropy",
    "--optimizer",
    "adam",
    "--lr",
    0.02,
    "--clip-norm",
    1.0,
)
TRAINING += ("--lr-scheduler", "inverse_sqrt", "--warmup-updates", 50, "--max-tokens", 200, "--no-epoch-checkpoints")


def decoded(checkpoint) -> str:
    """What fairseq-generate prints over candidate lists, with unknown words replaced."""
    flags = ("--beam", 3, "--candidate-frequent", 4, "--candidate-per-word", 2, "--lexicon", DATA / "lexicon")
    flags += ("--unk-replacement", "lexicon-lowercase", "--source-text", DATA / "test.src")
    return run("fairseq-generate", DATA, *PLUGIN, *LANGUAGES, "--path", checkpoint, *flags).stdout


def test_a_checkpoint_and_a_lexicon_of_0_1_0_translate_as_they_did():
    printed = decoded(DATA / "checkpoint.pt")
    before = [line.split("\t") for line in (DATA / "translations").read_text(encoding="utf-8").splitlines()]
    assert hypotheses(printed) == [text for _, text in before]
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("H-")]
    scores = [float(score) for _, score, _ in sorted(lines, key=lambda line: int(line[0][2:]))]
    assert scores == pytest.approx([float(score) for score, _ in before], abs=1e-3)


def test_a_training_of_0_1_0_goes_on(tmp_path):
    shutil.copy(DATA / "checkpoint.pt", tmp_path / "checkpoint_last.pt")
    text = ("--train-subset", "test", "--disable-validation", "--max-epoch", 16, "--save-dir", tmp_path)
    run("fairseq-train", DATA, *PLUGIN, *LANGUAGES, *MODEL, *TRAINING, *text)
    before, after = (
        torch.load(path, weights_only=True) for path in (DATA / "checkpoint.pt", tmp_path / "checkpoint_last.pt")
    )
    updates = after["optimizer_history"][-1]["num_updates"]
    assert before["optimizer_history"][-1]["num_updates"] == 810 < updates
    steps = {int(state["step"]) for state in after["last_optimizer_state"]["state"].values()}
    assert steps == {updates}  # the statistics were taken over, not begun again
    assert after["model"].keys() == before["model"].keys()
    assert any(not torch.equal(after["model"][name], before["model"][name]) for name in before["model"])
