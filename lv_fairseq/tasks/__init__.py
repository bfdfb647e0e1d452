"""The tasks that fairseq finds here: ``fairseq.utils.import_user_module`` imports every file of this folder.

Before the first one, fairseq is changed where it must be, and knows the criterion, for which it has no such folder.
"""

from lv_fairseq import fairseq_patches
from lv_fairseq.word_tables import carry_rows, correct_late_rows, stored_tables

fairseq_patches.apply()
ANEW = "start the optimiser anew with --reset-optimizer (after --freeze-word-tables, say)"
fairseq_patches.meet_every_optimizer(lambda optimizer: (carry_rows(optimizer, ANEW), correct_late_rows(optimizer)))
fairseq_patches.keep_beside(stored_tables.store, stored_tables.fetch, stored_tables.tidy)

import lv_fairseq.criterions.partition_cross_entropy  # noqa: E402, F401
