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
    common: Union[int, Tensor],
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
        common: words that are on every list, sorted; a number stands for all words below it
        others: of each sentence, the other words of its list, sorted
        rows: gives weight and bias of words, by slice or by numbers
        unknown: number of the unknown word: a special symbol, whose place among the common words is its number
        smoothing: fairseq's label smoothing, over the list
    """
    loss, nll, outside = (features[0].new_zeros((), dtype=torch.float32) for _ in range(3))
    common_rows = rows(slice(common) if isinstance(common, int) else common)
    count = common if isinstance(common, int) else len(common)
    for sentence, right, words in zip(features, targets, others):
        scores = torch.cat([F.linear(sentence, *common_rows), F.linear(sentence, *rows(words))], dim=-1)
        log_probs = F.log_softmax(scores, dim=-1, dtype=torch.float32)
        first = right if isinstance(common, int) else sorted_places(common, right, count)
        column = torch.where(first < count, first, count + sorted_places(words, right, len(words)))
        missing = column == count + len(words)
        outside += missing.sum()
        right_nll = -log_probs.gather(1, torch.where(missing, unknown, column).unsqueeze(1)).sum()
        eps = smoothing / max(log_probs.size(1) - 1, 1)
        loss += (1 - smoothing - eps) * right_nll - eps * log_probs.sum() if smoothing else right_nll
        nll += right_nll
    return loss, nll, outside


def sorted_places(words: Tensor, wanted: Tensor, missing: int) -> Tensor:
    """Where each wanted word stands among sorted ones, ``missing`` for one that is not there."""
    if not len(words):
        return torch.full_like(wanted, missing)
    places = torch.searchsorted(words, wanted).clamp(max=len(words) - 1)
    return torch.where(words[places] == wanted, places, missing)
