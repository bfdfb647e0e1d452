"""lv-coverage: what share of a text its most frequent words make up."""

from collections import Counter

import pytest

from lv_fairseq.commands.coverage import main
from lv_fairseq.corpus_coverage import count_words, coverage

pytestmark = pytest.mark.usefixtures("signals_as_before")


def table(capsys) -> dict:
    """What was printed: the cells of each row by its name."""
    lines = capsys.readouterr().out.split("\n\n")[0].splitlines()
    return {line[:14].strip(): line[14:].replace(" %", "%").split() for line in lines}


def test_shares_are_those_of_a_count_by_hand(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("a b a\n\nc a b\nd\n")  # a 3, b 2, c 1, d 1
    main([str(text), "--sizes", "3,1,2,100"])
    rows = table(capsys)
    assert rows["sentences"] == ["4"] and rows["tokens"] == ["7"] and rows["types"] == ["4"]
    assert rows["1 words"] == ["42.86%"] and rows["2 words"] == ["71.43%"] and rows["3 words"] == ["85.71%"]
    assert rows["100 words"] == rows["all words"] == ["100.00%"]


def test_coverage_agrees_with_a_slow_reference(tmp_path):
    words = [f"w{i * i % 97}" for i in range(5000)]
    text = tmp_path / "text"
    text.write_text("\n".join(" ".join(words[i : i + 7]) for i in range(0, len(words), 7)))
    counts = count_words(text)
    sizes = [1, 5, 20, 48, 1000]
    expected = {n: sum(c for _, c in Counter(words).most_common(n)) / len(words) for n in sizes}
    assert coverage(counts, sizes) == pytest.approx(expected)


def test_words_of_another_text_measure_a_text(tmp_path, capsys):
    train, test = tmp_path / "train", tmp_path / "test"
    train.write_text("a a a b b c\n")
    test.write_text("a c x x\n")
    main([str(train), str(test), "--words-of", str(train), "--sizes", "1,2"])
    rows = table(capsys)
    assert rows["1 words"] == ["50.00%", "25.00%"] and rows["2 words"] == ["83.33%", "25.00%"]
    assert rows["all words"] == ["100.00%", "50.00%"]


def test_equally_frequent_words_are_taken_by_the_alphabet_as_fairseq_does(tmp_path):
    text = tmp_path / "text"
    text.write_text("b c a a\n")
    assert count_words(text).by_frequency() == ["a", "b", "c"]


def test_only_a_line_feed_ends_a_line_and_any_white_space_a_word(tmp_path):
    text = tmp_path / "text"
    text.write_bytes("a\u2028b\rc\x0bd\u00a0e\nf".encode())
    counts = count_words(text)
    assert (counts.sentences, counts.tokens) == (2, 6)


def test_a_byte_order_mark_is_no_part_of_a_word(tmp_path):
    text = tmp_path / "text"
    text.write_bytes("\ufeffa b a\n".encode())
    assert count_words(text).words == {"a": 2, "b": 1}


def test_progress_adds_up_to_the_size_of_the_file(tmp_path):
    text = tmp_path / "text"
    text.write_text("one two\n" * 25000)
    done = []
    count_words(text, done.append)
    assert len(done) == 3 and sum(done) == text.stat().st_size


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "is empty"),
        (b"\n \n", "holds no words"),
        (b"a\n" * 20000 + b"b \xff\n", "line 20001: not UTF-8"),
        (None, "No such file"),
        ("/dev/zero", "a device"),
    ],
)
def test_a_bad_text_ends_in_one_line(tmp_path, capsys, content, message):
    text = tmp_path / "text"
    if isinstance(content, bytes):
        text.write_bytes(content)
    elif content is not None:
        text.symlink_to(content)
    with pytest.raises(SystemExit) as error:
        main([str(text)])
    assert message in str(error.value) and str(text) in str(error.value) and "\n" not in str(error.value)
    assert capsys.readouterr().out == ""


def test_a_folder_among_the_texts_is_noticed_before_anything_is_counted(tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("a\n")
    with pytest.raises(SystemExit, match="is a folder"):
        main([str(text), str(tmp_path)])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("sizes", ["", "0", "-5", "a", "1,,2", "1.5", "\u00b2", "9" * 5000])
def test_bad_sizes_are_refused(tmp_path, capsys, sizes):
    with pytest.raises(SystemExit) as error:
        main([str(tmp_path / "text"), f"--sizes={sizes}"])
    assert error.value.code == 2
    assert "is not a list of sizes such as" in capsys.readouterr().err
