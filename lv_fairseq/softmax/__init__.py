"""The cost of a word: over the rows of a page while training, over all of V in validation (paper, 3.2)."""

from lv_fairseq.softmax.full import full_cross_entropy
from lv_fairseq.softmax.listed import listed_cross_entropy
from lv_fairseq.softmax.tau import limited_cross_entropy

__all__ = ["full_cross_entropy", "limited_cross_entropy", "listed_cross_entropy"]
