"""The lexicon: its file, look-up, formats and commands."""

import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from aligned_text import PYTHON
from conftest import BIN, PATIENCE, ROOT, run
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from lv_fairseq import Lexicon, UserError
from lv_fairseq.alignment import write_corpus
from lv_fairseq.candidates import CandidateLists, ranking_from
from lv_fairseq.commands.lexicon import main
from lv_fairseq.errors import UnusableFileError
from lv_fairseq.fingerprint import dictionary_words, fingerprint
from lv_fairseq.lexicon import formats
from lv_fairseq.lexicon.arrays_file import MAGIC, open_arrays, write_arrays
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.lexicon.word_list import find_hashes, index, pack

pytestmark = pytest.mark.usefixtures("signals_as_before")
ABOUT = {"made_by": "a test", "dictionaries": {}}


def lexicon_of(table: dict, **options) -> Lexicon:
    """{key: {target: probability}} as a lexicon."""
    entries = Entries()
    for key, translations in table.items():
        scores = np.log(np.array(list(translations.values()), dtype=float))
        entries.add([key.encode()] * len(scores), [word.encode() for word in translations], scores)
    return Lexicon.of(entries, ABOUT, **options)


words = st.text("abcdé語", min_size=1, max_size=3)
tables = st.dictionaries(
    st.lists(words, min_size=0, max_size=3).map(" ".join),
    st.dictionaries(words, st.integers(1, 1000).map(lambda x: x / 1000), min_size=1, max_size=6),
    max_size=12,
)


@settings(deadline=None, max_examples=150)
@given(tables, st.lists(words, max_size=8), st.integers(0, 4))
def test_candidates_are_those_of_a_slow_look_up(table, sentence, k):
    lexicon = lexicon_of(table)
    expected = set(table.get("", {}))
    for begin in range(len(sentence)):
        for end in range(begin + 1, len(sentence) + 1):
            translations = table.get(" ".join(sentence[begin:end]), {})
            ranked = sorted(translations.items(), key=lambda entry: -entry[1])
            if len({p for _, p in ranked}) < len(ranked):  # equals: any of them may come first
                ranked = [(word, p) for word, p in lexicon.translations(" ".join(sentence[begin:end]))]
            expected.update(word for word, _ in ranked[:k])
    found = lexicon.candidates(sentence, k)
    assert set(found) == expected and len(found) == len(expected)
    for word in sentence:
        best = max(table.get(word, {}).values(), default=None)
        assert lexicon.best(word) is None if best is None else table[word][lexicon.best(word)] == best


def test_entries_are_pruned_while_they_come_in(monkeypatch):
    monkeypatch.setattr("lv_fairseq.lexicon.entries.BLOCK", 50)
    random = np.random.default_rng(3)
    entries, slow = Entries(most=4), {}
    for _ in range(40):
        sources, targets, scores = random.integers(0, 9, 30), random.integers(0, 30, 30), -random.random(30)
        entries.add([b"s%d" % i for i in sources], [b"t%d" % i for i in targets], scores)
        for source, target, score in zip(sources.tolist(), targets.tolist(), scores.tolist()):
            pairs = slow.setdefault(f"s{source}", {})
            pairs[f"t{target}"] = max(score, pairs.get(f"t{target}", -math.inf))
    assert len(entries._blocks[0][0]) < 500
    lexicon = Lexicon.of(entries, ABOUT)
    for key, pairs in slow.items():
        expected = sorted(pairs.items(), key=lambda pair: -pair[1])[:4]
        assert lexicon.translations(key) == [(word, pytest.approx(math.exp(score))) for word, score in expected]


def test_a_file_holds_it_all(tmp_path):
    table = {"house": {"Haus": 0.7, "Häuser": 0.3}, "new york": {"New": 0.5, "York": 0.4}, "": {".": 1.0}}
    made = lexicon_of(table, target_counts={b"York": 5, b".": 9, b"Haus": 7, "Häuser".encode(): 1, b"und": 8})
    made.save(tmp_path / "lexicon")
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert list(lexicon.target_words) == [".", "und", "Haus", "York", "Häuser", "New"]
    assert list(lexicon.keys) == ["", "house", "new york"] and lexicon.about == made.about
    assert dict(lexicon.translations("house")) == pytest.approx(table["house"])
    assert lexicon.candidates(["a", "new", "york", "house"], 1) == [".", "Haus", "New"]
    assert lexicon.candidates(["new", "house"], 2) == [".", "Haus", "Häuser"]
    assert lexicon.best("house") == "Haus" and lexicon.best("new") is None and lexicon.best("\udcff") is None
    assert not lexicon.targets[:].flags.writeable


def test_a_damaged_or_foreign_file_ends_in_one_line(tmp_path):
    lexicon_of({f"s{i}": {f"t{i}": 0.5} for i in range(50)}).save(tmp_path / "good")
    good = (tmp_path / "good").read_bytes()
    bad = [good[:size] for size in (0, 5, len(MAGIC) + 3, 60, 200, len(good) // 2, len(good) - 1)]
    bad += [b"PK\3\4" + good, good.replace(b'"version": 2', b'"version": 9'), good + b"x", MAGIC + b"\xff" * 100]
    bad += [good.replace(b'"arrays"', b'"arraya"')]
    for content in bad:
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(UserError) as error:
            Lexicon.load(tmp_path / "bad")
        assert str(error.value).count(str(tmp_path / "bad")) == 1 and "\n" not in str(error.value)
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="cannot read"):
            Lexicon.load(path)


def answers(path) -> list:
    """All that a lexicon can be asked."""
    lexicon = Lexicon.load(path)
    keys = list(lexicon.keys)
    found = [lexicon.candidates(keys[i : i + 5], 2) for i in range(0, len(keys), 5)]
    return [*found, *map(lexicon.translations, keys), *map(lexicon.best, keys), *lexicon.target_words, lexicon.about]


def flips(content: bytes, how_many: int):
    """Copies with one bit turned over, evenly all over."""
    for i in range(how_many):
        bit = i * (8 * len(content) - 1) // (how_many - 1)
        copy = bytearray(content)
        copy[bit // 8] ^= 1 << bit % 8
        yield bytes(copy)


def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "lexicon"
    table = {f"s{i}": {f"t{i * j % 37}ü": 1 / j for j in (1, 2, 3)} for i in range(30)}
    lexicon_of({**table, "s1 s2": {"t1ü": 0.5}, "": {".": 1.0}}).save(path)
    right, noticed = answers(path), 0
    for content in flips(path.read_bytes(), 600):
        path.write_bytes(content)
        try:
            assert answers(path) == right
        except UnusableFileError as error:
            assert str(error).count(str(path)) == 1 and "\n" not in str(error)
            noticed += 1
    assert noticed > 500  # the others are in padding


def test_a_lexicon_of_version_1_is_still_read_with_a_warning(tmp_path, caplog):
    old = ROOT / "tests" / "data" / "version-1.lexicon"
    lexicon = Lexicon.load(old)
    (said,) = caplog.messages
    assert f"{old} is of version 1, without checksums" in said and f"lv-lexicon convert {old} --out NEW" in said
    assert "\n" not in said
    caplog.clear()
    lexicon.verify()
    assert list(lexicon.target_words) == [".", "und", "Haus", "York", "Häuser", "New", "das", "die"]
    assert list(lexicon.keys) == ["", "house", "new york", "the"] and not lexicon.has_checksums
    assert lexicon.candidates(["a", "new", "york", "house"], 1) == [".", "Haus", "New"]
    assert dict(lexicon.translations("the")) == pytest.approx({"das": 0.5, "die": 0.4})
    lexicon.save(tmp_path / "new")
    assert Lexicon.load(tmp_path / "new").has_checksums and not caplog.messages
    assert answers(tmp_path / "new") == answers(old)
    for content in flips(old.read_bytes(), 400):
        (tmp_path / "old").write_bytes(content)
        try:
            answers(tmp_path / "old")  # without checksums, not all is noticed
        except UnusableFileError as error:
            assert "\n" not in str(error)


@pytest.fixture
def large(tmp_path):
    """A lexicon of which the arrays have many blocks."""
    path = tmp_path / "large"
    lexicon_of({f"s{i:05}": {f"t{i:05}": 0.5, f"t{i * 7 % 9000:05}": 0.25} for i in range(9000)}).save(path)
    return path


def test_damage_is_noticed_where_it_is_used_and_by_verify(large):
    content = bytearray(large.read_bytes())
    place = content.index(b"t08000")
    content[place] ^= 1
    large.write_bytes(content)
    lexicon = Lexicon.load(large)
    assert lexicon.best("s00005") == "t00005"
    for _ in range(2):
        with pytest.raises(UnusableFileError, match="target_text is not what was written"):
            lexicon.best("s08000")
    assert lexicon.best("s00006") == "t00006"
    with pytest.raises(UnusableFileError):
        Lexicon.load(large).verify()
    with pytest.raises(SystemExit, match="damaged, make it again"):
        main(["inspect", str(large)])


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_that_changes_while_it_is_in_use_is_noticed(large, version):
    before = large.read_bytes()

    def opened() -> Lexicon:
        large.write_bytes(before)
        lexicon = Lexicon.load(large)
        if version == 1:
            for array in lexicon._arrays.values():
                array.checksums = None
        assert lexicon.best("s00005") == "t00005"
        return lexicon

    lexicon = opened()
    os.truncate(large, len(before) // 9)  # SIGBUS, were it mapped
    with pytest.raises(UnusableFileError, match="ends too early"):
        lexicon.best("s08000")
    assert lexicon.best("s00005") == "t00005"
    lexicon = opened()
    large.write_bytes(before.replace(b"t08", b"x08"))
    os.utime(large, ns=(0, 0))  # written at another time, whatever the clock's steps are
    with pytest.raises(UnusableFileError, match="not what was written|changed while in use"):
        lexicon.best("s08000")
    lexicon = opened()
    lexicon_of({"s08000": {"another": 0.5}}).save(large)
    assert lexicon.best("s08000") == "t08000" and Lexicon.load(large).best("s08000") == "another"
    lexicon.verify()


def in_memory(lexicon: Lexicon) -> dict:
    """How many blocks of each array were read."""
    return {name: int(array._known.sum()) for name, array in lexicon._arrays.items()}


def test_opening_and_looking_up_read_a_few_blocks_whatever_the_number_of_keys(tmp_path):
    keys, path = [b"%06d" % i for i in range(200_000)], tmp_path / "lexicon"
    arrays = {"starts": np.arange(len(keys) + 1), "targets": np.arange(len(keys), dtype=np.int32)}
    arrays["scores"] = np.full(len(keys), -0.5)
    for side in ("source", "target"):
        arrays[f"{side}_text"], arrays[f"{side}_starts"] = pack(keys)
    arrays.update({f"source_{name}": array for name, array in index(keys).items()})
    with open(path, "wb") as file:
        write_arrays(file, {**ABOUT, "by_frequency": False, "longest_key": 1}, arrays)
    lexicon = Lexicon.load(path)
    assert max(in_memory(lexicon).values()) <= 2  # the first and the last
    words = ["000000", "123456", "199999", "none"]
    assert lexicon.candidates(words) == words[:3] and max(in_memory(lexicon).values()) <= 4 * len(words)
    lexicon = Lexicon.load(path)
    assert lexicon.best("123456") == lexicon.keys[123_456] == "123456" and max(in_memory(lexicon).values()) <= 6


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(2**64 - 9, 2**64 - 1)), max_size=300),
    st.lists(st.integers(0, 2**64 - 1), max_size=5),
)
def test_hashes_are_found_also_where_they_are_not_spread_evenly(there, others):
    hashes = np.sort(np.array(there, dtype=np.uint64))
    wanted = np.array([*there, *others, 0, 2**64 - 1], dtype=np.uint64)
    begins, counts = find_hashes(hashes, wanted)
    assert np.array_equal(begins, np.searchsorted(hashes, wanted, side="left"))
    assert np.array_equal(begins + counts, np.searchsorted(hashes, wanted, side="right"))


def test_keys_that_are_not_in_alphabetical_order_are_refused(tmp_path):
    lexicon = lexicon_of({"": {"x": 0.5}, "a": {"b": 0.5}})
    lexicon._arrays["source_text"], lexicon._arrays["source_starts"] = pack([b"a", b""])
    lexicon._arrays.update({f"source_{name}": array for name, array in index([b"a", b""]).items()})
    with pytest.raises(UnusableFileError, match="not in alphabetical order"):
        lexicon.save(tmp_path / "lexicon")


def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        for read in (
            Lexicon.load,
            lambda path: main(["inspect", str(path)]),
            lambda path: main(["convert", str(path), "--out", str(tmp_path / "out")]),
        ):
            with pytest.raises((UnusableFileError, SystemExit), match="no ordinary file|folder"):
                read(path)


def test_a_file_that_is_whole_and_yet_wrong_is_refused(tmp_path):
    lexicon_of({"a": {"b": 0.5}}).save(tmp_path / "good")
    before = (tmp_path / "good").read_bytes()
    changes = [
        ("targets", lambda x: x + 7),
        ("starts", lambda x: x[::-1]),
        ("source_starts", lambda x: x * 9),
        ("scores", lambda x: x * np.nan),
        ("source_order", lambda x: x - 1),
        ("source_hashes", lambda x: x + np.uint64(1)),
        ("target_text", lambda x: x | 0x80),
        ("scores", lambda x: x.astype(np.float32)),
        ("scores", lambda x: x[:0]),
    ]
    for name, change in changes:
        lexicon = lexicon_of({"a": {"b": 0.5, "c": 0.25}, "d": {"e": 0.5}})
        lexicon._arrays[name] = change(lexicon._arrays[name])
        with pytest.raises(UnusableFileError, match="damaged"):
            lexicon.save(tmp_path / "good")
        assert (tmp_path / "good").read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    for about in ({"longest_key": 10**12}, {"longest_key": 0}, {"by_frequency": 3}, {"dictionaries": {"target": "x"}}):
        lexicon = lexicon_of({"a": {"b": 0.5}})
        lexicon.about.update(about)
        with pytest.raises(UnusableFileError, match="damaged"):
            lexicon.save(tmp_path / "good")


def test_a_lexicon_goes_to_other_processes(large):
    lexicon = Lexicon.load(large)
    assert pickle.loads(pickle.dumps(lexicon)).candidates(["s00005", "s08000"], 1) == ["t00005", "t08000"]


def test_parts_of_a_stored_array_are_those_of_the_array(tmp_path):
    array = np.arange(10_000) * 3
    with open(tmp_path / "file", "wb") as file:
        write_arrays(file, {}, {"some": array, "none": array[:0]})
    stored = lambda: open_arrays(tmp_path / "file")[1]["some"]
    indices = [0, 9_999, -1, slice(5, 6), slice(2_047, 2_049), slice(None), slice(-3, None), slice(0, 9_000, 7)]
    indices += [slice(4, 2), np.array([9_999, 3, 3]), np.array([-1, 5]), np.zeros(0, np.int64), array % 2 == 0]
    indices += [np.int32(9_999), np.int64(-10_000)]
    for some in indices:
        assert np.array_equal(stored()[some], array[some])
    assert np.array_equal(np.asarray(stored()), array) and len(stored()) == 10_000
    assert len(open_arrays(tmp_path / "file")[1]["none"][:]) == 0
    with pytest.raises(IndexError):
        stored()[10_000]


def test_it_needs_no_fairseq(tmp_path):
    lexicon_of({"a": {"b": 0.5}}).save(tmp_path / "lexicon")
    code = "import sys; sys.modules.update(fairseq=None, torch=None)\nimport lv_fairseq\n"
    code += "print(lv_fairseq.Lexicon.load(sys.argv[1]).candidates(['a'], 1))"
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "lexicon"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.stdout.strip() == "['b']", result.stderr


TEXTS = {
    "fast_align": "house\tHaus\t-0.693147\nhouse\tGebäude\t-1.5\nthe\tdas\t-0.000123456\nthe\tdie\t-95.25\n",
    "moses": "Haus house 0.5\nGebäude house 0.1234567\ndas the 0.999\ndie the 0.0000012\n",
    "vmap": "\t. ,\nhouse\tHaus Gebäude\nnew york\tNew York\n",
    "tsv": "source\ttarget\tprobability\nhouse\tHaus\t0.5\nhouse\tGebäude\t0.25\nnew york\tNew\t0.125\n",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_goes_into_a_lexicon_and_comes_back_as_it_was(kind, tmp_path):
    (tmp_path / "in").write_text(TEXTS[kind], encoding="utf-8")
    summary = run("lv-lexicon", "convert", tmp_path / "in", "--out", tmp_path / "lexicon").stdout
    assert "entries" in summary and "seconds" in summary and len(summary.splitlines()) == 1
    run("lv-lexicon", "convert", tmp_path / "lexicon", "--out", tmp_path / "out", "--to", kind)
    same = (tmp_path / "out").read_text(encoding="utf-8").splitlines()
    expected = TEXTS[kind].splitlines()
    assert [line.replace("1.2e-06", "0.0000012") for line in same] == expected


def test_any_format_turns_into_any_other(tmp_path):
    (tmp_path / "table").write_text(TEXTS["fast_align"], encoding="utf-8")
    ways = ["lex.s2t", "a.tsv", "a.vmap", "lexicon", "marian"]
    before, options = tmp_path / "table", []
    for name in ways:
        options = ["--to", "marian"] if name == "marian" else []
        run("lv-lexicon", "convert", before, "--out", tmp_path / name, *options)
        before = tmp_path / name
    ranked = [line.split()[:2] for line in before.read_text(encoding="utf-8").splitlines()]
    assert ranked == [["Haus", "house"], ["Gebäude", "house"], ["das", "the"], ["die", "the"]]
    text = (tmp_path / "lex.s2t").read_text(encoding="utf-8").splitlines()
    assert [float(line.split()[2]) for line in text] == pytest.approx(
        [math.exp(x) for x in (-0.693147, -1.5, -0.000123456, -95.25)]
    )


def test_keys_that_a_format_cannot_hold_are_counted(tmp_path):
    (tmp_path / "in").write_text(TEXTS["vmap"], encoding="utf-8")
    result = run("lv-lexicon", "convert", tmp_path / "in", "--out", tmp_path / "lex.e2f", "--max-per-word", 1)
    assert "2 keys left out" in result.stdout and "1 entries for 1 source words" in result.stdout
    assert (tmp_path / "lex.e2f").read_text(encoding="utf-8") == "Haus house 1\n"


@pytest.mark.parametrize("kind", ["moses", "vmap"])
def test_target_words_that_a_format_cannot_hold_are_counted(kind, tmp_path, capsys):
    lines = ["a\tzwei Wörter\t0.5", "a\teins\t0.25", "b\tnur zwei\t0.5", "c\tdrei\t0.5"]
    (tmp_path / "in").write_text("source\ttarget\tprobability\n" + "\n".join(lines) + "\n", encoding="utf-8")
    main(["convert", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--to", kind])
    assert f"2 entries for 2 source words, 1 keys and 1 translations left out that {kind}" in capsys.readouterr().out
    main(["convert", str(tmp_path / "out"), "--out", str(tmp_path / "again"), "--from", kind])
    lexicon = Lexicon.load(tmp_path / "again")
    assert list(lexicon.keys) == ["a", "c"] and lexicon.best("a") == "eins" and lexicon.best("c") == "drei"


@pytest.mark.parametrize("kind", ["moses", "tsv"])
def test_entries_whose_probability_is_read_as_0_are_counted(kind, tmp_path, capsys):
    (tmp_path / "in").write_text("a\tb\t-5000\na\tc\t-6000\nd\te\t-0.5\n")
    main(["convert", str(tmp_path / "in"), "--out", str(tmp_path / "out"), "--to", kind])
    assert "left out" not in capsys.readouterr().out
    main(["convert", str(tmp_path / "out"), "--out", str(tmp_path / "again")])
    assert "1 entries for 1 source words, 2 of probability 0 left out, " in capsys.readouterr().out


@pytest.mark.parametrize("kind", TEXTS)
def test_a_byte_order_mark_is_no_part_of_a_word(kind, tmp_path, capsys):
    (tmp_path / "in").write_text("\ufeff" + TEXTS[kind], encoding="utf-8")
    (tmp_path / "plain").write_text(TEXTS[kind], encoding="utf-8")
    for name in ("in", "plain"):
        main(["convert", str(tmp_path / name), "--out", str(tmp_path / f"{name}.lexicon")])
    assert answers(tmp_path / "in.lexicon") == answers(tmp_path / "plain.lexicon")


def test_a_byte_order_mark_in_texts_and_dictionaries(tmp_path, capsys):
    mark = "\ufeff".encode()
    for name, text in (("src", b"a b\nb a\n"), ("tgt", b"x y\ny x\n")):
        (tmp_path / name).write_bytes(mark + text)
    counts = write_corpus(tmp_path / "src", tmp_path / "tgt", tmp_path / "corpus")
    assert counts.source_counts == {"a": 2, "b": 2} and counts.target_counts == {"x": 2, "y": 2}
    lexicon_of({"a": {"x": 0.5}}, target_counts={b"x": 2, b"y": 1}).save(tmp_path / "lexicon")
    files = ["--source", str(tmp_path / "src"), "--target", str(tmp_path / "tgt")]
    main(["coverage", str(tmp_path / "lexicon"), *files, "--frequent", "0", "--per-word", "1"])
    assert capsys.readouterr().out.splitlines()[4].split() == ["0", "50.00", "%"]
    (tmp_path / "dict").write_bytes(mark + b"x 2\ny 1\n")
    with pytest.raises(UserError, match="byte order mark"):
        dictionary_words(tmp_path / "dict")


@pytest.mark.parametrize("number", ["9" * 23, "9" * 5000, "-1", "1.5", "²", ""])
@pytest.mark.parametrize(
    "command",
    [
        "coverage x --source a --target b --per-word=N",
        "coverage x --source a --target b --frequent=5,N",
        "inspect x --most=N",
        "convert x --out y --max-per-word=N",
        "build --source a --target b --out c --max-per-word=N",
        "build --source a --target b --out c --iterations=N",
        "build --source a --target b --out c --threads=N",
    ],
)
def test_numbers_that_are_none_or_too_large_are_refused(command, number, capsys):
    with pytest.raises(SystemExit) as error:
        main(command.replace("N", number).split())
    last = capsys.readouterr().err.splitlines()[-1]
    assert error.value.code == 2 and ("must be" in last or "is not a list of numbers" in last) and len(last) < 200


def test_more_entries_than_there_are_means_all(tmp_path):
    lexicon = lexicon_of({"a": {"b": 0.5, "c": 0.25}})
    assert lexicon.candidates(["a"], 10**23) == ["b", "c"] and len(lexicon.limited_to(10**23).targets) == 2


def test_the_empty_word_of_aligners_and_impossible_pairs_are_left_out(tmp_path):
    (tmp_path / "table").write_text("<eps>\tx\t-1\na\t<eps>\t-2\na\tb\t-3\na\tc\t-inf\n")
    (tmp_path / "lex").write_text("x NULL 0.5\nNULL a 0.5\nb a 0.25\nc a 0.0000000\n")
    for name, kind in (("table", "fast_align"), ("lex", "moses")):
        lexicon = Lexicon.of(formats.read(tmp_path / name, kind), ABOUT)
        assert list(lexicon.keys) == ["a"] and list(lexicon.target_words) == ["b"]
    assert formats.read(tmp_path / "table", "fast_align").impossible == 1  # those of the empty word do not count


@pytest.mark.parametrize(
    "kind, text, line, what",
    [
        ("fast_align", b"a\tb\t-1\na\tb\n", 2, "two words"),
        ("fast_align", b"a\tb\t-1\n\na\tc\t-1\n", 2, "two words"),
        ("fast_align", b"a\tb\t-1\na\tc\tmuch\n", 2, "'much'"),
        ("fast_align", b"a\tb\t-1\na\tc\t2.5\n", 2, "logarithm"),
        ("fast_align", b"a\tb\t-1\na\tc\tnan\n", 2, "logarithm"),
        ("fast_align", b"a\tb\t-1\n\xff\tc\t-1\n", 2, "UTF-8"),
        ("moses", b"a b 0.5\na b c 0.5\n", 2, "two words"),
        ("moses", b"a b 0.5\na b 7\n", 2, "probability"),
        ("tsv", b"source\ttarget\tprobability\na\tb\t-3\n", 2, "probability"),
        ("vmap", b"a\tb c\nd e\n", 2, "one tab"),
        ("fast_align", b"a\tb\t-1\n\tc\t-1\n", 2, "two words"),
        ("fast_align", b"a\tb\t-1\na\t\t-1\n", 2, "two words"),
        ("tsv", b"source\ttarget\tprobability\n\tb\t0.5\n", 2, "two words"),
        ("tsv", b"source\ttarget\tprobability\na\t\t0.5\n", 2, "two words"),
    ],
)
def test_a_damaged_text_is_named_with_its_line(kind, text, line, what, tmp_path, monkeypatch):
    (tmp_path / "in").write_bytes(text)
    for block in (1 << 24, 10):
        monkeypatch.setattr(formats, "BLOCK_BYTES", block)
        with pytest.raises(UserError) as error:
            formats.read(tmp_path / "in", kind)
        assert f"line {line}:" in str(error.value) and what in str(error.value)


def refused(*command, words, **how):
    result = run(*command, check=False, **how)
    assert result.returncode in (1, 2) and "Traceback" not in result.stderr, result.stderr
    assert all(word in result.stderr.strip().splitlines()[-1] for word in words), result.stderr


def test_what_cannot_be_converted_is_told_in_one_line(tmp_path):
    (tmp_path / "prose").write_text("It was a dark and stormy night.\n")
    (tmp_path / "empty").write_text("")
    out = ("--out", tmp_path / "out")
    refused("lv-lexicon", "convert", tmp_path / "prose", *out, words=["prose", "no table"])
    refused("lv-lexicon", "convert", tmp_path / "empty", *out, words=["empty"])
    refused("lv-lexicon", "convert", tmp_path / "none", *out, words=["none"])
    refused("lv-lexicon", "convert", tmp_path / "prose", "--out", tmp_path / "no" / "out", words=["folder"])
    refused("lv-lexicon", "inspect", tmp_path / "none", words=["none"])
    refused("lv-lexicon", "coverage", tmp_path / "none", "--source", "a", "--target", "b", words=["none"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "prose"]


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    (tmp_path / "in").write_text("".join(f"s{i}\tt{i}\t-1\n" for i in range(20000)))
    (tmp_path / "out").write_text("what was there before")

    def little_space():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    command = [BIN / "lv-lexicon", "convert", tmp_path / "in", "--out", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True, preexec_fn=little_space)
    assert result.returncode == 1 and "cannot write" in result.stderr.strip().splitlines()[-1]
    assert (tmp_path / "out").read_text() == "what was there before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_inspect_shows_sizes_and_words(tmp_path):
    lexicon_of({"house": {"Haus": 0.7, "Gebäude": 0.2, "Hause": 0.1}, "the": {"das": 1.0}}).save(tmp_path / "lexicon")
    text = run("lv-lexicon", "inspect", tmp_path / "lexicon").stdout
    assert "source words: 2" in text and "entries: 4" in text and "made by: a test" in text
    text = run("lv-lexicon", "inspect", tmp_path / "lexicon", "house", "nothing", "--most", 2).stdout.splitlines()
    assert text[0] == "house: 3 translations" and text[1].split()[:2] == ["Haus", "0.700000"]
    assert "1 more" in text[3] and text[4] == "nothing: no entry"


def test_coverage_equals_counting_by_hand(tmp_path):
    random = np.random.default_rng(5)
    table = {f"s{i}": {f"t{random.integers(40)}": p for p in (0.5, 0.3, 0.1)} for i in range(20)}
    table["s1 s2"] = {"t39": 0.5}
    sentences = [[f"s{i}" for i in random.integers(0, 25, random.integers(0, 7))] for _ in range(30)] + [["s1", "s2"]]
    references = [[f"t{i}" for i in random.integers(0, 45, random.integers(0, 7))] for _ in range(30)] + [["t39"]]
    counts = Counter({f"t{i}".encode(): 100 - i for i in range(42)})
    lexicon_of(table, target_counts=counts).save(tmp_path / "lexicon")
    for name, lines in (("src", sentences), ("tgt", references)):
        (tmp_path / name).write_text("".join(" ".join(line) + "\n" for line in lines))
    files = ("--source", tmp_path / "src", "--target", tmp_path / "tgt")
    grid = ("--frequent", "0,10,42", "--per-word", "0,1,3")
    text = run("lv-lexicon", "coverage", tmp_path / "lexicon", *files, *grid).stdout
    rows = [line.replace("%", "").split() for line in text.splitlines()]
    shares = [[float(x) for x in row[1:]] for row in rows[4:7]]
    sizes = [[float(x) for x in row[1:]] for row in rows[10:13]]
    lexicon = Lexicon.load(tmp_path / "lexicon")
    for i, k in enumerate((0, 10, 42)):
        for j, per_word in enumerate((0, 1, 3)):
            held = length = 0
            for source, reference in zip(sentences, references):
                candidates = {f"t{x}" for x in range(k)} | set(lexicon.candidates(source, per_word))
                held += sum(word in candidates for word in reference)
                length += len(candidates)
            assert shares[i][j] == pytest.approx(100 * held / sum(map(len, references)), abs=0.006)
            assert sizes[i][j] == pytest.approx(length / len(sentences), abs=0.51)
    (tmp_path / "dict").write_text("".join(f"t{i} {50 - i}\n" for i in range(5)))
    text = run("lv-lexicon", "coverage", tmp_path / "lexicon", *files, *grid, "--target-dict", tmp_path / "dict").stdout
    inside = sum(int(word[1:]) < 5 for reference in references for word in reference)
    assert float(text.splitlines()[6].split()[-2]) == pytest.approx(100 * inside / sum(map(len, references)), abs=0.006)


@pytest.mark.parametrize("source_words", [False, True])
def test_coverage_is_that_of_the_lists_that_decoding_makes(tmp_path, capsys, source_words):
    """With a joined dictionary, where frequent is what the target text counts."""
    chance = np.random.default_rng(3)
    table = {f"s{i}": {f"t{chance.integers(9)}": 0.5, "name1": 0.3} for i in range(6)}
    lexicon_of(table).save(tmp_path / "lexicon")
    words = [f"{kind}{i}" for i in range(9) for kind in ("s", "t", "name")]
    sources = [chance.choice(["s1", "s2", "s5", "name3", "name4", "t1"], 5).tolist() for _ in range(20)]
    references = [chance.choice(words, 4).tolist() for _ in range(20)]
    counted = chance.choice([word for word in words if word[0] != "s"], 50).tolist()
    for name, lines in (
        ("src", sources),
        ("tgt", references),
        ("text", [counted]),
        ("dict", [[w, "1"] for w in words]),
    ):
        (tmp_path / name).write_text("".join(" ".join(line) + "\n" for line in lines))
    flags = ["--source", "src", "--target", "tgt", "--target-dict", "dict", "--frequent-words", "text"]
    flags = [flag if flag.startswith("--") else str(tmp_path / flag) for flag in flags]
    flags += ["--frequent", "5", "--per-word", "1"] + ["--source-words"] * source_words
    main(["coverage", str(tmp_path / "lexicon"), *flags])
    rows = [line.replace("%", "").split() for line in capsys.readouterr().out.splitlines()]
    dictionary = Dictionary.load(str(tmp_path / "dict"))
    ranking = ranking_from(tmp_path / "text", dictionary)
    lists = CandidateLists(dictionary, 5, lexicon_of(table), 1, ranking=ranking, source_words=source_words)
    held = [{*lists.common.tolist(), *lists.others(source).tolist()} for source in sources]
    share = np.mean([dictionary.index(word) in words for words, line in zip(held, references) for word in line])
    assert float(rows[4][1]) == pytest.approx(100 * share, abs=0.006)
    assert float(rows[8][1]) == pytest.approx(np.mean([len(words) - 4 for words in held]), abs=0.51)


def test_a_dictionary_has_the_same_fingerprint_as_in_a_model(data):
    import torch

    from lv_fairseq.data_folder import load_dictionary

    path = data / "dict.tgt.txt"
    assert dictionary_words(path) == load_dictionary(str(path)).symbols
    assert torch.tensor(fingerprint(dictionary_words(path))).dtype == torch.int64


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """Sentences in which source word sN is always tN, in the same order, with a word on one side now and then."""
    random = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("parallel")
    with open(folder / "src", "w") as source, open(folder / "tgt", "w") as target:
        for _ in range(1500):
            numbers = random.integers(0, 60, random.integers(3, 9)).tolist()
            source.write(" ".join(f"s{i}" for i in numbers) + (" the" if random.random() < 0.3 else "") + "\n")
            target.write(" ".join(f"t{i}" for i in numbers) + " .\n")
    return folder


def build(folder, out, *options, **how):
    files = ("--source", folder / "src", "--target", folder / "tgt", "--out", out)
    return run("lv-lexicon", "build", *files, *options, **how)


@pytest.mark.parametrize("symmetrize", ["none", "intersection", "grow-diag-final-and"])
def test_build_finds_the_right_translations(parallel, tmp_path, symmetrize):
    result = build(parallel, tmp_path / "lexicon", "--symmetrize", symmetrize, "--max-per-word", 7)
    assert len(result.stdout.splitlines()) == 1 and "1,500 pairs" in result.stdout and "without entry" in result.stdout
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert sum(lexicon.best(f"s{i}") == f"t{i}" for i in range(60)) >= 58
    assert np.diff(lexicon.starts).max() <= 7 and lexicon.by_frequency and lexicon.target_words[0] == "."
    assert lexicon.about["symmetrize"] == symmetrize and lexicon.about["pairs"] == 1500
    assert list(tmp_path.iterdir()) == [tmp_path / "lexicon"]


def test_build_remembers_the_dictionaries(data, text, tmp_path):
    for side in ("src", "tgt"):
        lines = (text / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)[:300]
        (tmp_path / side).write_text("".join(lines), encoding="utf-8")
    dictionaries = ("--source-dict", data / "dict.src.txt", "--target-dict", data / "dict.tgt.txt")
    build(tmp_path, tmp_path / "lexicon", *dictionaries, "--iterations", 2)
    about = Lexicon.load(tmp_path / "lexicon").about
    assert about["dictionaries"]["target"] == fingerprint(dictionary_words(data / "dict.tgt.txt"))


def program(folder, body: str):
    """A program that says it is fast_align and then does something else."""
    path = folder / "aligner"
    usage = "if len(sys.argv) < 5: sys.exit('  -i: [REQ] Input\\n  -q: p_null\\n  -p: conditional probability table')\n"
    path.write_text(f"{PYTHON}import os, sys, time\n{usage}table = sys.argv[sys.argv.index('-p') + 1]\n{body}\n")
    path.chmod(0o755)
    return path


def test_build_counts_what_its_aligner_takes_for_impossible(parallel, tmp_path, capsys):
    aligner = program(tmp_path, "open(table, 'w').write('s1\\tt1\\t-1\\ns1\\tt2\\t-inf\\n')")
    files = ["--source", parallel / "src", "--target", parallel / "tgt", "--out", tmp_path / "lexicon"]
    main(["build", *map(str, files), "--fast-align", str(aligner)])
    said = capsys.readouterr().out
    assert "1 entries for 1 source words" in said and "without entry), 1 of probability 0 left out, " in said


@pytest.mark.parametrize(
    "body, words",
    [
        ("open(table, 'w').write('a\\tb\\t-1\\nnonsense\\n')", ["line 2", "table"]),
        ("open(table, 'wb').write(b'\\xff\\xfe\\x00' * 99 + b'\\n')", ["line 1", "table"]),
        ("open(table, 'w').write('a\\tb\\t-1\\n'); os.kill(os.getpid(), 9)", ["aligner", "SIGKILL"]),
        ("sys.exit('out of cheese')", ["out of cheese"]),
        ("pass", ["wrote no table"]),
    ],
)
def test_an_aligner_that_fails_leaves_nothing_behind(parallel, tmp_path, body, words):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lexicon").write_text("what was there before")
    files = ("--source", parallel / "src", "--target", parallel / "tgt", "--out", tmp_path / "out" / "lexicon")
    refused("lv-lexicon", "build", *files, "--fast-align", program(tmp_path, body), words=words)
    assert (tmp_path / "out" / "lexicon").read_text() == "what was there before"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lexicon"]


@pytest.mark.parametrize(
    "source, target, words",
    [
        (b"a b\nc\n", b"x\n", ["2", "1"]),
        (b"a b\n\nc\n", b"x\ny\nz\n", ["line 2", "--skip-bad-lines"]),
        (b"a b\nc ||| d\n", b"x\ny\n", ["line 2", "|||"]),
        (b"a b\nc\n", b"x\ny\tz\n", ["line 2", "tab"]),
        (b"a b\nc\n", b"x\n\xff\n", ["line 2", "UTF-8"]),
    ],
)
def test_a_text_that_cannot_be_aligned_is_named_with_its_line(tmp_path, source, target, words):
    (tmp_path / "src").write_bytes(source)
    (tmp_path / "tgt").write_bytes(target)
    files = ("--source", tmp_path / "src", "--target", tmp_path / "tgt", "--out", tmp_path / "lexicon")
    refused("lv-lexicon", "build", *files, words=words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["src", "tgt"]


def test_stopping_a_build_stops_the_aligner_and_leaves_nothing(parallel, tmp_path):
    stand_in = program(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    (tmp_path / "out").mkdir()
    command = ["lv-lexicon", "build", "--source", parallel / "src", "--target", parallel / "tgt"]
    command += ["--out", tmp_path / "out" / "lexicon", "--fast-align", stand_in]
    process = subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], stderr=subprocess.PIPE)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.terminate()
    said = process.communicate(timeout=PATIENCE)[1].decode().splitlines()
    assert process.returncode == 128 + signal.SIGTERM and list((tmp_path / "out").iterdir()) == []
    assert said[-1] == "stopped by SIGTERM: nothing was written" and "Traceback" not in "".join(said)
    wait_for(lambda: not running(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize(
    "flags, threads", [([], os.cpu_count()), (["--symmetrize", "intersection"], 1), (["--threads", "3"], 3)]
)
def test_symmetrised_alignments_do_not_depend_on_threads(parallel, tmp_path, flags, threads, capsys):
    path = program(tmp_path, "").with_name("records")  # OpenMP's sums differ in their last bits from run to run
    body = f"open({str(tmp_path / 'threads')!r}, 'w').write(os.environ['OMP_NUM_THREADS']); sys.exit(1)"
    path.write_text((tmp_path / "aligner").read_text().split("table =")[0] + body)
    path.chmod(0o755)
    files = ["--source", str(parallel / "src"), "--target", str(parallel / "tgt"), "--out", str(tmp_path / "lexicon")]
    with pytest.raises(SystemExit, match="exit status 1"):
        main(["build", *files, "--fast-align", str(path), *flags])
    assert (tmp_path / "threads").read_text() == str(threads)


@pytest.mark.parametrize("place", ["--source", "--target", "--target-dict", "lexicon"])
@pytest.mark.parametrize("content", [None, "folder", b"", b"\0" * 99, "ä\n".encode("latin1"), "/dev/zero", b"\n"])
def test_what_coverage_cannot_read_ends_in_one_line(tmp_path, place, content, capsys):
    for name, text in (("--source", b"a\n"), ("--target", b"x\n"), ("--target-dict", b"x 2\n")):
        (tmp_path / name).write_bytes(text)
    lexicon_of({"a": {"x": 0.5}}).save(tmp_path / "lexicon")
    (tmp_path / place).unlink()
    if content == "folder":
        (tmp_path / place).mkdir()
    elif content == "/dev/zero":
        (tmp_path / place).symlink_to(content)
    elif content is not None:
        (tmp_path / place).write_bytes(content)
    files = [x for name in ("--source", "--target", "--target-dict") for x in (name, str(tmp_path / name))]
    try:
        main(["coverage", str(tmp_path / "lexicon"), *files])
    except SystemExit as error:
        assert "\n" not in error.code and str(tmp_path / place) in error.code
    else:  # words that are in no lexicon, or an empty dictionary
        assert isinstance(content, bytes)


def test_a_result_that_cannot_be_printed_ends_in_one_line(tmp_path):
    lexicon_of({"a": {"ü": 0.5}}).save(tmp_path / "lexicon")
    command = [BIN / "lv-lexicon", "inspect", tmp_path / "lexicon", "a", b"\xff"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=plain)
    assert result.returncode == 0 and rb"\xfc" in result.stdout and rb"\udcff: no entry" in result.stdout
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert result.returncode == 1 and result.stderr == "cannot print the result: No space left on device\n"


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_nothing_is_lost_by_a_name_that_is_given_twice_or_by_a_special_file(parallel, tmp_path):
    before = (parallel / "src").read_bytes()
    files = ("--source", parallel / "src", "--target", parallel / "tgt")
    refused("lv-lexicon", "build", *files, "--out", parallel / "src", words=["read and written"])
    os.mkfifo(tmp_path / "fifo")
    refused("lv-lexicon", "build", *files, "--out", tmp_path / "fifo", words=["no ordinary file"])
    assert (parallel / "src").read_bytes() == before and (tmp_path / "fifo").is_fifo()
    (tmp_path / "table").write_text("a\tb\t-1\n")
    refused("lv-lexicon", "convert", tmp_path / "table", "--out", tmp_path / "table", words=["read and written"])
    (tmp_path / "link").symlink_to(tmp_path / "real")
    run("lv-lexicon", "convert", tmp_path / "table", "--out", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and Lexicon.load(tmp_path / "real").best("a") == "b"


def test_python_code_can_catch_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="cannot read"):
        Lexicon.load(tmp_path / "none")
    lexicon = lexicon_of({"a": {"b": 1.0}})
    with pytest.raises(TypeError, match="list"):
        lexicon.candidates("a", 1)
    with pytest.raises(ValueError, match="0 or more"):
        lexicon.candidates(["a"], -1)
    assert lexicon.keys[:2] == ["a"] and lexicon.keys[-1] == "a"
