"""Candidate lists: which target words may translate a sentence (section 3.2 of the paper)."""

from lv_fairseq.candidates.common_list import ranking_from
from lv_fairseq.candidates.lists import CandidateLists

__all__ = ["CandidateLists", "ranking_from"]
