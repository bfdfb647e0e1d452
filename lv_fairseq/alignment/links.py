"""Counts the links of aligned sentences and writes their relative frequencies as a table like the aligner's own."""

import array
import itertools
from pathlib import Path
from typing import Callable, Optional, Set

import numpy as np

from lv_fairseq.alignment.symmetrize import MASK, SHIFT, parse
from lv_fairseq.errors import UserError

BUFFER = 1 << 22  # links between two merges into the counts
BLOCK = 1 << 18  # rows of the table that are text at a time
TOLD = 5000  # sentences after which progress is told


class WordNumbers(dict):
    """Numbers words in the order in which they are first asked for."""

    def __missing__(self, word: bytes) -> int:
        self[word] = number = len(self)
        return number


class LinkCounts:
    """How often each pair of words is linked.

    A pair is ``source << 32 | target``. Takes 16 bytes a pair of words, three times that while merging.
    """

    def __init__(self):
        self.pairs = np.zeros(0, dtype=np.int64)  # sorted, each once
        self.counts = np.zeros(0, dtype=np.int64)
        self.buffer = array.array("q")

    def add(self, pairs) -> None:
        self.buffer.extend(pairs)
        if len(self.buffer) >= BUFFER:
            self.merge()

    def merge(self) -> None:
        new, counts = np.unique(np.array(self.buffer, dtype=np.int64), return_counts=True)
        del self.buffer[:]
        places = np.searchsorted(self.pairs, new)
        known = np.zeros(len(new), dtype=bool)
        inside = places < len(self.pairs)
        known[inside] = self.pairs[places[inside]] == new[inside]
        self.counts[places[known]] += counts[known]
        self.pairs = np.insert(self.pairs, places[~known], new[~known])
        self.counts = np.insert(self.counts, places[~known], counts[~known])


def write_table(
    corpus: Path,
    forward: Path,
    reverse: Path,
    symmetrize: Callable[[Set[int], Set[int]], Set[int]],
    table: Path,
    name: str,
    pairs: int,
    progress: Optional[Callable[[float], None]] = None,
) -> None:
    """Rows ``source TAB target TAB ln p``, where p is the share of this target among all links of the source word.

    Args:
        corpus: lines ``a b ||| x y``
        forward: lines ``0-0 1-1``, source position first
        reverse: the same, source position first too
        symmetrize: one set of links from two
        table: is written
        name: of the aligner, for messages
        pairs: lines of the corpus
        progress: is told now and then which fraction is done
    """
    words = WordNumbers(), WordNumbers()  # source, target
    links = count_links(corpus, forward, reverse, symmetrize, words, name, pairs, progress)
    if len(links.pairs) == 0:
        raise UserError(f"{name} has linked no words at all")
    try:
        write_rows(links, words, table)
    except OSError as error:
        raise UserError(f"cannot write {table}: {error.strerror}") from None


def count_links(corpus, forward, reverse, symmetrize, words, name, pairs, progress) -> LinkCounts:
    source_words, target_words = words
    links = LinkCounts()
    with open(corpus, "rb") as texts, open(forward, "rb") as forwards, open(reverse, "rb") as reverses:
        lines = itertools.zip_longest(texts, forwards, reverses)
        for number, (text, one, other) in enumerate(lines, start=1):
            if text is None or one is None or other is None:
                raise UserError(f"{name} did not align all {pairs:,} pairs, and no others: is the disk full?")
            source, _, target = text.partition(b" ||| ")
            sources = list(map(source_words.__getitem__, source.split()))
            targets = list(map(target_words.__getitem__, target.split()))
            try:
                links.add(
                    [
                        sources[link >> SHIFT] << 32 | targets[link & MASK]
                        for link in symmetrize(parse(one), parse(other))
                    ]
                )
            except (ValueError, IndexError):
                raise UserError(f"{name} wrote something that is no alignment of pair {number:,}") from None
            if progress is not None and number % TOLD == 0:
                progress(number / pairs)
    links.merge()
    return links


def write_rows(links: LinkCounts, words, table: Path) -> None:
    source_words, target_words = ([word.decode() for word in side] for side in words)
    blocks = [slice(begin, begin + BLOCK) for begin in range(0, len(links.pairs), BLOCK)]
    totals = np.zeros(len(source_words))  # links of each source word
    for block in blocks:
        totals += np.bincount(links.pairs[block] >> 32, links.counts[block], minlength=len(totals))
    with open(table, "w", encoding="utf-8", newline="\n") as out:
        for block in blocks:
            sources, targets = links.pairs[block] >> 32, links.pairs[block] & 0xFFFFFFFF
            log_p = np.log(links.counts[block] / totals[sources])
            rows = zip(sources.tolist(), targets.tolist(), log_p.tolist())
            out.write("".join([f"{source_words[s]}\t{target_words[t]}\t{p:.6g}\n" for s, t, p in rows]))
