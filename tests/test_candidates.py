"""Candidate lists against sets of words, which are obviously right."""

import os

import numpy as np
import pytest
from conftest import dictionary
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from lv_fairseq import Lexicon, UserError
from lv_fairseq.candidates import CandidateLists, ranking_from
from lv_fairseq.candidates.lists import check_lexicon
from lv_fairseq.lexicon.entries import Entries

examples = settings(max_examples=200, deadline=None, derandomize=True)
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = [f"word{i}" for i in range(7)]
OTHERS = ["x", "y", *SPECIAL, "word99"]  # source words that are no target words, or may look like special symbols


def lexicon(translations, counts=None):
    entries = Entries()
    for key, words in translations.items():
        scores = -np.arange(1.0, len(words) + 1)
        entries.add([key.encode()] * len(words), [word.encode() for word in words], scores)
    return Lexicon.of(entries, {}, counts)


target_words = st.sampled_from(WORDS + SPECIAL + ["outside"])
keys = st.sampled_from(WORDS[:4] + OTHERS + ["", "x y"])
translations = st.dictionaries(keys, st.lists(target_words, unique=True, max_size=5), max_size=6)
sentences = st.lists(st.sampled_from(WORDS + OTHERS), max_size=6)
setting = st.fixed_dictionaries(
    {
        "frequent": st.integers(0, 9),
        "per_word": st.integers(0, 4),
        "always": st.lists(st.integers(0, 10), max_size=3),
        "ranking": st.none()
        | st.permutations(range(4, 11))
        | st.permutations(range(4, 8)).map(lambda x: [*x, *range(8, 11)]),
        "source_words": st.booleans(),
    }
)


def on_every_list(frequent, always, ranking, **others):
    """Words, as text, of the lists of all sentences."""
    symbols = SPECIAL + WORDS
    order = ranking or range(4, 11)
    return {*SPECIAL, *(symbols[i] for i in always), *(symbols[i] for i in order[:frequent])}


def runs(sentence):
    return {" ".join(sentence[i:j]) for i in range(len(sentence)) for j in range(i + 1, len(sentence) + 1)}


def reference(sentence, table, per_word, source_words, **others):
    """The words of a sentence's list, as text."""
    found = on_every_list(**others)
    for key in runs(sentence) & set(table):
        found |= set(table[key][:per_word])
    if per_word:
        found |= set(table.get("", []))
    if source_words:
        found |= set(sentence)
    return found & {*SPECIAL, *WORDS}


def made(table, options):
    options = dict(options)
    ranking = options.pop("ranking")
    return CandidateLists(
        dictionary(11), lexicon=lexicon(table), ranking=None if ranking is None else np.array(ranking), **options
    )


def words_of(lists, sentence):
    others = lists.others(sentence)
    numbers = np.concatenate([lists.common, others])
    assert len(set(numbers.tolist())) == len(numbers) and numbers.dtype == np.int64
    assert sorted(others) == others.tolist()
    return {lists.dictionary[i] for i in numbers.tolist()}


@examples
@given(translations, sentences, setting)
def test_a_list_holds_the_words_that_it_should(table, sentence, options):
    lists = made(table, options)
    assert words_of(lists, sentence) == reference(sentence, table, **options)
    twice = {**options, "frequent": 2 * options["frequent"], "per_word": 2 * options["per_word"]}
    assert words_of(lists.longer(), sentence) == reference(sentence, table, **twice)


@examples
@given(setting)
def test_what_is_common_is_a_slice_where_it_can_be(options):
    lists = made({}, options)
    order, always = options["ranking"] or list(range(4, 11)), set(options["always"])
    assert lists.common[:4].tolist() == [0, 1, 2, 3]
    frequent = order[: options["frequent"]]
    every = {*range(4), *frequent, *always}
    can_be = any(group == set(range(len(group))) for group in (every, {*range(4), *frequent}))
    assert lists.prefix == can_be == (lists.common.tolist() == list(range(len(lists.common))))
    if not can_be:
        wanted = list(dict.fromkeys(word for word in options["always"] if word >= 4))
        assert lists.common[4:].tolist() == [*wanted, *(word for word in frequent if word not in wanted)]
    assert lists.whole == (len(on_every_list(**options)) == 11)


@examples
@given(translations, sentences, setting, st.integers(0, 13))
def test_lists_can_be_given_more_frequent_words(table, sentence, options, columns):
    lists = made(table, options)
    more = lists.at_least(columns)
    assert len(more.common) >= min(columns, 11)
    assert words_of(more, sentence) == reference(sentence, table, **{**options, "frequent": more.frequent})
    assert more.frequent >= lists.frequent
    assert len(more.common) <= max(len(lists.common), columns) + len(set(options["always"]))
    assert lists.at_least(columns) is more, "so that what a search keeps for a list is kept"


@examples
@given(translations, sentences, setting)
def test_a_word_outside_the_list_has_a_reason(table, sentence, options):
    lists = made(table, options)
    order = options["ranking"] or list(range(4, 11))
    for word in {*WORDS} - words_of(lists, sentence):
        number = lists.dictionary.index(word)
        reason = lists.reason(number, sentence)
        assert reason.startswith(f"number {order.index(number) + 1} by frequency, K = {options['frequent']}")
        if options["per_word"]:
            ranks = [table[key].index(word) + 1 for key in runs(sentence) & set(table) if word in table[key]]
            assert reason.count("no translation") == (not ranks)
            assert not ranks or f"; translation {min(ranks)} of " in reason


def test_reasons_name_frequency_and_lexicon():
    target = dictionary(30)
    table = {"a": ["word3", "word9"], "b": ["word12"]}
    lists = CandidateLists(target, 5, lexicon(table), 1)
    assert lists.others(["a", "c"]).tolist() == [] and lists.others(["b"]).tolist() == [16]
    assert "translation 2 of 'a'" in lists.reason(target.index("word9"), ["a", "b"])
    assert "number 10 by frequency, K = 5" in lists.reason(target.index("word9"), ["a"])
    assert "no translation" in lists.reason(target.index("word20"), ["a", "b"])
    assert lists.longer().others(["a"]).tolist() == [] and len(lists.longer().common) == 14


def test_words_that_fairseq_adds_to_a_dictionary_later_are_on_no_list():
    target = dictionary(16)
    lists = CandidateLists(target, 3, source_words=True)
    target.add_symbol("late")
    assert lists.others(["late", "word5"]).tolist() == [9] and lists.words == 16
    of_lexicon = CandidateLists(dictionary(16), 3, lexicon({"a": ["later", "word5"]}), 2)
    of_lexicon.dictionary.add_symbol("later")
    assert of_lexicon.others(["a"]).tolist() == [9]
    assert not lists.longer().whole and lists.at_least(100).whole and len(lists.at_least(100).common) == 16


@pytest.mark.parametrize("ranking", [[4, 5], [4, 4, 5, 6], [3, 4, 5, 6], [4, 5, 6, 7, 4]])
def test_a_ranking_has_every_word_once(ranking):
    with pytest.raises(ValueError, match="every word"):
        CandidateLists(dictionary(8), 2, ranking=np.array(ranking))


counts = st.dictionaries(st.sampled_from(WORDS + SPECIAL + ["outside"]), st.integers(0, 5))


def by_count(counts):
    """Numbers of words, the most frequent first."""
    return [4 + i for i in sorted(range(len(WORDS)), key=lambda i: (-counts.get(WORDS[i], 0), i))]


def few_known(counts):
    return 2 * sum(counts.get(word, 0) for word in WORDS) < sum(counts.values())


@examples
@given(counts, st.randoms(use_true_random=False))
def test_a_text_ranks_words_by_how_often_they_occur(tmp_path_factory, counts, chance):
    path = tmp_path_factory.getbasetemp() / "text"
    words = [word for word, count in counts.items() for _ in range(count)]
    chance.shuffle(words)
    path.write_text("".join(" ".join(words[i : i + 3]) + "\n" for i in range(0, len(words), 3)))
    if not words or few_known(counts):
        with pytest.raises(UserError):
            ranking_from(path, dictionary(11))
    else:
        assert ranking_from(path, dictionary(11)).tolist() == by_count(counts)


@examples
@given(counts)
def test_a_dictionary_ranks_words_by_its_counts(tmp_path_factory, counts):
    path = tmp_path_factory.getbasetemp() / "dict.tgt.txt"
    path.write_text("".join(f"{word} {count}\n" for word, count in counts.items()))
    if len(set(counts.values()) - {0}) < 2 or few_known(counts):
        with pytest.raises(UserError):
            ranking_from(path, dictionary(11))
    else:
        assert ranking_from(path, dictionary(11)).tolist() == by_count(counts)


def test_the_dictionary_itself_gives_its_own_order_and_a_slice(tmp_path):
    target = Dictionary()
    for i, word in enumerate(WORDS):
        target.add_symbol(word, 100 - i // 2)
    target.save(str(tmp_path / "dict.txt"))
    ranking = ranking_from(tmp_path / "dict.txt", target)
    assert ranking.tolist() == list(range(4, 11)) and CandidateLists(target, 5, ranking=ranking).prefix


def test_a_text_may_have_lines_that_look_like_a_dictionary(tmp_path):
    (tmp_path / "text").write_text("word7 12\nword7 word3 word7\nword3 word7 word1\n\nword7\n")
    assert ranking_from(str(tmp_path / "text"), dictionary(16))[:3].tolist() == [11, 7, 5]


def test_a_byte_order_mark_is_part_of_no_word(tmp_path):
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfword7 word7 word2\n")
    assert ranking_from(tmp_path / "text", dictionary(16))[0] == 11


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b"\n\n", "holds no words"),
        (b"word1 word2 \xff\n", "line 1: not UTF-8"),
        (b"word1 5\nw\xff 3\n", "line 2: not UTF-8"),
        (bytes(1000), "other tokens"),
        (b"Wort Haus word1\n", "only 33.3 % of the words counted"),
        (b"word1 2\nWort 3\n", "only 40.0 % of the words counted"),
        (b"word1 7\nword2 5\nword3\n", "neither a text nor a dictionary: .* line 3 is not"),
        (b"word1 7\nword2 5\nword1 9\n", "neither a text nor a dictionary: .* line 3 has a word of a line before"),
        (b"word1 1\nword2 1\nword3 0\n", "counts all words alike"),
        (b"word1 0\n", "counts all words alike"),
    ],
)
def test_a_file_that_says_nothing_about_frequency_is_refused_in_a_line(tmp_path, content, said):
    path = tmp_path / "frequent"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        ranking_from(path, dictionary(11))
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_what_is_no_file_is_refused_in_a_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "not an ordinary file"), ("", "not an ordinary file"), ("nothing", "not there")):
        with pytest.raises(UserError, match=said):
            ranking_from(tmp_path / name, dictionary(16))


def test_a_lexicon_need_not_know_what_a_joined_dictionary_has_of_other_languages():
    """It knows one of the first words of the dictionary, which are of the target language but for the last."""
    joined = dictionary(16)
    table = {"word11": ["word1", "word2"], "far": ["word0"], "off": ["outside"]}
    counts = {b"word1": 9, b"word2": 8, b"outside": 7, b"word0": 5}
    for known in (None, counts):
        check_lexicon(lexicon(table, known), "PATH", joined, dictionary(16))
    with pytest.raises(UserError, match="PATH knows 1 of the 12 most frequent source words"):
        check_lexicon(lexicon(table, counts), "PATH", joined, dictionary(15))
    with pytest.raises(UserError, match="of the 2 most frequent target words of the lexicon PATH the dictionary has 0"):
        check_lexicon(lexicon({"a": ["x", "y"]}, {b"x": 1, b"y": 1}), "PATH", joined, dictionary(16))
