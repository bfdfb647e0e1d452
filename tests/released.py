"""Small models of the structure of released ones, made once by the script, and fairseq's commands on them."""

import contextlib
import functools
import io
import json
import sys
import tempfile
from pathlib import Path

import fairseq.options
import fairseq_cli.generate
import torch
from conftest import ROOT
from fairseq.data import Dictionary
from small_corpus import converted

sys.path.insert(0, str(ROOT / "scripts"))

import small_released_model  # noqa: E402

KINDS = ("nllb", "m2m", "mbart50", "mbart25")
SIZES = ("--dim", 16, "--layers", 2, "--heads", 2, "--sentences", 80, "--held-out", 12, "--pieces", 200)
DECODE = ("--beam", 3, "--nbest", 3, "--max-len-a", 0, "--max-len-b", 8, "--num-workers", 0)
DECODE += ("--required-batch-size-multiple", 1)  # else plain fairseq loses sentences


class Model:
    """
    Args:
        folder: what the script has made
    """

    def __init__(self, folder: Path):
        self.folder, self.data, self.path = folder, folder / "data", folder / "checkpoint.pt"
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        self.flags, self.arch, self.pairs = about["flags"], about["arch"], about["pairs"]
        self.kind, self.task, self.languages = about["kind"], about["task"], about["languages"]
        self.source, self.target = self.pairs[0].split("-")

    def token(self, language: str) -> str:
        return f"[{language}]" if self.kind.startswith("mbart") else f"__{language}__"

    @property
    def foreign(self) -> set:
        return {self.token(language) for language in self.languages} - {self.token(self.target)}

    def words(self) -> Dictionary:
        """All rows of the checkpoint."""
        words = Dictionary.load(str(self.folder / ("model_dict.txt" if self.kind == "m2m" else "dictionary.txt")))
        after = small_released_model.KINDS[self.kind].after
        for word in (*map(self.token, self.languages), *after):
            words.add_symbol(word)
        return words

    def fixed(self) -> tuple:
        """For fairseq itself, which does not know of all rows: a dictionary that holds them."""
        if self.task.endswith("bart"):
            return ()
        path = self.folder / "all.txt"
        self.words().save(str(path))
        return "--fixed-dictionary", path

    def decoding(self, *options, ours: bool = True, path=None) -> list:
        """Arguments of fairseq-generate."""
        pair = ("-s", self.source, "-t", self.target)
        task = f"lv_{self.task}" if ours else self.task
        fixed = () if ours else self.fixed()
        flags = (self.data, "--task", task, *self.flags, *fixed, *pair, "--path", path or self.path, *DECODE)
        return [str(x) for x in (*flags, *options)]

    def training(self) -> tuple:
        pair = ("-s", self.source, "-t", self.target) if self.task.endswith("bart") else ()
        return ("--task", f"lv_{self.task}", *self.flags, *pair)


@functools.cache
def made(kind: str) -> Model:
    keep = made.__dict__.setdefault("folders", [])
    keep.append(tempfile.TemporaryDirectory())
    folder = Path(keep[-1].name) / kind
    small_released_model.main([str(x) for x in (kind, "--out", folder, *SIZES)])
    return Model(folder)


def generate(arguments: list) -> list:
    """The lines on sentences that fairseq-generate prints, in this process."""
    cfg = converted(fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), arguments))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        fairseq_cli.generate.main(cfg)
    return lines_of(printed.getvalue())


def lines_of(printed: str) -> list:
    return [line for line in printed.splitlines() if line[:2] in ("S-", "T-", "H-", "D-", "P-")]


def translations(lines: list) -> list:
    return [line.split("\t")[2] for line in lines if line.startswith("H-")]


def changed(model: Model, path: Path, change) -> Path:
    """A copy of a checkpoint of which ``change`` has changed something."""
    state = torch.load(model.path, weights_only=False)
    change(state)
    torch.save(state, path)
    return path
