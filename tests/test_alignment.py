"""The aligner runs in a subprocess: what it is given, what it writes, how it is found, and how it ends."""

import math
import multiprocessing
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from aligned_text import PYTHON, known_corpus, needs_full, read_table
from conftest import PATIENCE
from hypothesis import given
from hypothesis import strategies as st

from lv_fairseq import processes
from lv_fairseq.alignment import align, find_aligner, write_corpus
from lv_fairseq.alignment.program import BUILT_IN, table_flag
from lv_fairseq.alignment.progress import EflomalProgress, Progress
from lv_fairseq.errors import UserError

REAL = shutil.which("fast_align")

OLD_USAGE = """Usage: fast_align -i file.fr-en
  -c: Output conditional probability table
 Advanced options:
  -p: p_null parameter (default = 0.08)
"""
# builds of today take -p, whatever they say
NEW_USAGE = OLD_USAGE.replace("-p: p_null", "-q: p_null")

STAND_IN = f"""{PYTHON}import getopt, os, signal, sys, time
try:
    options = dict(getopt.getopt(sys.argv[1:], FLAGS)[0])
except getopt.GetoptError as error:
    sys.exit(f"invalid option -- {{error.opt}}\\n" + USAGE)
if "-i" not in options:
    sys.exit(USAGE)
for i in range(1, 1 + int(options["-I"])):
    print("ITERATION", i, file=sys.stderr)
lines = open(options["-i"], encoding="utf-8", newline="\\n").read().split("\\n")
assert lines.pop() == ""
"""


def stand_in(path: Path, body: str = "", usage: str = NEW_USAGE, flags: str = "i:dovrI:t:p:q:") -> Path:
    """A program with fast_align's command line; ``body`` is what it does with ``options`` and ``lines``."""
    head = STAND_IN.replace("USAGE", repr(usage)).replace("FLAGS", repr(flags))
    path.parent.mkdir(exist_ok=True)
    path.write_text(head + body)
    path.chmod(0o755)
    return path


def right_answers(table, dictionary, counts) -> float:
    frequent = [word for word, count in counts.source_counts.items() if count >= 10]
    assert len(frequent) > 20
    return sum(table[word][0][1] == dictionary[word] for word in frequent) / len(frequent)


def text_files(folder: Path, source: bytes, target: bytes):
    (folder / "src").write_bytes(source)
    (folder / "tgt").write_bytes(target)
    return folder / "src", folder / "tgt", folder / "corpus"


@pytest.fixture
def no_fast_align(monkeypatch):
    monkeypatch.delenv("FAST_ALIGN", raising=False)
    monkeypatch.setenv("PATH", os.defpath)
    if shutil.which("fast_align"):
        pytest.skip("fast_align is where it cannot be hidden")


@pytest.fixture
def corpus(tmp_path):
    files = text_files(tmp_path, b"a b\nb c\n", b"x y\ny z\n")
    write_corpus(*files)
    return files[2]


# --- the corpus ---


def test_words_are_split_as_fairseq_splits_them(tmp_path):
    # Unicode blanks part words, Unicode line separators do not part lines, a carriage return is white space
    source = "  ein \u00a0Haus \u2028 da\r\nb b\x85b\n".encode()
    counts = write_corpus(*text_files(tmp_path, source, b"a house\nc"))
    assert (tmp_path / "corpus").read_text(encoding="utf-8") == "ein Haus da ||| a house\nb b b ||| c\n"
    assert (counts.pairs, counts.skipped, counts.source_tokens, counts.target_tokens) == (2, 0, 6, 3)
    assert counts.source_counts == {"ein": 1, "Haus": 1, "da": 1, "b": 3}
    assert counts.target_counts == {"a": 1, "house": 1, "c": 1}


BAD_LINES = [
    (b"", "empty"),
    (b" \xc2\xa0 ", "empty"),
    (b"a ||| b", "|||"),
    (b"a|||b", "|||"),
    (b"a\tb", "tab"),
    (b"a \xff b", "UTF-8"),
    (b"a \xed\xa0\x80", "UTF-8"),  # half a surrogate pair
]


@pytest.mark.parametrize("side", ["src", "tgt"])
@pytest.mark.parametrize("line, word", BAD_LINES)
def test_a_bad_line_is_named_or_skipped(tmp_path, side, line, word):
    good, bad = b"one\ntwo\nthree\n", b"one\n" + line + b"\nthree\n"
    files = text_files(tmp_path, *((bad, good) if side == "src" else (good, bad)))
    with pytest.raises(UserError) as error:
        write_corpus(*files)
    message = str(error.value)
    assert f"{tmp_path / side}, line 2" in message and word in message and "--skip-bad-lines" in message
    assert "\n" not in message
    counts = write_corpus(*files, skip_bad_lines=True)
    assert (counts.pairs, counts.skipped) == (2, 1)
    assert files[2].read_text() == "one ||| one\nthree ||| three\n"
    assert counts.source_counts == counts.target_counts == {"one": 1, "three": 1}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("source, target, lengths", [(b"a\nb\nc", b"x\n", "3 1"), (b"a\n", b"x\ny\nz\nw\n", "1 4")])
def test_sides_of_different_length(tmp_path, skip, source, target, lengths):
    files = text_files(tmp_path, source, target)
    with pytest.raises(UserError) as error:
        write_corpus(*files, skip_bad_lines=skip)
    first, second = lengths.split()
    assert f"{files[0]} has {first} lines" in str(error.value) and f"{files[1]} has {second}" in str(error.value)


def test_files_that_cannot_be_read(tmp_path):
    good = tmp_path / "good"
    good.write_text("a\n")
    (tmp_path / "empty").touch()
    (tmp_path / "bad").write_text("\n")
    (tmp_path / "folder").mkdir()
    for name, words in [("nowhere", "No such file"), ("folder", "directory"), ("empty", "has 0")]:
        for files in [(tmp_path / name, good), (good, tmp_path / name)]:
            with pytest.raises(UserError, match=words) as error:
                write_corpus(*files, tmp_path / "out")
            assert str(tmp_path / name) in str(error.value)
    with pytest.raises(UserError, match="empty is empty"):
        write_corpus(tmp_path / "empty", tmp_path / "empty", tmp_path / "out")
    with pytest.raises(UserError, match="all 1 pairs"):
        write_corpus(good, tmp_path / "bad", tmp_path / "out", skip_bad_lines=True)


@needs_full
def test_a_full_disk_while_the_corpus_is_written(tmp_path):
    source, target, _ = text_files(tmp_path, b"a\n" * 9, b"x\n" * 9)
    with pytest.raises(UserError, match="cannot write /dev/full: No space left"):
        write_corpus(source, target, Path("/dev/full"))


# --- which program ---


def test_the_order_in_which_an_aligner_is_looked_for(tmp_path, monkeypatch, no_fast_align):
    aligner = find_aligner(None)
    assert aligner.command == [sys.executable, str(BUILT_IN)]
    assert aligner.name == f"built-in (numpy {np.__version__})"

    on_path, named, given_one = (stand_in(tmp_path / name / "fast_align") for name in ("path", "env", "given"))
    monkeypatch.setenv("PATH", f"{on_path.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_aligner(None).command == [str(on_path)]
    monkeypatch.setenv("FAST_ALIGN", str(named))
    assert find_aligner(None).command == [str(named)]
    assert find_aligner(str(given_one)).command == [str(given_one)]
    assert find_aligner(str(given_one)).name == f"fast_align ({given_one})"
    assert find_aligner("fast_align").command == [str(on_path)]  # a name without a folder is looked for on the PATH


def test_a_program_that_is_none(tmp_path, monkeypatch):
    other, text, broken = (tmp_path / name for name in ("other", "text", "broken"))
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    text.write_text("hello")
    broken.write_bytes(b"\x7fELF and nothing more")
    broken.chmod(0o755)
    for program, words in [
        (tmp_path / "nowhere", "no such program"),
        (tmp_path, "folder"),
        (text, "chmod"),
        (broken, "cannot be executed"),
        (other, "fast_align's usage"),
    ]:
        with pytest.raises(UserError, match=words) as error:
            find_aligner(str(program))
        assert f"--fast-align {program}" in str(error.value)
        monkeypatch.setenv("FAST_ALIGN", str(program))
        with pytest.raises(UserError, match=words) as error:
            find_aligner(None)
        assert f"$FAST_ALIGN {program}" in str(error.value)


def test_the_table_flag_is_told_by_the_flag_of_p_null():
    assert table_flag(OLD_USAGE) == "-c"
    assert table_flag(NEW_USAGE) == "-p"  # though its text says -c
    assert table_flag("  -p: Output conditional probability table") == "-p"
    assert table_flag("  -c: Output conditional probability table") == "-c"
    assert table_flag("usage: tar [-cpx]") is None


CHECK = """
assert set(options) == set(EXPECTED), options
assert options["-I"] == "3" and options.get("-t", "-1000000") == "-1000000", options
assert os.environ["OMP_NUM_THREADS"] == "2"
assert lines == ["a b ||| x y", "b c ||| y z"], lines
open(options["FLAG"], "w").write("a\\tx\\t-0.5\\n")
"""


@pytest.mark.parametrize("flag, usage, flags", [("-p", NEW_USAGE, "i:dovI:t:p:q:"), ("-c", OLD_USAGE, "i:dovI:c:p:")])
def test_flags_and_input_of_new_and_old_builds(tmp_path, corpus, flag, usage, flags):
    expected = ["-i", "-d", "-o", "-v", "-I", flag] + (["-t"] if flag == "-p" else [])  # old builds have no -t
    body = CHECK.replace("EXPECTED", repr(expected)).replace("FLAG", flag)
    aligner = find_aligner(str(stand_in(tmp_path / "bin" / "fast_align", body, usage, flags)))
    assert aligner.table_flag == flag
    align(aligner, corpus, tmp_path / "table", tmp_path, iterations=3, threads=2)
    assert (tmp_path / "table").read_text() == "a\tx\t-0.5\n"


# --- what it learns ---


@pytest.mark.parametrize("symmetrize", ["none", "intersection", "grow-diag-final-and"])
@pytest.mark.parametrize(
    "program", ["built-in", pytest.param("fast_align", marks=pytest.mark.skipif(not REAL, reason="no fast_align here"))]
)
def test_a_known_dictionary_is_learnt(tmp_path, monkeypatch, program, symmetrize):
    if program == "built-in":
        monkeypatch.delenv("FAST_ALIGN", raising=False)
        monkeypatch.setattr(shutil, "which", lambda name: None)
    aligner = find_aligner(REAL if program == "fast_align" else None)
    assert aligner.name.startswith(program)
    dictionary, counts = known_corpus(tmp_path)
    told = []
    align(aligner, tmp_path / "corpus", tmp_path / "table", tmp_path, symmetrize, progress=lambda *x: told.append(x))
    table = read_table(tmp_path / "table")
    assert right_answers(table, dictionary, counts) >= 0.9
    assert set(table) - {"<eps>"} <= set(counts.source_counts)
    assert ("<eps>" in table) == (symmetrize == "none")
    for rows in table.values():
        total = sum(math.exp(log_p) for log_p, _ in rows)
        assert total < 1.001 if symmetrize == "none" else abs(total - 1) < 1e-4  # the prior takes its share of p
        assert len({target for _, target in rows}) == len(rows)
    if symmetrize == "none":
        assert set(table) - {"<eps>"} == set(counts.source_counts)
        assert {target for _, target in table["<eps>"]} == set(counts.target_counts)  # nothing was cut off
    assert sorted(p.name for p in tmp_path.iterdir()) == ["corpus", "src", "table", "tgt"]  # no alignments left

    shares, names = zip(*told)
    assert all(0 <= a <= b <= 1 for a, b in zip(shares, shares[1:])) and shares[-1] == 1
    assert any("forward, iteration 5 of 5" in name for name in names)
    assert any("reverse, iteration 2 of 5" in name for name in names) == (symmetrize != "none")


@pytest.mark.skipif(not REAL, reason="no fast_align here")
def test_fast_align_and_the_built_in_one_agree(tmp_path, monkeypatch):
    _, counts = known_corpus(tmp_path)
    tables = []
    for program in (REAL, None):
        if program is None:
            monkeypatch.setattr(shutil, "which", lambda name: None)
        align(find_aligner(program), tmp_path / "corpus", tmp_path / "table", tmp_path)
        tables.append(read_table(tmp_path / "table"))
    first, second = tables
    assert {(s, t) for s in first for _, t in first[s]} == {(s, t) for s in second for _, t in second[s]}
    frequent = [word for word, count in counts.source_counts.items() if count >= 10]
    assert np.mean([first[word][0][1] == second[word][0][1] for word in frequent]) > 0.9
    best = np.array([[tables[i][word][0][0] for word in frequent] for i in (0, 1)])
    assert np.abs(best[0] - best[1]).max() < 0.2  # ln p


# --- symmetrised alignments ---


ALIGNMENTS = """
print("\\n".join(REVERSE if "-r" in options else FORWARD))
"""


def aligned_by(folder: Path, corpus: Path, forward, reverse, symmetrize="grow-diag-final-and", table="table"):
    body = ALIGNMENTS.replace("FORWARD", repr(forward)).replace("REVERSE", repr(reverse))
    aligner = find_aligner(str(stand_in(folder / "bin" / "fast_align", body)))
    align(aligner, corpus, folder / table, folder, symmetrize)
    return read_table(folder / table)


def test_probabilities_are_shares_of_links(tmp_path):
    write_corpus(*text_files(tmp_path, b"a b\na c\na b\n", "x y\nx ü\nz y\n".encode()))
    both = ["0-0 1-1", "0-0 1-1", "0-0"], ["0-0 1-1", "0-0 1-1", "0-0 1-1"]
    third = math.log(1 / 3)
    expected = {"a": [(third + math.log(2), "x"), (third, "z")], "b": [(0, "y")], "c": [(0, "ü")]}
    for method in ("grow-diag-final-and", "intersection"):
        table = aligned_by(tmp_path, tmp_path / "corpus", *both, method)
        assert {s: [t for _, t in rows] for s, rows in table.items()} == {
            s: [t for _, t in rows] for s, rows in expected.items()
        }
        for source, rows in expected.items():
            assert [p for p, _ in table[source]] == pytest.approx([p for p, _ in rows], abs=1e-5)


@pytest.mark.parametrize(
    "forward, reverse, words",
    [
        (["0-0", "0-0 1-1"], ["0-0"], "did not align all 2 pairs"),
        (["0-0", "0-0", ""], ["0-0", "0-0"], "did not align all 2 pairs"),
        (["0-0", "0-7"], ["0-0", "0-0 0-7"], "no alignment of pair 2"),
        (["0-0", "hello"], ["0-0", "0-0"], "no alignment of pair 2"),
        (["", ""], ["", ""], "no words at all"),
    ],
)
def test_alignments_that_do_not_fit(tmp_path, corpus, forward, reverse, words):
    with pytest.raises(UserError, match=words):
        aligned_by(tmp_path, corpus, forward, reverse)
    assert not (tmp_path / "table").exists() and not list(tmp_path.glob("*.align"))


@needs_full
def test_a_full_disk_while_frequencies_are_written(tmp_path, corpus):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(UserError, match="cannot write .*full: No space left"):
        aligned_by(tmp_path, corpus, ["0-0", "0-0"], ["0-0", "0-0"], table="full")


# --- how it ends ---


@pytest.mark.parametrize(
    "body, words",
    [
        ("sys.exit('first\\nno room\\n\\n')", "exit status 1; its last words: ITERATION 5 / first / no room"),
        ("sys.exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL (not enough memory?)"),
        ("open(options['-p'], 'w').write('a\\tx\\t-1\\n'); os.abort()", "killed by SIGABRT"),
        ("", "wrote no table"),
        ("open(options['-p'], 'w')", "wrote no table"),
        ("os.unlink(options['-p'])", "wrote no table"),
        ("open(options['-p'], 'w').write('a\\tx\\t-1\\na\\ty')", "did not write the whole table"),
    ],
)
def test_an_aligner_that_fails(tmp_path, corpus, body, words):
    program = stand_in(tmp_path / "bin" / "fast_align", body)
    (tmp_path / "table").write_text("a\tx\t-1\n")  # of another time: must not pass for the new one
    with pytest.raises(UserError) as error:
        align(find_aligner(str(program)), corpus, tmp_path / "table", tmp_path)
    message = str(error.value)
    assert f"fast_align ({program})" in message and words in message and "\n" not in message


def test_an_aligner_that_is_gone_and_bad_settings(tmp_path, corpus):
    program = stand_in(tmp_path / "bin" / "fast_align")
    aligner = find_aligner(str(program))
    for settings_, words in [
        ({"symmetrize": "union"}, "intersection"),
        ({"iterations": 1}, "iterations"),
        ({"threads": 0}, "threads"),
    ]:
        with pytest.raises(UserError, match=words):
            align(aligner, corpus, tmp_path / "table", tmp_path, **settings_)
    with pytest.raises(UserError, match="cannot read .*nowhere"):
        align(aligner, tmp_path / "nowhere", tmp_path / "table", tmp_path)
    with pytest.raises(UserError, match="cannot keep alignments in .*nowhere"):
        align(aligner, corpus, tmp_path / "table", tmp_path / "nowhere", "intersection")
    with pytest.raises(UserError, match="cannot keep alignments in .*corpus"):
        align(aligner, corpus, tmp_path / "table", corpus, "intersection")
    with pytest.raises(UserError, match="cannot write .*nowhere"):
        align(aligner, corpus, tmp_path / "nowhere" / "table", tmp_path)
    program.unlink()
    with pytest.raises(UserError, match="cannot be executed: No such file"):
        align(aligner, corpus, tmp_path / "table", tmp_path)


@needs_full
def test_a_full_disk_while_the_aligner_writes(tmp_path, monkeypatch, no_fast_align):
    known_corpus(tmp_path, 50)
    with pytest.raises(UserError, match="exit status 1; .*No space left on device"):
        align(find_aligner(None), tmp_path / "corpus", Path("/dev/full"), tmp_path)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # a zombie that nobody has collected does nothing any more


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


WAITS = """
IGNORE
if os.fork() == 0:  # as a wrapper script would
    WHO = "inner"
else:
    WHO = "outer"
with open(os.path.join(FOLDER, WHO + ".tmp"), "w") as file:
    file.write(str(os.getpid()))
os.rename(os.path.join(FOLDER, WHO + ".tmp"), os.path.join(FOLDER, WHO + ".pid"))
time.sleep(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    "number, stubborn, status",
    [
        (signal.SIGTERM, False, 128 + signal.SIGTERM),
        (signal.SIGHUP, False, 128 + signal.SIGHUP),
        (signal.SIGINT, False, 128 + signal.SIGINT),
        (signal.SIGTERM, True, 128 + signal.SIGTERM),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
)
def test_the_aligner_does_not_outlive_us(tmp_path, corpus, monkeypatch, number, stubborn, status):
    monkeypatch.setattr(processes, "GRACE", 0.3)
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if stubborn else ""
    body = WAITS.replace("IGNORE", ignore).replace("FOLDER", repr(str(tmp_path)))
    aligner = find_aligner(str(stand_in(tmp_path / "bin" / "fast_align", body)))
    # a fork is a second of importing cheaper than a new process
    handlers = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {x: signal.signal(x, handler) for x, handler in handlers.items()}  # nohup and & ignore these
    us = multiprocessing.get_context("fork").Process(
        target=processes.signals_as_exit()(align), args=(aligner, corpus, tmp_path / "table", tmp_path, "intersection")
    )
    us.start()
    for x, handler in before.items():
        signal.signal(x, handler)
    names = [tmp_path / "outer.pid", tmp_path / "inner.pid"]
    wait_for(lambda: all(name.exists() for name in names))
    outer, inner = (int(name.read_text()) for name in names)
    try:
        assert us.is_alive() and alive(outer) and alive(inner)
        os.kill(us.pid, number)
        us.join(PATIENCE)
        assert us.exitcode == status
        wait_for(lambda: not alive(outer))
        if number != signal.SIGKILL:  # then the kernel ends the program itself only
            wait_for(lambda: not alive(inner))
            assert not list(tmp_path.glob("*.align"))
    finally:
        for pid in (outer, inner):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


TRANSCRIPT = (
    "ARG=i\nINITIAL PASS \n"
    + ("." * 50 + " [50000]\n" + "." * 30 + "\nexpected target length = source length * 1.1\n")
    + "".join(
        f"ITERATION {i}{' (FINAL)' if i == 3 else ''}\n"
        + "." * 50
        + " [50000]\n"
        + "." * 30
        + "\n  log_e likelihood: -1\n"
        for i in (1, 2, 3)
    )
    + "conditional probabilities: table\n"
)


@given(st.lists(st.integers(0, len(TRANSCRIPT)), max_size=30))
def test_progress_is_the_same_however_the_pipe_cuts_it(cuts):
    told = []
    progress = Progress(lambda *x: told.append(x), "fast_align forward", pairs=80_500, iterations=3)
    cuts = sorted({0, *cuts, len(TRANSCRIPT)})
    for begin, end in zip(cuts, cuts[1:]):
        progress.read(TRANSCRIPT[begin:end])
        passes = TRANSCRIPT[:end].count("\nITERATION ") - (TRANSCRIPT[:end].split("\n")[-1].startswith("ITERATION"))
        whole = TRANSCRIPT[:end].rpartition("ITERATION" if passes else "PASS")[2]
        dots = sum(len(line) - len(line.lstrip(".")) for line in whole.split("\n"))
        if "conditional probabilities: table\n" in TRANSCRIPT[:end]:
            assert told[-1] == (0.8, "fast_align forward, writing the table")
        elif TRANSCRIPT[:end].split("\n")[-1][:1] != "I":
            assert told[-1][0] == pytest.approx((passes + dots * 1000 / 80_500) / 5)
            what = f"iteration {passes} of 3" if passes else "reading"
            assert told[-1][1] == f"fast_align forward, {what}"
    shares = [share for share, _ in told]
    assert shares == sorted(shares)


EFLOMAL = "Vocabulary sizes are 3 (source), 4 (target)\n" + "".join(
    f"Aligning with model {i} (22 iterations)\n" * 2 + "Done: 0.1 s\n" * 2 for i in (1, 2, 3)
)


@given(st.lists(st.integers(0, len(EFLOMAL)), max_size=30))
def test_progress_of_eflomal_is_the_same_however_the_pipe_cuts_it(cuts):
    told, whole = [], []
    progress = EflomalProgress(lambda *x: told.append(x))
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(EFLOMAL)]):
        progress.read(EFLOMAL[begin:end])
    EflomalProgress(lambda *x: whole.append(x)).read(EFLOMAL)
    assert told == whole and [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[0] == (0, "eflomal, model 1 of 3") and told[-1][1] == "eflomal, model 3 of 3"
    assert told[-1][0] == pytest.approx(1)
