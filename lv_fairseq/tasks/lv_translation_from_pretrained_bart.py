"""``--task lv_translation_from_pretrained_bart``: fairseq's task for mBART cc25, with very large vocabularies."""

from typing import List

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import register_task
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from lv_fairseq.decoding.source_text import Frame
from lv_fairseq.errors import UserError
from lv_fairseq.language_tokens import LanguageTokens
from lv_fairseq.task_config import LVTranslationFromPretrainedBARTConfig


@register_task("lv_translation_from_pretrained_bart", dataclass=LVTranslationFromPretrainedBARTConfig)
class LVTranslationFromPretrainedBARTTask(LanguageTokens, TranslationFromPretrainedBARTTask):
    """After ``</s>`` a sentence has the token of its language, which is the end that the search knows."""

    cfg: LVTranslationFromPretrainedBARTConfig

    @classmethod
    def add_args(cls, parser):
        gen_parser_from_dataclass(parser, LVTranslationFromPretrainedBARTConfig())

    @classmethod
    def check_data(cls, cfg) -> None:
        super().check_data(cfg)
        if not cfg.langs:
            raise UserError("--langs is missing: all languages of the pretrained model, in the order of their tokens")

    @property
    def args(self):
        """fairseq 0.12.3.1 reads its options under this name, without ever setting it."""
        return self.cfg

    @property
    def source_frame(self) -> Frame:
        return Frame(before=int(self.cfg.prepend_bos), after=2)

    def tokens(self, language: str) -> List[str]:
        return [f"[{language}]"]

    def target_marks(self) -> List[int]:
        return [self.tgt_dict.index(token) for token in self.tokens(self.cfg.target_lang)]
