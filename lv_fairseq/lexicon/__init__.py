"""The bilingual lexicon: for each source word its most likely translations."""

from lv_fairseq.lexicon.lexicon import Lexicon

__all__ = ["Lexicon"]
