"""The section of updates runs, at its smallest, and what it compares with computes what it should."""

import argparse
import os
import sys

import pytest
import torch
from conftest import ROOT, run

sys.path.insert(0, str(ROOT / "benchmarks"))

import one_update  # noqa: E402
from side_by_side import products, rows, updates, ways  # noqa: E402
from side_by_side.beside import Beside  # noqa: E402


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Data of 200 words, and what a `Run` wants to know."""
    folder = tmp_path_factory.mktemp("updates")
    args = argparse.Namespace(arch="rnnsearch_small", tokens=100, tau=60, pairs=40, size=200, memory=9.0)
    args.source, args.target = one_update.demo_text(args.pairs, folder / "text")
    return one_update.binarise(args, args.size, folder / "data"), args


def gradients(run, sentences) -> dict:
    """Of the loss of some sentences, dense, by the names of parameters."""
    (sample,) = run.collated(sentences)
    model, criterion = run.trainer.get_model(), run.trainer.criterion
    loss, _, _ = criterion(model, sample)
    loss.backward()
    named = {**dict(model.named_parameters()), "decoder.output_projection.bias": getattr(criterion, "bias", None)}
    named = {name: value for name, value in [*named.items(), *model.named_parameters()] if value is not None}
    dense = {name: x.grad.to_dense() if x.grad.is_sparse else x.grad for name, x in named.items() if x.grad is not None}
    return {"loss": loss.detach(), **{name: gradient.squeeze() for name, gradient in dense.items()}}


@pytest.mark.parametrize("way", [ways.LinearCrossEntropyRun, ways.GatheredRun])
def test_softmaxes_over_all_words_have_the_gradients_of_fairseqs(small, way):
    expected, found = (gradients(make(*small), range(5)) for make in (ways.CrossEntropyRun, way))
    assert expected.keys() == found.keys() and "decoder.output_projection.bias" in found
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient.squeeze(), rtol=1e-3, atol=1e-4, msg=name)


def test_gathered_rows_step_along_the_words_of_their_page_only(small):
    run = ways.GatheredRun(*small)
    sentences = [0, 1]
    (sample,) = run.collated(sentences)
    page = sorted({*range(4), *sample["target"].flatten().tolist()})
    run.take_page(page)
    weight = run.trainer.get_model().decoder.output_projection.weight
    before = weight.detach().clone()
    run.update(sentences)
    moved = (weight != before).any(dim=1).nonzero().flatten().tolist()
    assert moved == page
    assert run.optimiser_bytes() > 2 * 4 * 200 * 256 * 3  # statistics are of all words


def test_clipping_knows_sparse_gradients():
    table, rest = torch.nn.Parameter(torch.zeros(5, 2)), torch.nn.Parameter(torch.zeros(3))
    torch.nn.functional.embedding(torch.tensor([1, 1, 4]), table, sparse=True).sum().backward()
    rest.grad = torch.full((3,), 2.0)
    dense = torch.cat([table.grad.to_dense().flatten(), rest.grad]) / 7
    ways.clip([table, rest], tokens=7)
    expected = dense * min(1, ways.CLIP_NORM / dense.norm())
    torch.testing.assert_close(torch.cat([table.grad.to_dense().flatten(), rest.grad]), expected)


def test_the_products_of_a_layer_are_one_forward_and_two_backward():
    layer, x = torch.nn.Linear(5, 7), torch.ones(3, 5, requires_grad=True)
    with products.Recorder() as recorded:
        layer(x).tanh().sum().backward()
    shapes = [(a.shape, b.shape) for a, b in recorded.products]
    assert shapes[0] == ((3, 5), (5, 7)) and len(shapes) == 3
    assert products.operations(recorded.products) == 3 * 2 * 3 * 5 * 7
    replay = products.Replay(recorded.products)
    assert replay.seconds() >= 0 and len(replay.calls) == 3


def test_fused_attention_counts_as_its_products():
    query = torch.ones(2, 4, 6, 8, requires_grad=True)  # sentences x heads x length x dim
    key, value = torch.ones(2, 4, 5, 8), torch.ones(2, 4, 5, 8)
    with products.Recorder() as recorded:
        torch.nn.functional.scaled_dot_product_attention(query, key, value).sum().backward()
    assert products.operations(recorded.products) == 6 * 2 * (2 * 4) * 6 * 5 * 8
    products.Replay(recorded.products).seconds()


def test_what_fails_in_a_process_beside_is_said_and_leaves_no_process():
    with pytest.raises(RuntimeError, match="no such data"):
        Beside(lambda: (_ for _ in ()).throw(OSError("no such data")))
    with pytest.raises(RuntimeError, match="exit status 3"):
        Beside(lambda: os._exit(3))


def test_a_way_that_ends_while_it_is_made_or_trains_is_a_row_and_not_the_end(small):
    data, args = small
    args = argparse.Namespace(**{**vars(args), "turns": 2, "row_seconds": 60.0, "size": 200})
    ours, *_ = updates.ways(args)
    killed = updates.Way("killed", lambda *_: os._exit(9), peer=True)
    whole = dict.fromkeys((True, False), data)
    mine, other = updates.take_turns([ours, killed], whole, args)
    assert len(mine.seconds) == 1 and mine.more["MB trained"] > 0  # nobody is left to take turns with
    assert other.failed.startswith("not measured: ended with exit status 9") and other.seconds == []
    with pytest.raises(RuntimeError, match="exit status 9"):
        updates.take_turns([updates.Way("lv_fairseq", lambda *_: os._exit(9), ours=True), ours], whole, args)


def test_ways_that_do_not_fit_together_are_in_other_groups(small):
    args = argparse.Namespace(**{**vars(small[1]), "size": 1_000_000, "tokens": 2000, "tau": 15_000})
    ours, *others = updates.ways(args)
    groups = list(updates.groups(others, args, memory=18.0))
    assert [way for group in groups for way in group] == others
    assert len(groups) > 1
    assert all(sum(way.gigabytes(args) for way in group) <= 18 for group in groups)


def test_all_ways_take_turns(tmp_path):
    out = tmp_path / "rows.json"
    sizes = ("--words", 400, "--tau", 100, "--tokens", 100, "--pairs", 60, "--turns", 1)
    run("python", "-m", "side_by_side.updates", *sizes, "--archs", "transformer", "--out", out, cwd=ROOT / "benchmarks")
    found, versions = rows.read(out)
    assert {row.table for row in found} == {"an update of transformer, 100 tokens"} and versions[
        "torch"
    ] == torch.__version__
    assert [row.system for row in found if row.ours] == ["lv_fairseq, tau 100"]
    assert len(found) == 7 and all(len(row.turns) == 1 and row.turns[0] > 0 for row in found)
    more = {row.system: row.more for row in found}
    whole, ours = more["fairseq, cross_entropy"], more["lv_fairseq, tau 100"]
    assert ours.pop("% products") > 0
    assert whole["MB trained"] - ours["MB trained"] == pytest.approx(300 * 256 * 4 * 4 / 2**20, abs=0.2)
    assert all(figures.keys() == whole.keys() for name, figures in more.items() if "products" not in name)


def test_a_way_that_is_too_large_is_named_and_not_measured(small):
    args = argparse.Namespace(**{**vars(small[1]), "memory": 0.5})
    (row,) = updates.measure({}, args)
    assert not row.turns and row.note.startswith("not measured: it takes about 1 GB")
