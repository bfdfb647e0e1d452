"""``--reshuffle-partitions``: another order of the sentences every epoch, and so other partitions."""

import numpy as np


def training_order(sentences: int, reshuffle: bool, seed: int, epoch: int) -> np.ndarray:
    """Sentence numbers in the order in which they are cut into partitions: that of the corpus, or a new one. A function
    of seed and epoch alone, so that every worker and a resumed run have the same."""
    order = np.arange(sentences)
    return np.random.default_rng([seed, epoch]).permutation(order) if reshuffle else order
