"""Models without word tables: what cannot work with them is refused in one line."""

import pytest
from conftest import train
from small_corpus import TAU, configure, write_corpus

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


def test_the_criterion_refuses_them_in_fairseqs_own_task_too(corpus, tmp_path):
    flags = ("--task", "translation", "--arch", "lstm", "--criterion", "partition_cross_entropy")
    result = train(corpus, tmp_path, *flags, "--optimizer", "sgd", "--lr", 0.1, "--max-tokens", 60, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "--arch rnnsearch" in result.stderr.strip().splitlines()[-1]
    assert not list(tmp_path.glob("checkpoint*.pt"))


def test_they_train_as_ever_without_these_flags(corpus):
    configure(corpus, "--criterion", "cross_entropy", model=("--arch", "lstm"))
