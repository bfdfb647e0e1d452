"""lv-lexicon inspect and coverage, and the numbers that lv-lexicon takes."""

import os
import subprocess
from collections import Counter

import numpy as np
import pytest
from conftest import BIN, run
from fairseq.data import Dictionary
from small_lexicon import lexicon_of

from lv_fairseq import Lexicon, UserError
from lv_fairseq.alignment import write_corpus
from lv_fairseq.candidates import CandidateLists, ranking_from
from lv_fairseq.commands.lexicon import main
from lv_fairseq.fingerprint import dictionary_words

pytestmark = pytest.mark.usefixtures("signals_as_before")


def test_inspect_shows_sizes_and_words(tmp_path):
    lexicon_of({"house": {"Haus": 0.7, "Gebäude": 0.2, "Hause": 0.1}, "the": {"das": 1.0}}).save(tmp_path / "lexicon")
    text = run("lv-lexicon", "inspect", tmp_path / "lexicon").stdout
    assert "source words: 2" in text and "entries: 4" in text and "made by: a test" in text
    text = run("lv-lexicon", "inspect", tmp_path / "lexicon", "house", "nothing", "--most", 2).stdout.splitlines()
    assert text[0] == "house: 3 translations" and text[1].split()[:2] == ["Haus", "0.700000"]
    assert "1 more" in text[3] and text[4] == "nothing: no entry"


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
