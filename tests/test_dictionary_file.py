"""Reading a dictionary at once, against fairseq's own reading, line by line."""

import pytest
from fairseq.data import Dictionary
from fairseq.data.legacy.masked_lm_dictionary import BertDictionary
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lv_fairseq.decoding import OpenDictionary
from lv_fairseq.dictionary_file import read_dictionary, words_and_counts

examples = settings(max_examples=400, deadline=None, derandomize=True)
ODD = ["", " ", "\t", "\r", "\n", "\x1c", "\x85", "\xa0", "\u2028", "\ufeff", "#fairseq:overwrite", "<unk>", "<s>"]
word = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=4)
count = st.integers(0, 10**18).map(str) | st.sampled_from(["007", "9" * 4400])
regular = st.lists(st.tuples(word, count), unique_by=lambda row: row[0], max_size=12)
part = st.sampled_from([*ODD, "a", "b", "3", "12", "-1", "+2", "1_0", "²", "٣", "3.0"]) | word | count
line = st.lists(part, min_size=1, max_size=5).map("".join) | st.lists(part, max_size=4).map(" ".join)
irregular = st.lists(st.tuples(word, count).map(" ".join) | line, max_size=6)


def outcome(load, path):
    """All that a dictionary holds, or what it says."""
    try:
        read = load(str(path))
    except Exception as error:
        return type(error), str(error)
    return type(read), {name: repr(value) for name, value in vars(read).items()}, list(read.indices.items())


def check(path, text, kind=Dictionary):
    path.write_bytes(text)
    assert outcome(lambda path: read_dictionary(path, kind), path) == outcome(kind.load, path)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("dictionary") / "dict.txt"


@given(regular)
@examples
def test_regular_files_are_read_alike(path, rows):
    check(path, "".join(f"{word} {count}\n" for word, count in rows).encode(), OpenDictionary)


@given(irregular, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
@example(["a 1", "a 2"], "\n", True)
@example(["a 1", "a 2 #fairseq:overwrite"], "\n", True)
@example(["x", "3 y 4"], "\n", True)  # as many words and spaces as in two lines that are right
@example(["<unk> 1"], "\n", True)
@example(["madeupword0000 0"], "\n", True)
@examples
def test_so_are_files_of_any_text(path, lines, end, last):
    check(path, (end.join(lines) + (end if last else "")).encode())


@given(st.lists(st.sampled_from([b"a", b"1", b" ", b"\n", b"\xc3", b"\xa4", b"\xff"]), max_size=12).map(b"".join))
@examples
def test_so_are_bytes_that_may_be_no_text(path, text):
    check(path, text)


def test_what_fairseq_writes_is_read_at_once(path):
    dictionary = Dictionary()
    for number, word in enumerate(["der", "\u00fcber", "\u3042", "a\u00a0b", "\ufeff", "1", "\u2028"]):
        dictionary.add_symbol(word, 10 - number)
    dictionary.finalize(padding_factor=8)
    dictionary.save(str(path))
    words, counts = words_and_counts(path.read_bytes())
    assert words == dictionary.symbols[4:] and counts == dictionary.count[4:]
    check(path, path.read_bytes())


def test_other_kinds_of_dictionaries_are_read_in_their_own_way(path):
    class Headed(Dictionary):
        def _load_meta(self, lines):
            return 1

    check(path, b"a 1\nb 2\n", Headed)
    check(path, b"a 1\nb 2\n", BertDictionary)  # which fairseq cannot load either
    assert Headed.load(str(path)).symbols[4:] == ["b"]
