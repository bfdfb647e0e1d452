"""--copy-rare-words: names and numbers of the dictionary that were seen too seldom to be learned are copied."""

import shutil

import networks
import pytest
import torch
from conftest import WORDS, dictionary, generate_here, hypotheses
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st
from test_unknown_words import refused, translation

from lv_fairseq import Lexicon
from lv_fairseq.decoding.rare_words import Reading
from lv_fairseq.lexicon.entries import Entries

WORD = st.sampled_from([f"{kind}{i}" for kind in ("Mc", "low") for i in range(6)])
COUNTS = st.dictionaries(WORD, st.integers(1, 9), max_size=12)


def counted(counts: dict) -> Dictionary:
    result = Dictionary()
    for word, count in counts.items():
        result.add_symbol(word, n=count)
    return result


@given(COUNTS, COUNTS, st.integers(0, 9), st.lists(WORD, max_size=8))
def test_a_word_is_read_as_unknown_if_it_is_rare_and_stands_in_both_dictionaries(sources, targets, most, sentence):
    source, target = counted(sources), counted(targets)
    reading = Reading(source, target, most)
    for word in sentence:
        rare = word in targets and sources.get(word, 0) <= most
        number, expected = source.index(word), source.unk() if rare else source.index(word)
        assert reading(torch.tensor([[number, source.eos()]])).tolist() == [[expected, source.eos()]]
        assert reading.is_unknown(word) == (word not in sources or rare)


@pytest.mark.parametrize("given, read", [(False, {"Mc1", "low1", "low2"}), (True, {"Mc1", "low2"})])
def test_what_a_lexicon_translates_is_read(given, read):
    words = ["Mc1", "low1", "low2"]
    entries = Entries()
    entries.add([b"Mc1", b"low1", b"low2"], [b"x", b"y", b"low2"], torch.full((3,), -0.1).numpy())
    source = counted(dict.fromkeys(words, 1))
    lexicon = Lexicon.of(entries, {"dictionaries": {}}) if given else None
    reading = Reading(source, counted(dict.fromkeys(words, 1)), 1, lexicon)
    assert {word for word in words if reading.is_unknown(word)} == read


def test_tokens_that_are_no_words_are_read(build):
    source = dictionary(5)
    for name in ("name", "__en__"):
        source.add_symbol(name)
    both = Reading(source, source, 9, words=len(source) - 1)
    assert both.is_unknown("name") and not both.is_unknown("__en__")


@pytest.fixture(scope="module")
def alike(names, tmp_path_factory):
    """The language of `names`, but s5 was seen twice, and stays what it is. The network takes it for another word."""
    folder = tmp_path_factory.mktemp("alike")
    shutil.copytree(names / "data", folder / "data")
    for language, old, new in (("src", "\ns5 ", "\ns5 2 was "), ("tgt", "\nt5 ", "\ns5 ")):
        path = folder / "data" / f"dict.{language}.txt"
        lines = path.read_text("utf-8").replace(old, new).splitlines()
        path.write_text("".join(line.partition(" was ")[0] + "\n" for line in lines), "utf-8")
    networks.word_for_word(
        folder / "model.pt", folder / "data", lambda word: "selten0" if word == "s5" else WORDS.get(word)
    )
    return folder


@pytest.mark.parametrize("most, written", [(0, "selten0"), (1, "selten0"), (2, "s5")])
def test_rare_names_arrive_and_other_words_are_as_they_were(names, alike, most, written):
    flags = ("--beam", 2, "--unk-replacement", "copy", "--source-text", names / "test.src", "--copy-rare-words", most)
    printed = generate_here(alike / "data", alike / "model.pt", *flags)
    text = (names / "test.src").read_text("utf-8").splitlines()
    expected = [" ".join(translation(word, "copy") for word in line.split()) for line in text]
    assert hypotheses(printed) == [
        " ".join(written if word == "t5" else word for word in line.split()) for line in expected
    ]
    sources = [line.split("\t")[1] for line in printed.splitlines() if line.startswith("S-")]
    assert any("s5" in line.split() for line in sources)  # shown as it is


@pytest.mark.parametrize(
    "options, words",
    [
        (("--copy-rare-words", -1, "--unk-replacement", "copy"), ["--copy-rare-words", "0 or more"]),
        (("--copy-rare-words", 5, "--unk-replacement", "copy", "--post-process", "sentencepiece"), ["pieces"]),
    ],
)
def test_what_cannot_work_is_refused(names, options, words):
    refused(names, options, words)
