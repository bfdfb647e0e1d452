import contextlib
import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "demo_corpus.py"
sys.path.insert(0, str(SCRIPT.parent))

import demo_corpus  # noqa: E402
from demo_corpus import pairs  # noqa: E402

FILES = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("src", "tgt")]
SMALL = ["--lemmas", "60", "--pairs", "300", "--valid", "20", "--test", "20"]


def run(*args, **environment):
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


def lines(path):
    text = path.read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text.split("\n")[:-1]


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    out = tmp_path_factory.mktemp("default")
    done = run("--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    return {name: lines(out / name) for name in FILES}, done.stdout


def test_default_size(default):
    corpus, summary = default
    assert [len(corpus[name]) for name in FILES] == [200_000] * 2 + [1000] * 4
    counts = {name: Counter(word for line in corpus[name] for word in line.split(" ")) for name in FILES}
    source, target = counts["train.src"], counts["train.tgt"]
    total, ranked = sum(target.values()), sorted(target.values(), reverse=True)
    assert len(target) > 100_000 and len(source) < len(target) / 2
    assert 0.88 < sum(ranked[:15_000]) / total < 0.94
    assert 0.92 < sum(ranked[:30_000]) / total < 0.96
    assert 10 < total / 200_000 < 14
    unseen = sum(count for word, count in counts["test.tgt"].items() if word not in target)
    assert 0.02 < unseen / sum(counts["test.tgt"].values()) < 0.06
    expected = f"train: 200000 pairs, src {sum(source.values())} tokens {len(source)} types, "
    expected += f"tgt {total} tokens {len(target)} types"
    assert summary.splitlines()[0] == expected and len(summary.splitlines()) == 3


def test_lines_are_well_formed(default):
    for name, sentences in default[0].items():
        lengths = [line.count(" ") + 1 for line in sentences]
        assert min(lengths) >= 3 and max(lengths) <= 50, name
        assert all(line.endswith((" .", " ?")) and "  " not in line and line[0] != " " for line in sentences), name
        assert not re.search(r"[\t\r\f\v\u00a0]", "".join(sentences)), name


def test_names_and_numbers_are_copied(default):
    with_copies = 0
    corpus = default[0]
    for source, target in zip(corpus["train.src"][:50_000], corpus["train.tgt"]):
        copied = Counter(word for word in source.split(" ") if word[0].isupper() or word[0].isdigit())
        with_copies += bool(copied)
        assert not copied - Counter(target.split(" ")), (source, target)
    assert with_copies > 10_000


def test_target_is_a_function_of_source(default):
    corpus, seen = default[0], {}
    for source, target in zip(corpus["train.src"], corpus["train.tgt"]):
        assert seen.setdefault(source, target) == target, source


def test_same_bytes_everywhere(tmp_path):
    for name, seed in (("a", "1"), ("b", "2")):
        assert run("--out", tmp_path / name, *SMALL, PYTHONHASHSEED=seed).returncode == 0
    digest = hashlib.sha256()
    for name in FILES:
        content = (tmp_path / "a" / name).read_bytes()
        assert content == (tmp_path / "b" / name).read_bytes()
        digest.update(content)
    for pair in pairs("train", 500, seed=7):  # the default lexicon
        digest.update("\n".join(pair).encode("utf-8"))
    assert digest.hexdigest() == "b528e8e71af6376216d8644a3a6c173c829fb5e04b1b581160e1fb7ee9f4f5ce"


def test_smaller_corpus_is_a_prefix():
    count = demo_corpus.BLOCK + 20
    longer = list(pairs("train", count, lemmas=60))
    assert len(longer) == count
    assert list(pairs("train", count - 7, lemmas=60)) == longer[:-7]
    assert list(pairs("train", 30, lemmas=60)) == longer[:30]
    assert longer[:20] != longer[demo_corpus.BLOCK :]


def test_splits_and_seeds_differ():
    corpora = [list(pairs(split, 200)) for split in ("train", "valid", "test")] + [list(pairs("train", 200, seed=2))]
    for index, corpus in enumerate(corpora):
        assert all(len(set(corpus) & set(other)) < 10 for other in corpora[:index])


def test_iterators_do_not_disturb_each_other():
    mixed = list(zip(pairs("train", 50, lemmas=60), pairs("test", 50, lemmas=60)))
    assert [first for first, _ in mixed] == list(pairs("train", 50, lemmas=60))


def test_small_language():
    sentences = list(pairs("train", 4000, lemmas=60, max_clauses=1))
    assert len({word for source, _ in sentences for word in source.split(" ")}) < 300
    assert len({word for _, target in sentences for word in target.split(" ")}) < 1000
    assert not any("," in target for _, target in sentences)


def test_smallest_lexicon():
    assert len(list(pairs("train", 100, lemmas=20))) == 100


def test_lemmas_are_unique():
    lexicon = demo_corpus.lexicon(1, 3000)
    words = [noun.source[0] for noun in lexicon.nouns]
    words += [row[0] for kind in ("verb", "adjective", "manner", "time") for row in lexicon.lemmas[kind]]
    assert len(words) == len(set(words)) == 1500 + 2 * 600 + 2 * 150
    assert len({demo_corpus.name(index) for index in range(100_000)}) == 100_000


def test_help_shows_a_real_pair():
    text = run("--help").stdout
    source, target = (re.search(rf"{side}  (.*)", text).group(1) for side in ("source", "target"))
    assert (source, target) in set(pairs("train", 1000))


def test_language_names_and_replacement(tmp_path):
    (tmp_path / "train.en").write_text("old\n")
    done = run("--out", tmp_path, *SMALL, "--source-lang", "en", "--target-lang", "de")
    assert done.returncode == 0
    assert sorted(os.listdir(tmp_path)) == sorted(
        f"{s}.{lang}" for s in ("train", "valid", "test") for lang in ("en", "de")
    )
    assert len(lines(tmp_path / "train.en")) == 300


@pytest.mark.parametrize("args", [["--pairs", "-1"], ["--lemmas", "many"], ["--out", SCRIPT / "below-a-file"]])
def test_errors_are_one_line(tmp_path, args):
    done = run("--out", tmp_path, *SMALL, *args)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "error: " in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "args",
    ["--seed -1", "--lemmas 5", "--max-clauses 0", "--source-lang tgt", "--target-lang ../x", "--unknown", "--out"],
)
def test_bad_arguments(tmp_path, capsys, args):
    with pytest.raises(SystemExit) as stopped:
        demo_corpus.main(["--out", str(tmp_path), *SMALL, *args.split()])
    assert stopped.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert os.listdir(tmp_path) == []


def test_failure_leaves_no_temporary_files(tmp_path):
    (tmp_path / "train.src").mkdir()
    done = run("--out", tmp_path, *SMALL)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert os.listdir(tmp_path) == ["train.src"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_temporary_files(tmp_path, number):
    process = subprocess.Popen([sys.executable, str(SCRIPT), "--out", str(tmp_path), "--pairs", "10000000"])
    while not os.listdir(tmp_path):
        assert process.poll() is None
        time.sleep(0.02)
    while process.poll() is None:  # Python may lose what a handler raises, in a destructor, say: then once more
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    assert process.returncode == 128 + number
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals")
def test_progress_on_a_terminal(tmp_path):
    ours, theirs = os.openpty()
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), *SMALL]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True, timeout=120)
    os.close(theirs)
    assert b"train: 300/300 pairs" in os.read(ours, 10_000)
    os.close(ours)


def test_alignments_are_those_of_the_same_pairs():
    """All words but commas, and the two source words that have no translation, belong to a word of the other side."""
    for lemmas, clauses in ((60, 1), (1500, 3)):
        sentences = list(demo_corpus.aligned("train", 400, lemmas=lemmas, max_clauses=clauses))
        assert [pair[:2] for pair in sentences] == list(pairs("train", 400, lemmas=lemmas, max_clauses=clauses))
        for source, target, links in sentences:
            source, target = source.split(" "), target.split(" ")
            linked = [tuple(map(int, link.split("-"))) for link in links.split(" ")]
            assert len(set(linked)) == len(linked)
            assert {word for j, word in enumerate(target) if j not in {b for _, b in linked}} <= {","}
            assert {word for i, word in enumerate(source) if i not in {a for a, _ in linked}} <= {",", "o", "eske"}
            for i, j in linked:  # a name or a number goes to itself
                if source[i][0].isupper() or source[i][0].isdigit():
                    assert source[i] == target[j]


def test_known_words_are_aligned_with_their_translations():
    languages = demo_corpus.lexicon(1, 300)
    nouns = {form: noun for noun in languages.nouns for form in noun.source}
    verbs = {lemma: senses for lemma, _, _, senses in languages.lemmas["verb"]}
    seen = 0
    for source, target, links in demo_corpus.aligned("train", 300, lemmas=300):
        for i, j in (map(int, link.split("-")) for link in links.split(" ")):
            word, other = source.split(" ")[i], target.split(" ")[j]
            if word in nouns:
                assert any(part in other.lower() for part in (*nouns[word].stems, nouns[word].link))
            elif word in verbs:
                assert any(stem in other for sense in verbs[word] for stem in sense[:2])
            seen += word in nouns or word in verbs
    assert seen > 500


def test_alignments_are_written_beside_the_text(tmp_path):
    assert run("--out", tmp_path / "with", *SMALL, "--alignments").returncode == 0
    assert run("--out", tmp_path / "without", *SMALL).returncode == 0
    assert sorted(os.listdir(tmp_path / "with")) == sorted([*FILES, "train.align", "valid.align", "test.align"])
    assert [lines(tmp_path / "with" / name) for name in FILES] == [lines(tmp_path / "without" / name) for name in FILES]
    expected = [links for *_, links in demo_corpus.aligned("test", 20, lemmas=60)]
    assert lines(tmp_path / "with" / "test.align") == expected
