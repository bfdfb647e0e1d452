"""lv-trim on models of the structure of NLLB-200, M2M-100, mBART-50 and mBART cc25."""

import json
import os
import shutil
from pathlib import Path

import fairseq.options
import pytest
import released
import torch
from conftest import run_code
from fairseq import checkpoint_utils, tasks, utils
from fairseq.data import Dictionary
from in_process import refused
from released import KINDS, Model
from searches import restrict
from sentencepiece import SentencePieceProcessor
from small_corpus import converted

from lv_fairseq.commands.trim import main

pytestmark = pytest.mark.usefixtures("signals_as_before")


def texts(model: Model) -> list[Path]:
    return [model.folder / "text" / f"test.{model.pairs[0]}.{name}" for name in (model.source, model.target)]


def trim_flags(model: Model, out: Path, *more) -> list[str]:
    flags = [model.path, "--data", model.data, "--keep", *texts(model), "--out", out, *more]
    if model.kind == "m2m" and "--allow-unknown" not in more:  # some pieces are not in its dictionary
        flags.append("--allow-unknown")
    return [str(x) for x in flags]


@pytest.fixture(scope="module", params=KINDS)
def trimmed(request, tmp_path_factory) -> tuple[Model, Path]:
    """A model, and what is left of it for two of its languages."""
    model, out = released.made(request.param), tmp_path_factory.mktemp(request.param) / "out"
    main(trim_flags(model, out, "--keep-languages", f"{model.source},{model.target}"))
    return model, out


def rows_of(out: Path) -> torch.Tensor:
    about = json.loads((out / "trim.json").read_text())
    assert about["source"]["rows"] == about["target"]["rows"]
    return torch.tensor(about["target"]["rows"])


def decoding(model: Model, path: Path) -> list[str]:
    """Arguments of fairseq-generate, for the whole model or for the folder of a trimmed one."""
    if path == model.path:
        return model.decoding()
    flags = model.decoding(path=path / "checkpoint.pt")
    flags[0] = str(path)
    flags[flags.index("--langs") + 1] = f"{model.source},{model.target}"
    if "--fixed-dictionary" in flags:
        flags[flags.index("--fixed-dictionary") + 1] = str(path / "model_dict.txt")
    return flags


class Opened:
    """Task and model of a checkpoint, as fairseq-interactive makes them; in double precision, where no rounding makes
    two candidates equally good."""

    def __init__(self, model: Model, path: Path):
        parser = fairseq.options.get_generation_parser()
        self.cfg = converted(fairseq.options.parse_args_and_arch(parser, decoding(model, path)))
        utils.import_user_module(self.cfg.common)
        self.task = tasks.setup_task(self.cfg.task)
        (self.model,), _ = checkpoint_utils.load_model_ensemble([self.cfg.common_eval.path], task=self.task)
        self.model.double().eval()

    @property
    def words(self) -> Dictionary:
        return self.task.target_dictionary

    def sample(self, lines: list[str]) -> dict:
        """Of sentences that are cut into pieces."""
        tokens, lengths = self.task.get_interactive_tokens_and_lengths(lines, lambda line: line)
        dataset = self.task.build_dataset_for_inference(tokens, lengths)
        return dataset.collater([dataset[place] for place in range(len(lines))])

    def search(self, sample: dict, beam: int) -> dict[int, list]:
        """The hypotheses by sentence, best first: words and scores."""
        self.cfg.generation.beam = beam
        generator = self.task.build_generator([self.model], self.cfg.generation)
        found = self.task.inference_step(generator, [self.model], sample)
        by_sentence = zip(sample["id"].tolist(), found)
        return {number: [(x["tokens"], x["score"].item()) for x in beams] for number, beams in by_sentence}


def test_translations_of_kept_texts_are_those_of_the_whole_model_over_the_kept_words(trimmed):
    model, out = trimmed
    rows = rows_of(out)
    before, after = Opened(model, model.path), Opened(model, out)
    assert after.words.symbols == [before.words[row] for row in rows]
    lines = texts(model)[0].read_text(encoding="utf-8").splitlines()
    pieces = [SentencePieceProcessor(model_file=str(x / "sentencepiece.model")) for x in (model.folder, out)]
    cut = [[" ".join(line) for line in x.encode(lines, out_type=str)] for x in pieces]
    assert cut[0] == cut[1]
    there, here = before.sample(cut[0]), after.sample(cut[1])
    assert torch.equal(there["net_input"]["src_tokens"], rows[here["net_input"]["src_tokens"]])
    random = torch.Generator().manual_seed(1)
    inputs = torch.randint(4, len(rows), (len(lines), 5), generator=random)
    source = lambda sample: [sample["net_input"][name] for name in ("src_tokens", "src_lengths")]
    with torch.no_grad():
        mine, _ = after.model(*source(here), inputs)
        theirs, _ = before.model(*source(there), rows[inputs])
    torch.testing.assert_close(mine, theirs[..., rows], rtol=1e-10, atol=1e-10)
    restrict(before.model, rows)
    for beam in (1, 3):
        mine, theirs = after.search(here, beam), before.search(there, beam)
        assert mine.keys() == theirs.keys() and len(mine) == len(lines)
        for number, hypotheses in mine.items():
            tokens = [rows[words].tolist() for words, _ in hypotheses]
            assert tokens == [words.tolist() for words, _ in theirs[number]]
            assert [score for _, score in hypotheses] == pytest.approx([score for _, score in theirs[number]])


def test_only_tokens_of_kept_languages_stay_and_settings_say_so(trimmed):
    model, out = trimmed
    state = torch.load(out / "checkpoint.pt", weights_only=False)
    settings = state["args"] if state["args"] is not None else state["cfg"]["task"]
    settings = settings if isinstance(settings, dict) else vars(settings)
    kept = [model.source, model.target]
    assert settings["langs"] in (kept, ",".join(kept)) and settings["data"] == str(out)
    name = "model_dict.txt" if model.kind == "m2m" else f"dict.{model.source}.txt"
    words = Dictionary.load(str(out / name))
    tokens = {model.token(language) for language in model.languages}
    assert {word for word in words.symbols if word in tokens} == {model.token(language) for language in kept}
    assert len(words) == len(state["model"]["encoder.embed_tokens.weight"])
    assert set(words.symbols) >= set(released.small_released_model.KINDS[model.kind].after)
    assert {path.name for path in out.glob("dict.*")} == (
        {f"dict.{x}.txt" for x in kept} if model.kind != "m2m" else set()
    )


def test_all_languages_stay_unless_some_are_named(tmp_path):
    model = released.made("nllb")
    main(trim_flags(model, tmp_path / "out"))
    words = Dictionary.load(str(tmp_path / "out" / f"dict.{model.source}.txt"))
    assert {model.token(language) for language in model.languages} <= set(words.symbols)


def test_a_file_with_languages_is_found_and_trimmed(tmp_path):
    """Its place in the settings is that of another machine."""
    model, out = released.made("nllb"), tmp_path / "out"
    elsewhere = lambda state: named(state, langs=None, lang_dict="/elsewhere/languages.txt")
    path = released.changed(model, tmp_path / "checkpoint.pt", elsewhere)
    more = ("--sentencepiece-model", model.folder / "sentencepiece.model", "--keep-languages", "deu_Latn,eng_Latn")
    main([str(x) for x in (path, *trim_flags(model, out)[1:], *more)])
    assert (out / "languages.txt").read_text().split() == ["eng_Latn", "deu_Latn"]
    task = torch.load(out / "checkpoint.pt", weights_only=False)["cfg"]["task"]
    settings = task if isinstance(task, dict) else vars(task)
    assert settings["langs"] is None and settings["lang_dict"] == str(out / "languages.txt")


def test_plain_fairseq_translates_newly_binarised_text_with_a_trimmed_model(trimmed, tmp_path):
    """Also NLLB-200's, of which the whole checkpoint has rows that plain fairseq does not know."""
    model, out = trimmed
    pieces = SentencePieceProcessor(model_file=str(out / "sentencepiece.model"))
    for language, text in zip((model.source, model.target), texts(model)):
        lines = pieces.encode(text.read_text(encoding="utf-8").splitlines(), out_type=str)
        content = "".join(" ".join(line) + "\n" for line in lines)
        (tmp_path / f"test.{language}").write_text(content, encoding="utf-8")
    name = "model_dict.txt" if model.kind == "m2m" else f"dict.{model.source}.txt"
    binarise = ["-s", model.source, "-t", model.target, "--testpref", tmp_path / "test", "--srcdict", out / name]
    binarise += ["--tgtdict", out / name, "--destdir", tmp_path / "data"]
    generate = decoding(model, out)
    commands = [("preprocess", binarise), ("generate", [tmp_path / "data", *generate[1:]])]
    program = PROGRAM.format(commands=[(name, [str(x) for x in given]) for name, given in commands])
    result = run_code(program.replace("lv_translation", "translation"), tmp_path)
    assert result.returncode == 0, result.stderr
    found = released.lines_of(result.stdout)
    ours = released.generate([str(tmp_path / "data"), *generate[1:]])
    assert found == ours and len(released.translations(found)) == 36


PROGRAM = """
import argparse, importlib, sys, torch
torch.serialization.add_safe_globals([argparse.Namespace])  # which torch's loader wants to be told
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
TranslationFromPretrainedBARTTask.args = property(lambda self: self.cfg)  # which fairseq 0.12.3.1 forgets to set
for name, arguments in {commands!r}:
    sys.argv = ["fairseq", *arguments]
    importlib.import_module("fairseq_cli." + name).cli_main()
assert not any(name.split(".")[0] == "lv_fairseq" for name in sys.modules)
"""


def test_trim_and_merge_give_the_released_model_bit_for_bit(trimmed, tmp_path):
    model, out = trimmed
    flags = ("--merge", out / "checkpoint.pt", "--into", model.path, "--out", tmp_path / "merged.pt")
    main([str(x) for x in flags])
    before, after = (torch.load(path, weights_only=False) for path in (model.path, tmp_path / "merged.pt"))
    assert before["args"] == after["args"] and before["cfg"] == after["cfg"]
    assert list(before["model"]) == list(after["model"])
    for name, value in before["model"].items():
        assert torch.equal(value, after["model"][name])
    assert (tmp_path / "merged.pt").stat().st_size == pytest.approx(model.path.stat().st_size, rel=0.1)  # ties


def test_half_precision_rows_keep_their_bits(tmp_path):
    model = released.made("nllb")
    half = lambda state: state.update(model={name: value.half() for name, value in state["model"].items()})
    path = released.changed(model, tmp_path / "checkpoint.pt", half)
    main(
        [
            str(path),
            *trim_flags(model, tmp_path / "out")[1:],
            "--sentencepiece-model",
            str(model.folder / "sentencepiece.model"),
        ]
    )
    main([str(x) for x in ("--merge", tmp_path / "out" / path.name, "--into", path, "--out", tmp_path / "merged.pt")])
    before, after = (torch.load(x, weights_only=False)["model"] for x in (path, tmp_path / "merged.pt"))
    assert all(value.dtype == after[name].dtype and torch.equal(value, after[name]) for name, value in before.items())


def test_what_released_models_cannot_be_trimmed_to_is_said_in_one_line(tmp_path, capsys):
    nllb, m2m, out = released.made("nllb"), released.made("m2m"), tmp_path / "out"
    (tmp_path / "odd").write_text("Straße \u4f60\u597d\n", encoding="utf-8")
    pieces = nllb.folder / "pieces" / texts(nllb)[0].name
    (tmp_path / "data").mkdir()
    alone = released.changed(nllb, tmp_path / "alone.pt", lambda state: None)
    missing = released.changed(
        nllb, tmp_path / "lang_dict.pt", lambda state: named(state, langs=None, lang_dict="gone.txt")
    )
    pretraining = released.changed(
        nllb, tmp_path / "other.pt", lambda state: named(state, _name="multilingual_denoising")
    )
    os.mkfifo(tmp_path / "pipe")
    two = shutil.copytree(nllb.data, tmp_path / "two")
    for name in ("a.model", "b.model"):
        shutil.copy(nllb.folder / "sentencepiece.model", two / name)
    before = sorted(tmp_path.iterdir())
    keep = lambda *paths: ["--keep", *paths]
    for word, flags in (
        ("does not know xx", [*trim_flags(nllb, out), "--keep-languages", "eng_Latn,xx"]),
        ("at least two", [*trim_flags(nllb, out), "--keep-languages", "eng_Latn"]),
        ("which the dictionary lacks", [*trim_flags(nllb, out), *keep(*texts(nllb), tmp_path / "odd")]),
        ("which the dictionary lacks", trim_flags(m2m, out)[:-1]),
        ("cut into pieces already", [*trim_flags(nllb, out), *keep(pieces)]),
        ("there is no gone.txt", [missing, *trim_flags(nllb, out)[1:]]),
        ("holds several files", [alone, *trim_flags(nllb, out)[1:], "--data", two]),
        ("ordinary file", [*trim_flags(nllb, out), *keep(tmp_path / "pipe")]),
        ("--sentencepiece-model", [alone, *trim_flags(nllb, out)[1:]]),
        ("multilingual_denoising", [pretraining, *trim_flags(nllb, out)[1:]]),
        ("holds no dict.LANG.txt", [*trim_flags(nllb, out), "--data", tmp_path / "data"]),
    ):
        assert word in refused(main, capsys, *flags), word
        assert sorted(tmp_path.iterdir()) == before


def named(state: dict, **settings) -> None:
    task = state["cfg"]["task"]
    (task if isinstance(task, dict) else vars(task)).update(settings)
