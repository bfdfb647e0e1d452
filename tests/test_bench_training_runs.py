"""Whole trainings side by side: logs are read as they are written, and the section runs at its smallest."""

import sys

import pytest
from conftest import ROOT, run

from lv_fairseq.errors import UserError

sys.path.insert(0, str(ROOT / "benchmarks"))

from side_by_side import rows, training_runs  # noqa: E402

FAIRSEQ = """
2026-11-17 22:00:00 | INFO | fairseq.trainer | begin training epoch 1
2026-11-17 22:00:09 | INFO | train_inner | {"epoch": 1, "loss": "9", "wps": "999", "wpb": "9", "num_updates": "9"}
2026-11-17 22:00:10 | INFO | train | {"epoch": 1, "train_wps": "500", "train_wpb": "1000", "train_num_updates": "5"}
2026-11-17 22:00:20 | INFO | train | {"epoch": 2, "train_wps": "1000", "train_wpb": "2000", "train_num_updates": "8"}
"""
ONE_MORE = '| INFO | train | {"epoch": 3, "train_wps": "0", "train_wpb": "2000", "train_num_updates": "9"}'

MARIAN = """
[2026-11-17 22:04:50] Training started
[2026-11-17 22:04:55] Ep. 1 : Up. 1 : Sen. 291 : Cost 8.64530849 : Time 4.00s : 700.00 words/s : gNorm 0.3813
[2026-11-17 22:04:57] Ep. 1 : Up. 1,002 : Sen. 3,001 : Cost 8.1 : Time 2.00s : 1000.00 words/s : gNorm 0.4
[2026-11-17 22:05:14] Training interrupted (via signal).
"""


def test_words_and_seconds_of_fairseqs_log():
    assert training_runs.fairseq_figures(FAIRSEQ.splitlines()) == (11000, 16, 8)
    assert training_runs.fairseq_figures([*FAIRSEQ.splitlines(), ONE_MORE]) == (11000, 16, 9)
    with pytest.raises(UserError, match="--minutes"):
        training_runs.fairseq_figures([ONE_MORE])


def test_words_and_seconds_of_marians_log():
    assert training_runs.marian_figures(MARIAN.splitlines()) == (2000, 2, 1002)  # the first line has what came before
    with pytest.raises(UserError, match="--minutes"):
        training_runs.marian_figures(["Training started"])


def one_system(monkeypatch, system) -> None:
    monkeypatch.setattr(training_runs, "systems", lambda args: [system])


def test_a_peer_that_is_not_installed_is_a_row_without_turns(tmp_path, monkeypatch):
    args = training_runs.parse_args(["--quick", "--peers", str(tmp_path)])
    (marian,) = (system for system in training_runs.systems(args) if system.train is training_runs.by_marian)
    one_system(monkeypatch, marian)
    (tmp_path / "train.tgt").write_text("a\nb\n")
    (row,) = training_runs.measure(args, tmp_path, [])
    assert not row.turns and row.note.startswith("absent: ") and row.peer
    assert row.setting == "0.5 minutes, 2 threads, 2 pairs of the demo's text"


def test_figures_are_means_over_seeds(tmp_path, monkeypatch):
    made = {1: (100, 2.0, 4, ["a b c d e"]), 2: (100, 4.0, 8, ["x y z v w"])}
    train = lambda args, folder: training_runs.Trained(*made[args.seed])
    one_system(monkeypatch, training_runs.System("one", train))
    (tmp_path / "train.tgt").write_text("a\n")
    (row,) = training_runs.measure(training_runs.parse_args(["--turns", "2"]), tmp_path, ["a b c d e"])
    assert row.turns == [20.0, 40.0] and row.more["words a second"] == 37.5 and row.more["updates"] == 6
    assert row.more["BLEU"] == 50 and row.note == ""


def test_without_translations_there_is_no_bleu():
    assert training_runs.figures([training_runs.Trained(100, 2.0, 4, [])], []) == {"words a second": 50, "updates": 4}


def test_a_line_ends_where_other_programs_end_it(tmp_path):
    (tmp_path / "text").write_text("a\u2028b\n\nc\x85d\n", encoding="utf-8")
    assert training_runs.lines_of(tmp_path / "text") == ["a\u2028b", "", "c\x85d"]


def test_a_peer_that_fails_ends_in_one_line(tmp_path):
    """The Python that stands in for the peers' has no pymarian."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".installed").touch()
    args = training_runs.parse_args(["--quick", "--peers", str(tmp_path)])
    with pytest.raises(UserError, match="Marian ended with exit status 1; its last words: .*pymarian"):
        training_runs.marian(["train"], args, stop_after=100)


def test_texts_go_together(capsys):
    with pytest.raises(SystemExit):
        training_runs.parse_args(["--source", "a", "--target", "b", "--test-source", "c"])
    assert "--test-target go together" in capsys.readouterr().err


@pytest.mark.slow
def test_all_train_and_translate(tmp_path, text):
    out, given = tmp_path / "rows.json", []
    for flag, name in (("source", "train.src"), ("target", "train.tgt")):
        given += [f"--{flag}", text / name, f"--test-{flag}", text / name.replace("train", "test")]
    given += ["--minutes", 0.1, "--dim", 16, "--tau", 100, "--sentences", 10, "--out", out]
    run("python", "-m", "side_by_side.training_runs", *given, cwd=ROOT / "benchmarks")
    found, versions = rows.read(out)
    assert [row.system for row in found] == [
        "lv_fairseq, tau 100",
        "lv_fairseq, all words",
        "fairseq, lstm",
        "Marian, s2s",
    ]
    assert [row.ours for row in found] == [True, False, False, False]
    absent = rows.peer_python() is None
    assert ("pymarian" in versions) != absent
    for row in found[: 3 if absent else 4]:
        assert len(row.turns) == 1 and row.more["updates"] > 1 and 0 <= row.more["BLEU"] <= 100
        assert row.more["words a second"] == pytest.approx(1000 / row.turns[0], rel=0.01)
