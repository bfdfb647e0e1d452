"""How much memory the words of a training need, as a formula: for its largest vocabulary, before it is begun."""

from typing import Iterable, NamedTuple

from lv_fairseq.word_tables.table_file import ALIGNED, BLOCK, up_to

FLOAT = INTEGER = 4  # bytes


class Rows(NamedTuple):
    """A parameter with a row for each word.

    Args:
        words: of its vocabulary
        numbers: in a row: the dimension of a vector, 1 for a bias
        page: how many rows train at a time
    """

    words: int
    numbers: int
    page: int


def bytes_of_machine(parameters: Iterable[Rows], statistics: int = 2, counts: int = 1) -> int:
    """Host memory for the rows of all words, once for all workers of a machine.

    Args:
        statistics: numbers that the optimiser keeps of each number: 2 for adam and adadelta, 1 for adagrad and nag
        counts: numbers that it keeps of each row: 1 for adam and adamax, else 0
    """
    return sum(FLOAT * p.words * (p.numbers * (1 + statistics) + counts) for p in parameters)


def bytes_of_files(parameters: Iterable[Rows], statistics: int = 2, counts: int = 1) -> int:
    """Disk space for the rows of all words in files, of which a word takes its part when it first comes. They need no
    memory of their own: the machine keeps there what was used last, as far as others leave room."""
    total = 0
    for p in parameters:
        record = (1 + statistics) * up_to(FLOAT * p.numbers, ALIGNED) + counts * up_to(FLOAT, ALIGNED)
        total += up_to(INTEGER * p.words, BLOCK) + up_to(p.words * record, BLOCK)
    return total


def bytes_of_worker(
    parameters: Iterable[Rows], vocabularies: Iterable[int], scored: int, statistics: int = 2, counts: int = 1
) -> int:
    """Memory of a worker's device for the rows of its pages, their gradients and statistics, and for what says which
    word is in which row. The rest of the model comes on top, as without pages.

    Args:
        vocabularies: how many words each of the pages chooses from
        scored: rows that the softmax runs over
    """
    rows = sum(FLOAT * p.page * (p.numbers * (2 + statistics) + counts) for p in parameters)
    return rows + INTEGER * sum(vocabularies) + FLOAT * scored
