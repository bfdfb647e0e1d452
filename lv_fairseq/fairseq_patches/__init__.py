"""What we change in fairseq (0.12.3.1, from PyPI as ``fairseq-fixed``), each change with its reason."""

from functools import cache

from lv_fairseq.errors import show_in_one_line
from lv_fairseq.fairseq_patches import checkpoints, commands, half_precision, readers, settings, training, workers
from lv_fairseq.fairseq_patches.checkpoints import copy_checkpoints, keep_beside, opening, overrides
from lv_fairseq.fairseq_patches.training import meet_every_optimizer

__all__ = ["apply", "copy_checkpoints", "keep_beside", "meet_every_optimizer", "opening", "overrides"]


@cache
def apply() -> None:
    """All that needs nothing else of this package, once."""
    show_in_one_line()
    commands.show_every_flag_in_help()
    commands.leave_out_warnings_of_hydra()
    commands.name_wrong_flags()
    commands.answer_every_line()
    checkpoints.load_safely()
    checkpoints.name_unusable_files()
    checkpoints.write_whole()
    settings.run_no_code()
    training.keep_every_sentence()
    readers.let_readers_end()
    half_precision.leave_single_precision_alone()
    half_precision.load_statistics_as_saved()
    half_precision.resume_exactly()
    half_precision.share_gradients_unrounded()
    half_precision.unscale_once()
    half_precision.skip_overflows_on_a_cpu()
    half_precision.need_no_tpu_for_bf16()
    workers.start_anywhere()
    commands.stop_in_order()
    workers.average_gradients_on_cpus()
    workers.let_each_read_checkpoints()
