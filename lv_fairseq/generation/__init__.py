"""Decoding over candidate lists, through fairseq's own search, and the replacement of unknown words."""

from lv_fairseq.generation.generator import AligningCandidateGenerator, CandidateGenerator, Candidates
from lv_fairseq.generation.unknown_alignment import ALIGNMENTS
from lv_fairseq.generation.unknown_words import RULES, OpenDictionary, replace_unknown

__all__ = [
    "ALIGNMENTS",
    "AligningCandidateGenerator",
    "CandidateGenerator",
    "Candidates",
    "OpenDictionary",
    "RULES",
    "replace_unknown",
]
