"""The rows of the paper's table as data: which models decode which data, how, and with which rows each is compared."""

from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from experiment.plan import (
    BASELINE,
    LV,
    OTHER,
    PROPOSAL,
    RESHUFFLE,
    ensemble_runs,
    frozen_name,
    other_model,
    reshuffle_taus,
    run_name,
    seeds_of,
    shortlists,
    suffix,
    taus,
)


class Replica(NamedTuple):
    """The models that decode together, one unless it is an ensemble: runs, and which of their best points, from 1."""

    seed: Optional[int]  # None: of several seeds
    points: Tuple[Tuple[str, int], ...]

    @property
    def name(self) -> str:
        return "all" if self.seed is None else str(self.seed)


class Row(NamedTuple):
    id: str
    title: str
    note: str  # what it is
    against: List[str]  # rows before it
    replicas: List[Replica]  # one for each seed
    data: Optional[int]  # words of the shortlist; None: all words
    lists: List  # flags of candidate lists
    replace: bool  # unknown words
    lexicon: Optional[Path] = None  # another one than that of the prepared text

    @property
    def search(self) -> tuple:
        """All that matters for what the search finds."""
        return self.replicas, self.data, self.lists, self.lexicon if self.lists else None


def partner(config: Dict, tau: int) -> int:
    """The shortlist that an LV run is compared with: of the size of tau if there is one, else the last."""
    return tau if tau in shortlists(config) else shortlists(config)[-1]


def row_id(config: Dict, name: str, size: int) -> str:
    """The name of a row of some kind, with its size if there are several."""
    among = {"rnnsearch": shortlists, "reshuffle": reshuffle_taus, "frozen": reshuffle_taus}
    return f"{name}{suffix(size, among.get(name.removesuffix('-unk'), taus)(config))}"


def members_id(config: Dict) -> str:
    """The row of single models of the ensemble: reshuffled ones if it has some, else those of LV, then frozen."""
    if RESHUFFLE in config["ensemble"]:
        return row_id(config, "frozen", reshuffle_taus(config)[-1])
    return row_id(config, "lv-frozen", taus(config)[-1])


def replicas(config: Dict, kind: str, size: int, name: str = "") -> List[Replica]:
    """The best point of each seed."""
    seeds = seeds_of(config, kind)
    return [Replica(seed, ((run_name(config, name or kind, size, seed), 1),)) for seed in seeds]


def list_flags(k: int, per_word: int) -> List:
    return ["--candidate-frequent", k, "--candidate-per-word", per_word]


def tuned_with_frozen(models: List[Replica]) -> List[Replica]:
    """The same models, trained on with frozen word vectors."""
    return [Replica(one.seed, ((frozen_name(one.points[0][0], 1), 1),)) for one in models]


def of_ended(table: List[Row], seeds: List[int], ended: Callable[[str], bool]) -> List[Row]:
    """The rows whose runs have ended with all of these seeds, and with these only; each compared with those of them."""
    found: List[Row] = []
    for row in table:
        mine = [one for one in row.replicas if one.seed is None or one.seed in seeds]
        if mine and all(ended(run) for one in mine for run, _ in one.points):
            against = [id for id in row.against if any(id == before.id for before in found)]
            found.append(row._replace(replicas=mine, against=against))
    return found


class Table:
    """
    Args:
        config: see config.py
        words: of the target in the data with all words
        lists: K and K' by tau
    """

    def __init__(self, config: Dict, words: int, lists: Dict[int, Tuple[int, int]]):
        self.config, self.words, self.lists = config, words, lists
        self.main = taus(config)[-1]
        self.several = max(len(shortlists(config)), len(taus(config))) > 1

    def rows(self) -> List[Row]:
        config, found = self.config, []
        for words in shortlists(config):
            found += self.baseline(words)
        for tau in taus(config):
            found += self.large(tau)
        for tau in reshuffle_taus(config):
            found += self.tuned(tau)
        return [*found, *self.ensemble(), *self.further()]

    def id(self, name: str, size: int) -> str:
        return row_id(self.config, name, size)

    def sized(self, title: str, what: str, size: int) -> str:
        return f"{title}, {what.format(f'{size:,}')}" if self.several else title

    def best_lists(self, tau: int) -> List:
        """The flags of the lists that are best for a tau, or for the last one if lists were not chosen for it."""
        return list_flags(*self.lists.get(tau, self.lists[self.main]))

    def baseline(self, words: int) -> List[Row]:
        few = f"knows the {words:,} most frequent words of both sides"
        models, one = replicas(self.config, BASELINE, words), self.id("rnnsearch", words)
        replaced = "the same, and unknown words are replaced"
        titles = [self.sized(title, "{} words", words) for title in ("RNNsearch", "RNNsearch + UNK replace")]
        return [
            Row(one, titles[0], few, [], models, words, [], False),
            Row(self.id("rnnsearch-unk", words), titles[1], replaced, [one], models, words, [], True),
        ]

    def large(self, tau: int) -> List[Row]:
        """All words, then lists, then replaced unknown words."""
        models, size = replicas(self.config, LV, tau), partner(self.config, tau)
        k, per_word = self.lists[tau]
        lv, listed, unk = (self.id(name, tau) for name in ("lv", "lv-list", "lv-unk"))
        base, replaced = self.id("rnnsearch", size), self.id("rnnsearch-unk", size)
        every = f"knows all {self.words:,} target words of the data, tau = {tau:,}; decoded over all of them"
        short = f"the same model, decoded with K = {k:,} and K' = {per_word:,}"
        title = self.sized("RNNsearch-LV", "tau {}", tau)
        flags, same = self.best_lists(tau), "the same, and unknown words are replaced"
        names = [self.sized(name, "tau {}", tau) for name in ("+ candidate list", "+ UNK replace")]
        return [
            Row(lv, title, every, [base], models, None, [], False),
            Row(listed, names[0], short, [lv], models, None, flags, False),
            Row(unk, names[1], same, [listed, replaced], models, None, flags, True),
        ]

    def tuned(self, tau: int) -> List[Row]:
        """New partitions every epoch, and that model with frozen word vectors."""
        config, flags = self.config, self.best_lists(tau)
        models = replicas(config, RESHUFFLE, tau)
        frozen = tuned_with_frozen(models)
        before = self.id("lv-unk", tau if tau in taus(config) else self.main)
        one = self.id("reshuffle", tau)
        again = "another training, with new partitions every epoch"
        then = "that model, trained on with its word vectors frozen"
        names = [self.sized(name, "tau {}", tau) for name in ("+ reshuffle", "+ frozen word vectors")]
        return [
            Row(one, names[0], again, [before], models, None, flags, True),
            Row(self.id("frozen", tau), names[1], then, [one], frozen, None, flags, True),
        ]

    def ensemble(self) -> List[Row]:
        runs = ensemble_runs(self.config)
        if not runs:
            return []
        points = tuple((frozen_name(run, place), 1) for run, most in runs for place in range(1, most + 1))
        note = f"{len(points)} models: the best points of {len(runs)} trainings with all words, each trained on with "
        unk, single = self.id("lv-unk", self.main), members_id(self.config)
        title, flags = self.sized("+ ensemble", "tau {}", self.main), self.best_lists(self.main)
        note = f"up to {note}frozen word vectors"
        row = Row("ensemble", title, note, [unk, single], [Replica(None, points)], None, flags, True)
        if RESHUFFLE in self.config["ensemble"]:
            return [row]
        name, then = self.sized("LV + frozen", "tau {}", self.main), "LV, trained on with frozen word vectors"
        models = tuned_with_frozen(replicas(self.config, LV, self.main))
        return [Row(single, name, then, [unk], models, None, flags, True), row]

    def further(self) -> List[Row]:
        """What the paper did not try, each against + UNK replace with the last tau, or against the baseline."""
        config, flags, found = self.config, self.best_lists(self.main), []
        unk, base = self.id("lv-unk", self.main), partner(config, self.main)
        models = replicas(config, LV, self.main)
        for proposal in config["proposals"]:
            other = replicas(config, PROPOSAL, self.main, f"{PROPOSAL}-{proposal}")
            note = f"another training, with --proposal {proposal}"
            found.append(Row(f"lv-{proposal}", f"LV, {proposal} proposal", note, [unk], other, None, flags, True))
        if config["candidate_source_words"]:
            note = "source words that are also target words join the lists (--candidate-source-words)"
            more = [*flags, "--candidate-source-words"]
            found.append(Row("lv-source-words", "LV, source words on lists", note, [unk], models, None, more, True))
        if config["other_lexicon"]:
            path, note = (
                Path(config["other_lexicon"]),
                f"replacement (and lists) by {Path(config['other_lexicon']).name}",
            )
            names = "RNNsearch + UNK replace, other lexicon", "LV + UNK replace, other lexicon"
            against, small = [self.id("rnnsearch-unk", base)], replicas(config, BASELINE, base)
            found += [
                Row("rnnsearch-other-lexicon", names[0], note, against, small, base, [], True, path),
                Row("lv-other-lexicon", names[1], note, [unk], models, None, flags, True, path),
            ]
        if config["other_train"]:
            other, arch = replicas(config, OTHER, self.main), other_model(config)
            note = f"another model, tau = {self.main:,}, trained for as long as RNNsearch-LV"
            found.append(Row("other-model", f"{arch}, tau {self.main:,}", note, [unk], other, None, flags, True))
        return found
