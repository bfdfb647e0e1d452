"""A disk that is full at any moment of a write: one line, and what was there before stays whole."""

import json
import shutil
import sys

import faults
import pytest
from conftest import BIN, LOG, PLUGIN, ROOT, run, run_code
from small_corpus import MODEL, write_corpus
from test_report import made_up_results, made_up_texts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")
PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from full_disk import main
main({folder!r}, {cases!r}, {tries}, {seed!r})
"""
ADAM = ("--optimizer", "adam", "--criterion", "partition_cross_entropy", "--tau", 30, "--max-tokens", 60, "--cpu")


@pytest.fixture(scope="module")
def cases(names, tmp_path_factory):
    """Commands that write, by name; DISK is the one that gets full."""
    place = tmp_path_factory.mktemp("cases")
    for name in ("lexicon", "train", "report", "prepare", "nothing"):
        (place / name).mkdir()
    for name in ("lexicon", "table.tsv"):
        shutil.copy(names / "lexicon", place / "lexicon" / name)
    corpus = write_corpus(place / "corpus")
    save = ("--save-dir", "DISK/save", "--save-interval-updates", 1, "--num-workers", 0, *LOG)
    train = (BIN / "fairseq-train", corpus, *PLUGIN, *MODEL, *ADAM, *save, "--max-update")
    run("fairseq-train", *(str(x).replace("DISK", str(place / "train")) for x in (*train[1:], 2)))
    made_up_texts(place / "report")
    (place / "report" / "results.json").write_text(json.dumps(made_up_results()))
    (place / "report" / "report.html").write_text("an old page")
    texts = ("--source", names / "train.src", "--target", names / "train.tgt")
    prefixes = [x for split in ("train", "valid", "test") for x in (f"--{split}pref", names / split)]
    found = {
        "lv-lexicon build": (BIN / "lv-lexicon", "build", *texts, "--threads", 1, "--out", "DISK/lexicon"),
        "lv-lexicon convert": (BIN / "lv-lexicon", "convert", names / "lexicon", "--out", "DISK/table.tsv"),
        "lv-report": (BIN / "lv-report", "DISK", "--png", "DISK/pictures"),
        "fairseq-train": (*train, 5),
        "scripts/prepare": (ROOT / "scripts/prepare", "-s", "src", "-t", "tgt", *prefixes, "--out", "DISK/out"),
    }
    before = {"fairseq-train": "train", "lv-report": "report", "scripts/prepare": "prepare"}
    return {
        name: {"name": name, "command": command, "before": str(place / before.get(name, "lexicon"))}
        for name, command in found.items()
    }


def fill(tmp_path, case: dict, tries: int) -> dict:
    command = [str(x).replace("DISK", str(tmp_path / "disk")) for x in case["command"]]
    cases = [{**case, "command": command, "replaces": case["name"] == "fairseq-train"}]
    how = dict(tests=str(ROOT / "tests"), folder=str(tmp_path), cases=cases, tries=tries, seed=f"{faults.SEED}")
    ended = run_code(PROGRAM.format(**how), tmp_path)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


FEW, MANY = 2, 15


@pytest.mark.parametrize(
    "name, tries",
    [
        ("lv-lexicon convert", FEW),
        pytest.param("lv-lexicon convert", MANY, marks=pytest.mark.faults),
        pytest.param("lv-lexicon build", MANY, marks=pytest.mark.faults),
        pytest.param("lv-report", MANY, marks=pytest.mark.faults),
        pytest.param("fairseq-train", MANY, marks=pytest.mark.faults),
        pytest.param("scripts/prepare", 4, marks=pytest.mark.faults),
    ],
)
def test_a_full_disk_damages_nothing(cases, tmp_path, name, tries):
    found = fill(tmp_path, cases[name], tries)
    if "skip" in found:
        pytest.skip(f"a small file system cannot be mounted here: {found['skip']}")
    assert found["all_room"]["code"] == 0 and not found["all_room"]["wrong"], found["all_room"]
    for result in found["runs"]:
        assert not result["wrong"], result
        told = "No space left" in result["said"] or "the reason is at the end of" in result["said"]
        assert result["code"] == 0 or told, result
    filled = sum(result["code"] != 0 for result in found["runs"])
    assert filled
    faults.report(f"disk full: {name}", runs=tries, full=filled, seconds=found["seconds"])
