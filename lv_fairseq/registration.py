"""Registers the task, the architectures and the criterion with fairseq."""

from lv_fairseq import compat, errors

errors.show_in_one_line()
compat.keep_safe_loading()
compat.keep_every_sentence()
compat.copy_checkpoints_atomically()
compat.show_every_flag_in_help()
compat.answer_every_line()
compat.map_checkpoints()

from lv_fairseq import criterion, rnnsearch, task  # noqa: E402, F401
from lv_fairseq.word_tables import carry_rows, correct_late_rows  # noqa: E402

compat.meet_every_optimizer(lambda optimizer: (carry_rows(optimizer), correct_late_rows(optimizer)))
