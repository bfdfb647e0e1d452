"""What results.json says of a training text."""

from pathlib import Path
from typing import Dict

from lv_fairseq.corpus_coverage import count_words, coverage

SIZES = (1000, 5000, 15000, 30000, 50000, 500000)  # of vocabularies, the paper's and smaller ones


def corpus_figures(source: Path, target: Path) -> Dict:
    """Sizes of the training text, and the paper's coverage table."""
    result: Dict = {}
    for side, text in (("source", source), ("target", target)):
        counts = count_words(text)
        shares = coverage(counts, [size for size in SIZES if size < counts.types])
        shares = {str(size): share for size, share in shares.items()}
        result[side] = {"tokens": counts.tokens, "types": counts.types, "coverage": shares}
        result["pairs"] = counts.sentences
    return result
