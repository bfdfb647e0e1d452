"""Differences over several seeds: sacrebleu's own p for one of them, Student's t over all, what is said of claims."""

import random
import statistics

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from lv_fairseq.report.contrasts import Contrast, SeedScores, contrast, draws, resampled, t_outside, t_test, verdict

WORDS = [f"w{i}" for i in range(30)]


@pytest.fixture(scope="module")
def texts():
    """References, and outputs with more and more words exchanged."""
    draw = random.Random(3)
    references = [[draw.choice(WORDS) for _ in range(draw.randint(4, 12))] for _ in range(50)]
    change = lambda line, share: [draw.choice(WORDS) if draw.random() < share else word for word in line]
    outputs = [tuple(" ".join(change(line, share)) for line in references) for share in (0.3, 0.33, 0.3, 0.35)]
    return tuple(map(" ".join, references)), outputs


def scored(outputs, references) -> SeedScores:
    scores, samples = zip(*(resampled(output, references, "") for output in outputs))
    return SeedScores(list(scores), list(samples))


@pytest.mark.parametrize("pair", [(0, 1), (1, 0), (0, 2), (3, 0)])
def test_the_chance_of_other_sentences_is_that_of_sacrebleus_paired_bootstrap(texts, pair):
    references, outputs = texts
    named = [(str(i), outputs[i]) for i in reversed(pair)]
    _, results = PairedTest(named, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=1000)()
    first, second = results["BLEU"]
    found = contrast(*([scored([outputs[i]], references)] for i in pair))
    assert found.bleu == pytest.approx(second.score - first.score)
    assert found.p_sentences == pytest.approx(second.p_value) and found.p_seeds is None and found.seeds == 1


def test_samples_are_the_same_for_all_outputs_and_of_as_many_sentences(texts):
    assert draws(7).shape == (1000, 7) and (draws(7).sum(1) == 7).all()
    references, outputs = texts
    sample = [i for i, times in enumerate(draws(50)[3].astype(int)) for _ in range(times)]
    again = BLEU().corpus_score([outputs[0][i] for i in sample], [[references[i] for i in sample]]).score
    assert resampled(outputs[0], references, "")[1][3] == pytest.approx(again)


def test_over_seeds_it_is_the_mean_that_is_compared(texts):
    references, outputs = texts
    more, less = scored(outputs[:2], references), scored(outputs[2:], references)
    found = contrast([more], [less])
    single = [a - b for a, b in zip(more.scores, less.scores)]
    assert found.bleu == pytest.approx(statistics.fmean(single)) and found.seeds == 2
    assert found.spread == pytest.approx(statistics.stdev(single)) and found.p_seeds == t_test(single)
    sizes = abs(np.mean(more.samples, axis=0) - np.mean(less.samples, axis=0))
    assert found.p_sentences == (sum(size - sizes.mean() > abs(found.bleu) for size in sizes) + 1) / 1001
    four = contrast([more, less], [less, more])
    assert four.bleu == pytest.approx(0)


def test_the_same_outputs_are_not_significantly_different(texts):
    one = scored(texts[1][:2], texts[0])
    assert contrast([one], [one]) == Contrast(0.0, 2, 0.0, None, None)


def test_one_ensemble_is_compared_with_the_mean_of_several_seeds(texts):
    references, outputs = texts
    found = contrast([scored(outputs[:1], references)], [scored(outputs[1:], references)])
    means = [resampled(output, references, "")[0] for output in outputs]
    assert found.bleu == pytest.approx(means[0] - statistics.fmean(means[1:]))
    assert found.p_seeds is None and found.p_sentences is not None


@pytest.mark.parametrize(
    "freedom, t",
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (9, 2.262), (10, 2.228), (30, 2.042)],
)
def test_students_t_is_that_of_printed_tables(freedom, t):
    assert t_outside(t, freedom) == pytest.approx(0.05, abs=5e-5)  # printed with three decimals
    assert t_outside(-t, freedom) == t_outside(t, freedom) and t_outside(0.0, freedom) == pytest.approx(1)


def test_seeds_that_agree_wholly_say_nothing_of_others():
    assert t_test([0.5, 0.5, 0.5]) is None and t_test([0.0, 0.0]) is None
    found = contrast([SeedScores([20.1, 21.3], [None, None])], [SeedScores([20.0, 21.2], [None, None])])
    assert found.bleu == pytest.approx(0.1) and found.p_seeds is None  # 20.1 - 20.0 is not quite 21.3 - 21.2
    assert verdict("above", found) == verdict("above", found._replace(p_sentences=0.001)) == "not sure"


@pytest.mark.parametrize(
    "expected, found, said",
    [
        ("above", Contrast(0.8, 3, 0.1, 0.01, 0.01), "comes out"),
        ("above", Contrast(0.8, 3, 0.9, 0.01, 0.2), "not sure"),
        ("above", Contrast(0.8, 3, 0.1, 0.2, 0.01), "not sure"),
        ("above", Contrast(-0.8, 3, 0.1, 0.01, 0.01), "does not"),
        ("above", Contrast(-0.1, 3, 0.5, 0.4, 0.4), "not sure"),
        ("above", Contrast(0.8, 1, None, 0.01, None), "comes out"),
        ("above", Contrast(0.8, 1), "not sure"),
        ("not below", Contrast(0.0, 3, 0.5, 0.9, 0.9), "comes out"),
        ("not below", Contrast(-0.1, 3, 0.5, 0.4, 0.4), "not sure"),
        ("not below", Contrast(-0.8, 3, 0.1, 0.01, 0.01), "does not"),
        ("above", None, "not measured"),
    ],
)
def test_what_is_said_of_a_claim(expected, found, said):
    assert verdict(expected, found) == said
