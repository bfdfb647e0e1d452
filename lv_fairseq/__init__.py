"""Neural machine translation with very large vocabularies: a fairseq plug-in (``--user-dir lv_fairseq``).

Importing this package registers the task, the architectures and the criterion with fairseq.
"""

from lv_fairseq import compat

compat.keep_safe_loading()
compat.keep_every_sentence()
compat.copy_checkpoints_atomically()
compat.show_every_flag_in_help()

from lv_fairseq import criterion, rnnsearch, task  # noqa: E402, F401  (registration)
from lv_fairseq.errors import UserError  # noqa: E402, F401
from lv_fairseq.partitions import partition  # noqa: E402, F401
from lv_fairseq.word_tables import carry_rows, correct_late_rows  # noqa: E402

compat.meet_every_optimizer(lambda optimizer: (carry_rows(optimizer), correct_late_rows(optimizer)))

__version__ = "0.1.0"
