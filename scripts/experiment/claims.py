"""The claims of the paper as data: which rows should have more BLEU than which, for `lv-report` to test."""

from typing import Dict, List, Optional, Sequence

from experiment.plan import ensemble_runs, reshuffle_taus, taus
from experiment.rows import members_id, partner, row_id

MODERATE = (5, 20)  # K' that is neither 1 nor very large


def claim(text: str, paper: str, expected: str, more: Sequence[str], less: Sequence[str]) -> Dict:
    """
    Args:
        paper: what the paper found
        expected: "above" or "not below"
        more, less: ids of systems or of lists; BLEU of the former, added up, should be above that of the latter
    """
    return {"claim": text, "paper": paper, "expected": expected, "more": list(more), "less": list(less)}


def claims(config: Dict, lists: Sequence[Dict], rows: Optional[Sequence[str]] = None) -> List[Dict]:
    """
    Args:
        lists: what results.json says of K' for several K and tau
        rows: ids of the rows that there are (default: all)
    """
    known = [one["id"] for one in lists] + list(rows or ())
    return [one for one in all_claims(config, lists) if rows is None or {*one["more"], *one["less"]} <= {*known}]


def all_claims(config: Dict, lists: Sequence[Dict]) -> List[Dict]:
    found = [one for tau in taus(config) for one in of_tau(config, tau)]
    for tau in reshuffle_taus(config):
        found += of_tuning(config, tau)
    if ensemble_runs(config):
        seen = "English-French 37.19 against 34.60, English-German 21.59 against 19.40"
        which = "its reshuffled members" if len(config["ensemble"]) > 1 else "its members"
        text = f"an ensemble is above its single models (mean over seeds of {which} from best points)"
        found.append(claim(text, seen, "above", ["ensemble"], [members_id(config)]))
    return [*found, *of_per_word(lists), *of_tau_and_k(lists)]


def of_tau(config: Dict, tau: int) -> List[Dict]:
    """LV, lists and replacement, for one tau and the baseline of that size."""
    size = partner(config, tau)
    lv, listed, unk = (row_id(config, name, tau) for name in ("lv", "lv-list", "lv-unk"))
    base, replaced = (row_id(config, name, size) for name in ("rnnsearch", "rnnsearch-unk"))
    of = f" (tau {tau:,}, baseline {size:,} words)"
    return [
        claim(f"LV is above the baseline{of}", "32.68 against 29.97, 16.95 against 16.46", "above", [lv], [base]),
        claim(
            f"a candidate list is not below all words (tau {tau:,})",
            "33.36 against 32.68, 17.46 against 16.95",
            "not below",
            [listed],
            [lv],
        ),
        claim(
            f"replacing unknown words helps the baseline ({size:,} words)",
            "33.08 against 29.97, 18.97 against 16.46",
            "above",
            [replaced],
            [base],
        ),
        claim(
            f"replacing unknown words helps LV (tau {tau:,})",
            "34.11 against 33.36, 18.89 against 17.46",
            "above",
            [unk],
            [listed],
        ),
        claim(
            f"both replaced, LV is as good as the baseline or better{of}",
            "34.11 against 33.08, 18.89 against 18.97",
            "not below",
            [unk],
            [replaced],
        ),
    ]


def of_tuning(config: Dict, tau: int) -> List[Dict]:
    before = row_id(config, "lv-unk", tau if tau in taus(config) else taus(config)[-1])
    reshuffle, frozen = row_id(config, "reshuffle", tau), row_id(config, "frozen", tau)
    seen = "34.60 against 34.11, 19.40 against 18.89"
    return [
        claim(f"reshuffling helps (tau {tau:,})", seen, "above", [reshuffle], [before]),
        claim(
            f"tuning with frozen word vectors helps (tau {tau:,})",
            "higher on the development set; no figures",
            "above",
            [frozen],
            [reshuffle],
        ),
    ]


def of_per_word(lists: Sequence[Dict]) -> List[Dict]:
    """K' = 1 against a moderate K', for each tau and K that has both."""
    found = []
    for tau, k in sorted({(point["tau"], point["K"]) for point in lists}):
        ids = {point["K'"]: point["id"] for point in lists if (point["tau"], point["K"]) == (tau, k)}
        moderate = [per_word for per_word in sorted(ids) if MODERATE[0] <= per_word <= MODERATE[1]]
        if 1 in ids and moderate:
            middle = moderate[len(moderate) // 2]
            text = f"K' = 1 is below a moderate K' = {middle:,} (tau {tau:,}, K = {k:,})"
            found.append(claim(text, "about 0.2 BLEU with K = 50,000", "above", [ids[middle]], [ids[1]]))
    return found


def of_tau_and_k(lists: Sequence[Dict]) -> List[Dict]:
    """The best K goes with tau: from a small to a large K a large tau gains more than a small one does."""
    by_tau = sorted({point["tau"] for point in lists})
    frequent = sorted({point["K"] for point in lists})
    if len(by_tau) < 2 or len(frequent) < 2:
        return []
    moderate = [x for x in sorted({point["K'"] for point in lists}) if MODERATE[0] <= x <= MODERATE[1]]
    if not moderate:
        return []
    per_word, (small, large), (short, long) = moderate[len(moderate) // 2], (by_tau[0], by_tau[-1]), ends(frequent)
    ids = {(point["tau"], point["K"]): point["id"] for point in lists if point["K'"] == per_word}
    more, less = [(small, short), (large, long)], [(small, long), (large, short)]
    if not set(more + less) <= set(ids):
        return []
    text = f"K goes with tau: from K = {short:,} to {long:,}, tau {large:,} gains more than tau {small:,}"
    seen = "tau 15,000 loses 0.60 from K = 15,000 to 50,000, tau 30,000 gains"
    return [claim(text, seen, "above", [ids[x] for x in more], [ids[x] for x in less])]


def ends(numbers: Sequence[int]) -> tuple:
    return numbers[0], numbers[-1]
