"""How much of a text its most frequent words make up: the paper's Table 1."""

from lv_fairseq.corpus_coverage.counting import TextCounts, count_words, coverage

__all__ = ["TextCounts", "count_words", "coverage"]
