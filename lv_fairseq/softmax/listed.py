"""Cross entropy over the candidate list of each sentence."""

from typing import Callable, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

Rows = Callable[[Union[slice, Tensor]], Tuple[Tensor, Optional[Tensor]]]


@torch.no_grad()
def listed_cross_entropy(
    features: Sequence[Tensor],
    targets: Sequence[Tensor],
    common: int,
    others: Sequence[Tensor],
    rows: Rows,
    unknown: int,
    smoothing: float = 0.0,
) -> Tuple[Tensor, Tensor, Tensor]:
    """The loss and the negative log-likelihood of the right words, summed over tokens, and how many are on no list.

    A word that is not on its sentence's list counts as the unknown word, which a decoder would have to write.

    Args:
        features: of each sentence, tokens x dim
        targets: of each sentence, the numbers of the right words (tokens)
        common: words with a smaller number are on every list
        others: of each sentence, the other words of its list, sorted
        rows: gives weight and bias of words, by slice or by numbers
        unknown: number of the unknown word
        smoothing: fairseq's label smoothing, over the list
    """
    loss, nll, outside = (features[0].new_zeros(()) for _ in range(3))
    common_rows = rows(slice(common))
    for sentence, right, words in zip(features, targets, others):
        scores = torch.cat([F.linear(sentence, *common_rows), F.linear(sentence, *rows(words))], dim=-1)
        log_probs = F.log_softmax(scores, dim=-1, dtype=torch.float32)
        places = torch.searchsorted(words, right).clamp(max=max(len(words) - 1, 0))
        listed = words[places] == right if len(words) else torch.zeros_like(right, dtype=torch.bool)
        column = torch.where(right < common, right, torch.where(listed, common + places, unknown))
        outside += ((right >= common) & ~listed).sum()
        right_nll = -log_probs.gather(1, column.unsqueeze(1)).sum()
        eps = smoothing / max(log_probs.size(1) - 1, 1)
        loss += (1 - smoothing - eps) * right_nll - eps * log_probs.sum() if smoothing else right_nll
        nll += right_nll
    return loss, nll, outside
