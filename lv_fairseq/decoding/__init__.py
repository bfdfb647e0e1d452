"""Decoding: candidate lists under fairseq's own search, and the replacement of unknown words after it."""

from lv_fairseq.decoding.decoding import Decoding
from lv_fairseq.decoding.unknown_alignment import ALIGNMENTS
from lv_fairseq.decoding.unknown_words import RULES, OpenDictionary

__all__ = ["ALIGNMENTS", "Decoding", "OpenDictionary", "RULES"]
