"""The lexicon's file: whole or refused, read where it is needed."""

import os
import pickle

import numpy as np
import pytest
from conftest import ROOT
from small_lexicon import ABOUT, answers, lexicon_of

from lv_fairseq import Lexicon, UserError
from lv_fairseq.commands.lexicon import main
from lv_fairseq.errors import UnusableFileError
from lv_fairseq.lexicon.arrays_file import MAGIC, open_arrays, write_arrays
from lv_fairseq.lexicon.word_list import index, pack

pytestmark = pytest.mark.usefixtures("signals_as_before")


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


def test_a_lexicon_goes_to_other_processes(large):
    lexicon = Lexicon.load(large)
    assert pickle.loads(pickle.dumps(lexicon)).candidates(["s00005", "s08000"], 1) == ["t00005", "t08000"]


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
