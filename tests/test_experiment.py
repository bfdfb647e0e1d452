"""The whole table on a few sentences, end to end, which takes minutes; and what can go wrong before and between."""

import json
import shutil

import pytest
import torch
from conftest import make_corpus, printed_in_ascii, run
from in_process import begin_experiment, experiment, refused, run_experiment

from lv_fairseq import UserError
from lv_fairseq.lock import only_one

CONFIG = """
name: small
shortlist: 300
tau: 400
hours: 0.004
frozen_hours: 0.001
hide_rare_words: 5
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
            assert len((tmp_path / "out" / row[subset]["hypotheses"]).read_bytes().split(b"\n")) == 31
            assert 0 <= row[subset]["names"]["arrived"] <= row[subset]["names"]["wanted"]
    assert {x["system"] for x in results["attention"]} == set(ids)
    assert all(
        "replaced" in row["test"] for row in results["systems"] if row["id"] not in ("rnnsearch", "lv", "lv-list")
    )
    assert results["curves"][0]["points"] and results["signature"]["flags of all trainings"]
    assert results["signature"]["K"] in (200, 600)
    assert len(results["claims"]) == 8 and len(results["rare_words"]) == 8
    again = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders)
    assert "== " not in again.stderr  # nothing is done twice
    (tmp_path / "out" / "stages" / "train.reshuffle-1.json").unlink()
    so_far = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders, "--so-far")
    assert "== train" not in so_far.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in results["systems"]] == ["rnnsearch", "rnnsearch-unk", "lv", "lv-list", "lv-unk"]
    assert results["signature"]["not trained yet"].startswith("reshuffle-1") and len(results["claims"]) == 5
    (tmp_path / "config.yaml").write_text(CONFIG.replace("beam: 3", "beam: 4"))
    other = run("python", "scripts/run_experiment.py", tmp_path / "config.yaml", *folders, check=False)
    assert other.returncode == 1 and "was begun with another beam" in other.stderr.strip().splitlines()[-1]


def asking(**lengths) -> str:
    """A configuration whose lists have so many numbers."""
    return json.dumps({"train": ["--arch", "x"], **{key: list(range(1, most + 1)) for key, most in lengths.items()}})


@pytest.mark.parametrize(
    "text, message",
    [
        ("tua: 5\n", "unknown keys: tua"),
        ("{1: 2, tua: 3}\n", "unknown keys: 1, tua"),
        ("seeds: 1\n", "seeds must be a list, [...], not 1"),
        ("seeds: []\n", "seeds must be a list of different whole numbers, at most 2147483647, not []"),
        ("seeds: [1, 1]\n", "seeds must be a list of different whole numbers"),
        ("seeds: [2147483648]\n", "seeds must be a list of different whole numbers, at most 2147483647"),
        ("per_word: [10, 10]\n", "per_word must be a list of different whole numbers"),
        ("tau: 99999999999999999999999\n", "tau must be a whole number from 1 to 2147483647"),
        ("train: [--lr, .inf]\n", "train must be a list of words and numbers"),
        ("generate: [.nan]\n", "generate must be a list of words and numbers"),
        ("hours: abc\n", "hours must be a number above 0, not 'abc'"),
        ("hide_rare_words: -1\n", "hide_rare_words must be a number, 0 or more, not -1"),
        ("hours: .inf\n", "hours must be a number above 0, not inf"),
        ("beam: 0\n", "beam must be a whole number from 1 to 2147483647, not 0"),
        ("train: [[--lr, 1]]\n", "train must be a list of words and numbers"),
        ("unk_replacement: all\n", "unk_replacement must be one of none, copy"),
        (
            "tau: [5, 5]\n",
            "tau must be a whole number from 1 to 2147483647, or a list of different ones, [...], not [5, 5]",
        ),
        ("shortlist: []\n", "shortlist must be a whole number from 1 to 2147483647, or a list"),
        ("measure: equal\n", "measure must be one of equal time, equal convergence, not 'equal'"),
        ("every_seed: [all]\n", "every_seed must be a list of some of rnnsearch, lv, reshuffle, not ['all']"),
        ("proposals: [zipf]\n", "proposals must be a list of some of unigram"),
        ("timing: 1\n", "timing must be true or false, not 1"),
        ("{other_train: [--arch], train: [--arch, x]}\n", "other_train must name a model"),
        ("{other_lexicon: nowhere, train: [--arch, x]}\n", "there is no other_lexicon"),
        ("- a\n", "must have lines `key: value`"),
        ("a: [\n", "cannot read"),
        ("a: 2020-99-99\n", "cannot read"),
        ("name: \udcff\n", "cannot read"),
        ("\udcff\udcfe", "cannot read"),
        ("", "train must name a model"),
        (asking(seeds=51), "seeds: that makes 51 seeds, and lv-report shows 50 at most: take fewer"),
        (
            asking(shortlist=100),
            "shortlist, tau, reshuffle_tau: that makes 206 systems, and lv-report shows 100 at most",
        ),
        (
            asking(shortlist=10**5),
            "shortlist, reshuffle_tau: that makes 100,000 sizes, and lv-report shows 100 at most",
        ),
        (asking(tau=51), "tau: that makes 51 tau, and lv-report shows 50 at most"),
        (asking(frequent=20, per_word=21), "frequent, per_word: that makes 420 points of the grid"),
        (asking(analysis_frequent=200), "analysis_frequent, analysis_per_word: that makes 1,400 lists"),
        (asking(analysis_frequent=140, seeds=3), "that makes 2,974 outputs, and lv-report shows 2,000 at most"),
        ("{attention: 13, train: [--arch, x]}", "attention (8 for each sentence): that makes 104 pictures"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path, capsys, text, message):
    (tmp_path / "config.yaml").write_bytes(text.encode(errors="surrogateescape"))
    options = ("--prepared", tmp_path, "--out", tmp_path / "out")
    assert message in refused(run_experiment.main, capsys, tmp_path / "config.yaml", *options)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def begun(tmp_path):
    """An experiment whose trainings have ended, with what there is to it before the first translation."""
    begin_experiment(tmp_path, "{seeds: [1], train: [--arch, rnnsearch_small]}\n")
    for name in ("rnnsearch-1", "lv-1", "reshuffle-1"):
        (tmp_path / "out" / name).mkdir()
        (tmp_path / "out" / name / "checkpoint.best_loss_5.125.pt").write_bytes(b"")
        (tmp_path / "out" / "stages" / f"train.{name}.json").write_text('""')
    return tmp_path


def refusal(begun, capsys):
    folders = ("--prepared", begun / "prepared", "--out", begun / "out")
    return refused(run_experiment.main, capsys, begun / "config.yaml", *folders)


def test_a_table_so_far_needs_an_experiment_and_its_first_trainings(begun, capsys):
    folders = ("--prepared", begun / "prepared", "--so-far", "--out")
    said = refused(run_experiment.main, capsys, begun / "config.yaml", *folders, begun / "other")
    assert "there is no experiment in" in said and not (begun / "other").exists()
    (begun / "out" / "stages" / "train.lv-1.json").unlink()
    experiment.config.keep_config(
        experiment.config.load_config(begun / "config.yaml"),
        run_experiment.check_prepared(begun / "prepared"),
        begun / "out" / "config.json",
    )
    said = refused(run_experiment.main, capsys, begun / "config.yaml", *folders, begun / "out")
    assert said.startswith("--so-far: lv-1 must have been trained")


def test_a_training_without_a_finite_loss_is_told_of(begun, capsys):
    folder = begun / "out" / "lv-1"
    (folder / "checkpoint.best_loss_nan.pt").write_bytes(b"")
    (folder / "checkpoint.best_loss_inf.pt").write_bytes(b"")
    (folder / "checkpoint.best_loss_4.5001.pt").write_bytes(b"")
    assert [path.name[21:] for path in experiment.training.points(folder)] == ["4.5001.pt", "5.125.pt"]
    for path in folder.glob("*_[45]*.pt"):
        path.unlink()
    said = refusal(begun, capsys)
    assert said.startswith("the training lv-1 left no model whose loss on the development set is a number")
    assert "fairseq-train.log" in said


@pytest.mark.parametrize(
    "missing, message",
    [
        ("lexicon", "has no lexicon: give the same scripts/prepare command without --no-lexicon"),
        ("text/test.en", "if it is given --testpref"),
        ("raw/test.de", "if it is given --testpref"),
        ("data", "give the same scripts/prepare command again"),
        ("prepare.json", "was not made by scripts/prepare"),
    ],
)
def test_what_is_missing_is_told_before_any_training(begun, capsys, missing, message):
    path = begun / "prepared" / missing
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(begun / "out")
    assert message in refusal(begun, capsys)
    assert not (begun / "out").exists()


def test_an_experiment_goes_on_with_its_own_text_only(begun, capsys):
    path = begun / "out" / "lv-1" / "checkpoint.best_loss_5.125.pt"
    path.unlink()
    assert "left no model" in refusal(begun, capsys)  # as far as it comes
    (begun / "prepared").rename(begun / "moved")
    shutil.copytree(begun / "moved", begun / "prepared")
    assert "left no model" in refusal(begun, capsys)  # the same text in another place
    about = json.loads((begun / "prepared" / "prepare.json").read_text())
    about["texts"]["train.en"]["bytes"] = 5
    (begun / "prepared" / "prepare.json").write_text(json.dumps(about))
    assert refusal(begun, capsys) == f"{begun}/out was begun with another --prepared: take another --out, or remove it"


def test_an_experiment_that_does_not_say_of_which_text_is_refused(begun, capsys):
    path = begun / "out" / "config.json"
    path.write_text(json.dumps({"seeds": [1]}))  # as earlier versions wrote it
    said = refusal(begun, capsys)
    assert said == f"{path} does not say of which --prepared: take another --out, or remove {begun}/out"


def test_an_experiment_of_an_earlier_version_is_not_gone_on_with(begun, capsys):
    assert "checkpoint" in refusal(begun, capsys)  # as far as it comes
    path = begun / "out" / "config.json"
    before = json.loads(path.read_text())
    del before["names"]
    path.write_text(json.dumps(before))
    assert "was begun by another version, whose runs have other names: take another --out" in refusal(begun, capsys)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\xff"])
def test_a_damaged_stage_is_named(begun, capsys, text):
    path = begun / "out" / "stages" / "corpus.json"
    path.write_bytes(text.encode("latin-1"))
    assert refusal(begun, capsys) == f"{path} is damaged: remove it, and the same command does this stage again"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\xff"])
def test_a_damaged_config_json_is_named(begun, capsys, text):
    path = begun / "out" / "config.json"
    path.write_bytes(text.encode("latin-1"))
    assert refusal(begun, capsys) == f"{path} is damaged: take another --out, or remove {begun}/out"


def test_a_folder_that_cannot_be_used_is_named(begun, capsys):
    with only_one(begun / "out"):
        assert "is at work in" in refusal(begun, capsys)
    shutil.rmtree(begun / "out")
    (begun / "out").write_text("mine")
    assert refusal(begun, capsys).startswith(f"{begun}/out: ")
    assert (begun / "out").read_text() == "mine"
    folders = ("--prepared", begun / "prepared", "--out", begun / "a:b")
    assert "fairseq takes ':'" in refused(run_experiment.main, capsys, begun / "config.yaml", *folders)


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "checkpoint_last.pt"
    torch.save({"extra_state": {"previous_training_time": 1800}}, path)
    assert experiment.training.trained_hours(path) == 0.5
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="no whole checkpoint"):
            experiment.training.trained_hours(path)


def test_one_failure_ends_the_others(tmp_path):
    stages = experiment.stages.Stages(tmp_path, tmp_path, parallel=2)
    code = "import time; time.sleep(600)"
    works = [
        lambda: stages.command("python", "-c", "raise SystemExit(3)", log=tmp_path / "short.log"),
        lambda: stages.command("python", "-c", code, log=tmp_path / "long.log"),
    ]
    with pytest.raises(UserError, match="python failed: the reason is at the end of .*short.log"):
        stages.together(works)


def test_stages_are_told_of_on_stderr(tmp_path, capsys):
    stages = experiment.stages.Stages(tmp_path, tmp_path, parallel=1)
    assert stages.stage("corpus", lambda: "work") == "work"
    out, err = capsys.readouterr()
    assert out == "" and "== corpus\n" in err  # the result is alone on stdout: its reader may end, as `head`


def test_the_table_is_printed_in_any_encoding(begun):
    config = experiment.config.load_config(begun / "config.yaml")
    table = run_experiment.Experiment(config, begun / "prepared", begun / "out \u00fc")
    assert rb"out \xfc/results.json is written" in printed_in_ascii(table.show)


def test_a_learning_curve_counts_the_time_of_updates_over_restarts(tmp_path):
    log = [
        {"num_updates": "100", "train_wall": "50"},
        {"num_updates": "200", "train_wall": "60"},
        {"valid_nll_loss": "5.5", "valid_num_updates": "250"},
        {"valid_nll_loss": "5.5", "valid_num_updates": "250"},  # fairseq writes some lines twice
        {"num_updates": "200", "train_wall": "40", "wall": "0"},  # started again from 150
        {"valid_nll_loss": "nan", "valid_num_updates": "250"},
        {"num_updates": "300", "train_wall": "70", "wall": "0"},
        {"valid_nll_loss": "4.5", "valid_num_updates": "300"},
    ]
    (tmp_path / "train.log").write_text("\n".join(map(json.dumps, log)))
    points = experiment.training.curve("lv1", tmp_path / "train.log", 1000)["points"]
    assert [(point["updates"], point["bits"], point["seconds"]) for point in points] == [
        (250, 5.5, 1000 + 50 + 60 + 50 * 0.6),
        (300, 4.5, 1000 + 50 + 60 + 40 + 70),
    ]


def test_a_learning_curve_has_the_training_text_between_the_points_of_the_development_set(tmp_path):
    inner = (
        "| INFO | train_inner | epoch 001:  {0:5d} / 900 loss=4, nll_loss={1}, num_updates={0}, train_wall=10, wall=9"
    )
    valid = "| INFO | valid | epoch 001 | valid on 'valid' subset | loss 5 | nll_loss 6.25 | ppl 4 | num_updates 200"
    lines = [inner.format(i, 9 - i / 100) for i in range(1, 401)]
    lines[200:200] = [inner.format(200, "nan"), valid]
    (tmp_path / "train.log").write_text("\n".join(lines))
    points = experiment.training.curve("lv1", tmp_path / "train.log")["points"]
    assert [point for point in points if "bits" in point] == [{"updates": 200, "bits": 6.25, "seconds": 2010}]
    training = [point for point in points if "training_bits" in point]
    assert len(training) == experiment.training.MOST and points[0] == training[0]
    assert points[0] == {"updates": 1, "training_bits": 8.99, "seconds": 10}
