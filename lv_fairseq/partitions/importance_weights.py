"""The importance weights of the paper's softmax over a partition: exp(-log Q) for a proposal Q that is not uniform."""

import numpy as np

from lv_fairseq.partitions.plan import PartitionPlan, Sentences


def log_importance(plan: PartitionPlan, targets: Sentences, partition: int) -> np.ndarray:
    """-log Q_i(y) for each word of a partition (words), Q_i being the frequencies of words in it (``unigram``).

    A special symbol that does not occur there is no sample of Q_i: it takes no part in the softmax.
    """
    words = plan.target_words[partition]
    sentences = plan.order[plan.bounds[partition] : plan.bounds[partition + 1]]
    tokens = np.concatenate([targets.tokens[slice(*targets.starts[i : i + 2])] for i in sentences])
    counts = np.bincount(np.searchsorted(words, tokens), minlength=len(words))
    offset = np.full(len(words), -np.inf, dtype=np.float32)
    offset[counts > 0] = -np.log(counts[counts > 0] / counts.sum())
    return offset
