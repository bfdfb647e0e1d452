"""--pack-weights: the same products from weights that are laid out once, and never from weights that have changed."""

import copy
import io

import networks
import numpy as np
import pytest
import torch
from conftest import generate_here
from fairseq import checkpoint_utils
from searches import ARCHITECTURES, WORDS, Case, all_words, batch, drawn
from torch import nn

import lv_fairseq.packed_weights
import lv_fairseq.word_tables.table
from lv_fairseq.models.families import adopt_model, pack_model
from lv_fairseq.packed_weights import PackedLinear, PackedWeight, available, pack_layers
from lv_fairseq.word_tables import ScoringTable, searching
from lv_fairseq.word_tables.columns import columns_of

CLOSE = dict(rtol=1e-4, atol=1e-4)  # rounding is some 1e-6 of the scores here, which are below 100
SIZES = ("encoder_embed_dim", "decoder_embed_dim", "encoder_ffn_embed_dim", "decoder_ffn_embed_dim")
SIZES = {**dict.fromkeys(SIZES, 16), "encoder_attention_heads": 2, "decoder_attention_heads": 2}
LINEARS = 6 + 10  # of an encoder with one layer, and of a decoder
TRANSFORMER = {"arch": "transformer", "encoder_layers": 1, "decoder_layers": 1, **SIZES}


@pytest.fixture
def packings(monkeypatch):
    """The shapes of the weights that are packed from now on."""
    shapes = []

    class Counted(PackedWeight):
        def __init__(self, weight):
            shapes.append(tuple(weight.shape))
            super().__init__(weight)

    monkeypatch.setattr(lv_fairseq.packed_weights, "PackedWeight", Counted)
    monkeypatch.setattr(lv_fairseq.word_tables.table, "PackedWeight", Counted)
    return shapes


@pytest.mark.parametrize("outputs, inputs", [(1, 1), (7, 5), (64, 33), (300, 128)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_packed_product_is_the_product(outputs, inputs, with_bias):
    random = np.random.default_rng(outputs)
    weight, bias = random.standard_normal((outputs, inputs)), random.standard_normal(outputs) * with_bias
    packed = PackedWeight(torch.tensor(weight, dtype=torch.float32))
    given = torch.tensor(bias, dtype=torch.float32) if with_bias else None
    for shape in [(0,), (1,), (5,), (40,), (3, 2)]:
        features = random.standard_normal((*shape, 2 * inputs))[..., ::2]
        found = packed.product(torch.tensor(features, dtype=torch.float32), given)
        assert torch.allclose(found.double(), torch.tensor(features @ weight.T + bias), **CLOSE)
        apart = torch.tensor(np.repeat(features, 2, axis=-1), dtype=torch.float32)[
            ..., ::2
        ]  # not side by side in memory
        assert torch.allclose(packed.product(apart, given), found, **CLOSE)


def scores(model, sample):
    words = torch.arange(len(sample["net_input"]["src_tokens"]) * 4).view(-1, 4) % len(WORDS)
    with torch.no_grad():
        return model(prev_output_tokens=words, **sample["net_input"])[0]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_packed_model_scores_words_as_before(name, packings):
    model, sample = drawn(ARCHITECTURES[name], 1), batch()
    adopt_model(model)
    expected = scores(model, sample)
    pack_model(model)
    assert torch.allclose(scores(model, sample), expected, **CLOSE)
    assert any(shape[0] == len(WORDS) for shape in packings)  # all words are scored by a packed weight
    before = len(packings)
    scores(model, sample)
    assert len(packings) == before  # once and for all


@pytest.mark.parametrize("one_list", [True, False])
@pytest.mark.parametrize("first", [12, np.array([0, 1, 2, 3, 9, 30, 5])], ids=["slice", "chosen"])
def test_columns_of_lists_are_scored_as_before(first, one_list, packings):
    model = drawn(ARCHITECTURES["transformer-joined"], 1)
    tables = adopt_model(model)
    others = [np.array([20, 21, 40]), np.array([33])][: 1 if one_list else 2]
    columns = columns_of(first, others, WORDS.pad(), 3, torch.device("cpu"), one_list)
    features = torch.randn(6, 1, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), searching([tables], columns):
        expected = tables.output(features)
    pack_model(model)
    for _ in range(2):
        with torch.no_grad(), searching([tables], columns):
            assert torch.allclose(tables.output(features), expected, **CLOSE)
    assert packings == [(columns.count, 16)]  # for both searches


def test_a_table_keeps_the_rows_of_the_latest_lists_packed(packings):
    model = drawn(ARCHITECTURES["transformer"], 1)
    table = adopt_model(model).output
    pack_model(model)
    with torch.no_grad():
        for count in (5, 10, 20, 5, 30, 40, 5, 20, 10):  # 10 is given up for 40
            weight, bias = table.shared_rows(slice(count))
            features = torch.eye(16)
            assert torch.allclose(weight.product(features, bias), features @ table.weight[:count].t(), **CLOSE)
    assert [rows for rows, _ in packings] == [5, 10, 20, 30, 40, 10]


@pytest.mark.parametrize("name", ["scores by length", "several models", "a beginning", "no pair twice"])
def test_a_search_finds_hypotheses_as_good_as_before(name, packings):
    """Whichever of two that are nearly equal is the best one, its score is hardly moved by rounding."""
    case, sample = Case(name, double=False), batch()
    expected = [hypotheses[0]["score"].item() for hypotheses in case.control(sample)]
    for model in case.listed:
        pack_model(model)
    found = [hypotheses[0]["score"].item() for hypotheses in case.over(all_words(), sample)]
    assert packings and np.allclose(found, expected, **CLOSE)


def linear():
    layer = nn.Linear(6, 4)
    pack_layers(layer)
    return layer.eval()


CHANGES = {
    "loaded": lambda layer, other: layer.load_state_dict(other.state_dict()),
    "trained": lambda layer, other: (layer.train(), layer.weight.data.copy_(other.weight), layer.eval()),
    "moved": lambda layer, other: (layer.weight.data.copy_(other.weight), layer.double(), layer.float()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changes_is_packed_again(change):
    layer, other, features = linear(), nn.Linear(6, 4), torch.randn(3, 6)
    other.bias = layer.bias
    with torch.no_grad():
        layer(features)
        CHANGES[change](layer, other)
        assert torch.allclose(layer(features), other(features), **CLOSE)


@pytest.mark.parametrize("change", ["loaded", "trained", "moved"])
def test_rows_of_words_that_change_are_packed_again(change):
    (table, other), features = (ScoringTable(nn.Linear(6, 9)).eval() for _ in range(2)), torch.randn(3, 6)
    table.pack()
    other.bias = table.bias
    with torch.no_grad():
        table(features)
        table.shared_rows(slice(5))
        CHANGES[change](table, other)
        assert torch.allclose(table(features), other(features), **CLOSE)
        weight, bias = table.shared_rows(slice(5))
        assert torch.allclose(weight.product(features, bias), other(features)[:, :5], **CLOSE)


def test_what_learns_or_is_in_another_precision_is_not_packed(packings):
    layer, features = linear(), torch.randn(3, 6)
    layer(features).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        layer.train()(features)
        layer.eval().double()(features.double())
        layer.to(torch.bfloat16)(features.bfloat16())
    assert not packings


def test_a_packed_model_can_be_copied_and_saved():
    model, sample = drawn(ARCHITECTURES["transformer"], 1), batch()
    adopt_model(model)
    pack_model(model)
    expected = scores(model, sample)
    assert torch.allclose(scores(copy.deepcopy(model), sample), expected, **CLOSE)
    whole = io.BytesIO()
    torch.save(model.state_dict(), whole)
    torch.save(model.decoder.layers, whole)


def test_layers_whose_weight_is_computed_stay_as_they_are():
    layer = nn.utils.weight_norm(nn.Linear(6, 4)).eval()
    pack_layers(layer)
    assert type(layer) is nn.Linear


@pytest.fixture(scope="module")
def transformer(data, tmp_path_factory):
    random = torch.Generator().manual_seed(3)

    def set_weights(model, task):
        for parameter in model.parameters():
            parameter.normal_(0, 0.5, generator=random)

    return networks.checkpoint(tmp_path_factory.mktemp("transformer") / "model.pt", data, set_weights, **TRANSFORMER)


@pytest.mark.parametrize("lists", [(), ("--candidate-frequent", 20)])
def test_the_flag_packs_a_checkpoint_that_is_opened_and_changes_no_score(data, transformer, lists, packings):
    flags = ("--beam", 2, "--max-len-b", 5, "--candidate-retries", 1, *lists)
    found = {}
    for given in ((), ("--pack-weights",)):
        assert not packings
        lines = generate_here(data, transformer, *flags, *given).splitlines()
        found[given] = dict(line.split("\t")[:2] for line in lines if line.startswith("H-"))
    plain, packed = found.values()
    assert plain.keys() == packed.keys() and len(plain) == 200
    assert np.allclose([float(plain[key]) for key in plain], [float(packed[key]) for key in plain], atol=1e-3)
    layers, words = ([shape for shape in packings if (shape[0] > 16) == above] for above in (False, True))
    assert 0 < len(layers) <= LINEARS
    assert len(words) == (2 if lists else 1)  # K, and twice K for those that did not end


def test_a_torch_without_onednn_is_told(monkeypatch):
    assert available()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(lv_fairseq.UserError, match="--pack-weights needs a torch with oneDNN"):
        pack_model(nn.Linear(2, 2))


def test_a_model_that_is_trained_is_not_packed(data, transformer):
    overrides = {"data": str(data), "pack_weights": True}
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(transformer)], overrides)
    kinds = {type(module) for module in model.modules()}
    assert PackedLinear in kinds and nn.Linear not in kinds
    kinds = {type(module) for module in task.build_model(cfg.model).modules()}
    assert nn.Linear in kinds and PackedLinear not in kinds
