"""lv-lexicon convert: the formats of other programs."""

import math
import resource
import subprocess

import pytest
from conftest import BIN, run
from small_lexicon import ABOUT, answers, refused

from lv_fairseq import Lexicon, UserError
from lv_fairseq.commands.lexicon import main
from lv_fairseq.lexicon import formats

pytestmark = pytest.mark.usefixtures("signals_as_before")
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
