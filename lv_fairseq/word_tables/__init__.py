"""Word vectors: how words enter a model and how they leave it, and the pages of them that train."""

from lv_fairseq.word_tables.adopt import Places, adopt, tables_of, to_be_drawn, to_be_loaded
from lv_fairseq.word_tables.file_home import FileHome
from lv_fairseq.word_tables.freezing import freeze
from lv_fairseq.word_tables.homes import Home, SharedHome
from lv_fairseq.word_tables.late_rows import correct_late_rows
from lv_fairseq.word_tables.optimizer_rows import carry_rows
from lv_fairseq.word_tables.page import Page
from lv_fairseq.word_tables.table import ReadingTable, ScoringTable, Tables, searching
from lv_fairseq.word_tables.workers import ALONE, Workers

__all__ = [
    "ALONE",
    "FileHome",
    "Home",
    "Page",
    "Places",
    "ReadingTable",
    "ScoringTable",
    "SharedHome",
    "Tables",
    "Workers",
    "adopt",
    "carry_rows",
    "correct_late_rows",
    "freeze",
    "searching",
    "tables_of",
    "to_be_drawn",
    "to_be_loaded",
]
