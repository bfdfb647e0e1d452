"""``--task lv_translation_multi_simple_epoch``: fairseq's task for NLLB-200, M2M-100 and mBART-50, with very large
vocabularies."""

from typing import List, Optional

from fairseq import utils
from fairseq.data.multilingual.multilingual_utils import get_lang_tok
from fairseq.tasks import register_task
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from lv_fairseq.data_folder import check_folder
from lv_fairseq.decoding.source_text import Frame
from lv_fairseq.errors import UserError
from lv_fairseq.language_tokens import LanguageTokens
from lv_fairseq.task_config import add_options


@register_task("lv_translation_multi_simple_epoch")
class LVTranslationMultiSimpleEpochTask(LanguageTokens, TranslationMultiSimpleEpochTask):
    """Before its words a sentence has a language token (--encoder-langtok, --decoder-langtok), or it is the source's
    end and what a translation begins with (--lang-tok-replacing-bos-eos)."""

    @staticmethod
    def add_args(parser):
        TranslationMultiSimpleEpochTask.add_args(parser)
        add_options(parser)

    @classmethod
    def check_data(cls, cfg) -> None:
        for folder in utils.split_paths(cfg.data):
            check_folder(folder)
        refused = {
            "--hide-rare-words": cfg.hide_rare_words,
            "--sort-window without --tau": cfg.sort_window and not cfg.tau,
            "--virtual-epoch-size with --tau": cfg.tau and cfg.virtual_epoch_size,
        }
        for flag in (flag for flag, given in refused.items() if given):
            raise UserError(f"{flag} does not work with data of several language pairs: leave it out")

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        try:
            super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
        except KeyError as error:  # of fairseq's table of shards, by kind of data and language pair
            if not str(error.args[0]).startswith("main:"):
                raise
            pair = error.args[0].partition(":")[2]
            raise UserError(f"there is no {split} data of {pair} in {self.cfg.data}: binarise it first") from None

    @property
    def source_frame(self) -> Frame:
        before = self.args.langtoks["main"][0] and not self.args.lang_tok_replacing_bos_eos
        return Frame(before=int(bool(before)))

    def tokens(self, language: str) -> List[str]:
        return [get_lang_tok(language, self.args.lang_tok_style, spec) for spec in self.args.langtoks_specs]

    def target_marks(self) -> List[int]:
        specs = {target for _, target in self.args.langtoks.values() if target}
        found = {self.data_manager.get_decoder_langtok(x, spec) for x in self.target_langs for spec in specs}
        return sorted(found)

    @property
    def first_target_word(self) -> Optional[int]:
        spec = self.args.langtoks["main"][1]
        if self.training or not spec or not self.args.lang_tok_replacing_bos_eos:
            return None
        return self.data_manager.get_decoder_langtok(self.args.target_lang, spec)

    def source_dictionaries(self) -> List:
        return [self.data_manager.get_source_dictionary(language) for language in self.source_langs]

    def target_dictionaries(self) -> List:
        return [self.data_manager.get_target_dictionary(language) for language in self.target_langs]
