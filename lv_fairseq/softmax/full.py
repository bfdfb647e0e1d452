"""Cross entropy over the whole vocabulary V, whose rows pass through the memory chunk by chunk."""

from typing import Iterable, Optional, Tuple

import torch
from torch import Tensor

from lv_fairseq.softmax.tau import add_product, chunk_bytes, log_normaliser

Chunk = Tuple[int, Tensor, Optional[Tensor]]  # the first word's number, weight (rows x dim), bias (rows)


@torch.no_grad()
def full_cross_entropy(
    features: Tensor, chunks: Iterable[Chunk], targets: Tensor, smoothing: float = 0.0
) -> Tuple[Tensor, Tensor]:
    """The loss and the negative log-likelihood of the right words among all words, summed over tokens.

    The scores that are in memory at a time take about `chunk_bytes`, however many words there are.

    Args:
        features: tokens x dim; half precision is raised to single
        chunks: the rows of every word, once, on any device and in any order; see `ScoringTable.chunks`
        targets: tokens: the number of the right word; every token counts. NaN comes back if a word is in no chunk
        smoothing: fairseq's label smoothing
    """
    with torch.autocast(features.device.type, enabled=False):
        features = features.to(torch.promote_types(features.dtype, torch.float32))
        normaliser = features.new_full((len(features),), float("-inf"))  # log sum_k exp(score_k), of words so far
        right_score = features.new_full((len(features),), float("nan"))
        feature_sum, all_scores, words = features.sum(dim=0), features.new_zeros(()), 0
        for first, weight, bias in chunks:
            weight = weight.to(features, non_blocking=True)
            bias = features.new_zeros(len(weight)) if bias is None else bias.to(features, non_blocking=True)
            words += len(weight)
            if smoothing:
                all_scores += feature_sum.dot(weight.sum(dim=0)) + len(features) * bias.sum()
            block = max(1, chunk_bytes(features.device) // (len(weight) * features.dtype.itemsize))
            memory = features.new_empty(2, min(block, len(features)), len(weight))
            for start in range(0, len(features), block):
                part = slice(start, start + block)
                scores, probabilities = memory[:, : len(features[part])]
                add_product(scores.copy_(bias), features[part], weight.t())
                here = log_normaliser(scores, probabilities)
                normaliser[part] = torch.logaddexp(normaliser[part], here)
                row = targets[part] - first
                score = scores.gather(1, row.clamp(0, len(weight) - 1).unsqueeze(1)).squeeze(1)
                inside = (row >= 0) & (row < len(weight))
                right_score[part] = torch.where(inside, score, right_score[part])
        nll = (normaliser - right_score).sum()
        if not smoothing:
            return nll, nll.clone()
        eps = smoothing / max(words - 1, 1)
        return (1 - words * eps) * nll + eps * (words * normaliser.sum() - all_scores), nll
