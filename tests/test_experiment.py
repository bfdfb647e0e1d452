"""The whole table on a few sentences, end to end; takes minutes."""

import json
import runpy

import pytest
from conftest import make_corpus, run

CONFIG = """
name: small
shortlist: 300
tau: 400
hours: 0.004
frozen_hours: 0.001
seeds: [1]
beam: 3
frequent: [200, 600]
per_word: [5]
train: [--arch, rnnsearch_small, --optimizer, adam, --lr, 0.005, --clip-norm, 1.0, --max-tokens, 1000]
"""


@pytest.mark.slow
def test_every_row_of_the_table(tmp_path):
    raw = make_corpus(
        tmp_path / "raw", "--lemmas", 60, "--max-clauses", 1, "--pairs", 3000, "--valid", 30, "--test", 30
    )
    files = [x for split in ("train", "valid", "test") for x in (f"--{split}pref", raw / split)]
    run("python", "scripts/prepare", "-s", "src", "-t", "tgt", *files, "--out", tmp_path / "prepared")
    (tmp_path / "config.yaml").write_text(CONFIG)
    folders = ("--prepared", tmp_path / "prepared", "--out", tmp_path / "out")
    run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders)
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in results["systems"]][:3] == ["rnnsearch", "rnnsearch-unk", "lv"]
    assert len(results["systems"]) == 8 and len(results["grid"]) == 2
    assert all(point["sentences"] == 30 and point["interval"] > 0 for point in results["grid"])
    ids = [row["id"] for row in results["systems"]]
    assert all(set(row["against"]) <= set(ids[:i]) for i, row in enumerate(results["systems"]))
    for row in results["systems"]:
        for subset in ("dev", "test"):
            assert len((tmp_path / "out" / row[subset]["hypotheses"]).read_text(encoding="utf-8").splitlines()) == 30
    assert results["curves"][0]["points"] and results["signature"]["K"] in (200, 600)
    again = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders)
    assert "== " not in again.stdout  # nothing is done twice
    (tmp_path / "config.yaml").write_text(CONFIG.replace("beam: 3", "beam: 4"))
    other = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders, check=False)
    assert other.returncode == 1 and "was begun with another beam" in other.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "text, message",
    [
        ("tua: 5\n", "unknown keys: tua"),
        ("seeds: 1\n", "seeds must be a list, [...], not 1"),
        ("seeds: []\n", "seeds must be a list of whole numbers, not []"),
        ("hours: abc\n", "hours must be a number above 0, not 'abc'"),
        ("beam: 0\n", "beam must be a whole number, at least 1, not 0"),
        ("- a\n", "must have lines `key: value`"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path, text, message):
    (tmp_path / "config.yaml").write_text(text)
    options = ("--prepared", tmp_path, "--out", tmp_path / "out")
    result = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *options, check=False)
    assert result.returncode == 1 and message in result.stderr.strip().splitlines()[-1]


def test_a_learning_curve_counts_the_time_of_updates_over_restarts(tmp_path):
    log = [
        {"num_updates": "100", "train_wall": "50"},
        {"num_updates": "200", "train_wall": "60"},
        {"valid_nll_loss": "5.5", "valid_num_updates": "250"},
        {"valid_nll_loss": "5.5", "valid_num_updates": "250"},  # fairseq writes some lines twice
        {"num_updates": "200", "train_wall": "40", "wall": "0"},  # started again from 150
        {"num_updates": "300", "train_wall": "70", "wall": "0"},
        {"valid_nll_loss": "4.5", "valid_num_updates": "300"},
    ]
    (tmp_path / "train.log").write_text("\n".join(map(json.dumps, log)))
    curve = runpy.run_path("scripts/experiment/training.py")["curve"]
    points = curve("lv1", tmp_path, 1000)["points"]
    assert [(point["updates"], point["bits"], point["seconds"]) for point in points] == [
        (250, 5.5, 1000 + 50 + 60 + 50 * 0.6),
        (300, 4.5, 1000 + 50 + 60 + 40 + 70),
    ]
