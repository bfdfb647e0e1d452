"""From a tokenised corpus to a table of word translation probabilities, by a word aligner that runs as a subprocess."""

from lv_fairseq.alignment.corpus import CorpusCounts, write_corpus
from lv_fairseq.alignment.program import ALIGNERS, Aligner, find_aligner
from lv_fairseq.alignment.run import SYMMETRIZATIONS, align

__all__ = ["ALIGNERS", "SYMMETRIZATIONS", "Aligner", "CorpusCounts", "align", "find_aligner", "write_corpus"]
