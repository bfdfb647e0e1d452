"""Models whose words we do not know: what cannot work with them is refused in one line."""

import pytest
from small_corpus import TAU, configure, train_iterator, write_corpus

from lv_fairseq import UserError


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=60)


UNKNOWN = {
    "lightconv_iwslt_de_en": ((), "does not know the words of LightConvModel: it works with rnnsearch, transformer"),
    "transformer_iwslt_de_en": (("--adaptive-softmax-cutoff", "20,40"), "leave out --adaptive-softmax-cutoff"),
    "transformer_tiny": (("--quant-noise-pq", "0.1"), "leave out --quant-noise-pq"),
}


@pytest.mark.parametrize("arch", UNKNOWN)
@pytest.mark.parametrize(
    "flags, what",
    [
        ((*TAU, 30), "--tau"),
        (("--criterion", "cross_entropy", "--freeze-word-tables"), "--freeze-word-tables"),
        (("--criterion", "partition_cross_entropy"), "--criterion partition_cross_entropy"),
    ],
)
def test_they_are_refused_before_data_are_read(corpus, arch, flags, what):
    more, reason = UNKNOWN[arch]
    with pytest.raises(UserError, match=f"^{what}.*{reason}"):
        configure(corpus, *flags, model=("--arch", arch, *more))


def test_the_criterion_refuses_fairseqs_own_task(corpus):
    flags = ("--task", "translation", "--criterion", "partition_cross_entropy")
    cfg, task, model, criterion = configure(corpus, *flags, model=("--arch", "lstm"))
    sample = next(train_iterator(cfg, task).next_epoch_itr())
    with pytest.raises(UserError, match="^--criterion partition_cross_entropy needs .* --task lv_translation"):
        criterion(model, sample)


def test_they_train_as_ever_without_these_flags(corpus):
    configure(corpus, "--criterion", "cross_entropy", model=("--arch", "lightconv_iwslt_de_en"))


def test_flags_of_a_model_that_do_not_go_together_are_told_in_one_line(corpus):
    with pytest.raises(UserError, match="^--share-all-embeddings requires a joined dictionary"):
        configure(corpus, *TAU, 30, model=("--arch", "transformer_tiny", "--share-all-embeddings"))
