"""SIGTERM and Ctrl-C at random moments: a command ends soon and in one line, and leaves no process and no half file.

What scripts start has its tests in test_scripts_stopped.py.
"""

import json
import sys

import faults
import pytest
from conftest import BIN, LOG, PLUGIN, ROOT, run_code
from small_corpus import MODEL, write_corpus
from test_disk_full import ADAM
from test_report import made_up_results, made_up_texts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts processes that a command leaves")
PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from stopping import main
main({folder!r}, {cases!r}, {tries}, {seed!r})
"""


@pytest.fixture(scope="module")
def cases(names, tmp_path_factory):
    """Commands by name; PLACE is a folder that they may write to."""
    place = tmp_path_factory.mktemp("cases")
    (place / "before").mkdir()
    made_up_texts(place / "before")
    (place / "before" / "results.json").write_text(json.dumps(made_up_results()))
    for name in ("report.html", "lexicon", "table.tsv"):
        (place / "before" / name).write_text("an old one")
    corpus = write_corpus(place / "corpus")
    save = ("--save-dir", "PLACE/save", "--save-interval-updates", 1, "--num-workers", 1, *LOG)
    texts = ("--source", names / "train.src", "--target", names / "train.tgt")
    decode = (names / "data", *PLUGIN, "--path", names / "model.pt", "--unk-replacement", "copy", "--cpu")
    lexicon, known = BIN / "lv-lexicon", ("--target-dict", names / "data" / "dict.tgt.txt")
    found = {
        "fairseq-train": (BIN / "fairseq-train", corpus, *PLUGIN, *MODEL, *ADAM, *save, "--max-update", 100_000),
        "fairseq-generate": (BIN / "fairseq-generate", *decode, "--gen-subset", "train", "--batch-size", 1),
        "fairseq-interactive": (BIN / "fairseq-interactive", *decode),
        "lv-lexicon build": (lexicon, "build", *texts, "--threads", 1, "--out", "PLACE/lexicon"),
        "lv-lexicon convert": (lexicon, "convert", names / "lexicon", "--out", "PLACE/table.tsv"),
        "lv-lexicon inspect": (lexicon, "inspect", names / "lexicon", *(f"s{i}" for i in range(40))),
        "lv-lexicon coverage": (lexicon, "coverage", names / "lexicon", *texts, *known),
        "lv-partition": (BIN / "lv-partition", corpus, "--tau", 30),
        "lv-coverage": (BIN / "lv-coverage", names / "train.src", names / "valid.src"),
        "lv-serve": (ROOT / "lv_fairseq/commands/serve.py", *decode, "--port", 0),
        "lv-report": (BIN / "lv-report", "PLACE", "--png", "PLACE/pictures"),
    }
    usual = {
        "fairseq-train": 6,
        "fairseq-generate": 6,
        "fairseq-interactive": 4,
        "lv-serve": 4,
    }  # seconds: they do not end by themselves
    return {
        name: {
            "name": name,
            "command": [str(x) for x in command],
            "before": str(place / "before"),
            "replaces": name == "lv-report",  # of several files some may be there
            "usual": usual.get(name),
            "early": 1 if name.startswith("fairseq") else None,  # before fairseq has read its flags
        }
        for name, command in found.items()
    }


OWN = ("build", "convert", "inspect", "coverage")
ALL = ("fairseq-train", "fairseq-generate", "fairseq-interactive", *(f"lv-lexicon {name}" for name in OWN))
ALL += ("lv-partition", "lv-coverage", "lv-report", "lv-serve")


@pytest.mark.parametrize(
    "name, tries",
    [pytest.param(name, 8, marks=pytest.mark.faults) for name in ALL],
)
def test_a_stopped_command_leaves_nothing(cases, tmp_path, name, tries):
    case = {**cases[name], "command": [x.replace("PLACE", str(tmp_path / "place")) for x in cases[name]["command"]]}
    how = dict(tests=str(ROOT / "tests"), folder=str(tmp_path), cases=[case], tries=tries, seed=f"{faults.SEED} {name}")
    ended = run_code(PROGRAM.format(**how), tmp_path)
    assert ended.returncode == 0, ended.stderr
    runs = json.loads(ended.stdout.splitlines()[-1])["runs"]
    wrong = [result for result in runs if result["wrong"]]
    assert not wrong, json.dumps(wrong, indent=1)
    told, longest = sum(result["said"] for result in runs), max(result["seconds"] for result in runs)
    faults.report(f"SIGTERM or Ctrl-C: {name}", stopped=tries, in_one_line=told, seconds_at_most=longest)
