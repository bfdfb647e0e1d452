"""fairseq's own commands with this plug-in, run as a user runs them, from fresh text to scored translations."""

import json
import re

import pytest
import sacrebleu
import torch
from conftest import ADAM, PLUGIN, ROOT, SMALL, generate, hypotheses, run, train


def references(text):
    return (text / "test.tgt").read_text(encoding="utf-8").splitlines()


def bleu(lines, text):
    return sacrebleu.corpus_bleu(lines, [references(text)], tokenize="none").score


def losses(log):
    return [float(x) for x in re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", log)]


def test_training_learns(trained):
    valid = losses(trained[1])
    assert len(valid) == 9 and valid[-1] < 1.5 < valid[0]


def test_generate_gives_learned_output_that_sacrebleu_scores(trained, data, text):
    out = generate(data, trained[0] / "checkpoint_best.pt", "--beam", 5, "--scoring", "sacrebleu")
    lines = hypotheses(out)
    assert len(lines) == 200
    assert bleu(lines, text) > 60
    # fairseq's own figure counts a reference word outside the dictionary as wrong
    reported = float(re.search(r"BLEU = ([\d.]+)", out).group(1))
    assert reported == pytest.approx(sacrebleu.corpus_bleu(lines, [references(text)]).score, abs=2)


def test_interactive_answers_in_order_and_as_generate_does(trained, data, text):
    model = trained[0] / "checkpoint_best.pt"
    source = (text / "test.src").read_text(encoding="utf-8")
    options = ("--beam", 5, "--buffer-size", 64, "--batch-size", 16)
    out = run("fairseq-interactive", data, *PLUGIN, "--path", model, *options, stdin=source).stdout
    assert hypotheses(out) == hypotheses(generate(data, model, "--beam", 5))


def test_interactive_answers_an_empty_line_and_words_it_never_saw(trained, data):
    command = ("fairseq-interactive", data, *PLUGIN, "--path", trained[0] / "checkpoint_best.pt", "--beam", 2)
    out = run(*command, stdin="\nqwertz uiop\n\n").stdout
    answers = [line.split("\t") for line in out.splitlines() if line.startswith("H-")]
    assert [number for number, _, _ in answers] == ["H-0", "H-1", "H-2"]
    assert answers[0][2] == answers[2][2] == "" and answers[1][2]


def test_batch_size_does_not_change_the_output(trained, data):
    model = trained[0] / "checkpoint_best.pt"
    single = hypotheses(generate(data, model, "--beam", 5, "--batch-size", 1))
    assert single == hypotheses(generate(data, model, "--beam", 5, "--batch-size", 64))
    # fairseq's flag turns padding on the left off
    right = generate(data, model, "--beam", 5, "--batch-size", 64, "--left-pad-source")
    assert single == hypotheses(right)


def test_validate_agrees_with_training(trained, data):
    command = ("fairseq-validate", data, *PLUGIN, "--path", trained[0] / "checkpoint_last.pt")
    result = run(*command, "--valid-subset", "valid", "--max-tokens", 1000, "--log-format", "json")
    report = json.loads(re.search(r"\{\".*\}", result.stdout + result.stderr).group(0))
    assert float(report["valid_loss"]) == pytest.approx(losses(trained[1])[-1], abs=0.002)


def test_print_alignment_gives_hard_and_soft_alignments(trained, data, text):
    model = trained[0] / "checkpoint_best.pt"
    sources = [line.split() for line in (text / "test.src").read_text(encoding="utf-8").splitlines()]
    hard = generate(data, model, "--beam", 3, "--print-alignment", "hard")
    copied = right = 0
    targets = dict(enumerate(line.split() for line in hypotheses(hard)))
    for number, links in re.findall(r"^A-(\d+)\t(.*)$", hard, flags=re.MULTILINE):
        for link in links.split():
            i, j = map(int, link.split("-"))
            target = targets[int(number)][j]
            if target in sources[int(number)] and target != ".":  # a name or a number: it must come from itself
                copied += 1
                right += sources[int(number)][i] == target
    assert copied > 50 and right > 0.7 * copied

    soft = generate(data, model, "--beam", 3, "--print-alignment", "soft")
    assert len(re.findall(r"^A-\d+\t", soft, flags=re.MULTILINE)) == 200


def test_dropout_can_be_kept_while_translating(trained, data):
    scores = set()
    for seed in (1, 2):
        output = generate(data, trained[0] / "checkpoint_best.pt", "--retain-dropout", "--seed", seed)
        scores.add(tuple(line.split("\t")[1] for line in output.splitlines() if line.startswith("H-")))
    assert len(scores) == 2


def test_an_ensemble_of_checkpoints_translates(trained, data, text):
    folder = trained[0]
    ensemble = f"{folder / 'checkpoint8.pt'}:{folder / 'checkpoint9.pt'}"
    assert bleu(hypotheses(generate(data, ensemble, "--beam", 5)), text) > 60
    twice = f"{folder / 'checkpoint9.pt'}:{folder / 'checkpoint9.pt'}"
    alone = generate(data, folder / "checkpoint9.pt", "--beam", 5)
    assert hypotheses(generate(data, twice, "--beam", 5)) == hypotheses(alone)


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
    assert len(hypotheses(generate(data, tmp_path / "checkpoint_last.pt", "--beam", 2, "--max-len-b", 20))) == 200


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
    flags = ["--sort-window"] + (["--readout-dim", "--fused-gru"] if arch else [])
    text = run(f"fairseq-{command}", *PLUGIN, *arch, "--help").stdout
    assert all(f"\n  {flag} " in text for flag in flags)
