"""Neural machine translation with very large vocabularies: a fairseq plug-in (``--user-dir lv_fairseq``).

Importing this package registers the task, the architectures and the criterion with fairseq.
"""

from lv_fairseq import compat

compat.keep_safe_loading()
compat.keep_every_sentence()
compat.show_every_flag_in_help()

from lv_fairseq import rnnsearch, task  # noqa: E402, F401  (registration)
from lv_fairseq.errors import UserError  # noqa: E402, F401

__version__ = "0.1.0"
