"""Small things that several tests share. Commands run as a user runs them, from the root of the project."""

import atexit
import contextlib
import functools
import io
import os
import random
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import fairseq.options
import fairseq_cli.generate
import hypothesis
import networks
import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from forking import Forker

import lv_fairseq
from lv_fairseq import Lexicon
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.models.rnnsearch import RNNSearchConfig, RNNSearchModel

lv_fairseq.register()

# under nohup, or behind a shell's &, these are ignored, also by the commands that tests send them to
for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

hypothesis.settings.register_profile("busy machine", hypothesis.settings(), deadline=None)  # a test asserts no time
hypothesis.settings.load_profile("busy machine")

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PATIENCE = 300  # seconds to wait for a process: on a busy machine it takes long to import torch


FORKED = ("fairseq-", "lv-partition")  # commands that import torch


@functools.cache
def forker() -> Forker:
    started = Forker()
    atexit.register(started.close)
    return started


def run_code(code: str, folder: Path) -> subprocess.CompletedProcess:
    """Run a user's own program, which may use torch and fairseq."""
    script = folder / "program.py"
    script.write_text(code, encoding="utf-8")
    return forker().run([str(script)], None, ROOT, {**os.environ, "PYTHONIOENCODING": "utf-8"})


def run(*command, stdin=None, check=True, bin=BIN, cwd=ROOT) -> subprocess.CompletedProcess:
    """Run an installed command; the result has stdout and stderr as text."""
    words = [str(Path(bin) / command[0]), *map(str, command[1:])]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    if bin == BIN and str(command[0]).startswith(FORKED):
        result = forker().run(words, stdin, cwd, env)
    else:
        result = subprocess.run(words, input=stdin, capture_output=True, text=True, encoding="utf-8", cwd=cwd, env=env)
    if check and result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result


@pytest.fixture(scope="module")
def signals_as_before():
    """A command sets what signals do, for its own process; here it runs in that of the tests."""
    before = {name: signal.getsignal(name) for name in (signal.SIGPIPE, signal.SIGTERM)}
    yield
    for name, handler in before.items():
        signal.signal(name, handler)


def printed_in_ascii(function, *args) -> bytes:
    """What a function prints where nothing but ASCII can be written."""
    printed = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(printed, "ascii")) as stdout:
        function(*args)
        stdout.flush()
    return printed.getvalue()


def make_corpus(folder: Path, *options) -> Path:
    run("python", "scripts/demo_corpus.py", "--out", folder, *options)
    return folder


def preprocess(text: Path, folder: Path, *options, bin=BIN) -> Path:
    pairs = [x for split in ("train", "valid", "test") for x in (f"--{split}pref", text / split)]
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *pairs, "--destdir", folder, *options, bin=bin)
    return folder


def hypotheses(generated: str) -> list:
    """The best hypotheses that fairseq-generate or fairseq-interactive printed, in the order of the input."""
    lines = [line.split("\t") for line in generated.splitlines() if line.startswith("D-")]
    return [text for number, _, text in sorted((int(number[2:]), score, text) for number, score, text in lines)]


PLUGIN = ("--user-dir", "lv_fairseq", "--task", "lv_translation")
SMALL = ("--arch", "rnnsearch_small", "--encoder-embed-dim", 64, "--encoder-hidden-size", 96, "--decoder-embed-dim", 64)
SMALL += ("--decoder-hidden-size", 96, "--decoder-out-embed-dim", 64, "--attention-dim", 64, "--readout-dim", 64)
LOG = ("--log-format", "simple", "--log-interval", 50)
ADAM = ("--optimizer", "adam", "--lr", 0.005, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 100)
ADAM += ("--clip-norm", 1.0, "--dropout", 0.1, "--criterion", "cross_entropy", "--max-tokens", 1000)


def train(data, save, *options, check=True, **how):
    return run("fairseq-train", data, *PLUGIN, "--save-dir", save, *LOG, *options, check=check, **how)


def generate(data, model, *options, **how):
    return run("fairseq-generate", data, *PLUGIN, "--path", model, *options, **how).stdout


def generate_here(data, model, *options) -> str:
    """What fairseq-generate prints, without a process of its own, nor one that reads data (to end that takes 5 s)."""
    flags = [str(x) for x in (data, "--task", "lv_translation", "--path", model, "--num-workers", 0, *options)]
    args = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), flags)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        fairseq_cli.generate.main(args)
    return printed.getvalue()


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    options = ("--lemmas", 60, "--max-clauses", 1, "--pairs", 4000, "--valid", 200, "--test", 200)
    return make_corpus(tmp_path_factory.mktemp("text"), *options)


@pytest.fixture(scope="session")
def data(text, tmp_path_factory):
    return preprocess(text, tmp_path_factory.mktemp("data") / "bin")


SEED = 7  # with other weights some candidates may be too near to each other to keep their order on every machine
DRAWN = ("encoder_embed_dim", "encoder_hidden_size", "decoder_embed_dim", "decoder_hidden_size")
DRAWN = {name: 16 for name in (*DRAWN, "decoder_out_embed_dim", "attention_dim", "readout_dim")}


@pytest.fixture(scope="session")
def drawn(data, tmp_path_factory):
    """A folder with two checkpoints of random weights for `data`, one.pt and two.pt."""
    folder = tmp_path_factory.mktemp("drawn")
    for seed, name in enumerate(("one.pt", "two.pt")):
        networks.drawn(folder / name, data, SEED + seed, **DRAWN)
    return folder


RARE = 15
WORDS = {**{f"s{i}": f"t{i}" for i in range(40)}, **{f"rare{i}": f"selten{i}" for i in range(RARE)}}
SPECIAL = ("s1 </s> Mc1 s2 Mc2", "Mc1 <pad> Mc2 s3 <s> Mc3 s4", "<pad> s5 </s> </s> Mc4", "")


def sentence(chance: random.Random):
    """Source and target words: common words s0 ... s39, some rare words, and names that occur nowhere else."""
    source, target = [], []
    for _ in range(chance.randint(4, 8)):
        kind = chance.random()
        if kind < 0.8:
            word = f"s{chance.randrange(40)}"
        elif kind < 0.9:
            word = f"rare{chance.randrange(RARE)}"
        else:
            word = chance.choice(["Mc", "O'", "1", "Ł"]) + str(chance.randrange(10**9))
        source.append(word)
        target.append(WORDS.get(word, word))
    return source, target


@pytest.fixture(scope="session")
def names(tmp_path_factory):
    """Text, data, lexicon and a checkpoint, model.pt, of this language. Rare source words are in no dictionary, so that
    the network writes <unk> for them and for names. Special symbols, or nothing, are in the first lines of valid."""
    folder = tmp_path_factory.mktemp("names")
    chance = random.Random(1)
    for split, size in (("train", 600), ("valid", 46), ("test", 60)):
        pairs = [sentence(chance) for _ in range(size)]
        if split == "valid":
            pairs = [(line.split(), line.split()) for line in SPECIAL] + pairs
        for side, name in enumerate(("src", "tgt")):
            (folder / f"{split}.{name}").write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs), "utf-8")
    preprocess(folder, folder / "data", "--nwordssrc", 44, "--nwordstgt", 44 + RARE)
    entries = Entries()
    entries.add(
        [word.encode() for word in WORDS], [word.encode() for word in WORDS.values()], np.full(len(WORDS), -0.1)
    )
    Lexicon.of(entries, {"dictionaries": {}}).save(folder / "lexicon")
    networks.word_for_word(folder / "model.pt", folder / "data", WORDS.get)
    return folder


SIZES = dict(
    encoder_embed_dim=5,
    encoder_hidden_size=6,
    decoder_embed_dim=4,
    decoder_hidden_size=7,
    decoder_out_embed_dim=3,
    attention_dim=8,
    readout_dim=9,
)


def dictionary(words: int) -> Dictionary:
    result = Dictionary()
    for i in range(words - len(result)):
        result.add_symbol(f"word{i}")
    return result


@pytest.fixture
def build():
    """Build a tiny model whose weights are far from zero, so that no term can hide."""

    def make(source_words=11, target_words=13, **changes) -> RNNSearchModel:
        torch.manual_seed(1)
        source, target = dictionary(source_words), dictionary(target_words)
        task = Namespace(source_dictionary=source, target_dictionary=target, cfg=Namespace())
        model = RNNSearchModel.build_model(RNNSearchConfig(**{**SIZES, **changes}), task)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        return model.eval()

    return make
