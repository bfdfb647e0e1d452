"""Word vectors: how words enter a model and how they leave it."""

from lv_fairseq.word_tables.table import WordTable

__all__ = ["WordTable"]
