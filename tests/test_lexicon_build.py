"""lv-lexicon build: from a text through an aligner to a lexicon."""

import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from aligned_text import PYTHON
from conftest import BIN, PATIENCE, run
from small_lexicon import refused

from lv_fairseq import Lexicon
from lv_fairseq.commands.lexicon import main
from lv_fairseq.fingerprint import dictionary_words, fingerprint

pytestmark = pytest.mark.usefixtures("signals_as_before")


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """Sentences in which source word sN is always tN, in the same order, with a word on one side now and then."""
    random = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("parallel")
    with open(folder / "src", "w") as source, open(folder / "tgt", "w") as target:
        for _ in range(1500):
            numbers = random.integers(0, 60, random.integers(3, 9)).tolist()
            source.write(" ".join(f"s{i}" for i in numbers) + (" the" if random.random() < 0.3 else "") + "\n")
            target.write(" ".join(f"t{i}" for i in numbers) + " .\n")
    return folder


def build(folder, out, *options, **how):
    files = ("--source", folder / "src", "--target", folder / "tgt", "--out", out)
    return run("lv-lexicon", "build", *files, *options, **how)


@pytest.mark.parametrize("symmetrize", ["none", "intersection", "grow-diag-final-and"])
def test_build_finds_the_right_translations(parallel, tmp_path, symmetrize):
    result = build(parallel, tmp_path / "lexicon", "--symmetrize", symmetrize, "--max-per-word", 7)
    assert len(result.stdout.splitlines()) == 1 and "1,500 pairs" in result.stdout and "without entry" in result.stdout
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert sum(lexicon.best(f"s{i}") == f"t{i}" for i in range(60)) >= 58
    assert np.diff(lexicon.starts).max() <= 7 and lexicon.by_frequency and lexicon.target_words[0] == "."
    assert lexicon.about["symmetrize"] == symmetrize and lexicon.about["pairs"] == 1500
    assert list(tmp_path.iterdir()) == [tmp_path / "lexicon"]


def test_build_remembers_the_dictionaries(data, text, tmp_path):
    for side in ("src", "tgt"):
        lines = (text / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)[:300]
        (tmp_path / side).write_text("".join(lines), encoding="utf-8")
    dictionaries = ("--source-dict", data / "dict.src.txt", "--target-dict", data / "dict.tgt.txt")
    build(tmp_path, tmp_path / "lexicon", *dictionaries, "--iterations", 2)
    about = Lexicon.load(tmp_path / "lexicon").about
    assert about["dictionaries"]["target"] == fingerprint(dictionary_words(data / "dict.tgt.txt"))


def program(folder, body: str):
    """A program that says it is fast_align and then does something else."""
    path = folder / "aligner"
    usage = "if len(sys.argv) < 5: sys.exit('  -i: [REQ] Input\\n  -q: p_null\\n  -p: conditional probability table')\n"
    path.write_text(f"{PYTHON}import os, sys, time\n{usage}table = sys.argv[sys.argv.index('-p') + 1]\n{body}\n")
    path.chmod(0o755)
    return path


def test_build_counts_what_its_aligner_takes_for_impossible(parallel, tmp_path, capsys):
    aligner = program(tmp_path, "open(table, 'w').write('s1\\tt1\\t-1\\ns1\\tt2\\t-inf\\n')")
    files = ["--source", parallel / "src", "--target", parallel / "tgt", "--out", tmp_path / "lexicon"]
    main(["build", *map(str, files), "--fast-align", str(aligner)])
    said = capsys.readouterr().out
    assert "1 entries for 1 source words" in said and "without entry), 1 of probability 0 left out, " in said


@pytest.mark.parametrize(
    "body, words",
    [
        ("open(table, 'w').write('a\\tb\\t-1\\nnonsense\\n')", ["line 2", "table"]),
        ("open(table, 'wb').write(b'\\xff\\xfe\\x00' * 99 + b'\\n')", ["line 1", "table"]),
        ("open(table, 'w').write('a\\tb\\t-1\\n'); os.kill(os.getpid(), 9)", ["aligner", "SIGKILL"]),
        ("sys.exit('out of cheese')", ["out of cheese"]),
        ("pass", ["wrote no table"]),
    ],
)
def test_an_aligner_that_fails_leaves_nothing_behind(parallel, tmp_path, body, words):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "lexicon").write_text("what was there before")
    files = ("--source", parallel / "src", "--target", parallel / "tgt", "--out", tmp_path / "out" / "lexicon")
    refused("lv-lexicon", "build", *files, "--fast-align", program(tmp_path, body), words=words)
    assert (tmp_path / "out" / "lexicon").read_text() == "what was there before"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lexicon"]


@pytest.mark.parametrize(
    "source, target, words",
    [
        (b"a b\nc\n", b"x\n", ["2", "1"]),
        (b"a b\n\nc\n", b"x\ny\nz\n", ["line 2", "--skip-bad-lines"]),
        (b"a b\nc ||| d\n", b"x\ny\n", ["line 2", "|||"]),
        (b"a b\nc\n", b"x\ny\tz\n", ["line 2", "tab"]),
        (b"a b\nc\n", b"x\n\xff\n", ["line 2", "UTF-8"]),
    ],
)
def test_a_text_that_cannot_be_aligned_is_named_with_its_line(tmp_path, source, target, words):
    (tmp_path / "src").write_bytes(source)
    (tmp_path / "tgt").write_bytes(target)
    files = ("--source", tmp_path / "src", "--target", tmp_path / "tgt", "--out", tmp_path / "lexicon")
    refused("lv-lexicon", "build", *files, words=words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["src", "tgt"]


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


def test_stopping_a_build_stops_the_aligner_and_leaves_nothing(parallel, tmp_path):
    stand_in = program(tmp_path, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    (tmp_path / "out").mkdir()
    command = ["lv-lexicon", "build", "--source", parallel / "src", "--target", parallel / "tgt"]
    command += ["--out", tmp_path / "out" / "lexicon", "--fast-align", stand_in]
    process = subprocess.Popen([str(BIN / command[0]), *map(str, command[1:])], stderr=subprocess.PIPE)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.terminate()
    said = process.communicate(timeout=PATIENCE)[1].decode().splitlines()
    assert process.returncode == 128 + signal.SIGTERM and list((tmp_path / "out").iterdir()) == []
    assert said[-1] == "stopped by SIGTERM: nothing was written" and "Traceback" not in "".join(said)
    wait_for(lambda: not running(int((tmp_path / "pid").read_text())))


@pytest.mark.parametrize(
    "flags, threads", [([], os.cpu_count()), (["--symmetrize", "intersection"], 1), (["--threads", "3"], 3)]
)
def test_symmetrised_alignments_of_fast_align_do_not_depend_on_threads(parallel, tmp_path, flags, threads, capsys):
    path = program(tmp_path, "").with_name("records")  # OpenMP's sums differ in their last bits from run to run
    body = f"open({str(tmp_path / 'threads')!r}, 'w').write(os.environ['OMP_NUM_THREADS']); sys.exit(1)"
    path.write_text((tmp_path / "aligner").read_text().split("table =")[0] + body)
    path.chmod(0o755)
    files = ["--source", str(parallel / "src"), "--target", str(parallel / "tgt"), "--out", str(tmp_path / "lexicon")]
    with pytest.raises(SystemExit, match="exit status 1"):
        main(["build", *files, "--fast-align", str(path), *flags])
    assert (tmp_path / "threads").read_text() == str(threads)


def test_nothing_is_lost_by_a_name_that_is_given_twice_or_by_a_special_file(parallel, tmp_path):
    before = (parallel / "src").read_bytes()
    files = ("--source", parallel / "src", "--target", parallel / "tgt")
    refused("lv-lexicon", "build", *files, "--out", parallel / "src", words=["read and written"])
    os.mkfifo(tmp_path / "fifo")
    refused("lv-lexicon", "build", *files, "--out", tmp_path / "fifo", words=["no ordinary file"])
    assert (parallel / "src").read_bytes() == before and (tmp_path / "fifo").is_fifo()
    (tmp_path / "table").write_text("a\tb\t-1\n")
    refused("lv-lexicon", "convert", tmp_path / "table", "--out", tmp_path / "table", words=["read and written"])
    (tmp_path / "link").symlink_to(tmp_path / "real")
    run("lv-lexicon", "convert", tmp_path / "table", "--out", tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and Lexicon.load(tmp_path / "real").best("a") == "b"


def test_an_aligner_is_chosen_by_its_name(parallel, tmp_path, monkeypatch):
    build(parallel, tmp_path / "lexicon", "--aligner", "builtin", "--symmetrize", "intersection", "--iterations", 2)
    about = Lexicon.load(tmp_path / "lexicon").about
    assert about["aligner"].startswith("built-in") and about["iterations"] == 2
    files = ["--source", str(parallel / "src"), "--target", str(parallel / "tgt"), "--out", str(tmp_path / "other")]
    monkeypatch.delenv("FAST_ALIGN", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))  # nothing is beside it
    for flags, words in [
        (["--aligner", "fast_align"], "fast_align is not on the PATH"),
        (["--aligner", "eflomal"], r"pip install 'lv_fairseq\[eflomal\]'"),
        (["--aligner", "builtin", "--fast-align", "x"], "name one of them"),
    ]:
        with pytest.raises(SystemExit, match=words):
            main(["build", *files, *flags])
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("symmetrize", ["none", "intersection"])
def test_a_word_that_aligners_call_the_empty_one_has_no_entry(tmp_path, symmetrize):
    (tmp_path / "src").write_text("a <eps> b\na\nb\n<eps>\n" * 20)
    (tmp_path / "tgt").write_text("x <eps> y\nx\ny\nz\n" * 20)
    result = build(tmp_path, tmp_path / "lexicon", "--aligner", "builtin", "--symmetrize", symmetrize)
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert sorted(lexicon.keys) == ["a", "b"] and "<eps>" not in lexicon.candidates(["a", "b"], 100)
    assert lexicon.best("a") == "x" and lexicon.best("b") == "y" and "(1 without entry)" in result.stdout


def eflomal(folder, body: str):
    """A program that has eflomal's flags; ``body`` is what it does with them."""
    path = folder / "eflomal-align"
    flags = "flag = lambda name: sys.argv[sys.argv.index(name) + 1]\n"
    path.write_text(f"{PYTHON}import os, sys, tempfile\n{flags}{body}\n")
    path.chmod(0o755)
    return path


def test_eflomals_links_become_shares(parallel, tmp_path, monkeypatch, capsys):
    (tmp_path / "bin").mkdir()
    said = "".join(f"Aligning with model {i} (9 iterations)\nDone: 1 s\n" * 2 for i in (1, 2, 3))
    body = f"""sys.stderr.write({said!r})
assert os.path.dirname(tempfile.mkstemp()[1]) == os.path.dirname(flag('-i'))  # is removed with the corpus
for name in ('-f', '-r'):
    with open(flag(name), 'w') as out:
        for line in open(flag('-i')):
            source, target = (len(side.split()) for side in line.split(' ||| '))
            out.write(' '.join(f'{{i}}-{{i}}' for i in range(min(source, target))) + chr(10))"""
    eflomal(tmp_path / "bin", body)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    files = ["--source", str(parallel / "src"), "--target", str(parallel / "tgt"), "--out", str(tmp_path / "lexicon")]
    main(["build", *files, "--aligner", "eflomal"])
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert lexicon.about["symmetrize"] == "grow-diag-final-and" and lexicon.about["aligner"].startswith("eflomal (")
    assert "iterations" not in lexicon.about  # which eflomal chooses
    assert all(lexicon.best(f"s{i}") == f"t{i}" for i in range(60))
    with pytest.raises(SystemExit, match="links and no probabilities: take --symmetrize"):
        main(["build", *files, "--aligner", "eflomal", "--symmetrize", "none"])
    eflomal(tmp_path / "bin", "sys.exit('sentence too long')")
    with pytest.raises(SystemExit, match="sentence too long"):
        main(["build", *files, "--aligner", "eflomal"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "lexicon"]


@pytest.mark.skipif(
    not (BIN / "eflomal-align").exists() and not shutil.which("eflomal-align"), reason="no eflomal here"
)
def test_eflomal_finds_the_right_translations(parallel, tmp_path):
    build(parallel, tmp_path / "lexicon", "--aligner", "eflomal", "--symmetrize", "intersection")
    lexicon = Lexicon.load(tmp_path / "lexicon")
    assert sum(lexicon.best(f"s{i}") == f"t{i}" for i in range(60)) >= 58
    assert list(tmp_path.iterdir()) == [tmp_path / "lexicon"]
