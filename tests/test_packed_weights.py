"""--pack-weights: the same products from weights that are laid out once, and never from weights that have changed."""

import copy
import io
from pathlib import Path

import networks
import numpy as np
import pytest
import torch
from conftest import generate_here
from fairseq import checkpoint_utils
from searches import ARCHITECTURES, WORDS, Case, all_words, batch, drawn
from torch import nn

import lv_fairseq
from lv_fairseq import packed_weights
from lv_fairseq.models.families import adopt_model, pack_model
from lv_fairseq.packed_weights import OF_A_LAYER, OF_WORDS, PackedLinear, PackedWeight, available, pack_layers
from lv_fairseq.word_tables import ScoringTable, searching
from lv_fairseq.word_tables.columns import columns_of

if not available():
    pytest.skip("this torch has no oneDNN", allow_module_level=True)

CLOSE = dict(rtol=1e-4, atol=1e-4)  # rounding is some 1e-6 of the scores here, which are below 100
SIZES = ("encoder_embed_dim", "decoder_embed_dim", "encoder_ffn_embed_dim", "decoder_ffn_embed_dim")
SIZES = {**dict.fromkeys(SIZES, 16), "encoder_attention_heads": 2, "decoder_attention_heads": 2}
LINEARS = 2 + 10  # of an encoder's layer, whose attention reads weights by itself, and of a decoder's
TRANSFORMER = {"arch": "transformer", "encoder_layers": 1, "decoder_layers": 1, **SIZES}


@pytest.fixture
def packings(monkeypatch):
    """The shapes of the weights that are laid out from now on."""
    shapes, lay_out = [], packed_weights.laid_out
    monkeypatch.setattr(
        packed_weights, "laid_out", lambda weight: shapes.append(tuple(weight.shape)) or lay_out(weight)
    )
    return shapes


@pytest.fixture(autouse=True)
def decoding(monkeypatch):
    """No weight is too small here."""
    monkeypatch.setattr(packed_weights, "LARGE", 0)
    with torch.no_grad():
        yield


def test_small_weights_are_not_packed(packings, monkeypatch):
    monkeypatch.setattr(packed_weights, "LARGE", 100)
    for size in (9, 10):
        PackedWeight(torch.randn(10, size), OF_WORDS).product(torch.randn(3, size), None)
    assert packings == [(10, 10)]


@pytest.mark.parametrize("outputs, inputs", [(1, 1), (7, 5), (64, 33), (300, 128)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_packed_product_is_the_product(outputs, inputs, with_bias, packings):
    random = np.random.default_rng(outputs)
    weight, bias = random.standard_normal((outputs, inputs)), random.standard_normal(outputs) * with_bias
    packed = PackedWeight(torch.tensor(weight, dtype=torch.float32), OF_WORDS)
    given = torch.tensor(bias, dtype=torch.float32) if with_bias else None
    for shape in [(0,), (1,), (5,), (16,), (17,), (40,), (160,), (161,), (3, 2), (7, 3)]:
        features = torch.tensor(random.standard_normal((*shape, 2 * inputs)), dtype=torch.float32)[..., ::2]
        found = packed.product(features, given)
        assert found.shape == (*shape, outputs)
        assert torch.allclose(found.double(), torch.tensor(features.double().numpy() @ weight.T + bias), **CLOSE)
    assert packings == [(outputs, inputs)]


def test_a_bias_may_lie_apart_in_memory():
    weight, bias, features = torch.randn(7, 5), torch.randn(14)[::2], torch.randn(3, 5)
    found = PackedWeight(weight, OF_WORDS).product(features, bias)
    assert torch.allclose(found, features @ weight.t() + bias, **CLOSE)


def test_memory_does_not_grow_with_the_numbers_of_rows_that_come():
    """oneDNN keeps something for each: 1,400 of them took 390 MB a weight."""
    layer = PackedWeight(torch.randn(128, 96), OF_A_LAYER)
    words = PackedWeight(torch.randn(64, 96), OF_WORDS)

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    before = resident()
    for rows in range(1, 1400):
        for packed in (layer, words):
            packed.product(torch.zeros(rows, 96), None)
    assert resident() - before < 150


def close(found, expected) -> bool:
    """But for rounding, which is in proportion to the largest score."""
    return torch.allclose(found, expected, rtol=0, atol=1e-4 * max(1.0, expected.abs().max().item()))


def scores(model, sample):
    words = torch.arange(len(sample["net_input"]["src_tokens"]) * 4).view(-1, 4) % len(WORDS)
    return model(prev_output_tokens=words, **sample["net_input"])[0]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_packed_model_scores_words_as_before(name, packings):
    model, sample = drawn(ARCHITECTURES[name], 1), batch()
    adopt_model(model)
    expected = scores(model, sample)
    pack_model(model)
    assert close(scores(model, sample), expected)
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
    with searching([tables], columns):
        expected = tables.output(features)
    pack_model(model)
    for _ in range(2):
        with searching([tables], columns):
            assert close(tables.output(features), expected)
    assert packings == [(columns.count, 16)]  # for both searches


def test_a_table_keeps_no_more_rows_packed_than_it_has(packings):
    model = drawn(ARCHITECTURES["transformer"], 1)
    table = adopt_model(model).output
    pack_model(model)
    features = torch.eye(16)
    for words in (slice(5), slice(10), slice(20), slice(5), slice(15), slice(5), slice(20), slice(10), slice(None)):
        weight, bias = table.shared_rows(words)  # 5, 10 and 20 of 48 words stay; for 15 more 10 are given up
        assert close(weight.product(features, bias), features @ table.weight[words].t())
        assert sum(len(packed.weight) for packed in table._packed.values()) <= len(WORDS)
    assert [rows for rows, _ in packings] == [5, 10, 20, 15, 10, len(WORDS)]
    table.shared_rows(slice(len(WORDS)))[0].product(features, None)
    model.eval()
    table(features)
    assert len(packings) == 6  # these are all words too, and nothing has changed


@pytest.mark.parametrize("name", ["scores by length", "several models", "a beginning", "no pair twice"])
def test_a_search_finds_hypotheses_as_good_as_before(name, packings):
    """Rounding may throw one of two out of the beam that are equally good so far, and so change a sentence, not two."""
    case, sample = Case(name, double=False), batch()
    expected = [hypotheses[0]["score"].item() for hypotheses in case.control(sample)]
    for model in case.listed:
        pack_model(model)
    found = [hypotheses[0]["score"].item() for hypotheses in case.over(all_words(), sample)]
    assert packings and np.isclose(found, expected, **CLOSE).sum() >= len(expected) - 1


def linear():
    layer = nn.Linear(6, 4)
    pack_layers(layer)
    return layer.eval()


def replaced(layer, other):
    layer.weight = nn.Parameter(other.weight.clone())


CHANGES = {
    "loaded": lambda layer, other: layer.load_state_dict(other.state_dict()),
    "trained": lambda layer, other: (layer.train(), layer.weight.data.copy_(other.weight), layer.eval()),
    "moved": lambda layer, other: (layer.weight.data.copy_(other.weight), layer.double(), layer.float()),
    "written": lambda layer, other: layer.weight.copy_(other.weight),
    "replaced": replaced,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_that_changes_is_packed_again(change, packings):
    layer, other, features = linear(), nn.Linear(6, 4), torch.randn(3, 6)
    other.bias = layer.bias
    layer(features)
    CHANGES[change](layer, other)
    assert torch.allclose(layer(features), other(features), **CLOSE)
    assert len(packings) == 2


@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_words_that_change_are_packed_again(change):
    (table, other), features = (ScoringTable(nn.Linear(6, 9)).eval() for _ in range(2)), torch.randn(3, 6)
    table.pack()
    other.bias = table.bias
    chosen = torch.tensor([2, 0, 7])
    for words in (slice(5), chosen):
        table.shared_rows(words)[0].product(features, None)
    table(features)
    CHANGES[change](table, other)
    expected = other(features)
    assert torch.allclose(table(features), expected, **CLOSE)
    for words in (slice(5), chosen):
        weight, bias = table.shared_rows(words)
        assert torch.allclose(weight.product(features, bias), expected[:, words], **CLOSE)


def test_what_learns_or_is_in_another_precision_is_not_packed(packings):
    layer, features = linear(), torch.randn(3, 6)
    table = ScoringTable(nn.Linear(6, 9)).eval()
    table.pack()
    with torch.enable_grad():
        layer(features).sum().backward()
        table(features).sum().backward()
    assert layer.weight.grad is not None and table.weight.grad is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(features).dtype == table(features).dtype == torch.bfloat16
    layer.train()(features)
    for kind in (torch.float64, torch.bfloat16):
        layer.eval().to(kind)(features.to(kind))
        table.to(kind)(features.to(kind))
    assert not packings


def test_a_packed_model_can_be_copied_and_saved():
    model, sample = drawn(ARCHITECTURES["transformer"], 1), batch()
    adopt_model(model)
    pack_model(model)
    expected = scores(model, sample)
    assert close(scores(copy.deepcopy(model), sample), expected)
    layer, features, saved = linear(), torch.randn(3, 6), io.BytesIO()
    expected = layer(features)
    torch.save(layer, saved)
    saved.seek(0)
    assert torch.allclose(torch.load(saved, weights_only=False)(features), expected, **CLOSE)


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
def test_the_flag_packs_a_checkpoint_that_is_opened(data, transformer, lists, packings):
    flags = ("--beam", 2, "--max-len-b", 5, "--candidate-retries", 1, "--batch-size", 2, *lists)
    generate_here(data, transformer, *flags)
    assert not packings
    printed = generate_here(data, transformer, *flags, "--pack-weights")
    assert sum(line.startswith("H-") for line in printed.splitlines()) == 200
    layers, words = ([shape for shape in packings if (shape[0] > 16) == above] for above in (False, True))
    assert len(layers) == LINEARS
    assert len(words) == (2 if lists else 1)  # K, and twice K for those that did not end


def test_a_torch_without_onednn_is_told(monkeypatch):
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
