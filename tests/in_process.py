"""The scripts, called in the process of the tests."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import demo_results  # noqa: E402, F401
import experiment  # noqa: E402, F401
import piece_lexicon  # noqa: E402, F401
import pieces  # noqa: E402, F401
import run_experiment  # noqa: E402, F401
import scoring  # noqa: E402, F401
import show_names  # noqa: E402, F401
from preparation import folder, segmentation  # noqa: E402, F401
from preparation.command import main as prepare  # noqa: E402, F401
from preparation.workers import workers  # noqa: E402, F401


def refused(main, capsys, *arguments) -> str:
    """The one line in which a command ends."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(list(map(str, arguments)))
    code = stopped.value.code
    said = code if isinstance(code, str) else capsys.readouterr().err.rstrip("\n")
    assert code not in (0, None) and said and "\n" not in said, said
    return said


def clone(place: Path) -> Path:
    """A copy of the project, as far as its commands need it."""
    for name in ("lv_fairseq", "scripts", "examples"):
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    return place


def begin_experiment(place: Path, config: str) -> None:
    """PLACE/prepared, PLACE/config.yaml, and PLACE/out with what there is before the first training. Of the data only
    what the experiment itself looks at."""
    prepared, out = place / "prepared", place / "out"
    for name in ("raw", "text", "data"):
        (prepared / name).mkdir(parents=True)
    for name in ("text/train", "text/valid", "text/test", "raw/valid", "raw/test"):
        for language in ("en", "de"):
            (prepared / f"{name}.{language}").write_text("a b\n")
    (prepared / "lexicon").write_text("words")
    about = {"source_lang": "en", "target_lang": "de", "segmentation": "words", "texts": {"train.en": {"bytes": 4}}}
    (prepared / "prepare.json").write_text(json.dumps(about))
    (place / "config.yaml").write_text(config)
    for name in ("stages", "shortlist"):
        (out / name).mkdir(parents=True)
