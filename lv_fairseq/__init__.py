"""Neural machine translation with very large vocabularies: a fairseq plug-in (``--user-dir lv_fairseq``).

Importing this package changes nothing outside it. With ``--user-dir`` fairseq imports what is in `tasks` and `models`
by itself, which registers everything; `register` does the same for a program of one's own.
"""

from lv_fairseq.errors import UserError
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.partitions import partition

__version__ = "0.2.0.dev0"
__all__ = ["Lexicon", "UserError", "partition", "register"]


def register() -> None:
    """Let fairseq know the tasks, the architectures and the criterion, as ``--user-dir lv_fairseq`` does."""
    import lv_fairseq.models.rnnsearch  # noqa: F401
    import lv_fairseq.tasks.lv_translation  # noqa: F401
    import lv_fairseq.tasks.lv_translation_from_pretrained_bart  # noqa: F401
    import lv_fairseq.tasks.lv_translation_multi_simple_epoch  # noqa: F401
