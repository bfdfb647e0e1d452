"""Contrasts: BLEU of some outputs against that of others, over all sentences and over all seeds.

Chance comes in twice: another test set, and another training. The first is sacrebleu's paired bootstrap, with the mean
over seeds in the place of the score of one system: every sample of sentences is the same for all outputs. The second is
the t-test of the differences that the single seeds give; Welch's t-test of systems that were trained with other seeds;
and where one of them was trained once, whether all trainings of the others say the same.
"""

import functools
import math
import statistics
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from sacrebleu.metrics import BLEU

from lv_fairseq.report.analysis import Claim, SeedOutput
from lv_fairseq.report.part import short
from lv_fairseq.report.scores import SAMPLES, SEED, Lines, MissingError, options, read_lines

LEVEL = 0.05
SAME = 1e-6  # BLEU: what computers' numbers differ by in their last digits
PAIRED, WELCH = "paired", "Welch"  # t-tests
EVERY, SOME = "every training says so", "not every training says so"
COMES_OUT, DOES_NOT, NOT_SURE, UNKNOWN = "comes out", "does not", "not sure", "not measured"


@dataclass(frozen=True)
class SeedScores:
    """BLEU of a system by seed, and in each bootstrap sample of its sentences (None without files)."""

    scores: List[float]
    samples: List[Optional[np.ndarray]] = field(repr=False)
    seeds: List[Optional[float]] = field(default_factory=list)  # their numbers; none if they are not known

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def numbered(self) -> bool:
        """Whether each score can be told by its seed."""
        return len(self.scores) == len(set(self.seeds)) == len(self.seeds) and None not in self.seeds

    @property
    def spread(self) -> Optional[float]:
        """The standard deviation of single trainings."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


class Contrast(NamedTuple):
    """How much more BLEU, the mean over seeds; how far the seeds are apart; how likely chance alone gives as much."""

    bleu: float
    seeds: int  # the fewest of a system
    spread: Optional[float] = None  # of the differences of single seeds
    p_sentences: Optional[float] = None
    p_seeds: Optional[float] = None
    how: str = ""  # chance of other trainings was judged; nothing is known of it with one training each


Terms = Sequence[Tuple[SeedScores, int]]  # what is added up, 1, and taken off, -1


class Scorer:
    """Scores outputs for one set. A file is scored once for each way to score, however often it is named; no text is
    kept.

    Args:
        progress: called with 1 for each output
    """

    def __init__(self, references: Lines, progress: Callable[[float], None] = lambda done: None):
        self.references, self.progress = references, progress
        self.known: Dict[tuple, Tuple[float, np.ndarray]] = {}

    def scored(self, output: SeedOutput, what: str) -> Tuple[float, np.ndarray]:
        """BLEU of an output, and of each sample of its sentences (samples)."""
        self.progress(1)
        if not self.references:
            raise MissingError("")
        key = (output.hypotheses, *sorted(options(output.signature).items()))
        if key not in self.known:
            lines = read_lines(output.hypotheses, f"an output of {what}", len(self.references))
            self.known[key] = resampled(lines, self.references, output.signature)
        return self.known[key]


def seed_scores(outputs: Sequence[SeedOutput], scorer: Scorer, notes: List[str], what: str) -> Optional[SeedScores]:
    """Scores of the outputs of all seeds, from their files; where these cannot be read, those of results.json."""
    scores, samples, seeds = [], [], []
    for output in outputs:
        try:
            score, sampled = scorer.scored(output, what)
        except MissingError as error:
            if str(error):
                notes.append(f"{error} The score is that of results.json.")
            score, sampled = output.bleu, None
        if score is None:
            return None
        scores.append(score)
        samples.append(sampled)
        seeds.append(output.seed)
    return SeedScores(scores, samples, seeds) if scores else None


def resampled(hypotheses: Lines, references: Lines, signature: str) -> Tuple[float, np.ndarray]:
    """BLEU of an output, and of each sample of its sentences (samples), the same ones as those of sacrebleu."""
    metric = BLEU(**options(signature))
    try:
        # the sums that sacrebleu's own bootstrap is made of; what it has in 2.0 and since has these names
        counts = np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)
        score = lambda sums: metric._compute_score_from_stats(sums).score
    except Exception as error:  # a tokeniser that is not installed here
        raise MissingError(f"sacrebleu cannot score outputs: {short(str(error))}.") from None
    sums = draws(len(hypotheses)) @ counts  # samples x statistics
    return float(score(counts.sum(0))), np.array([score(row) for row in sums])


@functools.lru_cache(maxsize=2)
def draws(sentences: int) -> np.ndarray:
    """How often each sentence is in each sample (samples x sentences)."""
    chosen = np.random.default_rng(int(SEED)).choice(sentences, size=(SAMPLES, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in chosen]).astype(np.float64)


def contrast(more: Sequence[SeedScores], less: Sequence[SeedScores]) -> Contrast:
    """The sum of the scores of ``more`` less that of ``less``."""
    terms = [*((one, 1) for one in more), *((one, -1) for one in less)]
    difference = sum(sign * one.mean for one, sign in terms)
    p_sentences = None
    if all(sample is not None for one, _ in terms for sample in one.samples):
        sampled = sum(sign * np.mean(one.samples, axis=0) for one, sign in terms)
        p_sentences = bootstrap_p(sampled, difference) if np.any(sampled) else None  # the same outputs
    return over_trainings(Contrast(difference, 1, None, p_sentences), terms)


def over_trainings(found: Contrast, terms: Terms) -> Contrast:
    """The same with what the single trainings say."""
    fewest, most = (which(len(one.scores) for one, _ in terms) for which in (min, max))
    if most == 1:
        return found
    if fewest == 1:  # as that of an ensemble, which has one output of all seeds
        least, largest = (sum(which(sign * x for x in one.scores) for one, sign in terms) for which in (min, max))
        return found._replace(how=EVERY if least > 0 or largest < 0 else SOME)
    single = by_seed(terms)
    if single is None:
        return found._replace(seeds=fewest, p_seeds=welch_test(terms), how=WELCH)
    return found._replace(seeds=fewest, spread=statistics.stdev(single), p_seeds=t_test(single), how=PAIRED)


def by_seed(terms: Terms) -> Optional[List[float]]:
    """The difference that each seed gives, by its number, or by its place if numbers are not known; None if systems do
    not have the same seeds."""
    if all(one.numbered for one, _ in terms):
        numbers = sorted(terms[0][0].seeds)
        scores = [(dict(zip(one.seeds, one.scores)), sign) for one, sign in terms]
        if any(sorted(by_number) != numbers for by_number, _ in scores):
            return None
        return [sum(sign * by_number[number] for by_number, sign in scores) for number in numbers]
    if len({len(one.scores) for one, _ in terms}) > 1:
        return None
    return [sum(sign * one.scores[i] for one, sign in terms) for i in range(len(terms[0][0].scores))]


def bootstrap_p(sampled: np.ndarray, difference: float) -> float:
    """sacrebleu's p of a difference: how many samples have one that is larger by chance, that is, further above the
    mean size of all than the real one is above 0. The same for one seed; smaller than that of a two-sided test."""
    sizes = np.abs(sampled)
    larger = int((sizes - sizes.mean() > abs(difference)).sum())
    return (larger + 1) / (len(sampled) + 1)


def t_test(differences: Sequence[float]) -> Optional[float]:
    """The probability that numbers with a mean of 0 have a mean as far from it (two-sided, Student's t). Not known if
    all are the same: trainings that differ by nothing at all are scores that were rounded, or the same outputs."""
    mean, spread = statistics.fmean(differences), statistics.stdev(differences)
    if spread < SAME:
        return None
    return t_outside(mean / (spread / math.sqrt(len(differences))), len(differences) - 1)


def welch_test(terms: Terms) -> Optional[float]:
    """The same of means of which each has a spread of its own; the degrees of freedom are rounded down."""
    mean = sum(sign * one.mean for one, sign in terms)
    parts = [(statistics.variance(one.scores) / len(one.scores), len(one.scores) - 1) for one, _ in terms]
    variance = sum(part for part, _ in parts)
    if variance < SAME**2:
        return None
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    return t_outside(mean / math.sqrt(variance), max(int(freedom + 1e-9), 1))


def t_outside(t: float, freedom: int) -> float:
    """The probability of a t further from 0, by the finite sums for whole degrees of freedom."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    total, term = 0.0, cosine if odd else 1.0
    for power in range(odd, freedom - 1, 2):  # cos^power, up to cos^(freedom - 2)
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return max(1 - inside, 0.0)


class TestedClaim(NamedTuple):
    claim: Claim
    contrasts: Mapping[str, Contrast]  # by set
    verdict: str


def verdict(expected: str, found: Optional[Contrast]) -> str:
    """A claim comes out, or its contrary does, if neither other sentences nor other seeds are likely to undo it. What
    is only expected not to be below comes out if it is not."""
    if found is None:
        return UNKNOWN
    if expected == "not below" and found.bleu >= 0:
        return COMES_OUT
    if found.how == SOME or found.seeds > 1 and found.p_seeds is None:
        return NOT_SURE
    known = [p for p in (found.p_sentences, found.p_seeds) if p is not None]
    if not known or max(known) >= LEVEL or found.bleu == 0:
        return NOT_SURE
    return COMES_OUT if found.bleu > 0 else DOES_NOT
