"""A model that is loaded to decode with: its word tables are the checkpoint's file, whatever its architecture."""

from pathlib import Path

import pytest
import torch
from architectures import ARCHITECTURES, REQUIRED, sized
from fairseq import checkpoint_utils
from networks import save
from small_corpus import configure, write_corpus
from test_architectures import PLAIN, assert_same_bits, ties

from lv_fairseq.models.families import word_tables


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    return {joined: write_corpus(folder / str(joined), pairs=9, joined=joined) for joined in (False, True)}


def load(task, path: Path):
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], task=task)
    return model


def file_of(tensor: torch.Tensor) -> str:
    """The file that is mapped where a tensor lies, empty if there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, _, _, _, *name = line.split(maxsplit=5)
        first, last = (int(address, 16) for address in addresses.split("-"))
        if first <= tensor.data_ptr() < last:
            return "".join(name)
    raise AssertionError("a tensor lies nowhere")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_word_tables_are_the_mapped_file_and_tied_as_before(corpora, tmp_path, name):
    flags, joined = ARCHITECTURES[name]
    cfg, _, plain, _ = configure(corpora[joined], *PLAIN, model=flags)
    path = save(tmp_path / "model.pt", cfg, plain.state_dict())
    _, task, _, _ = configure(corpora[joined], "--criterion", "cross_entropy", model=flags)
    model = load(task, path)
    assert_same_bits(dict(model.state_dict()), dict(plain.state_dict()))
    tables = [parameter for table in word_tables(model) for parameter in table.parameters()]
    assert {file_of(parameter) for parameter in tables} == {str(path)}
    names = [name for name, _ in plain.named_parameters(remove_duplicate=False)]
    assert ties(model, names) == ties(plain, names)

    half = {key: halved(value) for key, value in plain.state_dict().items()}
    model = load(task, save(tmp_path / "half.pt", cfg, half))
    expected = {key: half[key].to(value.dtype) for key, value in plain.state_dict().items()}
    assert_same_bits(dict(model.state_dict()), expected)
    assert ties(model, names) == ties(plain, names)


def halved(value: torch.Tensor) -> torch.Tensor:
    return value.half() if value.is_floating_point() else value


@pytest.mark.parametrize("name", REQUIRED)
def test_other_parameters_may_have_as_many_rows_as_there_are_words(corpora, tmp_path, name):
    flags, joined = ARCHITECTURES[name]
    words = len((corpora[joined] / "dict.tgt.txt").read_text().splitlines()) + 4
    cfg, _, plain, _ = configure(corpora[joined], *PLAIN, model=sized(flags, words))
    path = save(tmp_path / "model.pt", cfg, plain.state_dict())
    _, task, _, _ = configure(corpora[joined], "--criterion", "cross_entropy", model=flags)
    model = load(task, path)
    assert_same_bits(dict(model.state_dict()), dict(plain.state_dict()))
    assert word_tables(model) is not None and not any(x.is_meta for x in model.buffers())


def test_a_table_that_a_model_has_not_is_unexpected(corpora):
    """As in plain fairseq: a trained output layer is not thrown away without a word."""
    _, _, untied, _ = configure(corpora[False], *PLAIN[2:], model=ARCHITECTURES["lstm"].flags)
    _, _, tied, _ = configure(corpora[False], *PLAIN[2:], model=ARCHITECTURES["lstm-tied"].flags)
    with pytest.raises(RuntimeError, match="Unexpected.*decoder.fc_out.weight.*decoder.fc_out.bias"):
        tied.load_state_dict(untied.state_dict())
    state = {**tied.state_dict(), "decoder.embed_tokens.bias": torch.zeros(3)}
    with pytest.raises(RuntimeError, match="Unexpected.*decoder.embed_tokens.bias"):
        tied.load_state_dict(state)


@torch.no_grad()
def test_normalised_rows_are_put_together_once_and_anew_when_they_change(corpora):
    _, _, model, _ = configure(corpora[False], *PLAIN[2:], model=ARCHITECTURES["fconv"].flags)
    table, features = word_tables(model).output, torch.randn(2, 3, 12)
    expected = lambda: torch.nn.functional.linear(
        features, torch._weight_norm(table.weight_v, table.weight_g, 0), table.bias
    )
    model.eval()
    assert torch.equal(table(features), expected()) and table._weight() is table._weight()
    model.train()
    table.weight_g.data.mul_(2)
    assert torch.equal(table(features), expected())
    model.eval()
    assert torch.equal(table(features), expected())
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    assert torch.equal(table(features), expected())
