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
    assert contrast([one], [one]) == Contrast(0.0, 2, 0.0, None, None, "paired")


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


def seeded(**by_number) -> SeedScores:
    """Scores of seeds, s1=20.0; without files."""
    numbers = [float(name[1:]) for name in by_number]
    return SeedScores(list(by_number.values()), [None] * len(numbers), numbers)


def test_seeds_are_paired_by_their_numbers():
    more, less = seeded(s1=21.0, s2=25.0, s3=30.1), seeded(s3=30.0, s1=20.0, s2=24.5)
    found = contrast([more], [less])
    assert found.p_seeds == pytest.approx(t_test([1.0, 0.5, 0.1])) and found.how == "paired"
    unknown = [SeedScores(one.scores, one.samples) for one in (more, less)]
    assert contrast(*([one] for one in unknown)).p_seeds == pytest.approx(t_test([-9.0, 5.0, 5.6]))  # by place


@pytest.mark.parametrize("less", [seeded(s1=1.0, s4=2.0, s5=3.0), seeded(s1=1.0, s2=2.0, s3=3.0, s4=2.5)])
def test_systems_with_other_seeds_are_compared_by_welchs_test(less):
    more = seeded(s1=4.0, s2=5.0, s3=6.5)
    found = contrast([more], [less])
    first, second = (statistics.variance(one.scores) / len(one.scores) for one in (more, less))
    freedom = (first + second) ** 2 / (first**2 / 2 + second**2 / (len(less.scores) - 1))
    expected = t_outside((more.mean - less.mean) / (first + second) ** 0.5, int(freedom))
    assert found.p_seeds == pytest.approx(expected) and (found.how, found.spread) == ("Welch", None)
    assert verdict("above", found) == "comes out"


def test_welchs_test_is_students_where_spreads_are_the_same():
    found = contrast([seeded(s1=1.0, s2=2.0, s3=3.0)], [seeded(s4=4.0, s5=5.0, s6=6.0)])
    assert found.p_seeds == pytest.approx(0.0213, abs=5e-5)  # t = 3.674 with 4 degrees of freedom
    assert contrast([seeded(s1=2.0, s2=2.0)], [seeded(s3=1.0, s4=1.0)]).p_seeds is None


def test_all_trainings_must_be_on_one_side_of_a_single_one():
    single = seeded(s1=20.0)
    for scores, how, said in (
        ((21.0, 20.0, 25.0), "not every training says so", "not sure"),
        ((21.0, 19.0, 25.0), "not every training says so", "not sure"),
        ((21.0, 20.1, 25.0), "every training says so", "comes out"),
        ((19.0, 19.9, 11.0), "every training says so", "does not"),
    ):
        several = SeedScores(list(scores), [None] * 3, [1.0, 2.0, 3.0])
        found = contrast([several], [single])._replace(p_sentences=0.001)
        assert found.how == how and found.p_seeds is None and verdict("above", found) == said
        assert verdict("above", found._replace(p_sentences=0.2)) == "not sure"
        assert verdict("above", found._replace(p_sentences=None)) == "not sure"
        assert contrast([single], [several]).how == how


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
