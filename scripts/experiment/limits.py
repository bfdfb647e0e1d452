"""What `lv-report` can show of an experiment. One that would give more is refused before anything is trained."""

import itertools
from typing import Dict, Iterator, Tuple

from experiment.claims import claims
from experiment.plan import LV, plan, reshuffle_taus, seeds_of, shortlists, taus
from experiment.rows import Table
from lv_fairseq import results

MAIN_ROWS = 8  # whose attention is drawn


def excess(config: Dict) -> str:
    """What a configuration has too much of; nothing if a page can show it all."""
    for asked, most, what, keys in itertools.chain(sizes(config), rows(config)):
        if asked > most:
            return f"{keys}: that makes {asked:,} {what}, and lv-report shows {most:,} at most: take fewer"
    return ""


def sizes(config: Dict) -> Iterator[Tuple[int, int, str, str]]:
    """What is to be counted, the most of it, its name and the keys that it comes from: lengths of lists first, so that
    nothing is made of lists without end."""
    yield len(config["seeds"]), results.SEEDS, "seeds", "seeds"
    largest = max(len(shortlists(config)), len(reshuffle_taus(config)))
    yield largest, results.SYSTEMS, "sizes", "shortlist, reshuffle_tau"
    yield len(taus(config)), results.TAUS, "tau", "tau"
    yield grid_points(config, ""), results.GRID_POINTS, "points of the grid", "tau, frequent, per_word"
    yield grid_points(config, "analysis_"), results.LISTS, "lists", "tau, analysis_frequent, analysis_per_word"
    yield MAIN_ROWS * config["attention"], results.PICTURES, "pictures", f"attention ({MAIN_ROWS} for each sentence)"


def grid_points(config: Dict, prefix: str) -> int:
    return len(taus(config)) * len(config[f"{prefix}frequent"]) * len(config[f"{prefix}per_word"])


def rows(config: Dict) -> Iterator[Tuple[int, int, str, str]]:
    """The same of systems, learning curves, outputs and claims."""
    config = {**config, "points": 1}  # more make an ensemble larger, and no other rows or curves
    table = Table(config, 1, dict.fromkeys(taus(config), (1, 1))).rows()
    keys = "shortlist, tau, reshuffle_tau"
    yield len(table), results.SYSTEMS, "systems", keys
    yield sum(len(row.against) for row in table), results.COMPARISONS, "comparisons", keys
    yield len(plan(config)), results.CURVES, "learning curves", f"seeds, {keys}"
    places = list(itertools.product(taus(config), config["analysis_frequent"], config["analysis_per_word"]))
    of_first = 2 * len(table)  # of dev and test, which are named once more if there are several seeds
    of_seeds = 2 * sum(len(row.replicas) for row in table if len(row.replicas) > 1)
    lists = len(places) * len(seeds_of(config, LV))
    yield (
        of_first + of_seeds + lists,
        results.OUTPUTS,
        "outputs",
        f"seeds, {keys}, analysis_frequent, analysis_per_word",
    )
    points = [{"id": f"{place}", "tau": place[0], "K": place[1], "K'": place[2]} for place in places]
    yield len(claims(config, points)), results.CLAIMS, "claims", f"{keys}, analysis_frequent"
