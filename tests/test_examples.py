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

import fairseq.options
import fairseq.tasks
import pytest
import torch
from conftest import BIN, ROOT, make_corpus
from in_process import clone, experiment, refused
from released import made

RECIPES = ("europarl_en_de", "wmt14_en_de", "wmt14_en_fr", "multi30k")
ONE_PAIR = RECIPES[:3]
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
    language = ["de"] if name == "multi30k" else []
    done = recipe(name, tmp_path / "no such folder", *language, tmp_path / "out")
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
@pytest.mark.parametrize("name", ONE_PAIR)
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
def test_captions_go_from_text_to_means_over_seeds_and_claims(tmp_path):
    """Every stage that there is, into another language than the default."""
    raw, out = corpus(tmp_path / "raw", "fr"), tmp_path / "out"
    smallest = (ROOT / "examples" / "multi30k" / "config.smallest.yaml").read_text(encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(f"{smallest}other_lexicon: {out}/lexicon\n")  # the same again: it is there by then
    done = recipe("multi30k", raw, "fr", out, config, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((out / "experiment" / "results.json").read_bytes())
    systems = {system["id"]: system for system in results["systems"]}
    assert len(systems) == 18 and {"lv-unigram", "lv-source-words", "other-model"} <= set(systems)
    for one in ("rnnsearch", "lv"):
        outputs = [systems[f"{one}-{kind}"]["test"]["hypotheses"] for kind in ("other-lexicon", "unk-200")]
        assert len({(out / "experiment" / output).read_bytes() for output in outputs}) == 1
    assert [one["seed"] for one in systems["lv-unk-200"]["seeds"]] == [1, 2]
    scores = [one["test"]["bleu"] for one in systems["lv-unk-200"]["seeds"]]
    assert systems["lv-unk-200"]["over_seeds"]["test"]["mean"] == pytest.approx(sum(scores) / 2)
    assert len(results["lists"]) == 2 * 2 * 2 and len(results["times"]) == 4 and len(results["claims"]) == 2 * 5 + 8
    page = (out / "experiment" / "report.html").read_text(encoding="utf-8")
    assert "Claims of the paper" in page and "not measured" not in page and "mean of seeds" in page


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda path: path.parent.name)
def test_the_configuration_of_a_recipe_is_sound(path):
    config = experiment.config.load_config(path)
    assert experiment.plan.plan(config)


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


RELEASED = {"finetune_nllb": ("nllb", 256_206, 615_073_792), "finetune_mbart50": ("mbart50", 250_054, 610_879_488)}
SMALL = {"TAU": 60, "UPDATES": 2, "WARMUP": 1, "MAX_TOKENS": 200, "UPDATE_FREQ": 2, "FREQUENT": 30, "PER_WORD": 2}
SMALL |= {"DEVICE": "--cpu --memory-efficient-fp16", "DECODING": "--cpu"}


def released_files(model, raw: Path) -> dict:
    """The variables that name the files of a small model; its text in a folder, as the recipes want it."""
    raw.mkdir()
    for split in ("train", "valid", "test"):
        for language in (model.source, model.target):
            shutil.copy(model.folder / "text" / f"{split}.{model.pairs[0]}.{language}", raw / f"{split}.{language}")
    names = {"CHECKPOINT": "checkpoint.pt", "DICTIONARY": "dictionary.txt", "SPM": "sentencepiece.model"}
    files = {name: str(model.folder / file) for name, file in {**names, "LANGUAGES": "languages.txt"}.items()}
    return {**files, "ARCH": " ".join(model.arch), "SOURCE": model.source, "TARGET": model.target}


@pytest.mark.parametrize("name", RELEASED)
def test_a_recipe_of_a_released_model_says_what_it_needs(name, tmp_path):
    done = recipe(name)
    assert done.returncode == 2 and done.stderr.startswith("usage: ") and done.stderr.count("\n") == 1
    done = recipe(name, tmp_path / "no such folder", tmp_path, tmp_path / "out")
    assert done.returncode == 1 and done.stderr.startswith(f"there is no file {tmp_path}/no such folder/")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", RELEASED)
def test_a_recipe_trains_a_model_of_the_size_of_the_released_one(name, monkeypatch):
    """By the number of all parameters, which is published."""
    monkeypatch.setattr("fairseq.models.bart.model.init_bert_params", lambda module: None)  # there are no numbers here
    kind, rows, parameters = RELEASED[name]
    text = (ROOT / "examples" / name / "run.sh").read_text(encoding="utf-8")
    (flags,) = re.findall(r"\$\{ARCH:-(.*?)\}", text, flags=re.DOTALL)
    (own,) = re.findall(r"own=\((.*?)\)", text)
    model = made(kind)
    given = [str(model.data), "--task", model.task, *own.split(), *flags.split()]
    assert [*own.split(), "--langs"] == model.flags[: len(own.split()) + 1]
    given += ["--langs", ",".join(model.languages), "--lang-pairs", model.pairs[0]]
    parsed = fairseq.options.parse_args_and_arch(fairseq.options.get_training_parser(), given)
    task = fairseq.tasks.setup_task(parsed)
    for number in range(rows - len(task.target_dictionary)):
        task.target_dictionary.add_symbol(f"more{number}")
    for dictionary in task.dicts.values():
        dictionary.symbols, dictionary.indices = task.target_dictionary.symbols, task.target_dictionary.indices
    with torch.device("meta"):
        built = task.build_model(parsed)
    assert sum(p.numel() for p in built.parameters()) == parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASED)
def test_a_recipe_of_a_released_model_goes_from_its_files_to_scores_in_a_path_with_a_space(name, tmp_path):
    project, out = clone(tmp_path / "a clone"), tmp_path / "small run"
    variables = released_files(made(RELEASED[name][0]), tmp_path / "raw text")
    small = {variable: str(value) for variable, value in SMALL.items()}
    done = recipe(name, tmp_path, tmp_path / "raw text", out, project=project, **variables, **small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("BLEU") == done.stdout.count("chrF2") == 3
    for kind in ("before", "after", "all"):
        assert len((out / f"{kind}.hyp").read_bytes().split(b"\n")) == 12 + 1
    assert "candidate lists of " in (out / "after.log").read_text() and (out / "model" / "checkpoint_best.pt").is_file()


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
