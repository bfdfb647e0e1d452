"""Word vectors: how words enter a model and how they leave it, and the pages of them that train."""

from lv_fairseq.word_tables.late_rows import correct_late_rows
from lv_fairseq.word_tables.optimizer_rows import carry_rows
from lv_fairseq.word_tables.page import Page
from lv_fairseq.word_tables.table import WordTable, need_tables

__all__ = ["Page", "WordTable", "carry_rows", "correct_late_rows", "need_tables"]
