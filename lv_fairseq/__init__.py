"""Neural machine translation with very large vocabularies: a fairseq plug-in (``--user-dir lv_fairseq``).

Importing this package registers the task, the architectures and the criterion with fairseq.
"""

import os
import sys
from importlib.util import find_spec

from lv_fairseq.errors import UserError
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.partitions import partition

__version__ = "0.2.0.dev0"
__all__ = ["Lexicon", "UserError", "partition"]

# Importing torch and fairseq takes seconds: a command that needs neither does not wait for them, and a lexicon can be
# used where fairseq is not installed.
WITHOUT_FAIRSEQ = ("lv-coverage", "lv-lexicon", "lv-report", "prepare", "run_experiment.py", "score")
if os.path.basename(getattr(sys, "argv", [""])[0]) not in WITHOUT_FAIRSEQ and find_spec("fairseq") is not None:
    from lv_fairseq import registration  # noqa: F401
