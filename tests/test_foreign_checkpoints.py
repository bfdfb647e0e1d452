"""Checkpoints that come from somewhere else: no code of theirs runs, and what is no checkpoint is named in one line."""

import argparse
import fcntl
import os
import pickle
import re
import sys
from pathlib import Path

import fairseq
import pytest
import torch
from conftest import PLUGIN, run
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from small_corpus import TAU, configure, write_corpus

from lv_fairseq import UserError
from lv_fairseq.fairseq_patches.settings import MOST, literals, numbers

FCONV = ("--arch", "fconv", "--encoder-embed-dim", 8, "--decoder-embed-dim", 8, "--decoder-out-embed-dim", 8)
FCONV += (
    "--encoder-layers",
    "[(8, 3)] * 2",
    "--decoder-layers",
    "[(8, 3)] + [(8, 3)]",
    "--optimizer",
    "sgd",
    "--lr",
    0.1,
)
FCONV += ("--max-tokens", 4000, "--criterion", "cross_entropy")
FCONV += ("--disable-validation", "--no-epoch-checkpoints")


@pytest.fixture(scope="module")
def ordinary(data, tmp_path_factory):
    """A checkpoint of fairseq's fconv, whose settings hold text to compute with."""
    folder = tmp_path_factory.mktemp("fconv")
    run("fairseq-train", data, *PLUGIN, *FCONV, "--max-update", 1, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def hostile(ordinary, tmp_path_factory):
    """The same, with code in every setting that fairseq would evaluate, and the file that the code would make."""
    made = tmp_path_factory.mktemp("hostile") / "made"
    state = torch.load(ordinary, weights_only=False)
    for setting in ("encoder_layers", "decoder_layers", "decoder_attention"):
        setattr(state["cfg"]["model"], setting, f"[open({str(made)!r}, 'w').close() or (8, 3)] * 2")
    path = made.with_name("checkpoint.pt")
    torch.save(state, path)
    torch.load(path, weights_only=True)  # the safe loader has nothing against it
    return path, made


def last_line(result) -> str:
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("command", ["fairseq-generate", "fairseq-interactive", "fairseq-validate"])
def test_code_in_a_checkpoint_is_not_run_and_named(data, ordinary, hostile, command):
    path, made = hostile
    flags = ("--criterion", "cross_entropy") if command == "fairseq-validate" else ("--max-len-a", 0, "--max-len-b", 3)
    flags += ("--max-tokens", 4000)
    assert "only numbers, brackets" in last_line(run(command, data, *PLUGIN, "--path", path, *flags, check=False))
    assert not made.exists()
    assert run(command, data, *PLUGIN, "--path", ordinary, *flags, stdin="a b\n").returncode == 0


@pytest.mark.parametrize("flag", ["--restore-file", "--finetune-from-model"])
def test_training_runs_no_code_of_a_checkpoint_that_it_starts_from(data, hostile, tmp_path, flag):
    path, made = hostile
    result = run("fairseq-train", data, *PLUGIN, *FCONV, "--max-update", 2, "--save-dir", tmp_path, flag, path)
    assert "Loaded checkpoint" in result.stdout + result.stderr and not made.exists()


def test_no_module_of_fairseq_has_pythons_own_eval():
    """Command lines aside, which users type themselves, and examples, which no command imports."""
    folder, found = Path(fairseq.__file__).parent, 0
    for path in folder.rglob("*.py"):
        name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        if "examples" in name or not re.search(r"(?<![\w.])eval\(", path.read_text(encoding="utf-8")):
            continue
        assert sys.modules[name].eval in (numbers, literals), name
        found += 1
    assert found > 10


@pytest.mark.parametrize(
    "text, value",
    [
        ("[(512, 3)] * 2 + [(1, 1)]", [(512, 3), (512, 3), (1, 1)]),
        ("True", True),
        (" (0.9, 1e-3) ", (0.9, 1e-3)),
        ("[-1, 2 * 3]", [-1, 6]),
        ("[True] * 3", [True] * 3),
    ],
)
def test_settings_are_computed(text, value):
    assert numbers(text) == value == eval(text.strip())


@pytest.mark.parametrize(
    "text",
    ["x", "'a'", "f()", "[].append", "[x for x in [1]]", "1 if 1 else 2", "2 ** 99", "[0] * 10 ** 9", "", "(" * 999]
    + [
        "[[0] * 9999] * 9999",
        "[0] * 99999 * 99999",
        "9" * 400 + " * 9",
        "1 + (2, )",
        "__import__('os')",
        "9" * MOST * 2,
    ]
    + [
        "1; 2",
        "lambda: 0",
        "f'{1}'",
        "1j",
        "None",
        "[*[1]]",
        "{}",
        "1 - 1",
        "\0",
        "[1e400]",
        "[1] * [2]",
        "9" * MOST * 2,
    ],
)
def test_everything_else_is_refused_in_one_line(text):
    with pytest.raises(UserError, match="nothing of it was run") as error:
        numbers(text)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_literals_hold_no_code():
    assert literals("{'a': [1, None]}") == {"a": [1, None]} and literals("[3] * 7") == [3] * 7
    with pytest.raises(UserError):
        literals("__import__('os').getcwd()")


class Code:
    def __reduce__(self):
        return os.getcwd, ()


def bad_files(folder: Path, good: Path) -> dict:
    """Paths, and what must be said of each."""
    whole = good.read_bytes()
    (folder / "empty.pt").write_bytes(b"")
    (folder / "text.pt").write_text("not a checkpoint\n" * 99)
    (folder / "letters.pt").write_text("every letter " * 999)
    (folder / "half.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "pickle.pt").write_bytes(pickle.dumps({"a": 1}))
    torch.save({"model": Code()}, folder / "code.pt")
    torch.save({"weights": torch.zeros(3)}, folder / "other.pt")
    torch.save([1, 2], folder / "list.pt")
    torch.save({"args": argparse.Namespace(), "model": {}}, folder / "old.pt")
    (folder / "folder.pt").mkdir()
    os.mkfifo(folder / "pipe.pt")
    return {
        "missing.pt": "there is no checkpoint",
        "folder.pt": "it is a folder",
        "pipe.pt": "it is no ordinary file",
        "empty.pt": "it is empty",
        "text.pt": "no file that torch has saved",
        "half.pt": "no file that torch has saved",
        "pickle.pt": "cannot be used",
        "letters.pt": "no file that torch has saved",
        "code.pt": "it wants to call posix.getcwd",
        "other.pt": "not fairseq's",
        "list.pt": "not fairseq's",
        "old.pt": "not fairseq's",
    }


def test_what_is_no_checkpoint_is_named_in_one_line(data, ordinary, tmp_path):
    for name, message in bad_files(tmp_path, ordinary).items():
        with pytest.raises(UserError) as error:
            checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / name)], {"data": str(data)})
        assert message in str(error.value) and name in str(error.value) and "\n" not in str(error.value)
    half = tmp_path / "half.pt"
    assert "half.pt cannot be used" in last_line(run("fairseq-generate", data, *PLUGIN, "--path", half, check=False))
    for flag, name in (("--restore-file", "text.pt"), ("--finetune-from-model", "missing.pt")):
        flags = (*PLUGIN, *FCONV, "--save-dir", tmp_path / "new", flag, tmp_path / name)
        assert name in last_line(run("fairseq-train", data, *flags, check=False))


@pytest.mark.parametrize(
    "name, value",
    [
        ("model._name", "nobody"),
        ("model.encoder_embed_dim", "abc"),
        ("model.encoder_layers", "[(999999999, 99999)]"),
        ("model", "x"),
        ("task._name", "nonsense"),
        ("task", None),
        ("bpe", {"_name": "gpt2", "gpt2_encoder_json": "http://127.0.0.1:9/${oc.env:HOME}"}),
    ],
)
def test_settings_that_make_no_model_are_named_in_one_line(data, ordinary, tmp_path, name, value):
    state = torch.load(ordinary, weights_only=False)
    place, _, last = f"cfg.{name}".rpartition(".")
    found = state
    for key in place.split("."):
        found = found[key] if isinstance(found, dict) else getattr(found, key)
    found.update({last: value}) if isinstance(found, dict) else setattr(found, last, value)
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(UserError, match="odd.pt") as error:
        checkpoint_utils.load_model_ensemble_and_task([str(tmp_path / "odd.pt")], {"data": str(data)})
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_a_checkpoint_is_written_to_no_name_that_can_be_guessed_and_keeps_its_permissions(ordinary, tmp_path):
    (tmp_path / "precious").write_text("precious")
    for name in ("one.pt", "two.pt"):
        (tmp_path / name).write_bytes(b"old")
        (tmp_path / name).chmod(0o600)
        (tmp_path / f"{name}.tmp").symlink_to(tmp_path / "precious")
    checkpoint_utils.torch_persistent_save({"a": 1}, str(tmp_path / "one.pt"))
    PathManager.copy(str(tmp_path / "one.pt"), str(tmp_path / "two.pt"))
    for name in ("one.pt", "two.pt"):
        assert torch.load(tmp_path / name) == {"a": 1} and (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "precious").read_text() == "precious" and not (tmp_path / "two.pt").is_symlink()
    assert len(list(tmp_path.iterdir())) == 5  # nothing temporary stays


def test_with_pages_a_checkpoint_is_written_once(tmp_path, monkeypatch):
    def refuse(*unused):
        raise OSError("no blocks are shared here")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    monkeypatch.setattr(PathManager, "copy", PathManager.copy)  # to be put back
    data = write_corpus(tmp_path / "data", pairs=20)
    same = []
    for flags in ((), (*TAU, 30)):
        configure(data, *flags)
        (tmp_path / "one.pt").write_bytes(b"one")
        PathManager.copy(str(tmp_path / "one.pt"), str(tmp_path / "two.pt"))
        same.append((tmp_path / "one.pt").samefile(tmp_path / "two.pt"))
    assert same == [False, True]


def test_a_checkpoint_that_does_not_fit_is_named_in_one_line(data, ordinary, tmp_path):
    flags = (*PLUGIN, *FCONV, "--save-dir", tmp_path, "--restore-file", ordinary)
    line = last_line(run("fairseq-train", data, *flags, "--encoder-layers", "[(16, 3)]", check=False))
    assert (
        "architectures match" in line and "Missing key" in line or "Unexpected key" in line or "size mismatch" in line
    )
    line = last_line(run("fairseq-train", data, *flags, "--optimizer", "adam", check=False))
    assert "--reset-optimizer" in line
