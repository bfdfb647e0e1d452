"""The recipes in examples: what they say to wrong arguments, and the smallest run of each."""

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BIN, ROOT, make_corpus
from in_process import clone, refused

RECIPES = ("europarl_en_de", "wmt14_en_de", "wmt14_en_fr")
CONFIG = """
shortlist: 100
tau: 200
hours: 0.002
frozen_hours: 0.001
seeds: [1]
points: 1
beam: 2
frequent: [100]
per_word: [5]
parallel: 2
train: [--arch, rnnsearch_small, --optimizer, adam, --lr, 0.005, --clip-norm, 1.0, --max-tokens, 1000]
"""


def recipe(name, *arguments, project=ROOT, script="run.sh", **environment):
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(project), **environment}
    start = [sys.executable] if script.endswith(".py") else ["bash"]
    command = [*start, project / "examples" / name / script, *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd="/", env=environment)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_what_it_needs(name, tmp_path):
    done = recipe(name)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and done.stderr.count("\n") == 1
    done = recipe(name, tmp_path / "no such folder", tmp_path / "out")
    assert done.returncode == 1 and done.stderr == f"there is no text {tmp_path}/no such folder/train.en\n"
    assert not (tmp_path / "out").exists()


def test_a_recipe_without_an_installation_says_so(tmp_path):
    project = clone(tmp_path / "a clone")
    done = recipe("demo", project=project, PATH="/usr/bin:/bin")
    assert done.returncode == 1 and done.stderr.startswith("lv_fairseq is not installed: run `make install`")


def corpus(folder, target):
    raw = make_corpus(folder, "--lemmas", 60, "--max-clauses", 1, "--pairs", 3000, "--valid", 20, "--test", 20)
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        for ending, language in (("src", "en"), ("tgt", target)):
            (raw / f"{split}.{ending}").rename(raw / f"{name}.{language}")
    return raw


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_goes_from_text_to_report_in_a_path_with_a_space(name, tmp_path):
    project = clone(tmp_path / "a clone")
    raw, out, config = corpus(tmp_path / "raw text", name[-2:]), project / "runs" / "small run", tmp_path / "my config"
    config.write_text(CONFIG)
    pairs = ["2000"] if name.startswith("europarl") else []
    done = recipe(name, raw, out, *pairs, config, project=project)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "experiment" / "results.json").read_bytes())
    assert len(results["systems"]) == 8 and (out / "experiment" / "report.html").is_file()


@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_scores_and_a_report_in_a_path_with_a_space(tmp_path):
    project = clone(tmp_path / "a clone")
    systems = ("all words", "candidate list", "list + replacement")
    done = recipe("demo", tmp_path / "my demo", 2000, project=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ of \d+ source words outside the dictionary .* arrived$", done.stdout, re.MULTILINE)
    table = done.stdout.partition("== 8. ")[2].partition("== 9. ")[0]
    assert re.findall(r"^(\w.*?)  .* \d+ of \d+$", table, re.MULTILINE) == [*systems]
    assert len((tmp_path / "my demo" / "test.hyp").read_bytes().split(b"\n")) == 1001
    assert (tmp_path / "my demo" / "report.html").is_file()
    assert done.stdout.endswith(f"Open {tmp_path}/my demo/report.html in a browser\n")


def repository(folder: Path, descriptions: dict) -> Path:
    """A repository of Debian packages that holds nothing but descriptions. Returns a configuration of apt for it."""
    release = []
    for language, stanzas in descriptions.items():
        path = folder / "dists" / "stable" / "main" / "i18n" / f"Translation-{language}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("\n\n".join(stanzas).encode() + b"\n")
        text = path.read_bytes()
        release.append(f" {hashlib.sha256(text).hexdigest()} {len(text)} main/i18n/{path.name}")
    lines = ["Origin: test", "Suite: stable", "Codename: stable", "Components: main", "Architectures: all", "SHA256:"]
    (folder / "dists" / "stable" / "Release").write_text("\n".join(lines + release) + "\n")
    (folder / "sources.list").write_text(f"deb [trusted=yes] file:{folder} stable main\n")
    options = {"Dir::Etc::SourceList": folder / "sources.list", "Dir::Etc::SourceParts": "/dev/null"}
    options["APT::Sandbox::User"] = "root"
    (folder / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in options.items()))
    return folder / "apt.conf"


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_descriptions_of_packages_become_parallel_text(tmp_path, capsys, monkeypatch):
    stanzas = {"en": [], "de": []}
    for i in range(200):
        for language, first, text in (("en", "a program", "It runs\r often."), ("de", "ein Programm", "Es läuft oft.")):
            about = f"Package: p{i}\nDescription-md5: {i:032x}\n"
            stanzas[language].append(f"{about}Description-{language}: p{i} {first}\n {text} {i}\n .\n Ende.")
    stanzas["de"][7] += "\n .\n noch ein Absatz"  # not the same paragraphs
    config = repository(tmp_path / "packages", stanzas)
    options = ("--language", "de", "--out", tmp_path / "out")
    done = recipe("debian_descriptions", *options, script="make_corpus.py", APT_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    lines = {
        (split, side): (tmp_path / "out" / f"{split}.{side}").read_bytes().decode().split("\n")[:-1]
        for split in ("train", "dev", "test")
        for side in ("en", "de")
    }
    pairs = [pair for split in ("train", "dev", "test") for pair in zip(lines[split, "en"], lines[split, "de"])]
    assert len(lines["dev", "en"]) > 0 < len(lines["test", "en"])
    expected = {(f"p{i} a program", f"p{i} ein Programm") for i in range(200) if i != 7}
    expected |= {(f"It runs often. {i}", f"Es läuft oft. {i}") for i in range(200) if i != 7}
    assert sorted(pairs) == sorted(expected)
    main = runpy.run_path(ROOT / "examples" / "debian_descriptions" / "make_corpus.py")["main"]
    monkeypatch.setenv("APT_CONFIG", str(config))
    for options, message in (
        (("--language", "../de", "--out", tmp_path / "out"), "--language must be"),
        (("--language", "xx", "--out", tmp_path / "other"), "apt-get brought no descriptions in xx: "),
        (("--out", tmp_path / "packages" / "apt.conf"), "Not a directory"),
    ):
        assert message in refused(main, capsys, *options)
