"""--frequent-words and --candidate-source-words in fairseq-generate, with a network that translates word for word
(networks.py) and one dictionary for both languages."""

import random
from collections import Counter

import networks
import pytest
from conftest import generate_here, hypotheses, preprocess
from test_unknown_words import listed, refused

from lv_fairseq.data_folder import load_dictionary

K = 12
WORDS = {**{f"s{i}": f"t{i}" for i in range(12)}, **{f"Name{i}": f"Name{i}" for i in range(12)}}


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """Text, data and a checkpoint. Words have any number of occurrences in the target text."""
    folder = tmp_path_factory.mktemp("joined")
    chance = random.Random(1)
    weights = [1 + i * 7 % 24 for i in range(len(WORDS))]
    for split, size in (("train", 300), ("valid", 1), ("test", 30)):
        lines = [chance.choices(list(WORDS), weights, k=chance.randint(1, 9)) for _ in range(size)]
        (folder / f"{split}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{split}.tgt").write_text("".join(" ".join(map(WORDS.get, line)) + "\n" for line in lines))
    preprocess(folder, folder / "data", "--joined-dictionary")
    networks.word_for_word(folder / "model.pt", folder / "data", WORDS.get)
    return folder


def decode(folder, *options):
    options = ("--beam", 3, "--candidate-retries", 0, "--print-candidates", *options)
    return generate_here(folder / "data", folder / "model.pt", "--candidate-frequent", K, *options)


def lines_of(folder, name):
    return [line.split() for line in (folder / name).read_text().splitlines()]


def limited(lines, lists):
    """Translations where words outside the list of their sentence are unknown."""
    return [" ".join(word if word in words else "<unk>" for word in line) for line, words in zip(lines, lists)]


@pytest.fixture(scope="module")
def frequent(joined):
    """All words, the most frequent of the target text first."""
    counts = Counter(word for line in lines_of(joined, "train.tgt") for word in line)
    words = load_dictionary(str(joined / "data" / "dict.tgt.txt")).symbols[4:]
    return sorted(words, key=lambda word: (-counts[word], words.index(word)))


@pytest.mark.parametrize("batch", [1, 64])
def test_frequent_is_what_the_target_text_counts(joined, frequent, batch):
    output = decode(joined, "--frequent-words", joined / "train.tgt", "--batch-size", batch)
    references = lines_of(joined, "test.tgt")
    assert hypotheses(output) == limited(references, [frequent[:K]] * len(references))
    for number, line in listed(output).items():
        outside = dict.fromkeys(word for word in references[number] if word not in frequent[:K])
        reasons = [f"{word} (number {frequent.index(word) + 1} by frequency, K = {K})" for word in outside]
        assert line.split("\t")[0] == f"{4 + K} words" and line.split("\t")[2:] == ["; ".join(reasons)][: len(reasons)]


def test_a_dictionary_with_counts_says_the_same_as_its_text(joined, frequent, tmp_path):
    counts = Counter(word for line in lines_of(joined, "train.tgt") for word in line)
    (tmp_path / "counts").write_text("".join(f"{word} {count}\n" for word, count in counts.items()))
    by_text = decode(joined, "--frequent-words", joined / "train.tgt")
    assert decode(joined, "--frequent-words", tmp_path / "counts") == by_text


def test_the_dictionary_of_the_model_changes_nothing(joined):
    assert decode(joined, "--frequent-words", joined / "data" / "dict.tgt.txt") == decode(joined)


@pytest.mark.parametrize("by_text", [True, False])
def test_source_words_that_are_target_words_join_the_list(joined, frequent, by_text):
    words = frequent if by_text else load_dictionary(str(joined / "data" / "dict.tgt.txt")).symbols[4:]
    more = ("--frequent-words", joined / "train.tgt") if by_text else ()
    output = decode(joined, "--candidate-source-words", *more)
    lists = [{*words[:K], *line} for line in lines_of(joined, "test.src")]
    assert hypotheses(output) == limited(lines_of(joined, "test.tgt"), lists)
    sizes = [line.split()[0] for _, line in sorted(listed(output).items())]
    assert sizes == [str(4 + len(words)) for words in lists]


@pytest.mark.parametrize(
    "options, words",
    [
        (("--frequent-words", "test.tgt"), ["--frequent-words", "--candidate-frequent"]),
        (("--candidate-source-words",), ["--candidate-source-words", "--candidate-frequent"]),
        (("--candidate-frequent", 10, "--frequent-words", "nowhere"), ["nowhere is not there", "target text"]),
        (("--candidate-frequent", 10, "--frequent-words", "."), [". is not an ordinary file"]),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_read(joined, options, words):
    refused(joined, options, words)


def test_a_text_in_other_words_is_refused(joined, tmp_path):
    (tmp_path / "text").write_text("nothing that is known\n")
    refused(joined, ("--candidate-frequent", 10, "--frequent-words", tmp_path / "text"), ["only 0.0 %", "language"])
