"""The section of make bench about aligners and partitions runs, at its smallest, and hands over every row."""

import shutil
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from side_by_side import lexicon  # noqa: E402
from side_by_side.rows import read  # noqa: E402


@pytest.mark.parametrize("given", [False, True])
def test_aligners_and_partitions_hand_over_their_rows(tmp_path, given):
    flags = ["--quick", "--turns", "1", "--pairs", "40", "--out", str(tmp_path / "rows.json")]
    if given:
        for side in ("source", "target"):
            (tmp_path / side).write_text("".join(f"{side}{i % 7} {side}{i % 3}\n" for i in range(50)))
            flags += [f"--{side}", str(tmp_path / side)]
    lexicon.main(flags)
    rows, versions = read(tmp_path / "rows.json")
    assert versions["numpy"]
    there = lambda row: row.turns or row.note.startswith("absent: ")
    assert all(there(row) and all(figure > 0 for figure in row.turns) for row in rows)
    settings = {}
    for row in rows:
        settings.setdefault((row.table, row.setting), []).append(row)
    assert sorted(table for table, _ in settings) == ["aligning words"] * 4 + ["cutting a text into partitions"] * 2
    for group in settings.values():
        assert sum(row.ours for row in group) == 1 and all(row.unit == "s a million tokens" for row in group)
    assert all("40 " in setting for _, setting in settings)
    peers = [row for row in rows if row.system == "fast_align"]
    assert len(peers) == 2 == sum(row.system == "eflomal" for row in rows) and all(
        bool(row.turns) == bool(shutil.which("fast_align")) for row in peers
    )
    assert list(tmp_path.glob("rows.json*")) == [tmp_path / "rows.json"]
