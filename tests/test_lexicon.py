"""A lexicon: what it is made from, and looking words up."""

import math
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from small_lexicon import ABOUT, lexicon_of

from lv_fairseq import Lexicon
from lv_fairseq.fingerprint import dictionary_words, fingerprint
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.lexicon.word_list import find_hashes

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


def test_more_entries_than_there_are_means_all(tmp_path):
    lexicon = lexicon_of({"a": {"b": 0.5, "c": 0.25}})
    assert lexicon.candidates(["a"], 10**23) == ["b", "c"] and len(lexicon.limited_to(10**23).targets) == 2


def test_python_code_can_catch_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="cannot read"):
        Lexicon.load(tmp_path / "none")
    lexicon = lexicon_of({"a": {"b": 1.0}})
    with pytest.raises(TypeError, match="list"):
        lexicon.candidates("a", 1)
    with pytest.raises(ValueError, match="0 or more"):
        lexicon.candidates(["a"], -1)
    assert lexicon.keys[:2] == ["a"] and lexicon.keys[-1] == "a"


def test_it_needs_no_fairseq(tmp_path):
    lexicon_of({"a": {"b": 0.5}}).save(tmp_path / "lexicon")
    code = "import sys; sys.modules.update(fairseq=None, torch=None)\nimport lv_fairseq\n"
    code += "print(lv_fairseq.Lexicon.load(sys.argv[1]).candidates(['a'], 1))"
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "lexicon"], cwd=ROOT, capture_output=True, text=True
    )
    assert result.stdout.strip() == "['b']", result.stderr


def test_a_dictionary_has_the_same_fingerprint_as_in_a_model(data):
    import torch

    from lv_fairseq.data_folder import load_dictionary

    path = data / "dict.tgt.txt"
    assert dictionary_words(path) == load_dictionary(str(path)).symbols
    assert torch.tensor(fingerprint(dictionary_words(path))).dtype == torch.int64
