"""The section of `make bench` about starts, at its smallest: which rows it hands over, whatever their figures."""

import sys

import pytest
import torch
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from side_by_side import rows, start  # noqa: E402

TINY = ("--words", 60, "--frequent", 9, "--per-word", 2, "--scale", 0.02, "--beam", 2, "--turns", 1)


@pytest.mark.slow  # new processes, which is what it measures
def test_all_systems_answer_and_only_fairseq_alone_is_a_peer(tmp_path):
    threads = torch.get_num_threads()
    try:
        start.main([str(x) for x in ("--out", tmp_path / "rows.json", *TINY)])
    finally:
        torch.set_num_threads(threads)
    found, versions = rows.read(tmp_path / "rows.json")
    names = ["python -c 'import torch'", start.FLOOR, start.OURS, start.SERVER, start.ALONE]
    assert [row.system for row in found] == names and {row.unit for row in found} == {"s"}
    assert {(row.table, row.setting) for row in found} == {(start.TABLE, "60 words, beam 2, 1 thread")}
    assert [row.system for row in found if row.ours] == [start.OURS]
    assert [row.system for row in found if row.peer] == [start.ALONE]
    assert all(len(row.turns) == 1 and row.turns[0] > 0 and row.more["processor s"] > 0 for row in found)
    assert all("wall s beyond importing fairseq" in row.more for row in found[2:])
    assert set(versions) == {"torch", "fairseq-fixed"}


def test_a_command_that_does_not_answer_ends_the_section_with_its_last_words(tmp_path):
    files = start.Files(*(tmp_path / name for name in start.Files._fields))
    with pytest.raises(SystemExit, match="did not answer: (?s:.*)no_such_flag"):
        start.interactive(files, "--no_such_flag")
