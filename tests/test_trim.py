"""lv-trim: a smaller model says of kept words what the whole one says, and finds back into it."""

import json
import re
from pathlib import Path

import networks
import pytest
import torch
from architectures import ARCHITECTURES
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from small_corpus import configure, write_corpus

from lv_fairseq.commands.trim import main

KEPT = 20  # words of each language in the texts


@pytest.fixture(scope="module")
def folder(tmp_path_factory, signals_as_before):
    """Data with separate and with joined dictionaries, and texts of some of their words, with one that none has."""
    folder = tmp_path_factory.mktemp("trim")
    for joined in (False, True):
        write_corpus(folder / str(joined), pairs=8, splits=("train",), joined=joined)
        for language in ("src", "tgt"):
            words = Dictionary.load(str(folder / str(joined) / f"dict.{language}.txt")).symbols[4:][::3][:KEPT]
            (folder / f"{joined}.{language}").write_text(" ".join(words[:9]) + "\n" + " ".join(words) + " nowhere\n")
    return folder


def drawn(folder: Path, name: str) -> Path:
    """A checkpoint of an architecture, with weights that are far from zero."""
    path = folder / name / "model.pt"
    if not path.exists():
        path.parent.mkdir()
        flags, joined = ARCHITECTURES[name]
        cfg, task, model, _ = configure(folder / str(joined), "--optimizer", "sgd", model=flags)
        torch.manual_seed(1)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        networks.save(path, cfg, model.state_dict())
    return path


def texts(folder: Path, name: str) -> list[Path]:
    return [folder / f"{ARCHITECTURES[name].joined}.{language}" for language in ("src", "tgt")]


def trimmed(folder: Path, name: str) -> Path:
    path, out = drawn(folder, name), folder / name / "out"
    if not out.exists():
        data = folder / str(ARCHITECTURES[name].joined)
        main([str(x) for x in (path, "--data", data, "--keep", *texts(folder, name), "--out", out)])
    return out


def loaded(path: Path):
    """Model and task as plain fairseq makes them of a checkpoint, in double precision: no two candidates are equally
    good there by rounding."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return model.double().eval(), task


def restrict(model, rows: torch.Tensor) -> None:
    """Let a model score these words only."""
    forward = model.decoder.forward

    def restricted(*args, **kwargs):
        scores, extra = forward(*args, **kwargs)
        others = torch.ones(scores.size(-1), dtype=torch.bool).index_fill(0, rows, False)
        return scores.masked_fill(others, float("-inf")), extra

    model.decoder.forward = restricted


def kept_rows(out: Path) -> dict[str, torch.Tensor]:
    about = json.loads((out / "trim.json").read_text())
    return {side: torch.tensor(about[side]["rows"]) for side in ("source", "target")}


def searched(model, words, sources: torch.Tensor, beam: int) -> list:
    """The hypotheses of some sentences, best first: words and scores."""
    generator = SequenceGenerator([model], words, beam_size=beam, max_len_a=0, max_len_b=6)
    lengths = torch.full((len(sources),), sources.size(1))
    sample = {"net_input": {"src_tokens": sources, "src_lengths": lengths}}
    return [[(x["tokens"], x["score"]) for x in hypotheses] for hypotheses in generator.generate([model], sample)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_trimmed_model_says_of_kept_words_what_the_whole_one_says(folder, name):
    out = trimmed(folder, name)
    rows = kept_rows(out)
    (before, task), (after, small) = loaded(drawn(folder, name)), loaded(out / "model.pt")
    assert len(small.target_dictionary) == len(rows["target"]) < len(task.target_dictionary)
    assert small.source_dictionary.symbols == [task.source_dictionary[i] for i in rows["source"]]
    random = torch.Generator().manual_seed(1)
    draw = lambda side: torch.randint(4, len(rows[side]), (5,), generator=random)
    pairs = [(torch.cat([draw("source"), torch.tensor([2])]), draw("target")) for _ in range(6)]
    sources, targets = map(torch.stack, zip(*pairs))
    inputs, lengths = torch.nn.functional.pad(targets, (1, 0), value=2), torch.full((6,), 6)
    here, _ = after(sources, lengths, inputs)
    there, _ = before(rows["source"][sources], lengths, rows["target"][inputs])
    torch.testing.assert_close(here, there[..., rows["target"]], rtol=1e-10, atol=1e-10)
    restrict(before, rows["target"])
    for beam in (1, 3):
        mine = searched(after, small.target_dictionary, sources, beam)
        theirs = searched(before, task.target_dictionary, rows["source"][sources], beam)
        for one, other in zip(mine, theirs):
            assert [rows["target"][tokens].tolist() for tokens, _ in one] == [tokens.tolist() for tokens, _ in other]
            assert [score.item() for _, score in one] == pytest.approx([score.item() for _, score in other])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rows_that_stay_have_the_same_bits_and_ties_stay_ties(folder, name):
    out = trimmed(folder, name)
    before, after = (torch.load(path, weights_only=False)["model"] for path in (drawn(folder, name), out / "model.pt"))
    assert list(before) == list(after)
    rows = kept_rows(out)
    for key, value in before.items():
        if key == "dictionaries":  # fingerprints of rnnsearch, which the test before this one has looked at
            assert not torch.equal(value, after[key])
        elif value.shape == after[key].shape:
            assert torch.equal(value, after[key])
        else:
            assert torch.equal(value[rows["source" if key.startswith("encoder.") else "target"]], after[key])
    tied = lambda model: {(a, b) for a in model for b in model if model[a].data_ptr() == model[b].data_ptr()}
    assert tied(before) == tied(after)


def test_all_words_of_the_texts_stay_and_no_other_but_special_symbols(folder):
    out = trimmed(folder, "rnnsearch")
    for language, text in zip(("src", "tgt"), texts(folder, "rnnsearch")):
        before = Dictionary.load(str(folder / "False" / f"dict.{language}.txt"))
        after = Dictionary.load(str(out / f"dict.{language}.txt"))
        words = set(text.read_text().split()) - {"nowhere"}
        assert after.symbols == before.symbols[:4] + [word for word in before.symbols if word in words]
        assert [after.count[after.index(word)] for word in words] == [before.count[before.index(w)] for w in words]


def test_the_report_tells_rows_bytes_and_seconds(folder, capsys, tmp_path):
    path, out = drawn(folder, "transformer-tied"), tmp_path / "out"
    text = texts(folder, "transformer-tied")
    main([str(x) for x in (path, "--data", folder / "False", "--keep", *text, "--out", out)])
    printed = capsys.readouterr().out
    assert re.search(r"decoder.embed_tokens.weight = decoder.output_projection.weight +72 +24  rows", printed)
    assert re.search(rf"model.pt +{path.stat().st_size:,} +{(out / 'model.pt').stat().st_size:,}  bytes", printed)
    assert len(re.findall(r" \d+\.\d+  seconds", printed)) == 2 and "1 different words" in printed
    assert not list(tmp_path.glob(".*"))


def merged(folder: Path, name: str, tuned: Path, out: Path) -> dict:
    main([str(x) for x in ("--merge", tuned, "--into", drawn(folder, name), "--out", out)])
    return torch.load(out, weights_only=False)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_trim_and_merge_give_the_original_bit_for_bit(folder, name, tmp_path):
    before = torch.load(drawn(folder, name), weights_only=False)
    after = merged(folder, name, trimmed(folder, name) / "model.pt", tmp_path / "merged.pt")
    assert before["cfg"] == after["cfg"] and before.keys() == after.keys()
    assert list(before["model"]) == list(after["model"])
    for key, value in before["model"].items():
        assert value.dtype == after["model"][key].dtype and torch.equal(value, after["model"][key])
    assert (tmp_path / "merged.pt").stat().st_size == pytest.approx(drawn(folder, name).stat().st_size, rel=0.1)


def changed(path: Path, out: Path, change) -> Path:
    """A copy of a checkpoint, after ``change(state)``."""
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, out)
    return out


@pytest.mark.parametrize("name", ["rnnsearch", "transformer-joined", "fconv"])
def test_trained_rows_go_to_their_places_and_other_rows_stay(folder, name, tmp_path):
    out = trimmed(folder, name)

    def train(state):
        storages = {value.data_ptr(): value for name, value in state["model"].items() if name != "dictionaries"}
        for value in storages.values():
            value.add_(1)
        state["cfg"]["task"]["data"] = str(out)  # where the rows' places are found
        state["last_optimizer_state"] = {"of": "other values"}

    tuned = changed(out / "model.pt", tmp_path / "tuned.pt", train)
    before, small = (torch.load(path, weights_only=False) for path in (drawn(folder, name), tuned))
    after = merged(folder, name, tuned, tmp_path / "merged.pt")
    assert after["cfg"] == before["cfg"] and "last_optimizer_state" not in after
    rows = kept_rows(out)
    for key, value in small["model"].items():
        expected = before["model"][key]
        if value.shape == expected.shape:
            expected = expected if key == "dictionaries" else value
        else:
            expected = expected.index_copy(0, rows["source" if key.startswith("encoder.") else "target"], value)
        assert torch.equal(after["model"][key], expected)


def test_the_optimiser_state_goes_where_values_have_changed(folder, tmp_path):
    add = lambda state: state.update(last_optimizer_state={"moments": torch.ones(3)})
    whole = changed(drawn(folder, "lstm"), tmp_path / "whole.pt", add)
    main(
        [str(x) for x in (whole, "--data", folder / "False", "--keep", *texts(folder, "lstm"), "--out", tmp_path / "o")]
    )
    assert "last_optimizer_state" not in torch.load(tmp_path / "o" / "whole.pt", weights_only=False)
    main([str(x) for x in ("--merge", tmp_path / "o" / "whole.pt", "--into", whole, "--out", tmp_path / "same.pt")])
    assert torch.load(tmp_path / "same.pt", weights_only=False)["last_optimizer_state"]["moments"].sum() == 3
