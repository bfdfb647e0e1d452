"""``--task lv_translation``: fairseq's translation task with very large vocabularies."""

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationTask

from lv_fairseq.large_vocabulary import LargeVocabulary
from lv_fairseq.task_config import LVTranslationConfig


@register_task("lv_translation", dataclass=LVTranslationConfig)
class LVTranslationTask(LargeVocabulary, TranslationTask):
    cfg: LVTranslationConfig
