"""Decoding: candidate lists under fairseq's own search, and the replacement of unknown words after it."""

from lv_fairseq.decoding.decoding import Decoding
from lv_fairseq.decoding.unknown_words import RULES, OpenDictionary

__all__ = ["Decoding", "OpenDictionary", "RULES"]
