"""A released model without the words that nobody needs, and the way back: from files to files."""

from lv_fairseq.trim.merge import merge
from lv_fairseq.trim.trim import trim

__all__ = ["merge", "trim"]
