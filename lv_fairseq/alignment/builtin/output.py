"""What the aligner writes: alignments, and its table, in fast_align's formats."""

import os
from typing import Optional, TextIO

import numpy as np

from .model import Model
from .text import Text

NULL_NAME = "<eps>"
BLOCK = 10000  # pairs that are text at a time
SMALLEST = np.log(np.finfo(np.float64).tiny)  # what is less likely is not in the table


def wanted(file: Optional[TextIO]) -> bool:
    """Whether somebody reads what is written: a pass over the corpus can be saved if it is the null device, or closed
    (None)."""
    return file is not None and os.fstat(file.fileno()).st_rdev != os.stat(os.devnull).st_rdev


def print_alignments(text: Text, positions: np.ndarray, reverse: bool, out: TextIO) -> None:
    """A line a pair, in the order of the corpus: links ``source-target``, positions from 0.

    ``positions`` [predicted tokens], in the order of the text, are counted from 1; 0: no link.
    """
    lengths = text.predicted.lengths
    starts = np.zeros(text.pairs, dtype=np.int64)  # first token of each pair
    starts[text.order] = np.cumsum(lengths[text.order], dtype=np.int64) - lengths[text.order]
    for begin in range(0, text.pairs, BLOCK):
        lines = []
        for start, length in zip(starts[begin : begin + BLOCK].tolist(), lengths[begin : begin + BLOCK].tolist()):
            links = enumerate(positions[start : start + length].tolist())
            if reverse:
                lines.append(" ".join([f"{j}-{i - 1}" for j, i in links if i]))
            else:
                lines.append(" ".join([f"{i - 1}-{j}" for j, i in links if i]))
        lines.append("")
        out.write("\n".join(lines))


def write_table(model: Model, threshold: float, out: TextIO) -> None:
    """Rows ``given TAB predicted TAB ln t`` of entries with ln t >= -threshold * ln(best t of this given word)."""
    predicted = [word.decode() for word in model.text.predicted.words]
    given = [word.decode() for word in model.text.given.words]
    log_t = model.null_log_t()
    rows = np.flatnonzero(log_t >= least(log_t.max(), threshold))
    write_rows([NULL_NAME] * len(rows), predicted, rows, log_t[rows], out)

    starts = model.entries.starts
    best = np.full(len(given), -np.inf)  # ln t of each given word
    for some, log_t in model.log_t():
        words = given_words(starts, some)
        heads = np.flatnonzero(np.append(True, np.diff(words)))
        best[words[heads]] = np.maximum(best[words[heads]], np.maximum.reduceat(log_t, heads))
    lowest = least(best, threshold)
    for some, log_t in model.log_t():
        words = given_words(starts, some)
        kept = np.flatnonzero(log_t >= lowest[words])
        names = [given[word] for word in words[kept].tolist()]
        write_rows(names, predicted, model.entries.predicted[some][kept], log_t[kept], out)


def least(best, threshold: float):
    """A little more than certain is certain."""
    return np.maximum(SMALLEST, -threshold * np.minimum(best, 0.0))


def given_words(starts: np.ndarray, entries: slice) -> np.ndarray:
    """Of each of these entries the given word."""
    first, last = np.searchsorted(starts, [entries.start, entries.stop - 1], side="right") - 1
    inside = np.clip(starts[first : last + 2], entries.start, entries.stop)
    return np.repeat(np.arange(first, last + 1), np.diff(inside))


def write_rows(given, predicted, rows: np.ndarray, log_t: np.ndarray, out: TextIO) -> None:
    texts = np.minimum(log_t, 0.0).tolist()
    out.write("".join([f"{s}\t{predicted[t]}\t{p:.6g}\n" for s, t, p in zip(given, rows.tolist(), texts)]))
