"""lv-trim: a smaller model says of kept words what the whole one says, and finds back into it."""

import errno
import functools
import io
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import networks
import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, indexed_dataset
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given
from hypothesis import strategies as st
from in_process import refused
from searches import restrict
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from small_corpus import TAU, configure, train_epochs, write_corpus

from lv_fairseq import UserError
from lv_fairseq.commands.trim import main
from lv_fairseq.trim.dictionaries import Words
from lv_fairseq.trim.pieces import PieceModel, merges
from lv_fairseq.trim.texts import Needed, needed

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


@pytest.mark.parametrize("name", ["rnnsearch", "transformer-joined"])
def test_what_is_fine_tuned_with_pages_finds_back(folder, name, tmp_path):
    out, rows = trimmed(folder, name), kept_rows(trimmed(folder, name))
    data = shutil.copytree(out, tmp_path / "data", ignore=shutil.ignore_patterns("*.pt"))
    for language, side in (("src", "source"), ("tgt", "target")):
        builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{data}/train.src-tgt.{language}.bin", np.uint16)
        for start in range(4, 12):
            builder.add_item(torch.tensor([*range(start, len(rows[side]), 7), 2]))
        builder.finalize(f"{data}/train.src-tgt.{language}.idx")
    tuning = configure(data, *TAU, 8, "--optimizer", "adam", "--lr", 0.1, model=ARCHITECTURES[name].flags)
    train_epochs(*tuning, resume=out / "model.pt", save=tmp_path / "tuned.pt")
    small, after = (
        torch.load(tmp_path / "tuned.pt", weights_only=False),
        merged(folder, name, tmp_path / "tuned.pt", tmp_path / "merged.pt"),
    )
    before = torch.load(drawn(folder, name), weights_only=False)
    assert before["cfg"] == after["cfg"] and list(before["model"]) == list(after["model"])
    changed = []
    for key, value in after["model"].items():
        changed += [key] if not torch.equal(value, before["model"][key]) else []
        if value.shape == small["model"][key].shape:
            assert key == "dictionaries" or torch.equal(value, small["model"][key])
        else:
            of_side = rows["source" if key.startswith("encoder.") else "target"]
            others = torch.ones(len(value), dtype=torch.bool).index_fill(0, of_side, False)
            assert torch.equal(value[of_side], small["model"][key])
            assert torch.equal(value[others], before["model"][key][others])
    assert "decoder.embed_tokens.weight" in changed and "dictionaries" not in changed


def test_the_optimiser_state_goes_where_values_have_changed(folder, tmp_path):
    add = lambda state: state.update(last_optimizer_state={"moments": torch.ones(3)})
    whole = changed(drawn(folder, "lstm"), tmp_path / "whole.pt", add)
    main(
        [str(x) for x in (whole, "--data", folder / "False", "--keep", *texts(folder, "lstm"), "--out", tmp_path / "o")]
    )
    assert "last_optimizer_state" not in torch.load(tmp_path / "o" / "whole.pt", weights_only=False)
    main([str(x) for x in ("--merge", tmp_path / "o" / "whole.pt", "--into", whole, "--out", tmp_path / "same.pt")])
    assert torch.load(tmp_path / "same.pt", weights_only=False)["last_optimizer_state"]["moments"].sum() == 3


LETTERS = "abcdefgh"
KINDS = [(kind, fallback, own) for kind in ("unigram", "bpe") for fallback in (False, True) for own in ("", "*,ab")]


@functools.cache
def piece_model(kind: str, byte_fallback: bool, own: str) -> PieceModel:
    """A model of sentencepiece for words of a few letters; ``own`` are symbols of the user's."""
    random = np.random.default_rng(3)
    words = ["".join(random.choice(list(LETTERS), random.integers(1, 7))) for _ in range(80)]
    content = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(" ".join(words[i] for i in random.zipf(1.3, 8) % 80) for _ in range(300)),
        model_writer=content,
        model_type=kind,
        vocab_size=350 if byte_fallback else 120,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        user_defined_symbols=own,
        minloglevel=2,
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(content.getvalue())
        file.flush()
        return PieceModel(Path(file.name))


def need(lines: list[str], words: list[str], pieces: PieceModel) -> Needed:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        return needed([Path(file.name)], [Words([], ["<s>", "<pad>", "</s>", "<unk>", *words], 0)], pieces)


@st.composite
def case(draw):
    """A model, texts to keep, other texts, and the share of longer pieces, not used by the former, that the dictionary
    lacks."""
    pieces = piece_model(*draw(st.sampled_from(KINDS)))
    longer = [x.text.replace("\u2581", " ") for x in pieces.pieces if x.type == 1]
    line = st.lists(
        st.one_of(st.sampled_from(longer), st.text(LETTERS + "  *\u00e9", max_size=5)), min_size=1, max_size=6
    )
    lines = st.lists(line.map("".join), min_size=1, max_size=4)
    return pieces, draw(lines), draw(lines), draw(st.sampled_from([0, 0.3])), draw(st.integers(0, 9))


@given(case())
def test_kept_texts_are_cut_as_before_and_no_text_gets_more_unknown_pieces(case):
    pieces, kept, others, lacking, seed = case
    used = {piece for line in pieces.encode(kept) for piece in line}
    random = np.random.default_rng(seed)
    lacks = lambda x: x.type == 1 and len(x.text) > 1 and x.text not in used and random.random() < lacking
    words = [x.text for x in pieces.pieces if x.type not in (2, 3) and not lacks(x)]
    if used.isdisjoint(words):
        return
    result = need(kept, words, pieces)
    after = SentencePieceProcessor(model_proto=result.model)
    assert after.encode(kept, out_type=str) == pieces.encode(kept)
    assert used & set(words) <= result.words <= {"<s>", "<pad>", "</s>", "<unk>", *words}
    for one, other in zip(pieces.encode(others), after.encode(others, out_type=str)):
        assert sum(x not in result.words for x in other) <= sum(x not in words for x in one)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_text_of_few_pieces_leaves_few(kind):
    pieces = piece_model(kind, False, "")
    word = max((x.text for x in pieces.pieces), key=len)
    words = [x.text for x in pieces.pieces]
    result = need([word[1:]], words, pieces)
    assert word in result.words and len(result.model) < len(pieces.content)
    longer = {x for x in result.words if len(x) > 1 and not x.startswith("<")}
    assert longer < {word[i:j] for i in range(len(word)) for j in range(i + 2, len(word) + 1)} | {word}


def test_a_character_that_is_known_in_longer_pieces_only_stays_known():
    pieces = piece_model("bpe", False, "")
    words = [x.text for x in pieces.pieces if x.text != "h"]
    with_h = {word for word in words if "h" in word}
    assert len(with_h) > 3 and with_h <= need(["a"], words, pieces).words
    assert not with_h <= need(["a"], [*words, "h"], pieces).words


def test_a_piece_that_no_dictionary_has_and_that_is_on_the_way_to_others_is_never_written():
    """Two words are merged by way of one piece, which the dictionary lacks; then one of them is lost."""
    pieces = piece_model("bpe", False, "")
    ways = {x.text: set(merges(x.text, pieces.scores)) - {x.text} for x in pieces.pieces if x.text[0] == "\u2581"}
    pairs = [(a, b, ways[a] & ways[b]) for a in ways for b in ways if a not in ways[b] and b not in ways[a] and a != b]
    kept, lost, common = next(pair for pair in pairs if pair[2])
    words = [x.text for x in pieces.pieces if x.text not in common]
    result = need([kept[1:]], words, pieces)
    cut = SentencePieceProcessor(model_proto=result.model).encode(lost[1:], out_type=str)
    assert cut != [lost] == pieces.encode([lost[1:]])[0] and set(cut) <= result.words


def test_characters_that_only_the_dictionary_knows_stay():
    """sentencepiece writes what it does not know as it stands, and a dictionary may have it."""
    result = need(
        ["a"],
        [x.text for x in piece_model("bpe", False, "").pieces] + ["\u00e9", "filler"],
        piece_model("bpe", False, ""),
    )
    assert "\u00e9" in result.words and "filler" not in result.words


def test_a_model_of_sentencepiece_brings_no_tests_of_pieces_that_are_gone(tmp_path):
    content = io.BytesIO()
    lines = ["a b ab ba aab bba"] * 50
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=content, vocab_size=12, hard_vocab_limit=False, minloglevel=2,
        self_test_sample_size=5,
    )  # fmt: skip
    (tmp_path / "x.model").write_bytes(content.getvalue())
    pieces = PieceModel(tmp_path / "x.model")
    result = need(["a"], [x.text for x in pieces.pieces], pieces)
    assert SentencePieceProcessor(model_proto=result.model).encode("a", out_type=str) == pieces.encode(["a"])[0]


def test_files_that_are_no_models_of_sentencepiece(tmp_path):
    content = piece_model("unigram", False, "").content
    for wrong in (b"", b"text", content[: len(content) // 2], b"\x0b" + content):
        (tmp_path / "x.model").write_bytes(wrong)
        with pytest.raises(UserError, match="is no model of sentencepiece"):
            PieceModel(tmp_path / "x.model")


def refusal(capsys, *arguments) -> str:
    """The one line in which lv-trim ends."""
    return refused(main, capsys, *arguments)


def flags(folder: Path, out: Path, **changes) -> list:
    """Of a trimming that would work, but for some changes."""
    given = {"checkpoint": drawn(folder, "lstm"), "data": folder / "False", "keep": folder / "False.src", "out": out}
    given.update(changes)
    return [
        given.pop("checkpoint"),
        *(x for name, value in given.items() for x in (f"--{name.replace('_', '-')}", value)),
    ]


def test_what_cannot_be_trimmed_ends_in_one_line_and_leaves_nothing(folder, tmp_path, capsys):
    out, there = tmp_path / "out", tmp_path / "there"
    there.mkdir()
    odd = {
        name: tmp_path / name for name in ("latin", "empty", "foreign", "half.pt", "other.pt", "none.pt", "model.pt")
    }
    odd["latin"].write_bytes("Stra\u00dfe src1\n".encode("latin-1"))
    odd["empty"].write_text("")
    odd["foreign"].write_text("nothing of this\n")
    whole = drawn(folder, "lstm")
    odd["half.pt"].write_bytes(whole.read_bytes()[:5000])
    changed(whole, odd["other.pt"], lambda state: state["cfg"]["task"].update(_name="language_modeling"))
    changed(whole, odd["none.pt"], lambda state: state["model"].pop("encoder.embed_tokens.weight"))
    torch.save({"model": {"weight": 3}}, odd["model.pt"])
    before = sorted(tmp_path.iterdir())
    for word, changes in (
        ("latin, line 1: not UTF-8", {"keep": odd["latin"]}),
        ("is empty", {"keep": odd["empty"]}),
        ("any of its words", {"keep": odd["foreign"]}),
        ("No such file", {"keep": tmp_path / "missing"}),
        ("No such file", {"checkpoint": tmp_path / "missing"}),
        ("only a part", {"checkpoint": odd["half.pt"]}),
        ("task language_modeling", {"checkpoint": odd["other.pt"]}),
        ("encoder.embed_tokens", {"checkpoint": odd["none.pt"]}),
        ("holds no model", {"checkpoint": odd["model.pt"]}),
        ("there is no data folder", {"data": tmp_path / "missing"}),
        ("does not fit", {"data": folder / "True"}),
        ("--source-lang", {"data": there}),
        ("no folder", {"out": tmp_path / "missing" / "out"}),
        ("there already", {"out": there}),
        ("no language tokens", {"keep_languages": "src,tgt"}),
        ("No such file", {"sentencepiece_model": tmp_path / "missing"}),
        ("no model of sentencepiece", {"sentencepiece_model": odd["foreign"]}),
        ("does not go with", {"merge": whole, "into": whole}),
    ):
        assert word in refusal(capsys, *flags(folder, **{"out": out, **changes})), word
        assert sorted(tmp_path.iterdir()) == before
    assert "--keep is missing" in refusal(capsys, whole, "--data", folder / "False", "--out", out)


def test_what_cannot_be_merged_ends_in_one_line_and_leaves_nothing(folder, tmp_path, capsys):
    small, whole, out = trimmed(folder, "lstm") / "model.pt", drawn(folder, "lstm"), tmp_path / "out.pt"
    alone = changed(small, tmp_path / "alone.pt", lambda state: state["cfg"]["task"].update(data=str(tmp_path)))
    other = changed(whole, tmp_path / "other.pt", lambda state: state["model"]["decoder.fc_out.weight"].add_(1))
    near = changed(
        whole, tmp_path / "near.pt", lambda state: state["model"]["encoder.lstm.weight_hh_l0"][-1, -1:].add_(1)
    )
    wide = lambda state: state["model"].update({"decoder.fc_out.bias": torch.ones(7)})
    more = changed(small, tmp_path / "wide.pt", wide)
    about = json.loads((small.parent / "trim.json").read_text())
    wrong = {"garbage": "{", "rows": {**about, "source": {**about["source"], "rows": [3, 2]}}, "none": {"format": 1}}
    wrong["fewer"] = {**about, "source": {**about["source"], "rows": about["source"]["rows"][:-1]}}
    wrong["later"] = {**about, "format": 2}
    for name, content in wrong.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "trim.json").write_text(content if name == "garbage" else json.dumps(content))
    before = sorted(tmp_path.iterdir())
    for word, arguments in (
        ("there is no trim.json", (alone, "--into", whole)),
        ("is not the checkpoint that was trimmed", (small, "--into", other)),
        ("is not the checkpoint that was trimmed", (small, "--into", near)),
        ("is not the checkpoint that was trimmed", (small, "--into", drawn(folder, "lstm-tied"))),
        ("has not as many rows", (more, "--into", whole, "--data", small.parent)),
        ("--into is missing", (small,)),
        ("is damaged", (small, "--into", whole, "--data", tmp_path / "garbage")),
        ("is damaged", (small, "--into", whole, "--data", tmp_path / "rows")),
        ("is damaged", (small, "--into", whole, "--data", tmp_path / "none")),
        ("another version", (small, "--into", whole, "--data", tmp_path / "later")),
        ("where 23 were kept", (small, "--into", whole, "--data", tmp_path / "fewer")),
    ):
        assert word in refusal(capsys, "--merge", *arguments, "--out", out), word
        assert sorted(tmp_path.iterdir()) == before
    assert "there already" in refusal(capsys, "--merge", small, "--into", whole, "--out", alone)


def test_a_full_disk_ends_in_one_line_and_leaves_nothing(folder, tmp_path, capsys, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert "No space left" in refusal(capsys, *flags(folder, tmp_path / "out"))
    assert not list(tmp_path.iterdir())
