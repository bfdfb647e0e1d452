"""Models without word tables: what cannot work with them is refused in one line."""

import pytest
from small_corpus import TAU, configure, train_iterator, write_corpus

from lv_fairseq import UserError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=60)


@pytest.mark.parametrize("arch", ["lstm", "transformer_iwslt_de_en"])
@pytest.mark.parametrize(
    "flags, what",
    [
        ((*TAU, 30), "--tau"),
        (("--criterion", "cross_entropy", "--freeze-word-tables"), "--freeze-word-tables"),
        (("--criterion", "partition_cross_entropy"), "--criterion partition_cross_entropy"),
    ],
)
def test_they_are_refused_before_data_are_read(corpus, arch, flags, what):
    with pytest.raises(UserError, match=f"^{what} needs a model with word tables: --arch rnnsearch"):
        configure(corpus, *flags, model=("--arch", arch))


def test_the_criterion_refuses_them_in_fairseqs_own_task_too(corpus):
    flags = ("--task", "translation", "--criterion", "partition_cross_entropy")
    cfg, task, model, criterion = configure(corpus, *flags, model=("--arch", "lstm"))
    sample = next(train_iterator(cfg, task).next_epoch_itr())
    with pytest.raises(UserError, match="^--criterion partition_cross_entropy needs a model with word tables"):
        criterion(model, sample)


def test_they_train_as_ever_without_these_flags(corpus):
    configure(corpus, "--criterion", "cross_entropy", model=("--arch", "lstm"))
