"""fairseq's own commands with this plug-in, run as a user runs them, from fresh text to scored translations."""

import json
import re
import tempfile
from pathlib import Path

import networks
import pytest
import sacrebleu
import torch
from conftest import ADAM, DRAWN, PLUGIN, ROOT, SMALL, WORDS, generate, generate_here, hypotheses, run, train


def losses(log):
    return [float(x) for x in re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", log)]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """The folder of a model that was trained a little, with what fairseq-train printed."""
    folder = tmp_path_factory.mktemp("trained")
    result = train(data, folder, *SMALL, *ADAM, "--max-epoch", 2, "--no-epoch-checkpoints")
    return folder, result.stdout + result.stderr


def test_training_lowers_the_loss(trained):
    valid = losses(trained[1])
    assert len(valid) == 2 and valid[1] < valid[0]


def test_validate_agrees_with_training(trained, data):
    command = ("fairseq-validate", data, *PLUGIN, "--path", trained[0] / "checkpoint_last.pt")
    result = run(*command, "--valid-subset", "valid", "--max-tokens", 1000, "--log-format", "json")
    report = json.loads(re.search(r"\{\".*\}", result.stdout + result.stderr).group(0))
    assert float(report["valid_loss"]) == pytest.approx(losses(trained[1])[-1], abs=0.002)


def test_commands_leave_no_temporary_folders(data, tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory() as folder:  # of a short name, since sockets are made there
        monkeypatch.setenv("TMPDIR", folder)
        train(data, tmp_path, *SMALL, *ADAM, "--max-update", 2, "--no-epoch-checkpoints")  # in the middle of an epoch
        run("fairseq-validate", data, *PLUGIN, "--path", tmp_path / "checkpoint_last.pt", "--max-tokens", 1000)
        assert not list(Path(folder).glob("pymp-*"))  # of Python's multiprocessing, by those who read data


def test_a_trained_model_translates(trained, data):
    assert len(hypotheses(generate_here(data, trained[0] / "checkpoint_best.pt", "--max-len-b", 20))) == 200


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def translations(names):
    """What the network of `names` makes of the test set."""
    return [
        " ".join("t" + w[1:] if w[0] == "s" else "<unk>" for w in line.split()) for line in lines(names / "test.src")
    ]


def decode(names, *options, model="model.pt"):
    return generate_here(names / "data", names / model, "--beam", 5, *options)


def test_generate_gives_output_that_sacrebleu_scores(names):
    printed = generate(names / "data", names / "model.pt", "--beam", 5, "--scoring", "sacrebleu")
    assert hypotheses(printed) == translations(names)
    references = [line.split("\t")[1] for line in printed.splitlines() if line.startswith("T-")]
    written = [line.split("\t")[2] for line in printed.splitlines() if line.startswith("D-")]
    reported = float(re.search(r"BLEU = ([\d.]+)", printed).group(1))
    assert reported == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score, abs=0.01)


def test_interactive_answers_in_order_and_as_generate_does(names):
    """Also an empty line, and words that it never saw."""
    command = ("fairseq-interactive", names / "data", *PLUGIN, "--path", names / "model.pt", "--beam", 5)
    typed = ["", "qwertz uiop", "", *lines(names / "test.src")]
    printed = run(*command, "--buffer-size", 64, "--batch-size", 16, stdin="\n".join(typed)).stdout
    assert hypotheses(printed) == ["", "<unk> <unk>", "", *translations(names)]


def test_batch_size_does_not_change_the_output(names):
    for options in (("--batch-size", 1), ("--batch-size", 64)):
        assert hypotheses(decode(names, *options)) == translations(names)
    # fairseq's flag turns padding on the left off
    assert hypotheses(decode(names, "--batch-size", 64, "--left-pad-source")) == translations(names)


def test_print_alignment_gives_hard_and_soft_alignments(names):
    """The network looks at source word i when it writes target word i."""
    hard = re.findall(r"^A-(\d+)\t(.*)$", decode(names, "--print-alignment", "hard"), flags=re.MULTILINE)
    lengths = [len(line.split()) for line in lines(names / "test.src")]
    assert len(hard) == len(lengths)
    for number, links in hard:
        assert links == " ".join(f"{i}-{i}" for i in range(lengths[int(number)]))
    soft = re.findall(r"^A-(\d+)\t(.*)$", decode(names, "--print-alignment", "soft"), flags=re.MULTILINE)
    assert len(soft) == len(lengths)
    for number, weights in soft:
        weights = [[float(weight) for weight in row.split(",")] for row in weights.split()]
        assert weights == [[float(i == j) for j in range(lengths[int(number)] + 1)] for i in range(len(weights))]


def test_dropout_can_be_kept_while_translating(data, tmp_path):
    model = networks.drawn(tmp_path / "model.pt", data, 1, dropout=0.5, **DRAWN)
    scores = set()
    for seed in (1, 2):
        output = generate_here(data, model, "--retain-dropout", "--seed", seed, "--max-len-b", 5)
        scores.add(tuple(line.split("\t")[1] for line in output.splitlines() if line.startswith("H-")))
    assert len(scores) == 2


def test_an_ensemble_of_checkpoints_translates(names):
    networks.word_for_word(names / "surer.pt", names / "data", WORDS.get, margin=30)
    assert hypotheses(decode(names, model=f"model.pt:{names / 'surer.pt'}")) == translations(names)
    assert hypotheses(decode(names, model=f"model.pt:{names / 'model.pt'}")) == translations(names)


@pytest.mark.slow
def test_the_papers_recipe_runs_with_sorted_look_ahead(data, tmp_path):
    recipe = ("--optimizer", "adadelta", "--adadelta-rho", 0.95, "--adadelta-eps", 1e-6, "--lr", 1.0)
    recipe += ("--clip-norm", 1.0, "--batch-size", 80, "--sort-window", 1600, "--sentence-avg")
    result = train(data, tmp_path, *SMALL, *recipe, "--criterion", "cross_entropy", "--max-epoch", 3)
    valid = losses(result.stdout + result.stderr)
    assert valid[-1] < valid[0]


def test_the_task_without_own_flags_trains_exactly_as_translation(data, tmp_path):
    """One variable: the task. fairseq's own lstm must get the same batches in the same order."""
    sizes = ("--encoder-embed-dim", 16, "--encoder-hidden-size", 16, "--decoder-embed-dim", 16)
    sizes += ("--decoder-hidden-size", 16, "--decoder-out-embed-dim", 16, "--max-epoch", 2, "--no-epoch-checkpoints")
    states = []
    for task in ("translation", "lv_translation"):
        command = ("fairseq-train", data, "--user-dir", "lv_fairseq", "--task", task, "--arch", "lstm", *sizes, *ADAM)
        run(*command, "--save-dir", tmp_path / task)
        states.append(torch.load(tmp_path / task / "checkpoint_last.pt", weights_only=True)["model"])
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_resumed_training_equals_uninterrupted_training(data, tmp_path):
    """Bit for bit, from the middle of an epoch, with dropout and several micro-batches an update."""
    options = (*SMALL, *ADAM, "--update-freq", 2, "--save-interval-updates", 15, "--sort-window", 500)
    train(data, tmp_path / "whole", *options, "--max-update", 40)
    train(data, tmp_path / "parts", *options, "--max-update", 15)
    train(data, tmp_path / "parts", *options, "--max-update", 40)
    whole, parts = (
        torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True)["model"] for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("option", ["--fused-gru", "--share-decoder-input-output-embed"])
def test_variants_train_and_translate(data, tmp_path, option):
    train(data, tmp_path, *SMALL, *ADAM, "--max-update", 20, option, "--fp16-no-flatten-grads")
    assert len(hypotheses(generate_here(data, tmp_path / "checkpoint_last.pt", "--beam", 2, "--max-len-b", 20))) == 200


def test_hydra_config_keys_are_the_same_options(data, tmp_path):
    (tmp_path / "small.yaml").write_text(
        f"""
common: {{user_dir: {ROOT}/lv_fairseq, log_format: simple}}
task: {{_name: lv_translation, data: {data}, sort_window: 400}}
model: {{_name: rnnsearch_small, encoder_hidden_size: 32, decoder_hidden_size: 32, dropout: 0.1}}
criterion: {{_name: cross_entropy}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
dataset: {{max_tokens: 1000}}
optimization: {{max_update: 5, lr: [0.001]}}
checkpoint: {{save_dir: {tmp_path}/save}}
"""
    )
    run("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "small", cwd=tmp_path)
    cfg = torch.load(tmp_path / "save" / "checkpoint_last.pt", weights_only=True)["cfg"]
    assert cfg["task"]["sort_window"] == 400 and cfg["model"]["decoder_hidden_size"] == 32


@pytest.mark.parametrize("command", ["train", "generate", "interactive", "validate"])
def test_help_shows_our_flags(command):
    arch = ("--arch", "rnnsearch_small") if command == "train" else ()
    flags = ["--sort-window", "--candidate-retries"] + (["--readout-dim", "--fused-gru"] if arch else [])
    text = run(f"fairseq-{command}", *PLUGIN, *arch, "--help").stdout
    assert all(f"\n  {flag} " in text for flag in flags)
