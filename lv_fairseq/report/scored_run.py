"""`Results`: a run and what was computed from its files, which the sections show."""

from dataclasses import dataclass, field
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from lv_fairseq.progress import stage
from lv_fairseq.report.analysis import SeedOutput
from lv_fairseq.report.contrasts import Contrast, Scorer, SeedScores, TestedClaim, contrast, seed_scores, verdict
from lv_fairseq.report.differences import Sentence
from lv_fairseq.report.run import SETS, Run, System
from lv_fairseq.report.scores import SetScores

SET_NAMES = {"dev": "development set", "test": "test set"}


@dataclass(frozen=True)
class OverSeeds:
    """What all seeds give, by set."""

    systems: Dict[str, Dict[str, SeedScores]]  # by set and id
    pairs: Dict[str, Dict[Tuple[int, int], Contrast]]  # by set and the run's comparisons, of systems with several seeds
    claims: Sequence[TestedClaim]
    notes: Sequence[str] = ()

    def several(self, which: str, id: str) -> Optional[SeedScores]:
        found = self.systems.get(which, {}).get(id)
        return found if found and len(found.scores) > 1 else None


@dataclass(frozen=True)
class Results:
    """A run and what was computed from its files."""

    run: Run
    prefix: str  # of the identifiers in the page
    scores: Dict[str, SetScores]  # by set
    differing: Sequence[Sentence]
    differing_set: Optional[str]
    over_seeds: OverSeeds = field(default_factory=lambda: OverSeeds({}, {}, ()))


class Section(NamedTuple):
    id: str
    title: str
    explanation: str
    parts: Sequence  # Html, Picture, or text that says what is missing


def computed_over_seeds(run: Run, scores: Dict[str, SetScores]) -> OverSeeds:
    """Scores of all seeds, what they say of the run's comparisons, and of the claims."""
    systems: Dict[str, Dict[str, SeedScores]] = {}
    notes: List[str] = []
    wanted = {id for claim in run.claims for id in (*claim.more, *claim.less)}
    for which in SETS:
        found = {system.id: outputs_of(system, which) for system in run.systems if system.id in wanted or system.seeds}
        if which == "test":
            found.update({point.id: point.outputs for point in run.lists})
        systems[which] = {}
        if not any(found.values()):
            continue
        with stage(f"scoring all seeds, {which}", sum(map(len, found.values())), " outputs") as progress:
            scorer = Scorer(scores[which].references, progress)
            scored = {id: seed_scores(some, scorer, notes, id) for id, some in found.items() if some}
        systems[which] = {id: one for id, one in scored.items() if one is not None}
    pairs = {which: compared_pairs(run, systems[which]) for which in SETS}
    claims = [tested(claim, systems) for claim in run.claims]
    return OverSeeds(systems, pairs, claims, list(dict.fromkeys(notes)))


def outputs_of(system: System, which: str) -> List[SeedOutput]:
    """The outputs of all seeds, or the only one."""
    if system.seeds.get(which):
        return system.seeds[which]
    one = system.outputs.get(which)
    return [SeedOutput(one.hypotheses, one.bleu, one.signature)] if one else []


def compared_pairs(run: Run, scored: Dict[str, SeedScores]) -> Dict[Tuple[int, int], Contrast]:
    found = {}
    for pair in run.comparisons:
        ids = [run.systems[i].id for i in pair]
        if all(id in scored for id in ids) and any(len(scored[id].scores) > 1 for id in ids):
            found[pair] = contrast([scored[ids[0]]], [scored[ids[1]]])
    return found


def tested(claim, systems: Dict[str, Dict[str, SeedScores]]) -> TestedClaim:
    """A claim on each set that has all it needs; the verdict is that of the test set, if it has."""
    contrasts = {}
    for which in SETS:
        scored = systems[which]
        if claim.more and claim.less and all(id in scored for id in (*claim.more, *claim.less)):
            contrasts[which] = contrast([scored[id] for id in claim.more], [scored[id] for id in claim.less])
    found = next((contrasts[which] for which in reversed(SETS) if which in contrasts), None)
    return TestedClaim(claim, contrasts, verdict(claim.expected, found))
