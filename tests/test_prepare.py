"""From raw text to data, lexicon and scores, as the README's commands do it."""

import codecs
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import BIN, ROOT, printed_in_ascii, run
from fairseq import options
from fairseq.data import encoders
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from in_process import clone, folder, prepare, refused, scoring, segmentation, workers

import lv_fairseq
from lv_fairseq import Lexicon, UserError
from lv_fairseq.fingerprint import dictionary_words, fingerprint
from lv_fairseq.lock import only_one

PAIRS = [
    ("The dog, which barks, is old.", "Der Hund, der bellt, ist alt."),
    ("A cat sleeps.", "Eine Katze schläft."),
    ("The old cat isn't here!", "Die alte Katze ist nicht hier!"),
    ("A dog sleeps here.", "Ein Hund schläft hier."),
]
ODD_ENDS = ("A\rcat\u2028sleeps\x0bhere.", "Eine\rKatze\u2029schläft\x85hier\x0c.")  # one line each
TEST = [*PAIRS[::-1], ODD_ENDS]
SPLITS = {"train": "train", "valid": "dev", "test": "test"}


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw text")
    odd = [("", "leer"), ("too " * 60, "lang " * 60), ("one", "eins zwei drei vier fünf sechs sieben acht neun zehn")]
    for split, pairs in (("train", PAIRS * 50 + odd), ("dev", PAIRS), ("test", TEST)):
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in pairs).encode()
            (folder / f"{split}.{language}").write_bytes(codecs.BOM_UTF8 + text)
    return folder


def arguments(raw, out, *options):
    files = [x for split, name in SPLITS.items() for x in (f"--{split}pref", raw / name)]
    return list(map(str, ["-s", "en", "-t", "de", *files, "--out", out, "--workers", 2, *options]))


def lines(path):
    return path.read_bytes().decode().split("\n")[:-1]


@pytest.fixture(scope="module")
def words(raw, tmp_path_factory):
    """Made by a clone in a folder with a space, in another one."""
    project, out = clone(tmp_path_factory.mktemp("a clone")), tmp_path_factory.mktemp("prepared text") / "of words"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(project))
        patch.setenv("PATH", f"{BIN}{os.pathsep}{os.environ['PATH']}")
        result = run(project / "scripts" / "prepare", *arguments(raw, out))
    assert "200 of 203 training pairs kept" in result.stderr and "is ready" in result.stdout
    return out


def test_words_are_tokenised_and_both_sides_stay_together(words):
    assert lines(words / "text" / "train.en")[0] == "The dog , which barks , is old ."
    assert lines(words / "text" / "train.de")[0] == "Der Hund , der bellt , ist alt ."
    assert lines(words / "text" / "test.en")[1] == "The old cat isn 't here !"
    assert lines(words / "raw" / "test.de") == [target for _, target in TEST]
    assert len(lines(words / "text" / "train.en")) == len(lines(words / "text" / "train.de")) == 200


def test_a_line_ends_at_a_line_feed_and_nowhere_else(words):
    assert lines(words / "text" / "test.en")[-1] == "A cat sleeps here ."
    assert lines(words / "text" / "test.de")[-1] == "Eine Katze schläft hier ."
    for side in ("en", "de"):
        assert (words / "text" / f"test.{side}").read_text(encoding="utf-8").count("\n") == len(TEST)


def test_the_lexicon_belongs_to_the_data(words):
    lexicon = Lexicon.load(words / "lexicon")
    for side, language in (("source", "en"), ("target", "de")):
        path = words / "data" / f"dict.{language}.txt"
        assert lexicon.about["dictionaries"][side] == fingerprint(dictionary_words(path))
    assert lexicon.best("cat") == "Katze"


def cut_as_typed(data, flags, text) -> list:
    """Lines as fairseq-interactive cuts them with these flags."""
    given = [str(data), "--path", "model.pt", *flags]
    parsed = options.parse_args_and_arch(
        options.get_interactive_generation_parser(default_task="lv_translation"), given
    )
    cfg = convert_namespace_to_omegaconf(parsed)
    encoders_ = [x for x in (encoders.build_tokenizer(cfg.tokenizer), encoders.build_bpe(cfg.bpe)) if x is not None]
    assert len(encoders_) == 1
    return [encoders_[0].encode(line) for line in text]


def typing_flags_said(said: str) -> list:
    (line,) = (line for line in said.splitlines() if line.startswith("To type or serve raw text"))
    return shlex.split(line.partition(": ")[2])


@pytest.mark.parametrize("kind", ["words", "sentencepiece"])
def test_what_is_typed_is_cut_as_the_training_text_with_the_flags_that_are_said(kind, raw, words, tmp_path, capsys):
    lv_fairseq.register()
    out = words if kind == "words" else tmp_path / "of pieces"
    more = () if kind == "words" else ("--segmentation", "sentencepiece", "--vocab-size", 36, "--no-lexicon")
    prepare(arguments(raw, out, *more))
    flags = typing_flags_said(capsys.readouterr().out)
    sources = [source for source, _ in PAIRS] + ["A well-known dog & cat."]
    expected = {"words": lambda: segmentation.moses("en", sources)}
    expected["sentencepiece"] = lambda: segmentation.subwords(str(out / "spm.en.model"), sources)
    assert cut_as_typed(out / "data", flags, sources) == expected[kind]()


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_what_is_done_is_not_done_again_and_other_settings_are_refused(raw, words, capsys):
    before = contents(words)
    prepare(arguments(raw, words))
    assert "is ready" in capsys.readouterr().out
    said = refused(prepare, capsys, *arguments(raw, words, "--words", 10))
    assert "--words -1, not 10" in said and "name another --out" in said
    assert contents(words) == before


def test_other_texts_are_noticed_wherever_they_are(raw, words, tmp_path, capsys):
    before = contents(words)
    shutil.copytree(raw, tmp_path / "raw")
    prepare(arguments(tmp_path / "raw", words))  # the same texts
    assert "is ready" in capsys.readouterr().out
    text = tmp_path / "raw" / "dev.de"
    times = text.stat()
    text.write_bytes(text.read_bytes().replace(b"Hund", b"Mund"))
    os.utime(text, ns=(times.st_atime_ns, times.st_mtime_ns))
    said = refused(prepare, capsys, *arguments(tmp_path / "raw", words))
    assert said.endswith("was made with another text valid.de: name another --out")
    without = arguments(raw, words)
    place = without.index("--testpref")
    said = refused(prepare, capsys, *without[:place], *without[place + 2 :])
    assert "was made with a text test.de: name another --out" in said
    assert contents(words) == before


def test_what_a_killed_run_left_is_removed(raw, words, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(words, out)
    (out / "raw" / "test.en").unlink()  # something to do
    left = [out / f".lexicon.{'0a' * 8}.tmp", out / "text" / f".train.en.{'b1' * 8}.tmp"]
    left[0].mkdir()
    (left[0] / f".counts.{'c2' * 8}.tmp").write_text("half")
    left[1].write_text("half")
    prepare(arguments(raw, out))
    assert contents(out).keys() == {out / path.relative_to(words) for path in contents(words)}
    assert not left[0].exists()


def test_a_run_that_finished_nothing_is_repeated_with_other_settings(raw, tmp_path, capsys):
    for size in (9999, 9998):
        options = ("--segmentation", "sentencepiece", "--vocab-size", size, "--no-lexicon")
        said = refused(prepare, capsys, *arguments(raw, tmp_path / "out", *options))
        assert said.startswith(f"sentencepiece cannot make {size:,} subwords of en: ")
    assert not [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".part", ".tmp", ".model")]


ABOUT = {"source_lang": "en", "target_lang": "de", "segmentation": "words", "words": 5, "texts": {"train.en": {}}}


def test_a_half_made_folder_is_not_a_ready_one(tmp_path):
    parts = ["text/train.en", "data"]
    assert folder.begin(tmp_path, ABOUT, parts)
    with pytest.raises(UserError, match="half made: give the same scripts/prepare command again"):
        folder.read(tmp_path)
    (tmp_path / "text").mkdir()
    assert folder.begin(tmp_path, {**ABOUT, "words": 6}, parts)
    (tmp_path / "text" / "train.en").write_text("a\n")
    with pytest.raises(UserError, match="--words 6, not 5: name another --out"):
        folder.begin(tmp_path, ABOUT, parts)
    (tmp_path / "data").mkdir()
    assert folder.begin(tmp_path, {**ABOUT, "words": 6}, parts)
    folder.finish(tmp_path)
    assert not folder.begin(tmp_path, {**ABOUT, "words": 6}, parts) and folder.read(tmp_path)["words"] == 6
    (tmp_path / "data").rmdir()  # something of it is lost
    assert folder.begin(tmp_path, {**ABOUT, "words": 6}, parts)
    with pytest.raises(UserError, match="half made"):
        folder.read(tmp_path)


def test_a_folder_of_somebody_else_is_left_alone(raw, tmp_path, capsys):
    (tmp_path / "data").mkdir()
    said = refused(prepare, capsys, *arguments(raw, tmp_path))
    assert said == f"{tmp_path}/data was not made by scripts/prepare: name another --out"
    assert {path.name for path in tmp_path.iterdir()} == {"data", ".lock"}


def test_only_one_prepares_a_folder_at_a_time(raw, tmp_path, capsys):
    with only_one(tmp_path):
        assert "is at work in" in refused(prepare, capsys, *arguments(raw, tmp_path))


@pytest.mark.parametrize(
    "source, target, message",
    [
        (None, "x\n", "there is no text"),
        ("", "", "dev.en is empty: it needs sentences"),
        ("a\nb\nc", "x\ny\n", "dev.en has 3 lines and"),
        ("a\nb\n", "x\n", "dev.de has 1 lines"),
    ],
)
def test_bad_text_is_refused_before_anything_is_done(raw, tmp_path, capsys, source, target, message):
    for language, text in (("en", source), ("de", target)):
        shutil.copy(f"{raw}/train.{language}", tmp_path / f"train.{language}")
        if text is not None:
            (tmp_path / f"dev.{language}").write_text(text)
    files = ("--trainpref", tmp_path / "train", "--validpref", tmp_path / "dev")
    assert message in refused(prepare, capsys, "-s", "en", "-t", "de", *files, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_text_that_is_not_utf8_is_named(raw, tmp_path, capsys):
    shutil.copytree(raw, tmp_path / "raw")
    with open(tmp_path / "raw" / "train.de", "r+b") as file:
        file.seek(-10, os.SEEK_END)
        file.write(b"\xff")
    said = refused(prepare, capsys, *arguments(tmp_path / "raw", tmp_path / "out"))
    assert said == f"{tmp_path}/raw/train.de, line 203: not UTF-8"
    assert not list((tmp_path / "out" / "text").iterdir())


def test_workers_keep_the_order_and_tell_what_went_wrong():
    with workers(2) as pool:
        assert pool.map(abs, range(-50, 0)) == list(range(50, 0, -1))
        with pytest.raises(ValueError, match="invalid literal"):
            pool.map(int, ["x"])
    with workers(2) as pool, pytest.raises(UserError, match="a process was killed"):
        pool.map(os._exit, [1, 1, 1])


@pytest.mark.parametrize(
    "option",
    [
        "--pairs -1",
        "--pairs 0",
        "--workers 0",
        "--vocab-size 0",
        "--max-length 0",
        "--words 0",
        "--words many",
        "--threshold -1",
        "--max-ratio nan",
        "--max-ratio 0.5",
        "--segmentation letters",
        "--target-lang en",
        "--target-lang ../de",
        "--testpref no",
        "--nothing",
    ],
)
def test_a_wrong_option_ends_in_one_line(raw, tmp_path, capsys, option):
    said = refused(prepare, capsys, *arguments(raw, tmp_path / "out", *option.split()))
    assert option.split()[-1] in said
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_ends_in_one_line(raw, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nothing"):
        assert str(out) in refused(prepare, capsys, *arguments(raw, out))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("text", ["{", "{}", "[]", "null", '{"source_lang": 1}', "\xff"])
def test_a_damaged_prepare_json_ends_in_one_line(raw, tmp_path, capsys, text):
    (tmp_path / "prepare.json").write_bytes(text.encode("latin-1"))
    (tmp_path / "data").mkdir()
    (tmp_path / "test.out").write_text("H-0\t-0.1\tx\n")
    for said in (
        refused(prepare, capsys, *arguments(raw, tmp_path)),
        refused(scoring.main, capsys, tmp_path, tmp_path / "test.out"),
    ):
        assert said == f"{tmp_path}/prepare.json is damaged: prepare the text again, with another --out"


def test_subwords_and_limits(raw, tmp_path):
    options = ("--segmentation", "sentencepiece", "--vocab-size", 36, "--pairs", 100, "--no-lexicon")
    prepare(arguments(raw, tmp_path / "out", *options))
    text = lines(tmp_path / "out" / "text" / "test.en")
    assert [line.replace(" ", "").replace("\u2581", " ").strip() for line in text[:4]] == [x for x, _ in TEST[:4]]
    assert len(text) == len(TEST)
    assert len(lines(tmp_path / "out" / "text" / "train.de")) == 100
    assert not {"prepare.unfinished.json", "data.part"} & {path.name for path in (tmp_path / "out").iterdir()}


@pytest.fixture
def output(words, tmp_path):
    """Writes what fairseq-generate would have printed."""

    def write(sentences, name="test.out"):
        text = "".join(f"H-{i}\t-0.1\t{line}\nH-{i}\t-9\tnonsense\n" for i, line in sentences)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_scores_of_words(words, output, tmp_path, capsys):
    tokenised = lines(words / "text" / "test.de")
    result = run("python", "scripts/score", words, output((i, tokenised[i]) for i in (2, 0, 4, 3, 1))).stdout.split(
        "\n"
    )
    assert result[0].startswith("BLEU 100.00 \u00b1 0.00  nrefs:1") and result[2].endswith("100.00")
    assert lines(tmp_path / "test.hyp") == [*(target for _, target in PAIRS[::-1]), "Eine Katze schläft hier."]
    some = [tokenised[0].replace(tokenised[0].split()[0], "<unk>", 1), *tokenised[1:]]
    scoring.main([str(words), str(output(enumerate(some)))])
    result = capsys.readouterr().out.split("\n")
    # an unknown word is one wrong word, not the three that sacrebleu would make of <unk>
    assert result[0].split()[1] == result[2].split()[-1] != "100.00"
    assert lines(tmp_path / "test.hyp")[0].split()[0] == "\u2047"


def test_results_are_printed_in_any_encoding(raw, words, output, tmp_path):
    shutil.copytree(words, tmp_path / "fertig \u00fc")
    said = printed_in_ascii(prepare, arguments(raw, tmp_path / "fertig \u00fc"))
    assert rb"fertig \xfc is ready" in said
    whole = output(enumerate(lines(words / "text" / "test.de")))
    assert rb"BLEU 100.00 \xb1 0.00" in printed_in_ascii(scoring.main, [str(words), str(whole)])


def test_scores_that_nobody_reads_end_in_silence(words, output):
    command = [sys.executable, "scripts/score", words, output(enumerate(lines(words / "text" / "test.de")))]
    ours, theirs = os.pipe()
    os.close(ours)  # as `head` does
    with open(theirs, "wb") as pipe:
        result = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, cwd=ROOT)
    assert (result.returncode, result.stderr) == (-signal.SIGPIPE, b"")


def test_what_cannot_be_scored_ends_in_one_line(words, output, tmp_path, capsys):
    whole = output(enumerate("abcde"))
    said = refused(scoring.main, capsys, words, whole, "--subset", "dev")
    assert said == "score: --subset is valid (the development text) or test, not dev"
    assert "5 sentences, the valid text 4" in refused(scoring.main, capsys, words, whole, "--subset", "valid")
    assert "sentences are missing" in refused(scoring.main, capsys, words, output([(1, "x")], "some.out"))
    (tmp_path / "bytes.out").write_bytes(b"H-0\t-0.1\t\xff\n")
    assert "is not UTF-8" in refused(scoring.main, capsys, words, tmp_path / "bytes.out")
    assert "there is no" in refused(scoring.main, capsys, words, tmp_path / "none.out")
    assert "was not made by scripts/prepare" in refused(scoring.main, capsys, tmp_path, whole)
    assert not list(tmp_path.glob("*.hyp"))


def test_a_damaged_or_missing_reference_ends_in_one_line(output, tmp_path, capsys):
    (tmp_path / "prepare.json").write_text(json.dumps(ABOUT))
    whole = output([(0, "x")])
    assert "if it is given --testpref" in refused(scoring.main, capsys, tmp_path, whole)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "test.de").write_bytes(b"\xff\n")
    assert "is not UTF-8" in refused(scoring.main, capsys, tmp_path, whole)


def test_an_output_is_not_overwritten_by_its_translations(words, output, tmp_path, capsys):
    whole = output(enumerate("abcde"), "test.hyp")
    before = whole.read_bytes()
    assert "another name" in refused(scoring.main, capsys, words, whole)
    with contextlib.chdir(tmp_path):
        os.link("test.hyp", "link.out")
        os.symlink("link.out", "link.hyp")
    assert "another name" in refused(scoring.main, capsys, words, tmp_path / "link.out")
    assert whole.read_bytes() == before
