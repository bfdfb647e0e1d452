"""The built-in aligner as a program: fast_align's model, command line, alignments, tables and errors."""

import math
import os
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
from aligned_text import known_corpus, needs_full, read_table
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_aligner import NULL, SlowAligner

from lv_fairseq.alignment.builtin import entries as entries_of
from lv_fairseq.alignment.builtin.diagonal import Tension, feature, prior
from lv_fairseq.alignment.builtin.entries import chunks_of, each_cell_once, find_entries, keys_of
from lv_fairseq.alignment.builtin.model import Model, Settings
from lv_fairseq.alignment.builtin.shelf import Shelf
from lv_fairseq.alignment.builtin.text import read
from lv_fairseq.alignment.builtin.translation import digamma
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


@pytest.mark.parametrize("closed", [[1], [2], [0, 1, 2]])
def test_the_built_in_aligner_without_an_output(tmp_path, closed):
    known_corpus(tmp_path, 50)
    flags = ("-i", tmp_path / "corpus", "-d", "-o", "-v", "-p")
    assert built_in(*flags, tmp_path / "table").returncode == 0
    result = built_in(*flags, tmp_path / "other", preexec_fn=lambda: [os.close(number) for number in closed])
    assert result.returncode == 0 and b"Traceback" not in result.stderr
    assert (tmp_path / "other").read_bytes() == (tmp_path / "table").read_bytes()
    assert (result.stdout == b"") == (1 in closed)


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


def test_words_that_other_programs_keep_for_themselves(tmp_path):
    (tmp_path / "corpus").write_text("NULL a ||| UNKNOWN_WORD x\na ||| x\nUNKNOWN_WORD ||| <UNUSED_WORD>\n" * 30)
    result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", "-t", "-1000000", "-p", tmp_path / "table")
    assert result.returncode == 0, result.stderr
    table = read_table(tmp_path / "table")
    assert set(table) == {"<eps>", "NULL", "a", "UNKNOWN_WORD"}
    assert table["NULL"][0][1] == "UNKNOWN_WORD" and table["UNKNOWN_WORD"][0][1] == "<UNUSED_WORD>"
    assert result.stdout.split(b"\n")[0] == b"0-0 1-1"


@pytest.mark.parametrize("flags", [[], ["-r"]])
def test_no_sentence_is_too_long_for_the_built_in_aligner(tmp_path, flags):
    known = "a ||| x\nb ||| y\n" * 20
    long = f"{'a ' * 1100}b ||| {'x ' * 1100}y\n"
    longer = f"{'a ' * 40_000}b ||| y\n" if not flags else f"b ||| {'x ' * 40_000}y\n"  # more than 2 bytes count
    (tmp_path / "corpus").write_text(known + long + longer)
    # each of so many words is so unlikely that NULL must be more so
    result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", "-I", 3, "-q", 1e-9, *flags)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().split("\n")
    assert len(lines) == 43 and lines[41] == ("0-40000" if flags else "40000-0")
    links = [tuple(map(int, link.split("-"))) for link in lines[40].split()]
    assert len(links) == 1101 and links[-1] == (1100, 1100)


# --- the model, against one that is computed word by word ---


def random_pairs(seed: int, pairs: int = 40):
    chance = random.Random(seed)
    words = lambda letter: [f"{letter}{chance.randrange(12)}" for _ in range(chance.randint(1, 7))]
    return [(words("s"), words("t")) for _ in range(pairs)]


def write_pairs(path, pairs) -> None:
    path.write_text("".join(f"{' '.join(one)} ||| {' '.join(other)}\n" for one, other in pairs))


def nothing(done) -> None:
    pass


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "chunk, cells, memory, threads",
    [(1 << 18, 32, 1 << 28, 1), (1 << 18, 0, 1 << 28, 1), (60, 32, 0, 1), (60, 2, 500, 3), (10, 0, 500, 2)],
)
def test_tables_tension_and_alignments_are_those_of_the_slow_model(
    tmp_path, monkeypatch, alpha, reverse, chunk, cells, memory, threads
):
    monkeypatch.setattr(entries_of, "CHUNK", chunk)
    monkeypatch.setattr(entries_of, "CELLS", cells)
    monkeypatch.setattr(entries_of, "BUFFER", 50)
    monkeypatch.setattr(entries_of, "Shelf", lambda folder: Shelf(folder, memory))
    pairs = random_pairs(5)
    write_pairs(tmp_path / "corpus", pairs)
    pairs = [pair[::-1] if reverse else pair for pair in pairs]
    slow = SlowAligner(pairs, 4, 0.2, alpha)
    text = read(str(tmp_path / "corpus"), reverse, nothing)
    entries = find_entries(text, str(tmp_path), threads, nothing)
    assert (len(entries.chunks) > 5) == (chunk <= 60) and (entries.shelf.file is not None) == (memory < 1000)
    model = Model(text, entries, Settings(0.2, alpha), threads)
    for _ in range(3):
        model.learn(nothing)
    assert model.tension == pytest.approx(slow.tension, rel=1e-4)
    assert slow.tension not in (0.1, 4.0, 14.0)

    given_words, words = ([word.decode() for word in side.words] for side in (text.given, text.predicted))
    log_t = np.concatenate([block for _, block in model.log_t()])
    fast = {(NULL, word): p for word, p in zip(words, model.null_log_t())}
    for s, (begin, end) in enumerate(zip(entries.starts, entries.starts[1:])):
        fast.update({(given_words[s], words[entries.predicted[k]]): log_t[k] for k in range(begin, end)})
    assert set(fast) == set(slow.t) and min(slow.t.values()) > 0
    assert max(abs(p - math.log(slow.t[pair])) for pair, p in fast.items()) < 0.01
    assert np.mean([abs(p - math.log(slow.t[pair])) for pair, p in fast.items()]) < 1e-4

    positions, at = model.align(nothing), 0
    for number in text.order:
        one, other = pairs[number]
        for j in range(1, len(other) + 1):
            joint = slow.joint(one, other, j)
            assert joint[positions[at]] >= 0.999 * max(joint)  # of equal ones any
            at += 1
    assert at == len(positions)


def test_the_program_writes_what_the_slow_model_says(tmp_path):
    pairs = random_pairs(6)
    write_pairs(tmp_path / "corpus", pairs)
    for flags, alpha, p_null, reverse in [
        (["-v"], 0.01, 0.08, False),
        (["-r", "-q", 0.3], 0.0, 0.3, True),
    ]:
        slow = SlowAligner([pair[::-1] if reverse else pair for pair in pairs], 3, p_null, alpha)
        flags = ("-i", tmp_path / "corpus", "-d", "-o", "-I", 3, "-t", -1000000, "-p", tmp_path / "table", *flags)
        result = built_in(*flags)
        assert result.returncode == 0, result.stderr
        table = read_table(tmp_path / "table")
        assert {(s, t) for s, rows in table.items() for _, t in rows} == set(slow.t)
        for source, rows in table.items():
            for log_p, word in rows:
                assert log_p == pytest.approx(math.log(slow.t[source, word]), abs=0.01)
        for (source, target), line in zip(pairs, result.stdout.decode().splitlines()):
            links = [tuple(map(int, link.split("-"))) for link in line.split()]
            from_ = {j: i for j, i in links} if reverse else {j: i for i, j in links}
            one, other = (target, source) if reverse else (source, target)
            assert len(from_) == len(links)
            for j in range(len(other)):
                joint = slow.joint(one, other, j + 1)
                assert joint[from_.get(j, -1) + 1] >= 0.999 * max(joint)


def test_nothing_depends_on_the_number_of_threads(tmp_path):
    known_corpus(tmp_path, 3000)
    results = set()
    for threads in (1, 2, 5):
        flags = ("-i", tmp_path / "corpus", "-d", "-o", "-v", "-p", tmp_path / "table", "-t", -1000000)
        result = built_in(*flags, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
        assert result.returncode == 0, result.stderr
        results.add((result.stdout, (tmp_path / "table").read_bytes()))
    assert len(results) == 1


def test_the_prior_is_a_probability_and_the_closed_form_is_its_sum():
    shapes = {(1, 1): 3, (4, 7): 2, (7, 4): 1, (5, 5): 4, (200, 1000): 1, (2, 40_000): 1}
    for tension in (0.1, 4.0, 14.0):
        expected = []
        for j, i in sorted(shapes):
            weights = prior(np.arange(1, j + 1), j, i, tension)
            assert weights.sum(axis=1) == pytest.approx(1)
            expected += (weights * feature(np.arange(1, j + 1), j, i)).sum(axis=1).tolist()
        assert Tension(shapes).expected(tension) == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_digamma_has_its_known_values():
    gamma = 0.57721566490153286
    known = {1: -gamma, 0.5: -gamma - 2 * math.log(2), 2: 1 - gamma, 0.25: -gamma - math.pi / 2 - 3 * math.log(2)}
    assert digamma(np.array(list(known))) == pytest.approx(list(known.values()), rel=1e-10)
    assert digamma(np.array([1e7])) == pytest.approx(math.log(1e7) - 0.5e-7, rel=1e-14)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=30), st.integers(1, 80))
@settings(deadline=None)
def test_chunks_hold_each_pair_once(tmp_path_factory, lengths, most):
    path = tmp_path_factory.mktemp("chunks") / "corpus"
    write_pairs(path, [(["a"] * i, ["b"] * j) for i, j in lengths])
    chunks = list(chunks_of(read(str(path), False, nothing), most))
    whole = [(i, c.whole or j) for c in chunks for n, j, i in c.runs for _ in range(n) if c.before == 0]
    assert sorted(whole) == sorted(lengths) and sum(c.pairs for c in chunks) == len(lengths)
    for chunk, after in zip(chunks, [*chunks[1:], None]):
        ((n, j, i), *others) = chunk.runs
        assert sum(n * j * i for n, j, i in chunk.runs) <= most or (n, j, others) == (1, 1, [])
        if chunk.whole and chunk.before + j < chunk.whole:
            assert after.before == chunk.before + j and (after.whole, after.given) == (chunk.whole, chunk.given)
            assert chunk.pairs == 0
        else:
            assert sum(n for n, _, _ in chunk.runs) == chunk.pairs and (after is None or after.before == 0)
    assert [c.tokens.start for c in chunks[1:]] == [c.tokens.stop for c in chunks[:-1]]
    assert chunks[-1].tokens.stop == sum(j for _, j in lengths) and chunks[-1].given.stop == sum(i for i, _ in lengths)


@given(st.integers(1, 300), st.lists(st.integers(0, 299), min_size=1, max_size=100))
def test_links_are_ticked_off_or_sorted_with_one_result(size, numbers):
    cells = np.array([number % size for number in numbers])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries_of, "CELLS", 0)
        by_sorting = each_cell_once(cells, size)
        patch.setattr(entries_of, "CELLS", size)
        in_a_grid = each_cell_once(cells, size)
    for found, places in (by_sorting, in_a_grid):
        assert found.tolist() == sorted(set(cells.tolist())) and places.dtype == np.uint16
        assert found[places].tolist() == cells.tolist()


def test_keys_do_not_overflow():
    words = np.array([70_000, 0, 2**31 - 1], dtype=np.int32)
    keys = keys_of(words, words[::-1], 2**31 - 1)  # a Python number does not make 8 bytes of 4
    assert keys.dtype == np.int64
    most = 2**31 - 1
    assert keys.tolist() == [70_000 * most + most, 0, most * most + 70_000]


def test_short_sentences_of_many_words_take_little_memory(tmp_path):
    (tmp_path / "corpus").write_text("".join(f"a{i} ||| b{i}\n" for i in range(60_000)))
    memory = 1500 << 20  # of addresses, which a grid of 60,000 by 60,000 words does not fit into
    result = built_in(
        *("-i", tmp_path / "corpus", "-d", "-o", "-v", "-I", 2),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == b"0-0\n" * 60_000


def test_progress_inside_an_iteration(tmp_path):
    (tmp_path / "corpus").write_text("a b ||| x y\n" * 60_500)
    result = built_in("-i", tmp_path / "corpus", "-d", "-o", "-v", "-I", 2)
    passes = [part.splitlines() for part in result.stderr.decode().split("ITERATION")]
    assert len(passes) == 3
    for lines in passes:
        assert lines[1] == "." * 50 + " [50000]" and lines[2] == "." * 10


@needs_full
def test_a_disk_that_is_full_for_what_is_kept_of_links(tmp_path):
    shelf = Shelf(str(tmp_path), 0)
    first, second = np.arange(1000), np.arange(7, dtype=np.uint16)
    numbers = shelf.put(first), shelf.put(second)
    assert (shelf.get(numbers[0]) == first).all() and (shelf.get(numbers[1]) == second).all()
    shelf.replace(numbers[0], first.astype(np.uint32)[::-1])
    assert (shelf.get(numbers[0]) == first[::-1]).all() and (shelf.get(numbers[1]) == second).all()
    assert list(tmp_path.iterdir()) == []  # the file has no name
    shelf.file.close()
    with open("/dev/full", "r+b", buffering=0) as shelf.file, pytest.raises(OSError, match="No space left"):
        shelf.put(first)
