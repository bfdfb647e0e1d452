"""The built-in aligner as a program: fast_align's command line, alignments, tables and errors."""

import os
import resource
import subprocess
import sys

import pytest
from aligned_text import known_corpus, needs_full, read_table

from lv_fairseq.alignment.program import BUILT_IN, table_flag


def built_in(*arguments, **options):
    return subprocess.run(
        [sys.executable, str(BUILT_IN), *map(str, arguments)],
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **options},
    )


def test_the_built_in_aligner_prints_its_usage():
    result = built_in()
    assert result.returncode == 1 and result.stdout == b""
    assert result.stderr.startswith(b"Usage: ") and table_flag(result.stderr.decode()) == "-p"


@pytest.mark.parametrize(
    "arguments, word",
    [
        ("-i FILE -o", "-d"),
        ("-i FILE -d", "-o"),
        ("-i FILE -d -o -N", "-N"),
        ("-i FILE -d -o -s", "-s"),
        ("-i FILE -d -o -T 3", "-T"),
        ("-i FILE -d -o -a 0.1", "-a"),
        ("-i FILE -d -o -I 1", "-I"),
        ("-i FILE -d -o -I x", "-I x"),
        ("-i FILE -d -o -q 2", "-q"),
        ("-i FILE -d -o -t 1", "-t"),
        ("-i FILE -d -o -x", "-x"),
        ("-i FILE -d -o rest", "rest"),
        ("-i FILE/nowhere -d -o", "nowhere"),
        ("-i FILE -d -o -p FILE/nowhere", "nowhere"),
        ("-i /dev/null -d -o", "empty"),
    ],
)
def test_what_the_built_in_aligner_refuses(tmp_path, arguments, word):
    known_corpus(tmp_path, 50)
    result = built_in(*arguments.replace("FILE", str(tmp_path / "corpus")).split())
    *progress, last = result.stderr.decode().splitlines()
    assert result.returncode == 1 and last.startswith("error: ") and word in last, result.stderr
    assert progress in ([], ["INITIAL PASS"])


@pytest.mark.parametrize("line", ["a b", "a |||", "||| b", "", "a ||| \udcff"])
def test_the_built_in_aligner_names_a_bad_line(tmp_path, line):
    (tmp_path / "corpus").write_text(f"a ||| x\n{line}\n", encoding="utf-8", errors="surrogateescape")
    result = built_in("-i", tmp_path / "corpus", "-d", "-o")
    assert result.returncode == 1 and b"corpus, line 2: " in result.stderr.splitlines()[-1]


@needs_full
def test_the_built_in_aligner_on_a_full_disk(tmp_path):
    known_corpus(tmp_path, 50)
    flags = ("-i", tmp_path / "corpus", "-d", "-o", "-v")
    with open("/dev/full", "wb") as full:
        for result in (built_in(*flags, stdout=full), built_in(*flags, "-p", "/dev/full")):
            assert result.returncode == 1
            assert result.stderr.splitlines()[-1] == b"error: No space left on device"


def test_the_built_in_aligner_notices_that_half_of_its_output_is_lost(tmp_path):
    known_corpus(tmp_path)
    flags = ("-i", tmp_path / "corpus", "-d", "-o", "-v")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    with open(tmp_path / "out", "wb") as out:
        result = built_in(*flags, stdout=out, preexec_fn=limit, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert result.returncode == 1 and result.stderr.splitlines()[-1] == b"error: File too large"


def test_alignments_of_both_directions_name_the_source_first(tmp_path):
    (tmp_path / "corpus").write_text("a b c ||| y z x\na ||| x\nb ||| y\nc ||| z\n" * 20)
    for flags in ([], ["-r"]):
        result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", *flags)
        assert result.returncode == 0, result.stderr
        lines = result.stdout.decode().split("\n")
        assert len(lines) == 81 and lines.pop() == ""
        assert [set(line.split()) for line in lines] == [{"0-2", "1-0", "2-1"}, {"0-0"}, {"0-0"}, {"0-0"}] * 20


def test_the_threshold_is_a_power_of_the_best_probability(tmp_path):
    known_corpus(tmp_path, 100)
    tables = {}
    for flag, threshold in [("-p", "-1000000"), ("-c", "-4"), ("-p", "-2")]:
        flags = ("-d", "-o", "-v", "-I", 2, "-t", threshold, flag)  # the fewer iterations, the less is certain
        result = built_in("-i", tmp_path / "corpus", *flags, tmp_path / "table")
        assert result.returncode == 0, result.stderr
        tables[threshold] = read_table(tmp_path / "table")
    for power, threshold in [(4, "-4"), (2, "-2")]:
        for source, rows in tables["-1000000"].items():
            # a hair's breadth, for logarithms of six digits
            kept = [target for log_p, target in rows if log_p >= power * rows[0][0] - 1e-4]
            surely = [target for log_p, target in rows if log_p >= power * rows[0][0] + 1e-4]
            assert set(surely) <= {target for _, target in tables[threshold].get(source, [])} <= set(kept)
    assert tables["-4"] != tables["-2"] != tables["-1000000"]


def test_words_that_the_library_keeps_for_itself(tmp_path):
    (tmp_path / "corpus").write_text("NULL a ||| UNKNOWN_WORD x\na ||| x\nUNKNOWN_WORD ||| <UNUSED_WORD>\n" * 30)
    result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", "-t", "-1000000", "-p", tmp_path / "table")
    assert result.returncode == 0, result.stderr
    table = read_table(tmp_path / "table")
    assert set(table) == {"<eps>", "NULL", "a", "UNKNOWN_WORD"}
    assert table["NULL"][0][1] == "UNKNOWN_WORD" and table["UNKNOWN_WORD"][0][1] == "<UNUSED_WORD>"
    assert result.stdout.split(b"\n")[0] == b"0-0 1-1"


def test_a_sentence_too_long_for_the_built_in_aligner(tmp_path):
    (tmp_path / "corpus").write_text("a b ||| x y\n" * 20 + "a " * 2000 + "||| x\n")
    result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", "-p", tmp_path / "table")
    assert result.returncode == 0 and b"1 pairs with more than 1024 words" in result.stderr
    lines = result.stdout.split(b"\n")
    assert len(lines) == 22 and lines[20] == b""  # a line all the same
