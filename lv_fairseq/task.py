"""``--task lv_translation``: fairseq's translation task, connected to the rest of this package."""

import os
from dataclasses import dataclass, field

from fairseq import utils
from fairseq.data import data_utils
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from lv_fairseq.batching.look_ahead import LookAheadDataset
from lv_fairseq.errors import UserError


@dataclass
class LVTranslationConfig(TranslationConfig):
    sort_window: int = field(
        default=0,
        metadata={
            "help": "training sentences read ahead and sorted by length together (the paper's 20 batches of 80: 1600); "
            "0 = sort the whole corpus, as fairseq does"
        },
    )


@register_task("lv_translation", dataclass=LVTranslationConfig)
class LVTranslationTask(TranslationTask):
    """With none of its own flags it behaves like ``--task translation``, and says in one line what is wrong."""

    cfg: LVTranslationConfig

    @classmethod
    def setup_task(cls, cfg: LVTranslationConfig, **kwargs) -> "LVTranslationTask":
        check_data(cfg)
        return super().setup_task(cfg, **kwargs)

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except FileNotFoundError as error:
            raise UserError(f"{error}: make it with fairseq-preprocess, or name another subset") from None
        if self.cfg.sort_window > 0 and split == self.cfg.train_subset:
            self.datasets[split] = LookAheadDataset(self.datasets[split], self.cfg.sort_window)

    def filter_indices_by_size(self, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        try:
            return super().filter_indices_by_size(indices, dataset, max_positions, ignore_invalid_inputs)
        except Exception as error:  # upstream raises a bare Exception with a helpful text
            raise UserError(str(error)) from None


def check_data(cfg: LVTranslationConfig) -> None:
    """Say what is missing before fairseq runs into it."""
    if cfg.sort_window < 0:
        raise UserError(f"--sort-window must be 0 or more, not {cfg.sort_window}")
    folder = utils.split_paths(cfg.data)[0]
    if not os.path.isdir(folder):
        raise UserError(f"there is no data folder {folder}: make it with fairseq-preprocess --destdir {folder}")
    source, target = cfg.source_lang, cfg.target_lang
    if source is None or target is None:
        source, target = data_utils.infer_language_pair(folder)
        if source is None or target is None:
            raise UserError(
                f"{folder} holds no binarised sentence pairs: make them with fairseq-preprocess --destdir {folder}, "
                "or name the languages with --source-lang and --target-lang"
            )
    for language in (source, target):
        path = os.path.join(folder, f"dict.{language}.txt")
        if not os.path.isfile(path):
            raise UserError(f"there is no dictionary {path}: fairseq-preprocess writes it beside the data")
