"""What scripts read out of the output of commands, and results.json of the demo made of it."""

import json

import pytest
import torch
from in_process import demo_results, experiment, refused
from test_report import Page

from lv_fairseq.commands.report import main as report

outputs = experiment.outputs
LOG = "INFO:fairseq_cli.generate:Translated 2 sentences ({:,} tokens) in {}s (1 sentences/s, 1 tokens/s)\n"
SOURCES = ["a b c d Quetzal", "a b c d e f", "short"]
COVERAGE = """2 sentences, 11 reference words, vocabulary of 1,500

reference words in the lists, by K (rows) and K' (columns)
                     0          5
          0     0.00 %    92.92 %
      1,000    76.19 %    93.96 %

mean length of a list, by K (rows) and K' (columns)
                     0          5
          0          0         46
      1,000      1,000      1,016
"""


def test_the_pace_is_that_of_fairseqs_clock():
    assert outputs.pace("before\n" + LOG.format(1200, 3.0)) == 2.5
    assert outputs.pace("nothing") is None


def test_the_coverage_of_lists_is_read_from_both_tables():
    points = outputs.list_coverage(COVERAGE)
    assert points[1] == {"K": 0, "K'": 5, "coverage": 0.9292, "mean_list": 46}
    assert points[2] == {"K": 1000, "K'": 0, "coverage": 0.7619, "mean_list": 1000}
    assert len(points) == 4 and outputs.list_coverage("") == []


def printed(translations: list, weights: bool = True) -> str:
    """As fairseq-generate prints it, with a row and a column for the end of the sentence."""
    lines = []
    for i, text in reversed(list(enumerate(translations))):
        row = ",".join(["0.5"] * (len(SOURCES[i].split()) + 1))
        lines.append(f"S-{i}\tx\nH-{i}\t-0.5\t{text}\nD-{i}\t-0.5\t{text}")
        lines += [f"A-{i}\t{' '.join([row] * (len(text.split()) + 1))}"] * weights
    return "\n".join(lines) + "\n"


def test_systems_show_their_attention_in_the_same_sentences_those_with_replaced_words_first(tmp_path):
    (tmp_path / "one").write_text(printed(["A <unk>", "B A", "A"]))
    weights = outputs.soft_alignments(tmp_path / "one")
    one = outputs.Searched("one", ["A <unk>", "B A", "A"], ["A <unk>", "B A", "A"], weights)
    two = outputs.Searched("two", ["A B", "B <unk>", "A"], ["A B", "B f", "A"], weights)
    found = outputs.attention([one, two, outputs.Searched("three", one.before, one.after, {})], SOURCES, 2)
    assert [(x["system"], x["sentence"], x["replaced"]) for x in found] == [
        ("one", 1, []),
        ("two", 1, [1]),
        ("one", 0, []),
        ("two", 0, []),
    ]
    assert found[1]["target"] == ["B", "f"] and found[1]["weights"] == [[0.5] * 6] * 2
    assert outputs.replaced_words(two) == {"1": ["f"]} and outputs.replaced_words(one) == {}
    cut = {**weights, 1: weights[1][:1]}  # not of all words: no picture, which the report would refuse
    assert [x["sentence"] for x in outputs.attention([one._replace(weights=cut)], SOURCES, 2)] == [0]


@pytest.fixture
def demo(tmp_path):
    """A demo whose commands have run, as far as its results are made of it."""
    for name in ("text", "data", "model"):
        (tmp_path / name).mkdir()
    for name in ("train", "test"):
        (tmp_path / "text" / f"{name}.src").write_text("\n".join(SOURCES[:2]) + "\n")
        (tmp_path / "text" / f"{name}.tgt").write_text("A Quetzal B C D E\nB A C D E F\n")
    (tmp_path / "data" / "dict.src.txt").write_text("".join(f"{word} 1\n" for word in "abcdef"))
    (tmp_path / "coverage.txt").write_text(COVERAGE)
    inner = "x | INFO | train_inner | epoch 001:  {0} / 9 loss=4, nll_loss=3, num_updates={0}, train_wall=10, wall=9"
    (tmp_path / "train.log").write_text("\n".join(map(inner.format, range(1, 5))))
    settings = {
        name: {} for name in ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "common")
    }
    settings.update({"model": {"_name": "rnnsearch_small", "attention_dim": 8}, "dataset": {"max_tokens": 2000}})
    settings.update(
        {"task": {"_name": "lv_translation", "tau": 8000}, "optimization": {"lr": [0.003], "update_freq": [1]}}
    )
    torch.save({"cfg": settings}, tmp_path / "model" / "checkpoint_best.pt")
    unknown, known = ["A <unk> B C D E", "B A C D E E"], ["A Quetzal B C D E", "B A C D E E"]
    for name, lines, seconds in (
        ("all-words", unknown, 6),
        ("lists", unknown, 2),
        ("unreplaced", unknown, 2),
        ("test", known, 2),
    ):
        (tmp_path / f"{name}.out").write_text(printed(lines, weights=name != "test"))
        (tmp_path / f"{name}.log").write_text(LOG.format(1000, seconds) + '{"lv_fairseq": {"mean_list": 4035}}\n')
    return tmp_path


def test_the_demo_tells_what_lists_and_replacement_bring_and_a_report_shows_it(demo, capsys):
    demo_results.main([str(demo)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[-4:] for row in rows[1:]] == [
        ["6.00", "0", "of", "1"],
        ["2.00", "0", "of", "1"],
        ["2.00", "1", "of", "1"],
    ]
    results = json.loads((demo / "results.json").read_bytes())
    assert (
        results["signature"]["flags of the training"]
        == "--arch rnnsearch_small --tau 8000 --lr 0.003 --max-tokens 2000"
    )
    assert {x["system"] for x in results["attention"]} == {"all-words", "lists", "test"}
    report([str(demo)])
    page = (demo / "report.html").read_text(encoding="utf-8")
    assert '<span class="replaced">Quetzal*</span>' in page and "* replaced: Quetzal" in page
    assert Page(page).row("list + replacement", "1 of 1") and Page(page).row("1,000", "94.0 %")


def test_a_demo_that_is_not_done_is_told_of(demo, capsys):
    (demo / "lists.out").unlink()
    assert "lists.out" in refused(demo_results.main, capsys, demo)
