"""The decoding section of `make bench`, at its smallest: which rows it hands over, whatever their figures."""

import logging
import math
import sys

import pytest
import torch
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from side_by_side import decoding, rows  # noqa: E402

SIZES = ("--words", 300, "--frequent", 60, "--per-word", 2, "--large", 350, "--large-frequent", 80, "--joined", 600)
SIZES += ("--scale", 0.0625, "--layers", 1, "--heads", 2, "--length", 3, "--sentences", 4, "--singles", 2)
SIZES += ("--threads", 1, "--turns", 1, "--latency", 5)
WITHOUT = "without --pack-weights"
ALL, LISTS = ["lv_fairseq", f"lv_fairseq, {WITHOUT}"], ["lv_fairseq, a list a sentence"]
LISTS += [f"{LISTS[0]}, {WITHOUT}", "lv_fairseq, a list for 4 sentences"]
PEERS = {
    "rnnsearch": (["Marian, s2s"], ["Marian, s2s, shortlist"]),
    "transformer": (
        ["CTranslate2 float32", "CTranslate2 int8", "Marian, transformer"],
        ["CTranslate2 float32, vmap", "CTranslate2 int8, vmap", "Marian, transformer, shortlist"],
    ),
}


@pytest.fixture
def measured(tmp_path):
    """Runs the section; gives its rows by what they measure, its setting and system, and its versions."""
    threads = torch.get_num_threads()

    def run(*args) -> tuple:
        decoding.main([str(x) for x in ("--out", tmp_path / "rows.json", *SIZES, *args)])
        found, versions = rows.read(tmp_path / "rows.json")
        return {(row.table.split(", ")[0].split()[-1], row.setting, row.system): row for row in found}, versions

    yield run
    logging.disable(logging.NOTSET)
    torch.set_num_threads(threads)


def systems(found: dict, arch: str, setting: str) -> set:
    return {system for family, where, system in found if (family, where) == (arch, setting)}


def test_lists_are_compared_with_all_words_and_small_models_and_absent_peers_are_named(measured, tmp_path):
    found, versions = measured("--batch", 1, 2, "--beam", 2, "--most", 1500, "--peers", tmp_path)
    assert set(versions) == {"torch", "fairseq"}
    for arch, alone in (("rnnsearch", "fairseq, lstm"), ("transformer", "fairseq alone")):
        of_all, of_lists = PEERS[arch]
        one = "batch 1, beam 2, 1 thread"
        assert systems(found, arch, f"{one}, all words") == {*ALL, alone, *of_all}
        small = {f"lv_fairseq, a model of {words} words" for words in ((60, 80) if arch == "rnnsearch" else (60,))}
        assert systems(found, arch, f"{one}, lists") == {*LISTS, *small, *of_lists}
        assert found[arch, f"{one}, all words", alone].peer
        assert "lv_fairseq, a list a batch" in systems(found, arch, "batch 2, beam 2, 1 thread, lists")
    of_350 = {row.setting for row in rows.read(tmp_path / "rows.json")[0] if row.table.endswith(" 350 words")}
    assert of_350 == {f"batch {batch}, beam 2, 1 thread, lists" for batch in (1, 2)}
    left_out = found["transformer", "batch 2, beam 2, 1 thread, all words", "lv_fairseq"]  # 4 x 600 is more than 1,500
    assert left_out.note.startswith("left out: ") and not left_out.turns
    for (_, setting, system), row in found.items():
        if system.startswith(("Marian", "CTranslate2")):
            assert row.peer and not row.turns and row.note.startswith("absent: ")
        elif row is not left_out:
            assert len(row.turns) == 1 and row.turns[0] > 0 and not row.note.startswith("absent: ")
            one_by_one = {"p50 ms", "longest ms"} if setting.startswith("batch 1,") else set()
            assert {name for name in row.more if name.endswith(" ms")} == one_by_one
            assert not row.ours or 0 < row.more["% products"] < math.inf


def test_what_99_of_100_stay_below_is_said_of_a_hundred():
    system = decoding.System("one")
    for sentences, tail in ((99, "longest ms"), (100, "p99 ms")):
        turns = decoding.Turns(system, decoding.Setting("lists", 1, 5, 1))
        took = [decoding.Took(0.001, (1 + i) / 1000, [["a"]]) for i in range(sentences)]
        turns.add(took)
        row = turns.row("t", length=1)
        assert set(row.more) == {"p50 ms", tail} and 98 <= row.more[tail] <= 100 and not row.note


def test_other_programs_take_as_many_steps_in_their_turns(measured):
    if rows.peer_python() is None or not (rows.peer_packages() / "pymarian").is_dir():
        pytest.skip("not installed: make .venv-peers/.installed")
    found, versions = measured("--batch", 2, "--beam", 2, "--large", 0)
    assert {"marian", "ctranslate2"} < set(versions)
    for arch, both in PEERS.items():
        for which, names in zip(("all words", "lists"), both):
            for name in names:
                row = found[arch, f"batch 2, beam 2, 1 thread, {which}", name]
                assert row.peer and row.turns and "words a sentence and not" not in row.note, row.note
