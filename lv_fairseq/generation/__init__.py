"""Decoding over candidate lists, through fairseq's own search, and the replacement of unknown words."""

from lv_fairseq.generation.generator import AligningCandidateGenerator, CandidateGenerator
from lv_fairseq.generation.source_text import SourceText
from lv_fairseq.generation.unknown_words import RULES, OpenDictionary, replace_unknown

__all__ = [
    "AligningCandidateGenerator",
    "CandidateGenerator",
    "OpenDictionary",
    "RULES",
    "SourceText",
    "replace_unknown",
]
