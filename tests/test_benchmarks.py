"""Benchmarks run, at their smallest, and print every row of their tables. What they measure is not looked at here."""

import argparse
import importlib
import logging
import math
import random
import re
import runpy
import sys

import networks
import pytest
import released
import torch
from conftest import ROOT
from small_corpus import write_corpus


@pytest.fixture
def printed(capsys, monkeypatch):
    """Runs a benchmark with arguments; gives the lines that it prints. What it sets for its process is put back."""
    threads = torch.get_num_threads()

    def run(name: str, *args) -> list:
        monkeypatch.syspath_prepend(ROOT / "benchmarks")
        runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))["main"]([str(arg) for arg in args])
        return capsys.readouterr().out.splitlines()

    yield run
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Flags that name a small parallel text: the words of one side are those of the other, spelt otherwise."""
    folder, draw = tmp_path_factory.mktemp("text"), random.Random(1)
    lines = [[draw.randint(0, 50) for _ in range(draw.randint(2, 9))] for _ in range(100)]
    for side in ("source", "target"):
        text = "".join(" ".join(f"{side}{word}" for word in line) + "\n" for line in lines)
        (folder / side).write_text(text)
    return "--source", folder / "source", "--target", folder / "target"


def figures(lines: list, name: str) -> list:
    """The numbers of the row of that name, which are all finite."""
    (row,) = (line for line in lines if re.match(rf"{re.escape(name)}  ", line))
    numbers = [float(number.replace(",", "")) for number in row[len(name) :].split()]
    assert numbers and all(math.isfinite(number) for number in numbers)
    return numbers


def test_rnnsearch_is_compared_with_fairseqs_lstm(printed):
    sizes = ("--words", 50, "--length", 3, "--batch", 2, "--beam", 2, "--turns", 1)
    lines = printed("rnnsearch", *sizes)
    for name in ("rnnsearch_small", "rnnsearch_small --fused-gru", "fairseq's lstm"):
        _, training, _, decoding = figures(lines, name)
    assert (training, decoding) == (1, 1)  # of the last one to itself


def test_softmax_over_a_page_is_compared_with_all_scores(printed):
    sizes = ("--tokens", 40, "--rows", 50, "--dim", 4, "--turns", 1)
    lines = [line.removesuffix(" -") for line in printed("softmax", *sizes, "--no-memory")]
    for name in ("bare products", "plain", "plain, smoothed", "limited, chunks of 32", "limited, chunks of 40"):
        assert len(figures(lines, name)) == 2
    assert figures(lines, "bare products")[1] == 1
    assert sum(line.startswith("limited, default") for line in lines) == 2
    (memory,) = printed("softmax", *sizes, "--memory-of", "plain")
    assert math.isfinite(float(memory))


def test_losses_over_all_words_are_compared_and_the_same(printed, monkeypatch):
    sizes = ("--tokens", 40, "--rows", 50, "--dim", 4, "--turns", 1)
    lines = [line.removesuffix(" -") for line in printed("softmax", *sizes, "--validation", "--no-memory")]
    for name in ("bare products", "plain", "torch, linear_cross_entropy", "full"):
        assert len(figures(lines, name)) == 2
    softmax = importlib.import_module("softmax")
    monkeypatch.setattr(softmax, "ROWS", 16)
    monkeypatch.setattr(softmax, "SCORES", 1000)
    inputs = softmax.make_inputs(argparse.Namespace(tokens=40, rows=50, dim=4))
    losses = {name: float(loss(*inputs)) for name, loss in softmax.LOSSES.items()}
    assert all(loss == pytest.approx(losses["plain"], rel=1e-5) for loss in losses.values()), losses


def test_half_precision_is_compared_with_single(printed, tmp_path):
    data = write_corpus(tmp_path, pairs=70)
    sizes = ("--dim", 4, "--tau", 30, "--tokens", 200, "--updates", 1)
    lines = printed("half_precision", data, *sizes, "--rows", "single", "fp16", "memory-efficient-bf16")
    for name in ("single", "fp16", "memory-efficient-bf16"):
        (row,) = (line for line in lines if line.startswith(f"{name} "))
        assert row.endswith("yes") and len(figures([row.removesuffix("yes")], name)) == 3


def test_saving_is_compared_with_a_copy(printed, tmp_path):
    lines = printed("saving", "--words", 500, "--dim", 4, "--tau", 300, "--turns", 1, "--folder", tmp_path)
    (_, written, on_disk, _, _), (_, thrice, _, _, _) = (
        figures(lines, f"best, last and the epoch's: {way}") for way in ("linked", "copied")
    )
    assert len(figures(lines, "cp of one checkpoint")) == len(figures(lines, "linked, --no-save-optimizer-state")) == 5
    assert written == on_disk and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_two_workers_train_what_one_does(printed):
    lines = printed("workers", "--words", 3000, "--dim", 8, "--updates", 2)
    for name in ("one worker, --update-freq 2", "two workers", "two, then one, then two workers"):
        *_, difference = figures(lines, name)
        assert difference < 1e-6


DECODING = ("--words", 300, "--frequent", 60, "--per-word", 2, "--turns", 1, "--length", 3)


def test_decoding_with_lists_is_compared_with_small_and_large_vocabularies(printed):
    lines = printed("decoding", *DECODING, "--scale", 0.01)
    assert figures(lines, "all of 60 words")[-1] == 1
    for name in ("300 words, K = 60", "all of 300 words", "all of 300, fairseq alone"):
        assert len(figures(lines, name)) == 4
    assert any(re.match(r"the end of its first sentence [\d.]+ s, peak memory [\d.]+ GB", line) for line in lines)


def test_decoding_is_compared_for_a_transformer_with_one_table_and_for_batches(printed):
    """The benchmark itself asserts that fairseq alone finds what the plug-in finds without lists."""
    lines = printed("decoding", *DECODING, "--arch", "transformer", "--scale", 0.0625, "--batch", 2, "--no-checkpoint")
    assert figures(lines, "all of 60 words")[-1] == 1
    assert sum(re.match(r"lists are [\d.]+ times as fast as all words", line) is not None for line in lines) == 1


RELEASED = ("--rows", 500, "--dim", 8, "--layers", 1, "--heads", 2, "--frequent", 60, "--per-word", 2)
RELEASED += ("--source-words", 20, "--length", 3, "--beam", 1, 2, "--batch", 2, "--turns", 1)
PEERS = ROOT / ".venv-peers" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@pytest.mark.parametrize("beside", [False, True])
def test_decoding_of_a_released_model_is_compared_with_ctranslate2_or_that_is_said_to_be_absent(
    printed, tmp_path, beside
):
    if beside and not (PEERS / "ctranslate2").is_dir():
        pytest.skip("not installed: make .venv-peers/.installed")
    lines = [
        line.removesuffix("%")
        for line in printed("released_speed", *RELEASED, *(() if beside else ("--peers", tmp_path)))
    ]
    rows = ["all words", "lists", "fairseq alone"]
    if beside:
        rows += [f"CTranslate2 {kind}{lists}" for kind in ("float32", "int8") for lists in ("", ", vmap")]
    else:
        assert f"CTranslate2 is absent: it is not in {tmp_path}" in lines
    for beam in (1, 2):
        (place,) = (i for i, line in enumerate(lines) if line.startswith(f"beam {beam}, "))
        table = lines[place + 1 : place + 1 + len(rows)]
        found = {name: figures(table, name) for name in rows}
        assert found["lists"][3] == 1 and found["fairseq alone"][4] == 100
    assert any(line.startswith("8 sentences, candidate lists of ") for line in lines)


def test_fine_tuning_over_pages_is_compared_with_all_rows(printed):
    sizes = ("--rows", 600, "--pieces", 200, "--dim", 8, "--layers", 1, "--heads", 2, "--tau", 60)
    lines = printed("finetuning", *sizes, "--tokens", 150, "--updates", 2)
    whole, paged = figures(lines, "all rows"), figures(lines, "--tau 60")
    assert whole[0] == 600 and whole[6] == 100 and paged[0] < 100 and paged[6] < 20
    assert abs(whole[8] - paged[8]) < 0.01  # the same model, over the same words
    assert lines[-1] == "fairseq without the plug-in opens the checkpoint: 600 rows of 8 numbers"


@pytest.mark.slow
def test_lists_over_pieces_are_compared_with_all_words_on_a_model_that_is_trained(printed, tmp_path):
    texts = released.small_released_model.made_up_texts(["en", "de", "fr"], 60, 1)
    for language, lines in texts.items():
        for split, part in (("train", lines[:40]), ("valid", lines[40:50]), ("test", lines[50:])):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    sizes = ("--pieces", 150, "--dim", 8, "--layers", 1, "--tau", 60, "--updates", 2, "--frequent", 30, "--per-word", 2)
    lines = printed("piece_lists", "--text", tmp_path, "--out", tmp_path / "out", *sizes)
    for name, figures_of in (("all words", 4), ("K = 30, K' = 2", 8)):
        assert len(figures(lines, name)) == figures_of


COST = ("--pairs", 100, "--tau", 300, "--tokens", 100, "--turns", 1)


def test_the_cost_of_an_update_is_compared_with_fairseqs_softmaxes(printed):
    lines = printed("flat_cost", *COST, "--words", 3000)
    rows = ("all of 300 words", "3,000 words, tau 300", "3,000 words, adaptive_loss", "3,000 words, cross_entropy")
    numbers = {name: figures(lines, name) for name in rows}
    assert all(len(row) == 7 for row in numbers.values())
    assert numbers["all of 300 words"][2] == 1
    trained = [row[5] for row in numbers.values()]
    assert trained[1] < trained[3]


def test_the_page_of_a_joined_table_trains_as_many_bytes_as_a_vocabulary_of_tau_words(printed, texts):
    lines = printed(
        "flat_cost", *COST, *texts, "--words", 1000, "--tau", 30, "--arch", "transformer", "--rows", "pages"
    )
    assert len(figures(lines, "1,000 words, tau 30")) == 7
    (of_bytes,) = re.search(r"^  [\d.]+ of the time .*, ([\d.]+) of the bytes", "\n".join(lines), re.M).groups()
    assert abs(float(of_bytes) - 1) < 0.02


@pytest.mark.slow
def test_tables_larger_than_memory_are_compared_with_a_small_vocabulary(printed):
    sizes = ("--words", 3000, "--tau", 300, "--dim", 8, "--tokens", 200, "--updates", 4, "--epochs", 1)
    lines = printed("beyond_memory", *sizes)
    for name in ("all of 300 words", "3,000 words, tau 300"):
        assert len(figures(lines, name)) == 9
    assert lines[-1].startswith("tables: ")


def test_a_lexicon_is_built_opened_and_asked(printed, texts):
    lines = printed("lexicon", *texts, "--sentences", 10, "--frequent", 20)
    assert "100 pairs" in lines[0] and lines[1].startswith("build: ")
    assert re.match(r"open: [\d.]+ ms the first time, [\d.]+ ms later$", lines[3])
    assert re.match(r"lists of 10 sentences of \d+ words: [\d.]+ ms, \d+ words beyond the 20 most frequent$", lines[5])


def test_a_corpus_is_partitioned_in_its_order_and_shuffled(printed, texts):
    lines = printed("partitions", *texts, "--tau", 30, "--turns", 1)
    for order in ("order of the corpus", "shuffled"):
        for sides in ("target", "target and source"):
            assert figures(lines, f"{order}, {sides}")[0] > 1


def test_padding_is_counted_with_tau_and_without(printed, texts):
    lines = printed("padding", *texts, "--tau", 30, 20, "--max-tokens", 40)
    assert lines[0].startswith("100 pairs, ")
    whole = figures(lines, "without --tau")[0]
    for name in ("order of the corpus", "reshuffled"):
        (start,) = (i for i, line in enumerate(lines) if line.startswith(f"tau 20, {name}: "))
        before, after = (figures(lines[start : start + 3], name) for name in ("  sorted", "  shared out"))
        assert before[:2] == after[:2] and before[0] >= whole  # batches, and target tokens of each
        assert before[4] >= after[4]  # padding


def test_attention_is_measured_layer_by_layer(printed, text, data, drawn, tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    from demo_corpus import aligned

    (tmp_path / "align").write_text("".join(f"{links}\n" for *_, links in aligned("test", 200, 1, 60, 1)))
    sizes = dict(encoder_layers=1, decoder_layers=2, alignment_layer=0, alignment_heads=1)
    sizes.update({f"{side}_{what}": 8 for side in ("encoder", "decoder") for what in ("embed_dim", "ffn_embed_dim")})
    sizes.update(encoder_attention_heads=2, decoder_attention_heads=2, arch="transformer_align")
    (tmp_path / "align_model").mkdir()
    model = networks.checkpoint(tmp_path / "align_model" / "model.pt", data, lambda *_: None, **sizes)
    lines = printed("attention", data, "--alignments", tmp_path / "align", drawn / "one.pt", model)
    rows = (f"{drawn.name}, *", "align_model, layer 0", "align_model, layer 1", "align_model, layer 0, heads 1 *")
    for name in rows:
        assert all(0 <= figure <= 100 for figure in figures(lines, name)) and len(figures(lines, name)) == 3


def test_a_server_loses_no_request_and_answers_as_fairseq_interactive_does(printed):
    lines = printed("serving", "--clients", 4, "--seconds", 1)
    assert figures(lines, "requests")[0] > 4 and figures(lines, "lost") == [0]
    assert figures(lines, "other than fairseq-interactive") == [0] and figures(lines, "exit code after SIGTERM") == [0]
    for name in ("p50, p99 in ms", "memory in MB, at a quarter and at the end"):
        assert len(figures(lines, name)) == 2


def test_a_perfect_attention_has_no_errors():
    module = runpy.run_path(str(ROOT / "benchmarks" / "attention.py"))
    alignments = [{(0, 1), (1, 0)}, {(0, 0), (1, 0)}]
    looked = [(1, [5], [1]), (0, [3, 9], [1, 0])]
    right, error, copied = module["measure"](looked, alignments, unk=3)
    assert (right, copied) == (100, 100) and error == pytest.approx(100 * (1 - 2 * 3 / (3 + 4)))
    right, error, copied = module["measure"]([(0, [3, 9, 4], [0, 0, 1])], alignments, unk=3)
    assert (right, copied) == (50, 0) and error == pytest.approx(100 * (1 - 2 * 1 / (3 + 2)))
