"""From raw text to what candidate lists over the pieces of a released model need: its pieces, a lexicon, counts."""

import io
import sys
from collections import Counter

import pytest
from in_process import piece_lexicon, pieces, refused
from released import generate, made, translations

from lv_fairseq import Lexicon


def words(path) -> Counter:
    return Counter(path.read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    """Of the first pair of the small NLLB-like model."""
    model, out = made("nllb"), tmp_path_factory.mktemp("lists") / "new" / "folder"
    piece_lexicon.main([str(x) for x in (*texts(model), "--dictionary", model.folder / "dictionary.txt", "--out", out)])
    return out


def texts(model) -> list:
    train = model.folder / "text" / f"train.{model.pairs[0]}"
    flags = ["--source", f"{train}.{model.source}", "--target", f"{train}.{model.target}"]
    return [*flags, "--sentencepiece-model", model.folder / "sentencepiece.model"]


def test_text_is_cut_into_the_pieces_of_the_model(monkeypatch, capsysbinary):
    model = made("nllb")
    name = f"test.{model.pairs[0]}.{model.source}"
    with open(model.folder / "text" / name, "rb") as text:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text))
        pieces.main([str(model.folder / "sentencepiece.model")])
    assert capsysbinary.readouterr().out == (model.folder / "pieces" / name).read_bytes()


def test_pieces_are_counted_in_the_target_language_alone(lists):
    model = made("nllb")
    counted = words(model.folder / "pieces" / f"train.{model.pairs[0]}.{model.target}")
    lines = [line.split(" ") for line in (lists / "frequent.txt").read_text(encoding="utf-8").splitlines()]
    assert {word: int(count) for word, count in lines} == counted
    assert [int(count) for _, count in lines] == sorted(counted.values(), reverse=True)


def test_the_lexicon_is_of_pieces(lists):
    model = made("nllb")
    source, target = (
        words(model.folder / "pieces" / f"train.{model.pairs[0]}.{x}") for x in (model.source, model.target)
    )
    lexicon = Lexicon.load(lists / "lexicon")
    assert len(lexicon.keys) == len(source)
    assert all({word for word, _ in lexicon.translations(piece)} <= target.keys() for piece in source)
    assert [path.name for path in sorted(lists.iterdir())] == ["frequent.txt", "lexicon"]


def test_the_model_translates_over_lists_of_them(lists):
    flags = ("--lexicon", lists / "lexicon", "--frequent-words", lists / "frequent.txt", "--candidate-frequent", 20)
    model = made("nllb")
    said = translations(generate(model.decoding(*flags, "--candidate-per-word", 2)))
    assert len(said) == 36 and not any(set(line.split()) & model.foreign for line in said)


@pytest.mark.parametrize("fault", ["lines", "model", "missing", "bytes", "empty"])
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(fault, tmp_path, capsys):
    model, out, bad = made("nllb"), tmp_path / "out", tmp_path / "bad"
    content = {"lines": b"one line\n", "bytes": b"\xff\xfe\n", "empty": b"", "model": b"no model"}
    if fault != "missing":
        bad.write_bytes(content[fault])
    flags = texts(model)
    flag = "--sentencepiece-model" if fault == "model" else "--target"
    flags[flags.index(flag) + 1] = bad
    if fault == "empty":
        flags[flags.index("--source") + 1] = bad
    said = refused(piece_lexicon.main, capsys, *flags, "--out", out)
    assert str(bad) in said and not out.exists() and [x for x in tmp_path.iterdir() if x != bad] == []
