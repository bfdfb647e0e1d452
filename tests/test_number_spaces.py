"""Word numbers, page rows and list columns cannot be mixed up: `make lint` tells."""

import re

from conftest import run

USES = """
from lv_fairseq.word_tables import Page, ReadingTable, ScoringTable
from lv_fairseq.word_tables.columns import Columns
from lv_fairseq.word_tables.number_spaces import ListColumns, PageRows, WordNumbers

def use(
    words: WordNumbers, rows: PageRows, columns: ListColumns, page: Page, table: ScoringTable, lists: Columns,
    reading: ReadingTable,
) -> None:
    page.rows_of(words)
    page.rows_of(rows)  # wrong
    page.rows_of(columns)  # wrong
    page.rows_of(page.rows_of(words))  # wrong
    table.rows(words)
    table.rows(rows)  # wrong
    table.active(columns)  # wrong
    lists.words(columns)
    lists.words(words)  # wrong
    lists.words(rows)  # wrong
    lists.of_words(lists.words(columns))
    lists.of_words(columns)  # wrong
    reading.forward(rows)  # wrong
    reading.forward(words)
    reading.forward(columns)
"""


def test_numbers_of_one_kind_in_the_place_of_another_are_an_error(tmp_path):
    program = tmp_path / "uses.py"
    program.write_text(USES, encoding="utf-8")
    said = run("python", "-m", "mypy", "--no-pretty", program, check=False).stdout
    wrong = {number for number, line in enumerate(USES.split("\n"), start=1) if line.endswith("# wrong")}
    assert {int(x) for x in re.findall(r"uses\.py:(\d+): error: .* \[arg-type\]", said)} == wrong, said
    assert said.count(" error: ") == len(wrong), said
