"""The tau softmax: cross entropy over the rows of a page, the words V'_i of a partition, in place of all words V.

With a proposal distribution Q the paper's gradient is

    grad log p(y_t) = grad E(y_t) - sum_k omega_k / sum_k' omega_k' grad E(y_k),   omega_k = exp(E(y_k) - log Q(y_k))

which is the gradient of ordinary cross entropy over the scores E(y_k) + offset_k: the offset is 0 for a uniform Q,
-log Q(y_k) for another one, and -inf for a spare row, which holds no word.

Scores of a whole batch (tokens x rows) would fill the memory. Here they exist for one chunk of tokens at a time. The
gradients are therefore computed along with the loss, and the backward pass only multiplies them.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Of the scores of a chunk. On a CPU less makes slow matrix products, more leaves the cache. A GPU wants few products
# that fill it: at tau 30,000 this is a chunk of 2,200 tokens, whose scores and probabilities take half a gigabyte.
CHUNK_BYTES, DEVICE_CHUNK_BYTES = 24 << 20, 256 << 20

# Half precision reaches down to 6e-8. Gradients of scores, within [-1, 1], are multiplied by this before they are
# rounded to it. It reaches up to 65504 only, so that what sums them up is in single precision.
GRADIENT_SCALE = 256.0


def chunk_bytes(device: torch.device) -> int:
    """How much memory the scores of a chunk may take."""
    return CHUNK_BYTES if device.type == "cpu" else DEVICE_CHUNK_BYTES


def limited_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    offset: Optional[Tensor],
    targets: Tensor,
    smoothing: float = 0.0,
    chunk: Optional[int] = None,
    active: Optional[int] = None,
) -> Tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood of the right words among the words of a page, summed over tokens.

    Both are scalars, in single precision if features are in half. Only the loss is smoothed and has gradients, in
    features, weight and bias.

    Args:
        features: tokens x dim
        weight: rows x dim; spare rows must hold finite numbers, and get a gradient of zero
        bias: rows, or None
        offset: rows: added to every score of a row; None for 0 everywhere
        targets: tokens: the row of the right word; every token counts
        smoothing: fairseq's label smoothing, over the rows that are not spare
        chunk: how many tokens' scores are in memory at a time (default: those that take `chunk_bytes`)
        active: how many rows are not spare, for smoothing (default: counted)
    """
    inputs, options = (features, weight, bias), (offset, targets, smoothing, chunk, active)
    with torch.autocast(features.device.type, enabled=False):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            return _LimitedCrossEntropy.apply(*inputs, *options)
        loss, nll, _ = _loss_and_gradients(*inputs, *options)
        return loss, nll


class _LimitedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, weight, bias, *options):
        loss, nll, gradients = _loss_and_gradients(features, weight, bias, *options, wanted=ctx.needs_input_grad[:3])
        ctx.save_for_backward(*gradients)
        ctx.dtypes = [x.dtype if x is not None else None for x in (features, weight, bias)]
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx, d_loss, _):
        # Into new tensors: the saved ones are wanted again if the graph is retained.
        gradients = [x if x is None else (x * d_loss).to(dtype) for x, dtype in zip(ctx.saved_tensors, ctx.dtypes)]
        return (*gradients, None, None, None, None, None)


def log_normaliser(scores: Tensor, probabilities: Tensor) -> Tensor:
    """log sum_k exp(score_k) of every token (tokens); fills ``probabilities`` (tokens x rows, as scores).

    torch's softmax does a token after the other, in the cache, as logsumexp does not. The highest score m has the
    probability exp(m - log sum_k exp(score_k)), which is at least 1 / rows.
    """
    torch.softmax(scores, dim=1, out=probabilities)
    return scores.amax(dim=1) - probabilities.amax(dim=1).log_()


def add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total += a b, in place; the factors may be in half precision while the total, and every sum, is in single."""
    if total.dtype != a.dtype and a.is_cuda:
        return total.add_(torch.mm(a, b, out_dtype=total.dtype))
    return total.addmm_(a.to(total.dtype), b.to(total.dtype))


class _Smoothing(NamedTuple):
    """fairseq's label smoothing over A active rows. With eps = smoothing / (A - 1) the smoothed loss is

        (1 - A eps) nll - eps sum_k log p_k,   with the gradient   p_k - eps - (1 - A eps) [k is right]

    in the score of an active row k. What eps brings in needs sums over rows and over tokens, but no scores.
    """

    used: Tensor  # rows: 1 for an active row, 0 for a spare one
    count: Tensor  # A
    eps: Tensor
    right: Tensor  # 1 - A eps

    @classmethod
    def of(cls, smoothing: float, rows: int, offset: Optional[Tensor], active: Optional[int], new: Dict):
        used = torch.ones(rows, **new) if offset is None else (offset > float("-inf")).to(**new)
        count = used.sum() if active is None else torch.full((), active, **new)
        eps = smoothing / (count - 1).clamp_(min=1)
        return cls(used, count, eps, 1 - count * eps)

    def loss(self, features, weight, shift, nll, normalisers, gradients: List[Optional[Tensor]]) -> Tensor:
        """The smoothed loss; what eps brings into the gradients is added to them.

        Args:
            shift: rows: added to every score of a row
            nll, normalisers: summed over tokens
        """
        d_features, d_weight, d_bias = gradients
        dtype = shift.dtype
        weight_sum, feature_sum = torch.mv(weight.t().to(dtype), self.used), features.sum(dim=0, dtype=dtype)
        all_scores = weight_sum.dot(feature_sum) + len(features) * shift.masked_fill(self.used == 0, 0.0).sum()
        if d_features is not None:
            d_features -= self.eps * weight_sum
        if d_weight is not None:
            d_weight.addr_(-self.eps * self.used, feature_sum)
        if d_bias is not None:
            d_bias -= len(features) * self.eps * self.used
        return self.right * nll + self.eps * (self.count * normalisers - all_scores)


def _add_gradients(d_scores: Tensor, phi: Tensor, weight: Tensor, gradients: Sequence[Optional[Tensor]]) -> None:
    """Add what the scores of a chunk of tokens (tokens x rows) bring to the gradients in its features, in weight and in
    bias; in half precision, the first two `GRADIENT_SCALE` times as large."""
    d_phi, d_weight, d_bias = gradients
    if d_bias is not None:
        d_bias.addmv_(d_scores.t(), torch.ones(len(phi), dtype=d_bias.dtype, device=d_bias.device))
    if d_scores.dtype != phi.dtype:
        d_scores = (d_scores * GRADIENT_SCALE).to(phi.dtype)
    if d_phi is not None:
        add_product(d_phi, d_scores, weight)
    if d_weight is not None:
        add_product(d_weight, d_scores.t(), phi)


@torch.no_grad()
def _loss_and_gradients(
    features: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    offset: Optional[Tensor],
    targets: Tensor,
    smoothing: float,
    chunk: Optional[int],
    active: Optional[int],
    wanted: Sequence[bool] = (False, False, False),
) -> Tuple[Tensor, Tensor, List[Optional[Tensor]]]:
    """The loss, the negative log-likelihood, and the loss's gradients in features, weight and bias where wanted."""
    (tokens, dim), rows = features.shape, len(weight)
    half = features.dtype in (torch.float16, torch.bfloat16)
    new = dict(dtype=torch.float32 if half else features.dtype, device=features.device)
    if chunk is None:
        chunk = max(1, chunk_bytes(features.device) // (rows * new["dtype"].itemsize))
    weight = weight.to(features.dtype)
    shift = torch.zeros(rows, **new)
    for term in (bias, offset):
        shift = shift if term is None else shift + term.to(**new)
    smooth = _Smoothing.of(smoothing, rows, offset, active, new) if smoothing else None

    shapes = ((tokens, dim), (rows, dim), (rows,))
    d_features, d_weight, d_bias = (torch.zeros(x, **new) if want else None for x, want in zip(shapes, wanted))
    nll, normalisers = torch.zeros((), **new), torch.zeros((), **new)
    memory = torch.empty(2, min(chunk, tokens), rows, **new)
    for first in range(0, tokens, chunk):
        part = slice(first, first + chunk)
        phi, y = features[part], targets[part].unsqueeze(1)
        scores, p = memory[:, : len(phi)]
        add_product(scores.copy_(shift), phi, weight.t())
        normaliser = log_normaliser(scores, p)
        normalisers += normaliser.sum()
        nll += (normaliser - scores.gather(1, y).squeeze(1)).sum()
        if any(wanted):
            d_scores = p.scatter_(1, y, p.gather(1, y) - (smooth.right if smooth else 1.0))
            d_phi = d_features[part] if wanted[0] else None
            _add_gradients(d_scores, phi, weight, (d_phi, d_weight, d_bias))
    for scaled in (d_features, d_weight):
        if half and scaled is not None:
            scaled /= GRADIENT_SCALE

    gradients = [d_features, d_weight, d_bias]
    loss = smooth.loss(features, weight, shift, nll, normalisers, gradients) if smooth else nll.clone()
    return loss, nll, gradients
