"""From raw text to data, lexicon and scores, as the README's commands do it."""

import shutil

import pytest
from conftest import run

from lv_fairseq import Lexicon
from lv_fairseq.fingerprint import dictionary_words, fingerprint

PAIRS = [
    ("The dog, which barks, is old.", "Der Hund, der bellt, ist alt."),
    ("A cat sleeps.", "Eine Katze schläft."),
    ("The old cat isn't here!", "Die alte Katze ist nicht hier!"),
    ("A dog sleeps here.", "Ein Hund schläft hier."),
]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    odd = [("", "leer"), ("too " * 60, "lang " * 60), ("one", "eins zwei drei vier fünf sechs sieben acht neun zehn")]
    for split, pairs in (("train", PAIRS * 50 + odd), ("dev", PAIRS), ("test", PAIRS[::-1])):
        for side, language in enumerate(("en", "de")):
            (folder / f"{split}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return folder


def prepare(raw, out, *options, **how):
    files = [x for split, name in SPLITS.items() for x in (f"--{split}pref", raw / name)]
    return run(
        "python", "scripts/prepare", "-s", "en", "-t", "de", *files, "--out", out, "--workers", 2, *options, **how
    )


SPLITS = {"train": "train", "valid": "dev", "test": "test"}


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def words(raw, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "words"
    result = prepare(raw, out)
    assert "200 of 203 training pairs kept" in result.stderr and "is ready" in result.stdout
    return out


def test_words_are_tokenised_and_both_sides_stay_together(words):
    assert lines(words / "text" / "train.en")[0] == "The dog , which barks , is old ."
    assert lines(words / "text" / "train.de")[0] == "Der Hund , der bellt , ist alt ."
    assert lines(words / "text" / "test.en")[1] == "The old cat isn 't here !"
    assert lines(words / "raw" / "test.de") == [target for _, target in PAIRS[::-1]]
    assert len(lines(words / "text" / "train.en")) == len(lines(words / "text" / "train.de")) == 200


def test_the_lexicon_belongs_to_the_data(words):
    lexicon = Lexicon.load(words / "lexicon")
    for side, language in (("source", "en"), ("target", "de")):
        path = words / "data" / f"dict.{language}.txt"
        assert lexicon.about["dictionaries"][side] == fingerprint(dictionary_words(path))
    assert lexicon.best("cat") == "Katze"


def test_what_is_done_is_not_done_again_and_other_settings_are_refused(raw, words):
    before = (words / "data" / "train.en-de.en.bin").stat().st_mtime_ns
    prepare(raw, words)
    assert (words / "data" / "train.en-de.en.bin").stat().st_mtime_ns == before
    result = prepare(raw, words, "--words", 10, check=False)
    assert result.returncode == 1 and "--words -1, not 10" in result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "source, target, message",
    [
        (None, "x\n", "there is no text"),
        ("", "", "dev.en is empty: it needs sentences"),
        ("a\nb\nc", "x\ny\n", "dev.en has 3 lines and"),
    ],
)
def test_bad_text_is_refused_before_anything_is_done(raw, tmp_path, source, target, message):
    for language, text in (("en", source), ("de", target)):
        shutil.copy(f"{raw}/train.{language}", tmp_path / f"train.{language}")
        if text is not None:
            (tmp_path / f"dev.{language}").write_text(text)
    files = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "dev")
    options = ("--out", tmp_path / "out")
    result = run("python", "scripts/prepare", "-s", "en", "-t", "de", *files, *options, check=False)
    assert result.returncode == 1 and message in result.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_subwords_and_limits(raw, tmp_path):
    options = ("--segmentation", "sentencepiece", "--vocab-size", 36, "--pairs", 100, "--no-lexicon")
    prepare(raw, tmp_path / "out", *options)
    line = lines(tmp_path / "out" / "text" / "test.en")[0]
    assert line.replace(" ", "").replace("\u2581", " ").strip() == PAIRS[-1][0]
    assert len(lines(tmp_path / "out" / "text" / "train.de")) == 100
    refused = prepare(raw, tmp_path / "more", *options, "--vocab-size", 9999, check=False)
    assert refused.returncode == 1 and "sentencepiece cannot" in refused.stderr.strip().splitlines()[-1]


def test_scores_of_words_and_of_subwords(words, tmp_path):
    output = tmp_path / "test.out"
    tokenised = lines(words / "text" / "test.de")
    order = [2, 0, 3, 1]
    output.write_text("".join(f"H-{i}\t-0.1\t{tokenised[i]}\nH-{i}\t-9\tnonsense\n" for i in order), encoding="utf-8")
    result = run("python", "scripts/score", words, output).stdout.splitlines()
    assert result[0].startswith("BLEU 100.00 \u00b1 0.00  nrefs:1") and result[2].endswith("100.00")
    assert lines(tmp_path / "test.hyp") == [target for _, target in PAIRS[::-1]]
    some = [tokenised[0].replace(tokenised[0].split()[0], "<unk>", 1), *tokenised[1:]]
    output.write_text("".join(f"H-{i}\t-0.1\t{line}\n" for i, line in enumerate(some)), encoding="utf-8")
    result = run("python", "scripts/score", words, output).stdout.splitlines()
    # an unknown word is one wrong word, not the three that sacrebleu would make of <unk>
    assert result[0].split()[1] == result[2].split()[-1] != "100.00"
    assert lines(tmp_path / "test.hyp")[0].split()[0] == "\u2047"
    output.write_text("H-1\t-0.1\tx\n")
    result = run("python", "scripts/score", words, output, check=False)
    assert result.returncode == 1 and "sentences are missing" in result.stderr


def test_bad_text_is_named(raw, tmp_path):
    (tmp_path / "dev.en").write_text("a\nb\n")
    (tmp_path / "dev.de").write_text("a\n")
    for change, word in ((("--validpref", tmp_path / "dev"), "dev.de has 1 lines"), (("--testpref", "no"), "no.en")):
        result = prepare(raw, tmp_path / "out", *change, check=False)
        assert result.returncode == 1 and word in result.stderr.strip().splitlines()[-1], result.stderr
        assert not (tmp_path / "out" / "data").exists()
