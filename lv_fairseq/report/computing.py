"""What a run's files give: scores, sentences on which systems differ, pictures as files."""

import re
from typing import Dict, List, Sequence

from lv_fairseq.progress import stage
from lv_fairseq.report.differences import most_different
from lv_fairseq.report.drawing import png
from lv_fairseq.report.run import SETS, Run
from lv_fairseq.report.scored_run import Results, Section, computed_over_seeds
from lv_fairseq.report.scores import SetScores, score_set
from lv_fairseq.report.sections import pictures


def computed(run: Run, prefix: str) -> Results:
    """The run with what its files give: scores, and sentences on which systems differ."""
    with stage(f"scoring {run.name}", sum(len(system.outputs) for system in run.systems), " outputs") as progress:
        scores = {which: score_set(run, which, progress) for which in SETS}
    which = next((which for which in reversed(SETS) if len(scores[which].hypotheses) > 1), None)
    differing = compare(scores[which]) if which is not None else []
    return Results(run, prefix, scores, differing, which, computed_over_seeds(run, scores))


def compare(scores: SetScores) -> list:
    with stage("comparing outputs", len(scores.references), " sentences") as progress:
        return most_different(scores, progress)


def drawn(runs: Dict[str, Sequence[Section]]) -> Dict[str, bytes]:
    """PNG files by name."""
    files = {}
    for name, parts in runs.items():
        for picture in pictures(parts):
            files[f"{name}-{re.sub(r'^run[0-9]+-', '', picture.id)}.png"] = png(picture)
    return files


def file_names(runs: Sequence[Run]) -> List[str]:
    """A name for the files of each run, none twice."""
    names: List[str] = []
    for run in runs:
        name = re.sub(r"[^\w.-]+", "_", run.name)[:40].strip("._") or "run"
        numbered = (f"{name}_{i}" for i in range(2, len(runs) + 2))
        names.append(next(one for one in (name, *numbered) if one not in names))
    return names
