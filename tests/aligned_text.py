"""Sentences with a known dictionary, for tests of aligners."""

import collections
import os
import random
import sys
from pathlib import Path

import pytest

from lv_fairseq.alignment import write_corpus

# the first lines of a Python program that is called by its name: as pip writes them, since the path may hold a space
PYTHON = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


def known_corpus(folder: Path, pairs: int = 500, words: int = 60):
    """Sentences of made-up words, translated word by word with some noise; gives the dictionary and the corpus."""
    chance = random.Random(1)
    dictionary = {f"s{i}": f"t{i}" for i in range(words)}
    sources, targets = [], []
    for _ in range(pairs):
        # Zipf-like, so that some words are rare
        source = [f"s{min(int(chance.paretovariate(0.7)) - 1, words - 1)}" for _ in range(chance.randint(3, 9))]
        source = [word if chance.random() < 0.6 else f"s{chance.randrange(words)}" for word in source]
        target = [dictionary[word] for word in source if chance.random() > 0.05]
        if chance.random() < 0.3:
            target.insert(chance.randrange(len(target) + 1), f"t{chance.randrange(words)}")
        if len(target) > 1 and chance.random() < 0.3:
            i = chance.randrange(len(target) - 1)
            target[i : i + 2] = reversed(target[i : i + 2])
        sources.append(" ".join(source))
        targets.append(" ".join(target or ["t0"]))
    (folder / "src").write_text("\n".join(sources) + "\n")
    (folder / "tgt").write_text("\n".join(targets) + "\n")
    counts = write_corpus(folder / "src", folder / "tgt", folder / "corpus")
    return dictionary, counts


def read_table(path: Path):
    """Of each source word: target words and ln p, best first."""
    table = collections.defaultdict(list)
    for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
        source, target, log_p = line.split("\t")
        table[source].append((float(log_p), target))
    return {source: sorted(rows, reverse=True) for source, rows in table.items()}
