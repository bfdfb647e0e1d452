"""Loss and gradients without the whole matrix of scores are those of the plain formulas with it."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lv_fairseq.softmax import full_cross_entropy, limited_cross_entropy, listed_cross_entropy, tau

DOUBLE = torch.float64
TOLERANCE = {DOUBLE: dict(rtol=1e-10, atol=1e-10), torch.float32: dict(rtol=1e-5, atol=1e-5)}


def table_chunks(weight, bias, rows):
    """The whole table, at most ``rows`` rows at a time."""
    for first in range(0, len(weight), rows):
        yield (
            first,
            weight[first : first + rows].detach(),
            None if bias is None else bias[first : first + rows].detach(),
        )


def page(tokens=7, rows=11, dim=5, spare=0, proposal=False, bias=True, dtype=DOUBLE, seed=1, scale=1.0):
    """features, weight, bias, offset and targets; ``spare`` rows, anywhere, hold no word."""
    generator = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(tokens, dim, generator=generator, dtype=DOUBLE)
    weight = torch.randn(rows, dim, generator=generator, dtype=DOUBLE)
    bias = torch.randn(rows, generator=generator, dtype=DOUBLE) * bias
    order = torch.randperm(rows, generator=generator)
    offset = None
    if spare or proposal:
        q = torch.rand(rows, generator=generator, dtype=DOUBLE) + 0.01
        offset = -torch.log(q / q.sum()) * proposal
        offset[order[:spare]] = -math.inf
    targets = order[spare + torch.randint(0, rows - spare, (tokens,), generator=generator)]
    parameters = [x.to(dtype).requires_grad_() for x in (features, weight, bias)]
    return (*parameters, None if offset is None else offset.to(dtype), targets)


def reference(features, weight, bias, offset, targets, smoothing=0.0):
    """fairseq's loss over all scores of the rows that are in use, in double precision."""
    features, weight = features.double(), weight.double()
    scores = F.linear(features, weight, None if bias is None else bias.double())
    used = torch.arange(len(weight))
    if offset is not None:
        used = used[offset > -math.inf]
        scores = scores + offset.double()
    scores, targets = scores[:, used], torch.searchsorted(used, targets)
    if not smoothing:  # fairseq's divides by the number of other words
        return (F.cross_entropy(scores, targets, reduction="sum"),) * 2
    return label_smoothed_nll_loss(F.log_softmax(scores, dim=-1), targets, smoothing)


def gradients(loss, inputs, **how):
    wanted = [x for x in inputs if x is not None and x.requires_grad]
    return torch.autograd.grad(loss, wanted, **how)


def assert_like_reference(inputs, smoothing, dtype, **how):
    loss, nll = limited_cross_entropy(*inputs, smoothing, **how)
    expected_loss, expected_nll = reference(*inputs, smoothing)
    assert loss.dtype == nll.dtype == dtype and loss.shape == nll.shape == () and not nll.requires_grad
    torch.testing.assert_close(loss.double(), expected_loss, **TOLERANCE[dtype])
    torch.testing.assert_close(nll.double(), expected_nll, **TOLERANCE[dtype])
    for one, expected in zip(gradients(loss, inputs[:3]), gradients(expected_loss, inputs[:3])):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), expected.double(), **TOLERANCE[dtype])


@settings(deadline=None, max_examples=300)
@given(
    tokens=st.integers(1, 12),
    rows=st.integers(2, 20),
    dim=st.integers(1, 6),
    spare=st.integers(0, 18),
    proposal=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    chunk=st.one_of(st.none(), st.integers(1, 15)),
    dtype=st.sampled_from([DOUBLE, torch.float32]),
    seed=st.integers(0, 999),
)
@example(tokens=5, rows=9, dim=3, spare=4, proposal=True, smoothing=0.1, chunk=1, dtype=DOUBLE, seed=0)
@example(tokens=5, rows=9, dim=3, spare=4, proposal=True, smoothing=0.1, chunk=99, dtype=DOUBLE, seed=0)
def test_values_and_gradients(tokens, rows, dim, spare, proposal, smoothing, chunk, dtype, seed):
    spare = min(spare, rows - 2)
    inputs = page(tokens, rows, dim, spare, proposal, dtype=dtype, seed=seed)
    assert_like_reference(inputs, smoothing, dtype, chunk=chunk)
    assert_like_reference(inputs, smoothing, dtype, chunk=chunk, active=rows - spare)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
def test_many_rows(dtype, smoothing, monkeypatch):
    monkeypatch.setattr(tau, "CHUNK_BYTES", 100_000)  # several chunks, and one that is not full
    features, weight, *others = page(tokens=83, rows=3000, dim=32, spare=40, proposal=True, dtype=dtype)
    features, weight = (x.detach().div(4).requires_grad_() for x in (features, weight))
    loss, nll = limited_cross_entropy(features, weight, *others, smoothing)
    expected_loss, expected_nll = reference(features, weight, *others, smoothing)
    torch.testing.assert_close((loss.double(), nll.double()), (expected_loss, expected_nll), **TOLERANCE[dtype])
    inputs = (features, weight, others[0])
    for one, expected in zip(gradients(loss, inputs), gradients(expected_loss, inputs)):
        torch.testing.assert_close(one, expected, **TOLERANCE[dtype])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("spare, proposal", [(0, False), (3, False), (3, True)])
def test_gradcheck(spare, proposal, smoothing):
    *inputs, offset, targets = page(spare=spare, proposal=proposal)

    def loss(*inputs):
        return limited_cross_entropy(*inputs, offset, targets, smoothing, chunk=3)[0]

    assert torch.autograd.gradcheck(loss, inputs)


def test_the_papers_gradient():
    """grad E(y_t) - sum_k omega_k / sum omega grad E(y_k), word by word."""
    tokens, rows, dim, spare = 6, 10, 4, 3
    q = np.random.default_rng(1).dirichlet(np.ones(rows - spare))
    features, weight, bias, _, _ = page(tokens, rows, dim)
    targets = torch.tensor([0, 3, 3, 6, 1, 0])
    offset = torch.full((rows,), -math.inf, dtype=DOUBLE)
    offset[: rows - spare] = torch.from_numpy(-np.log(q))
    loss, _ = limited_cross_entropy(features, weight, bias, offset, targets, chunk=4)

    phi, w, b = (x.detach().numpy() for x in (features, weight, bias))
    grad_phi, grad_w, grad_b = np.zeros_like(phi), np.zeros_like(w), np.zeros_like(b)
    for t in range(tokens):
        energies = [w[k] @ phi[t] + b[k] for k in range(rows - spare)]
        omega = [np.exp(energies[k] - np.log(q[k])) for k in range(rows - spare)]
        y = int(targets[t])
        for k, share in [(y, 1.0), *((k, -omega[k] / sum(omega)) for k in range(rows - spare))]:
            grad_phi[t] += share * w[k]  # of E(y_k) in phi
            grad_w[k] += share * phi[t]
            grad_b[k] += share
    for one, of_log_p in zip(gradients(loss, (features, weight, bias)), (grad_phi, grad_w, grad_b)):
        np.testing.assert_allclose(one.numpy(), -of_log_p, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32, torch.bfloat16])
def test_spare_rows_get_exactly_no_gradient(dtype, smoothing):
    inputs = page(spare=4, proposal=True, dtype=dtype)
    spare = inputs[3] == -math.inf
    _, d_weight, d_bias = gradients(limited_cross_entropy(*inputs, smoothing)[0], inputs[:3])
    assert d_weight[spare].count_nonzero() == d_bias[spare].count_nonzero() == 0
    assert d_weight[~spare].count_nonzero() == d_weight[~spare].numel()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("spare", [0, 10])
def test_a_page_of_one_word(spare, smoothing):
    inputs = page(rows=spare + 1, spare=spare)
    loss, nll = limited_cross_entropy(*inputs, smoothing)
    assert abs(loss.item()) < 1e-12 and abs(nll.item()) < 1e-12
    for gradient in gradients(loss, inputs[:3]):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 0)])
def test_frozen_parameters(wanted, smoothing):
    inputs = page(spare=2, proposal=True)
    for parameter, learns in zip(inputs, wanted):
        parameter.requires_grad_(bool(learns))
    assert_like_reference(inputs, smoothing, DOUBLE, chunk=4)
    limited_cross_entropy(*inputs, smoothing)[0].backward()
    assert [x.grad is not None for x in inputs[:3]] == [bool(learns) for learns in wanted]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_a_bias(smoothing):
    features, weight, _, offset, targets = page(spare=2, proposal=True)
    assert_like_reference((features, weight, None, offset, targets), smoothing, DOUBLE, chunk=4)
    assert_like_reference((features, weight, None, None, targets), smoothing, DOUBLE, chunk=4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_gradients(smoothing, monkeypatch):
    inputs = page(spare=2, proposal=True)
    expected = reference(*inputs, smoothing)
    monkeypatch.setattr(tau._LimitedCrossEntropy, "apply", None)
    with torch.no_grad():
        values = limited_cross_entropy(*inputs, smoothing, chunk=4)
    detached = limited_cross_entropy(*(x.detach() for x in inputs), smoothing, chunk=4)
    for one, other, value in zip(values, detached, expected):
        assert not one.requires_grad and not other.requires_grad
        torch.testing.assert_close(one, value.detach(), **TOLERANCE[DOUBLE])
        torch.testing.assert_close(other, value.detach(), **TOLERANCE[DOUBLE])


def test_a_retained_graph_gives_the_same_gradients_again():
    inputs = page(spare=2)
    loss = 3 * limited_cross_entropy(*inputs, 0.1)[0]
    first = [x.clone() for x in gradients(loss, inputs[:3], retain_graph=True)]
    loss.backward(retain_graph=True)
    loss.backward()
    for parameter, gradient in zip(inputs, first):
        torch.testing.assert_close(parameter.grad, 2 * gradient, rtol=0, atol=0)
    for gradient, expected in zip(first, gradients(3 * reference(*inputs, 0.1)[0], inputs[:3])):
        torch.testing.assert_close(gradient, expected, **TOLERANCE[DOUBLE])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_no_tokens(smoothing):
    inputs = page(tokens=0, spare=2)
    loss, nll = limited_cross_entropy(*inputs, smoothing)
    assert loss.item() == nll.item() == 0
    assert all(gradient.count_nonzero() == 0 for gradient in gradients(loss, inputs[:3]))
    features, weight, bias, _, targets = inputs
    loss, nll = full_cross_entropy(features, table_chunks(weight, bias, rows=4), targets, smoothing)
    assert loss.item() == nll.item() == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_huge_scores(smoothing):
    for dtype in (DOUBLE, torch.float32):
        inputs = page(spare=2, dtype=dtype, scale=1e4)
        loss, nll = limited_cross_entropy(*inputs, smoothing, chunk=2)
        expected = reference(*inputs, smoothing)
        assert expected[1] > 1e4
        torch.testing.assert_close((loss.double(), nll.double()), expected, rtol=1e-6, atol=0)
        for one, correct in zip(gradients(loss, inputs[:3]), gradients(expected[0], inputs[:3])):
            torch.testing.assert_close(one, correct, rtol=1e-4, atol=1e-4)
        features, weight, bias, _, targets = inputs
        values = full_cross_entropy(features, table_chunks(weight, bias, rows=3), targets, smoothing)
        expected = reference(features, weight, bias, None, targets, smoothing)
        torch.testing.assert_close(tuple(x.double() for x in values), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows, dim", [(11, 5), (3000, 32)])
def test_half_precision(rows, dim, dtype, smoothing):
    """Inputs are rounded, and products; the sums are not."""
    features, weight, bias, offset, targets = page(tokens=40, rows=rows, dim=dim, spare=5, proposal=True, dtype=dtype)
    weight = (weight / dim**0.5).detach().requires_grad_()
    inputs = (features, weight, bias, offset, targets)
    loss, nll = limited_cross_entropy(*inputs, smoothing, chunk=16)
    assert loss.dtype == nll.dtype == torch.float32
    expected_loss, expected_nll = reference(*inputs, smoothing)
    torch.testing.assert_close((loss.double(), nll.double()), (expected_loss, expected_nll), rtol=1e-3, atol=0)
    # fairseq multiplies the loss so that small gradients survive
    for one, correct in zip(gradients(128 * loss, inputs[:3]), gradients(128 * expected_loss, inputs[:3])):
        assert one.dtype == dtype and one.isfinite().all()
        assert (one.double() - correct.double()).norm() < 0.02 * correct.double().norm()
    values = full_cross_entropy(features, table_chunks(weight, bias, rows=7), targets, smoothing)
    expected = reference(features, weight, bias, None, targets, smoothing)
    torch.testing.assert_close(tuple(x.double() for x in values), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("length", [1.0, 60.0])
def test_a_common_word_does_not_overflow_half_precision(length, smoothing):
    """Its row's gradient is a sum over many tokens that all want more of it: here up to 120,000, in one chunk."""
    features = torch.full((2000, 8), length, dtype=torch.float16, requires_grad=True)
    weight = torch.linspace(-0.1, 0.1, 5 * 8).view(5, 8).requires_grad_()  # of a page, in single precision
    inputs = features, weight, None, None, torch.zeros(2000, dtype=torch.long)
    loss, _ = limited_cross_entropy(*inputs, smoothing)
    expected, _ = reference(*inputs, smoothing)
    for one, correct in zip(gradients(loss, inputs[:2]), gradients(expected, inputs[:2])):
        torch.testing.assert_close(one.double(), correct.double(), rtol=1e-2, atol=1e-3 * float(correct.abs().max()))


def test_sums_over_many_sentences_are_not_rounded_to_half_precision():
    """Of whole numbers half precision has none between 2048 and 2050: adding one to it would change nothing."""
    sentences = [torch.zeros(1, 2, dtype=torch.float16)] * 2500
    rows = lambda words: (torch.zeros(20, 2, dtype=torch.float16)[words], None)
    right, lists = [torch.tensor([9])] * 2500, [torch.tensor([5])] * 2500
    loss, nll, outside = listed_cross_entropy(sentences, right, 5, lists, rows, unknown=3)
    assert int(outside) == 2500
    assert float(loss) == float(nll) == pytest.approx(2500 * math.log(6), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_autocast_leaves_it_alone(dtype):
    features, weight, bias, _, targets = inputs = page(dtype=dtype)

    def everything():
        loss, nll = limited_cross_entropy(*inputs, 0.1)
        full = full_cross_entropy(features, table_chunks(weight, bias, rows=4), targets, 0.1)
        return (loss, nll, *full, *gradients(loss, inputs[:3]))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = everything()
    torch.testing.assert_close(automatic, everything(), rtol=0, atol=0)


def test_half_precision_features_and_a_single_precision_table():
    features, weight, bias, _, targets = page(dtype=torch.float32)
    rounded = (features.detach().bfloat16().requires_grad_(), weight, bias, None, targets)
    loss, _ = limited_cross_entropy(*rounded)
    torch.testing.assert_close(loss.double(), reference(*rounded)[0], rtol=1e-2, atol=0)
    assert [x.dtype for x in gradients(loss, rounded[:3])] == [torch.bfloat16, torch.float32, torch.float32]


@settings(deadline=None, max_examples=200)
@given(
    tokens=st.integers(1, 9),
    words=st.integers(2, 40),
    rows=st.integers(1, 50),
    shuffled=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    dtype=st.sampled_from([DOUBLE, torch.float32]),
    block=st.integers(1, 2000),
    bias=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_whole_vocabulary_in_chunks(tokens, words, rows, shuffled, smoothing, dtype, block, bias, seed):
    features, weight, b, _, targets = page(tokens, words, bias=bias, dtype=dtype, seed=seed)
    chunks = list(table_chunks(weight, b if bias else None, rows))
    if shuffled:
        np.random.default_rng(seed).shuffle(chunks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lv_fairseq.softmax.tau.CHUNK_BYTES", block)
        loss, nll = full_cross_entropy(features, chunks, targets, smoothing)
    assert loss.dtype == nll.dtype == dtype and not loss.requires_grad
    expected = reference(features, weight, b, None, targets, smoothing)
    torch.testing.assert_close((loss.double(), nll.double()), expected, **TOLERANCE[dtype])


def test_a_word_in_no_chunk_is_noticed():
    features, weight, bias, _, targets = page()
    chunks = list(table_chunks(weight, bias, rows=1))
    del chunks[int(targets[0])]
    assert full_cross_entropy(features, chunks, targets)[0].isnan()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_over_lists_it_is_the_cross_entropy_of_the_words_on_each_list(smoothing):
    features, weight, bias, _, targets = page(tokens=9, rows=20)
    lists = [torch.tensor([7, 12, 19]), torch.tensor([], dtype=torch.long), torch.tensor([5])]
    sentences, right = features.detach().split(3), torch.tensor([[12, 0, 6], [4, 9, 2], [5, 7, 1]])
    rows = lambda words: (weight.detach()[words], bias.detach()[words])
    loss, nll, outside = listed_cross_entropy(sentences, list(right), 5, lists, rows, 3, smoothing)
    expected = [0.0, 0.0]
    for sentence, words, own in zip(sentences, right.tolist(), lists):
        listed = [*range(5), *own.tolist()]
        part = reference(
            sentence,
            weight[listed],
            bias[listed],
            None,
            torch.tensor([listed.index(word if word in listed else 3) for word in words]),
            smoothing,
        )
        expected = [total + float(value) for total, value in zip(expected, part)]
    assert [float(loss), float(nll)] == pytest.approx(expected, rel=1e-6)
    assert int(outside) == 3
