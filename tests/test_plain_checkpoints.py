"""Checkpoints of fairseq without this plug-in are decoded and fine-tuned with it, and what comes out goes back."""

import contextlib
import io
from argparse import Namespace
from pathlib import Path

import fairseq.options
import fairseq_cli.generate
import pytest
import torch
from architectures import ARCHITECTURES
from conftest import PLUGIN, hypotheses, run_code
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from fairseq.models.transformer import TransformerModel
from fairseq.trainer import Trainer
from small_corpus import TAU, configure, converted, write_corpus

NAMES = ("transformer", "transformer-tied", "transformer-joined", "lstm", "lstm-tied", "fconv")
TRAIN = ("--optimizer", "adam", "--lr", 0.01, "--max-tokens", 100, "--num-workers", 0, "--disable-validation")
TRAIN += ("--no-epoch-checkpoints", "--max-update", 4)
PLAIN = ("--task", "translation", "--criterion", "cross_entropy")
DECODE = ("--beam", 3, "--max-len-b", 8, "--max-len-a", 0, "--num-workers", 0)

PROGRAM = """
import argparse, sys, torch
torch.serialization.add_safe_globals([argparse.Namespace])  # which torch's loader wants to be told
from fairseq_cli import generate, train
for name, arguments in {commands!r}:
    print("=", name, flush=True)
    sys.argv = ["fairseq", *arguments]
    (train if "--save-dir" in arguments else generate).cli_main()
    sys.stdout.flush()
assert {plain!r} != any(name.split(".")[0] == "lv_fairseq" for name in sys.modules)
"""


def commands(folder: Path, plain: bool, **each) -> dict:
    """What commands of fairseq print, one after the other in a process that knows this plug-in or does not."""
    listed = [(name, [str(x) for x in arguments]) for name, arguments in each.items()]
    result = run_code(PROGRAM.format(commands=listed, plain=plain), folder)
    assert result.returncode == 0, result.stderr
    parts = [part.split("\n", 1) for part in ("\n" + result.stdout).split("\n= ")[1:]]
    return dict(parts)


class Made:
    """Data, and what the two kinds of fairseq have made of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        for joined in (False, True):
            write_corpus(folder / str(joined), pairs=32, splits=("train", "valid", "test"), joined=joined)

    def data(self, name: str) -> Path:
        return self.folder / str(ARCHITECTURES[name].joined)

    def plain(self, name: str) -> Path:
        return self.folder / "plain" / name / "checkpoint_last.pt"

    def tuned(self, name: str) -> Path:
        return self.folder / "tuned" / name / "checkpoint_last.pt"

    def source_text(self, name: str) -> Path:
        data = self.data(name)
        words, path = Dictionary.load(str(data / "dict.src.txt")), data / "test.src"
        sentences = data_utils.load_indexed_dataset(str(data / "test.src-tgt.src"), words)
        path.write_text("".join(words.string(sentence) + "\n" for sentence in sentences))
        return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Checkpoints that fairseq trained without the plug-in, and what fairseq-train with it has made of each."""
    made = Made(tmp_path_factory.mktemp("made"))
    flags = {name: (made.data(name), *ARCHITECTURES[name].flags, *TRAIN) for name in NAMES}
    commands(made.folder, True, **{x: (*flags[x], *PLAIN, "--save-dir", made.plain(x).parent) for x in NAMES})
    tune = {x: (*PLUGIN, *TAU, 30, "--save-dir", made.tuned(x).parent) for x in NAMES}
    tune = {x: (*flags[x], *tune[x], "--finetune-from-model", made.plain(x)) for x in NAMES}
    commands(made.folder, False, **tune)
    return made


@pytest.fixture(scope="module")
def printed(made):
    """What fairseq-generate without the plug-in prints: for plain checkpoints translations, for fine-tuned ones scores
    of references."""
    decode = {x: (made.data(x), "--task", "translation", "--path", made.plain(x), *DECODE) for x in NAMES}
    score = {x: (made.data(x), "--task", "translation", "--path", made.tuned(x), *DECODE) for x in NAMES}
    both = {**decode, **{f"{x}.tuned": (*score[x], "--score-reference") for x in NAMES}}
    return commands(made.folder, True, **both)


def decode(data: Path, path: Path, *options) -> str:
    """What fairseq-generate with the plug-in prints."""
    flags = [str(x) for x in (data, "--task", "lv_translation", "--path", path, *DECODE, *options)]
    cfg = converted(fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), flags))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        fairseq_cli.generate.main(cfg)
    return printed.getvalue()


def scores(printed: str, kind: str) -> dict:
    """Numbers of the lines of a kind, by sentence."""
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith(f"{kind}-")]
    assert lines
    return {line[0]: [float(x) for x in line[1].split()] for line in lines}


def assert_same_scores(one: str, other: str, kind: str) -> None:
    mine, theirs = scores(one, kind), scores(other, kind)
    assert mine.keys() == theirs.keys()
    for sentence, numbers in mine.items():
        assert numbers == pytest.approx(theirs[sentence], abs=2e-4)  # printed with 4 digits


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_checkpoint_is_decoded_with_lists_and_replacement(made, printed, name):
    data, path = made.data(name), made.plain(name)
    words = len(Dictionary.load(str(data / "dict.tgt.txt")))
    own = decode(data, path, "--candidate-frequent", words - 4)
    assert hypotheses(own) == hypotheses(printed[name]) and len(hypotheses(own)) == 32
    assert_same_scores(own, printed[name], "P")
    unknown = ("--unkpen", -1000, "--unk-replacement", "copy", "--source-text", made.source_text(name))
    listed = decode(data, path, "--candidate-frequent", 10, "--print-candidates", *unknown)
    assert listed.count("\t14 words\t") == 32
    for source, translation in zip(made.source_text(name).read_text().splitlines(), hypotheses(listed)):
        assert translation and set(translation.split()) <= set(source.split())  # nothing but unknown words


@pytest.mark.parametrize("name", NAMES)
def test_what_is_fine_tuned_with_pages_gives_the_same_scores_in_plain_fairseq(made, printed, name):
    before, after = (torch.load(path, weights_only=False)["model"] for path in (made.plain(name), made.tuned(name)))
    assert list(before) == list(after)
    assert {x: value.shape for x, value in before.items()} == {x: value.shape for x, value in after.items()}
    changed = [x for x in before if not torch.equal(before[x], after[x])]
    assert any("embed_tokens" in x for x in changed) and any("embed_tokens" not in x for x in changed)
    own = decode(made.data(name), made.tuned(name), "--score-reference")
    assert_same_scores(own, printed[f"{name}.tuned"], "P")


def changed(path: Path, out: Path, change) -> Path:
    """A copy of a checkpoint, after ``change(state)``."""
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, out)
    return out


def odd(state) -> None:
    """Settings of somebody else's training, whose parts and files are not here."""
    state["cfg"]["task"].update(_name="their_task", data="/gone")
    state["cfg"]["criterion"].update(_name="their_criterion")
    state["cfg"]["common"].update(user_dir="/gone/plugin", fp16=True, memory_efficient_fp16=True)
    state["cfg"]["ema"].update(store_ema=True)
    state["cfg"]["distributed_training"].update(ddp_backend="fully_sharded", distributed_world_size=8)
    model = state["cfg"]["model"]
    model.encoder_embed_path = model.decoder_embed_path = "/gone/vectors"
    model.tau, model.freeze_word_tables, model.lexicon = "their tau", True, "/gone/lexicon"


def old(state) -> None:
    """As fairseq saved its settings before 2021."""
    state["args"], state["cfg"] = Namespace(**vars(state["cfg"]["model"])), None


@pytest.mark.parametrize("change", [odd, old])
@pytest.mark.parametrize("name", ["transformer-joined", "lstm"])
def test_what_a_plain_checkpoint_says_of_its_training_is_not_in_the_way(made, printed, tmp_path, name, change):
    path = changed(made.plain(name), tmp_path / "changed.pt", change)
    assert hypotheses(decode(made.data(name), path)) == hypotheses(printed[name])
    flags = (*TAU, 30, *TRAIN, "--finetune-from-model", path, "--save-dir", tmp_path)
    cfg, task, model, criterion = configure(made.data(name), *flags, model=ARCHITECTURES[name].flags)
    cfg.common.cpu = True
    checkpoint_utils.load_checkpoint(cfg.checkpoint, Trainer(cfg, task, model, criterion))
    assert all(torch.equal(value, model.state_dict()[x]) for x, value in torch.load(path)["model"].items())


def test_pythons_hub_takes_a_plain_checkpoint_to_this_task_and_back(made):
    name = "transformer-joined"
    lines = made.source_text(name).read_text().splitlines()[:4]

    def translations(path, task, **options):
        hub = TransformerModel.from_pretrained(str(path.parent), path.name, str(made.data(name)), task=task, **options)
        return hub.translate(lines, beam=3, max_len_a=0, max_len_b=8)

    for path in (made.plain(name), made.tuned(name)):
        own, theirs = {"_name": "lv_translation"}, {"_name": "translation"}
        assert translations(path, own) == translations(path, theirs)
        listed = translations(path, {**own, "candidate_frequent": 5})
        frequent = {line.split()[0] for line in (made.data(name) / "dict.tgt.txt").read_text().splitlines()[:5]}
        assert set(" ".join(listed).split()) <= frequent
