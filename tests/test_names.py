"""The measure `names`: source words outside the dictionary that the reference has, and how many of them arrive."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_process import begin_experiment, refused, run_experiment, scoring, show_names
from names import copied, count_names, marked, names

from lv_fairseq import UserError

KNOWN = frozenset(["a", "b", "."])
sentences = st.lists(st.sampled_from(["a", "b", "Quetzal", "77:41", "Ara"]), max_size=6).map(" ".join)


@pytest.mark.parametrize(
    "source, reference, output, wanted, arrived",
    [
        ("a Quetzal 77:41 .", "b Quetzal 77:41 .", "b Quetzal 77:41 .", 2, 2),
        ("a Quetzal", "b Quetzal", "Quetzal Quetzal", 1, 1),  # written twice, arrived once
        ("Quetzal a Quetzal", "Quetzal b Quetzal", "Quetzal b", 2, 1),
        ("Quetzal Quetzal", "Quetzal b", "Quetzal b", 1, 1),  # the reference has it once
        ("a Quetzal", "a Vogel", "a Quetzal", 0, 0),  # the reference translates it
        ("a b", "a b", "a b", 0, 0),  # what is in the dictionary is no name
        ("a Quetzal", "a Quetzal", "a Quetzals", 1, 0),
        ("", "", "", 0, 0),
    ],
)
def test_a_name_counts_as_often_as_source_reference_and_output_have_it(source, reference, output, wanted, arrived):
    assert count_names([source], [reference], [output], KNOWN) == {"wanted": wanted, "arrived": arrived}


@given(st.lists(st.tuples(sentences, sentences, sentences), max_size=5))
def test_it_is_the_sum_over_words_and_sentences(text):
    wanted = arrived = 0
    for three in text:
        for word in ("Quetzal", "77:41", "Ara"):
            counts = [sentence.split().count(word) for sentence in three]
            wanted += min(counts[:2])
            arrived += min(counts)
    assert count_names(*zip(*text) if text else ([], [], []), KNOWN) == {"wanted": wanted, "arrived": arrived}


def test_names_of_a_sentence():
    assert names("a Quetzal Quetzal 77:41 Ara", "Quetzal 77:41 b Quetzal", KNOWN) == Counter(
        ["Quetzal"] * 2 + ["77:41"]
    )


def test_sentences_with_most_copied_names_come_first():
    sources = ["a", "Quetzal", "Ara 77:41", "Ara"]
    assert copied(sources, sources, ["a", "Quetzal", "77:41 Ara", "a"], KNOWN) == [2, 1]


def test_what_was_replaced_is_marked_and_nothing_else():
    assert marked("b Quetzal Quetzal .", "b <unk> Quetzal .") == "b [Quetzal] Quetzal ."
    assert marked("b <unk>", "b <unk>") == "b <unk>"
    for other in ("b c Quetzal .", "b <unk>"):
        with pytest.raises(UserError, match="same search"):
            marked("b Quetzal Quetzal .", other)


@pytest.fixture
def texts(tmp_path):
    """Source, reference, and what fairseq-generate printed with and without replacement."""
    (tmp_path / "dict").write_text("a 3\nb 2\n. 1\n")
    (tmp_path / "source").write_text("a Quetzal 77:41 .\na b\nAra\n")
    (tmp_path / "reference").write_text("b Quetzal 77:41 .\nb a\nAra\n")
    for name, lines in (("output", ["b Quetzal 77:41 .", "b a", "b"]), ("unreplaced", ["b <unk> <unk> .", "b a", "b"])):
        (tmp_path / name).write_text("".join(f"H-{i}\t-0.5\t{line}\n" for i, line in enumerate(lines)))
    return tmp_path


def options(folder):
    return [x for name in ("dict", "source", "reference", "output", "unreplaced") for x in (f"--{name}", folder / name)]


def test_sentences_with_copied_names_are_shown_and_counted(texts, capsys):
    show_names.main(list(map(str, options(texts))))
    shown = "a Quetzal 77:41 .\nb Quetzal 77:41 .\nb [Quetzal] [77:41] .\n\n"
    told = "2 of 3 source words outside the dictionary that the reference has arrived\n"
    assert capsys.readouterr().out == shown + told


def test_texts_that_do_not_belong_together_are_refused(texts, capsys):
    (texts / "source").write_text("a\n")
    said = refused(show_names.main, capsys, *options(texts))
    assert said.endswith("not of the same text: they have 1, 3, 3, 3 sentences")
    (texts / "dict").unlink()
    (texts / "source").write_text("a\nb\na\n")
    assert "cannot read the dictionary" in refused(show_names.main, capsys, *options(texts))


def prepared(folder, segmentation):
    """As far as scores need it, a folder that scripts/prepare has made."""
    about = {"source_lang": "en", "target_lang": "de", "segmentation": segmentation}
    for name, text in (
        ("prepare.json", json.dumps(about)),
        ("text/test.en", "a Quetzal 77:41 .\na b\nAra\n"),
        ("text/test.de", "b Quetzal 77:41 .\nb a\nAra\n"),
        ("raw/test.de", "b Quetzal 77:41.\nb a\nAra\n"),
        ("data/dict.en.txt", "a 3\nb 2\n. 1\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_they_stand_among_the_scores(texts, tmp_path, capsys):
    folder = prepared(tmp_path / "words", "words")
    assert scoring.score(folder, texts / "output", "test")[1]["names"] == {"wanted": 3, "arrived": 2}
    scoring.main([str(folder), str(texts / "unreplaced")])
    told = capsys.readouterr().out.splitlines()
    assert told[3:] == ["names 0 of 3 (source words outside the dictionary that the reference has)"]


def test_of_the_first_sentences_only(texts, tmp_path):
    folder = prepared(tmp_path / "words", "words")
    first = (texts / "output").read_text().splitlines(keepends=True)[:2]
    (texts / "first").write_text("".join(first))
    assert scoring.score(folder, texts / "first", "test", 2)[1]["names"] == {"wanted": 2, "arrived": 2}


def test_subwords_have_none(texts, tmp_path, capsys):
    folder = prepared(tmp_path / "pieces", "sentencepiece")
    (folder / "data" / "dict.en.txt").unlink()
    scoring.main([str(folder), str(texts / "output")])
    assert "names" not in capsys.readouterr().out


@pytest.mark.parametrize("strength", [0, 5])
def test_an_experiment_hides_words_in_trainings_with_all_words_only(tmp_path, monkeypatch, strength):
    config = f"{{seeds: [1], hide_rare_words: {strength}, train: [--arch, rnnsearch_small]}}\n"
    begin_experiment(tmp_path, config)
    (tmp_path / "out" / "stages" / "corpus.json").write_text("{}")
    out, all_words = tmp_path / "out", tmp_path / "prepared"
    experiment = run_experiment.Experiment(run_experiment.load_config(tmp_path / "config.yaml"), all_words, out)
    started = {}

    def command(name, data, *flags, log, seconds):
        started[log.parent.name] = list(map(str, flags))
        return ""

    monkeypatch.setattr(experiment.stages, "command", command)
    for training in experiment.trainings.plan:
        if training.follows is None:
            experiment.trainings.train(training)
    hiding = ["--hide-rare-words", "5", "--lexicon", str(all_words / "lexicon")]
    assert sorted(started) == ["lv-1", "reshuffle-1", "rnnsearch-1"]
    for name, flags in started.items():
        assert (" ".join(hiding) in " ".join(flags)) == (name != "rnnsearch-1" and strength > 0)
        assert ("--hide-rare-words" in flags) == (name != "rnnsearch-1" and strength > 0)
