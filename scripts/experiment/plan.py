"""The plan of an experiment: all trainings as data. What each is trained on, with which seed, how, and after which."""

from typing import Dict, List, NamedTuple, Optional, Tuple

BASELINE, LV, RESHUFFLE, FROZEN, PROPOSAL, OTHER = "rnnsearch", "lv", "reshuffle", "frozen", "proposal", "other"
REPEATABLE = (BASELINE, LV, RESHUFFLE)  # kinds that `every_seed` can name


class TrainingRun(NamedTuple):
    """One training; its folder and its stage have its name."""

    name: str
    kind: str
    title: str  # for people
    size: int  # words of the shortlist, or tau
    seed: int
    data: Optional[int]  # words of the shortlist that it is trained on; None: all words
    flags: Tuple = ()  # beyond those of every run
    start: Optional[Tuple[str, int]] = None  # a run, and which of its best points this goes on from, from 1
    time_of: Optional[str] = None  # a run: it is trained for as long as that one was

    @property
    def follows(self) -> Optional[str]:
        """The run that must have ended before."""
        return self.start[0] if self.start else self.time_of


def sizes(value) -> List[int]:
    """One number, or a list of them, of a configuration."""
    return list(value) if isinstance(value, list) else [value]


def shortlists(config: Dict) -> List[int]:
    return sizes(config["shortlist"])


def taus(config: Dict) -> List[int]:
    return sizes(config["tau"])


def reshuffle_taus(config: Dict) -> List[int]:
    return sizes(config["reshuffle_tau"] or config["tau"])


def suffix(size: int, all_sizes: List[int]) -> str:
    """What tells a size from others in names; nothing if there is one only."""
    return f"-{size}" if len(all_sizes) > 1 else ""


def seeds_of(config: Dict, kind: str) -> List[int]:
    """Kinds that the configuration does not repeat are trained with the first seed only."""
    every = kind in config["every_seed"] or kind in (PROPOSAL, OTHER) and LV in config["every_seed"]
    return config["seeds"] if every else config["seeds"][:1]


def run_name(config: Dict, kind: str, size: int, seed: int) -> str:
    among = {BASELINE: shortlists, RESHUFFLE: reshuffle_taus}.get(kind, taus)(config)
    return f"{kind}{suffix(size, among)}-{seed}"


def frozen_name(name: str, place: int) -> str:
    """The run that goes on from one of the best points of another with frozen word vectors."""
    return f"{FROZEN}-{name}-{place}"


def first_runs(config: Dict) -> List[TrainingRun]:
    """Trainings from nothing."""
    runs = []

    def add(kind: str, title: str, size: int, data: Optional[int] = None, flags: Tuple = (), name: str = "") -> None:
        for seed in seeds_of(config, kind):
            named = run_name(config, name or kind, size, seed)
            time_of = run_name(config, LV, size, seed) if kind == OTHER else None
            seeded = f"{title}, seed {seed}"
            runs.append(TrainingRun(named, kind, seeded, size, seed, data, flags, time_of=time_of))

    for words in shortlists(config):
        add(BASELINE, f"RNNsearch, {words:,} words", words, data=words)
    for tau in taus(config):
        add(LV, f"RNNsearch-LV, tau {tau:,}", tau)
    for tau in reshuffle_taus(config):
        add(RESHUFFLE, f"RNNsearch-LV, tau {tau:,}, reshuffled", tau, flags=("--reshuffle-partitions",))
    main = taus(config)[-1]
    for proposal in config["proposals"]:
        flags = ("--proposal", proposal)
        add(PROPOSAL, f"RNNsearch-LV, tau {main:,}, {proposal}", main, flags=flags, name=f"{PROPOSAL}-{proposal}")
    if config["other_train"]:
        add(OTHER, f"{other_model(config)}, tau {main:,}", main)
    return runs


def other_model(config: Dict) -> str:
    """The architecture of `other_train`."""
    flags = config["other_train"]
    return str(flags[flags.index("--arch") + 1])


def ensemble_runs(config: Dict) -> List[Tuple[str, int]]:
    """Which runs, and how many points of each, are in the ensemble: all seeds with the last tau."""
    last = {LV: taus(config)[-1], RESHUFFLE: reshuffle_taus(config)[-1]}
    return [
        (run_name(config, kind, last[kind], seed), config["points"])
        for kind in config["ensemble"]
        for seed in seeds_of(config, kind)
    ]


def frozen_runs(config: Dict, runs: List[TrainingRun]) -> List[TrainingRun]:
    """Tuning with frozen word vectors: of the best point of each reshuffled run, and of all points of the ensemble."""
    points = {run.name: 1 for run in runs if run.kind == RESHUFFLE}
    points.update(ensemble_runs(config))
    return [
        run._replace(
            name=frozen_name(run.name, place),
            kind=FROZEN,
            title=f"{run.title}, then frozen" + (f" (point {place})" if place > 1 else ""),
            flags=(*run.flags, "--freeze-word-tables"),
            start=(run.name, place),
        )
        for run in runs
        for place in range(1, points.get(run.name, 0) + 1)
    ]


def plan(config: Dict) -> List[TrainingRun]:
    """All trainings, each after the one that it follows."""
    runs = sorted(first_runs(config), key=lambda run: run.follows is not None)
    return [*runs, *frozen_runs(config, runs)]
