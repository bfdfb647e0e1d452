"""Cross entropy over the rows of a page: the words V'_i of a partition, in place of all words V.

With a proposal distribution Q the paper's gradient is

    grad log p(y_t) = grad E(y_t) - sum_k omega_k / sum_k' omega_k' grad E(y_k),   omega_k = exp(E(y_k) - log Q(y_k))

which is the gradient of ordinary cross entropy over the scores E(y_k) + offset_k: the offset is 0 for a uniform Q,
-log Q(y_k) for another one, and -inf for a spare row, which holds no word.

Scores of a whole batch (tokens x rows) would fill the memory. Here they exist for one chunk of tokens at a time. The
gradients are therefore computed along with the loss, and the backward pass only multiplies them.
"""

from typing import List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_BYTES = 24 << 20  # of the scores of a chunk: less makes slow matrix products, more leaves the cache

# Half precision reaches from 6e-8 to 65504. Gradients of scores, within [-1, 1], are multiplied by the first before
# they are rounded to it, and features divided by the second before they meet those.
GRADIENT_SCALE, FEATURE_SCALE = 256.0, 16.0


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
        chunk: how many tokens' scores are in memory at a time (default: those that take `CHUNK_BYTES`)
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
    """total += a b, in place; the factors may be in half precision while the total is in single."""
    return total.addmm_(a, b) if total.dtype == a.dtype else total.add_(torch.mm(a, b))


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
    """The loss, the negative log-likelihood, and the loss's gradients in features, weight and bias where wanted.

    With A active rows and eps = smoothing / (A - 1), fairseq's smoothed loss is

        (1 - A eps) nll - eps sum_k log p_k,   with the gradient   p_k - eps - (1 - A eps) [k is right]

    in the score of an active row k. What eps brings in needs sums over rows and over tokens, but no scores.
    """
    (tokens, dim), rows = features.shape, len(weight)
    new = dict(dtype=torch.float32 if is_half(features) else features.dtype, device=features.device)
    if chunk is None:
        chunk = max(1, CHUNK_BYTES // (rows * new["dtype"].itemsize))
    weight = weight.to(features.dtype)
    shift = torch.zeros(rows, **new)
    for term in (bias, offset):
        shift = shift if term is None else shift + term.to(**new)
    eps, right = 0.0, 1.0  # right: 1 - A eps
    if smoothing:
        used = torch.ones(rows, **new) if offset is None else (offset > float("-inf")).to(**new)
        count = used.sum() if active is None else torch.full((), active, **new)
        eps = smoothing / (count - 1).clamp_(min=1)
        right = 1 - count * eps

    d_features = torch.zeros(tokens, dim, **new) if wanted[0] else None
    d_weight = torch.zeros(rows, dim, **new) if wanted[1] else None
    d_bias = torch.zeros(rows, **new) if wanted[2] else None
    gradients = [d_features, d_weight, d_bias]
    nll, normalisers = _add_gradients(features, weight, shift, targets, right, chunk, gradients)

    loss = nll.clone()
    if smoothing:
        weight_sum, feature_sum = torch.mv(weight.t().to(**new), used), features.sum(dim=0, dtype=new["dtype"])
        all_scores = weight_sum.dot(feature_sum) + tokens * shift.masked_fill(used == 0, 0.0).sum()
        loss = right * nll + eps * (count * normalisers - all_scores)
        if d_features is not None:
            d_features -= eps * weight_sum
        if d_weight is not None:
            d_weight.addr_(-eps * used, feature_sum)
        if d_bias is not None:
            d_bias -= tokens * eps * used
    return loss, nll, gradients


def _add_gradients(
    features: Tensor,
    weight: Tensor,
    shift: Tensor,
    targets: Tensor,
    right: Union[float, Tensor],
    chunk: int,
    gradients: Sequence[Optional[Tensor]],
) -> Tuple[Tensor, Tensor]:
    """Adds to the gradients that are not None what p_k - right [k is right] brings, a chunk of tokens at a time.

    Args:
        shift: rows: bias and offset
        right: what the right word's score gets; 1 without smoothing
        gradients: in features, weight and bias

    Returns: the negative log-likelihood and the logarithms of the normalisers, each summed over tokens.
    """
    d_features, d_weight, d_bias = gradients
    half, tokens = is_half(features), len(features)
    nll, normalisers = shift.new_zeros(()), shift.new_zeros(())
    memory = shift.new_empty(2, min(chunk, tokens), len(weight))
    ones = shift.new_ones(memory.size(1))
    for first in range(0, tokens, chunk):
        part = slice(first, first + chunk)
        phi, y = features[part], targets[part].unsqueeze(1)
        scores, p = memory[:, : len(phi)]
        add_product(scores.copy_(shift), phi, weight.t())
        normaliser = log_normaliser(scores, p)
        normalisers += normaliser.sum()
        nll += (normaliser - scores.gather(1, y).squeeze(1)).sum()
        if all(gradient is None for gradient in gradients):
            continue
        d_scores = p.scatter_(1, y, p.gather(1, y) - right)
        if d_bias is not None:
            d_bias.addmv_(d_scores.t(), ones[: len(phi)])
        if half:
            d_scores, phi = (d_scores * GRADIENT_SCALE).to(phi.dtype), phi / FEATURE_SCALE
        if d_features is not None:
            add_product(d_features[part], d_scores, weight)
        if d_weight is not None:
            add_product(d_weight, d_scores.t(), phi)
    if half and d_features is not None:
        d_features /= GRADIENT_SCALE
    if half and d_weight is not None:
        d_weight /= GRADIENT_SCALE / FEATURE_SCALE
    return nll, normalisers


def is_half(x: Tensor) -> bool:
    return x.dtype in (torch.float16, torch.bfloat16)
