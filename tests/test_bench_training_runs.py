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
    assert training_runs.marian_figures(MARIAN.splitlines()) == (4800, 6, 1002)
    with pytest.raises(UserError, match="--minutes"):
        training_runs.marian_figures(["Training started"])


def test_a_peer_that_is_not_installed_is_a_row_without_turns(tmp_path):
    args = training_runs.parse_args(["--quick", "--peers", str(tmp_path)])
    (marian,) = (system for system in training_runs.systems(args) if system.train is training_runs.by_marian)
    row = training_runs.measure(marian, args, tmp_path, [])
    assert not row.turns and row.note.startswith("absent: ") and row.peer


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
