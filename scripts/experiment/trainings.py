"""Trains the runs of a plan, each for its time or until it gets no better."""

from pathlib import Path
from typing import Dict, List

from experiment.data import Data
from experiment.plan import BASELINE, LV, OTHER, TrainingRun, plan
from experiment.stages import Stages
from experiment.training import best_points, points, trained_hours
from lv_fairseq.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent
PLUGIN = ["--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation"]


class Trainings:
    """
    Args:
        config: see config.py
        out: a folder for each run goes there
    """

    def __init__(self, config: Dict, out: Path, data: Data, stages: Stages):
        self.config, self.out, self.data, self.stages = config, out, data, stages
        self.plan, self.seeds = plan(config), config["seeds"]

    def train_all(self) -> None:
        """Runs from nothing first. Each must have left a model, before hours of tuning."""
        for later in (False, True):
            runs = [run for run in self.plan if (run.follows is not None) is later and self.possible(run)]
            self.stages.together(lambda run=run: self.train(run) for run in runs)
            for run in runs:
                self.points(run.name)

    def ended(self, name: str) -> bool:
        """Whether there is nothing more to do for a run, and a model: a training from nothing may leave none."""
        run = self.named(name)
        if run.start:
            return self.ended(run.start[0]) and (self.stages.done(f"train.{name}") or not self.possible(run))
        return self.stages.done(f"train.{name}") and bool(points(self.out / name))

    def pending(self) -> List[str]:
        return [run.name for run in self.plan if not self.ended(run.name)]

    def seeds_so_far(self) -> List[int]:
        """The seeds with which all baselines and LV runs have ended that are trained with them. The table has no
        others, so that all rows are of the same ones; the first, with which lists are chosen, must be among them."""
        kinds = [run for run in self.plan if run.kind in (BASELINE, LV)]
        missing = {seed: [x.name for x in kinds if x.seed == seed and not self.ended(x.name)] for seed in self.seeds}
        first = missing[self.seeds[0]]
        if first:
            raise UserError(
                f"--so-far: {', '.join(first)} must have been trained, and have left a model: go on without it first"
            )
        return [seed for seed in self.seeds if not missing[seed]]

    def possible(self, run: TrainingRun) -> bool:
        """Whether there is the point that a run goes on from: a training may leave fewer than were asked for."""
        return run.start is None or len(best_points(self.out / run.start[0], run.start[1])) == run.start[1]

    def named(self, name: str) -> TrainingRun:
        return next(run for run in self.plan if run.name == name)

    def points(self, name: str, most: int = 1) -> List[Path]:
        """The best checkpoints of a run. Tuning that brought none leaves the one that it went on from."""
        run = self.named(name)
        if run.start and not points(self.out / name):
            return [self.start(run)]
        return best_points(self.out / name, most)

    def start(self, run: TrainingRun) -> Path:
        """The point that a run goes on from: one of the best of another."""
        name, place = run.start
        return best_points(self.out / name, place)[-1]

    def hours(self, run: TrainingRun) -> float:
        """For how long to train, over all starts of the command together."""
        if run.time_of:
            return trained_hours(self.out / run.time_of / "checkpoint_last.pt")
        if run.start:  # fairseq counts the time of the point that it goes on from
            return trained_hours(self.start(run)) + self.config["frozen_hours"]
        return self.config["hours"]

    def flags(self, run: TrainingRun) -> List:
        """All that does not depend on what there is already."""
        folder, own = self.out / run.name, self.config["other_train" if run.kind == OTHER else "train"]
        flags = [*PLUGIN, *own, "--seed", run.seed, "--save-dir", folder]
        flags += ["--log-format", "json", "--log-file", folder / "train.log", "--criterion", "partition_cross_entropy"]
        flags += ["--max-epoch", 10000, "--no-epoch-checkpoints"]
        flags += ["--keep-best-checkpoints", max(self.config["points"], 2)]
        if self.config["measure"] == "equal convergence" and not run.time_of:
            flags += ["--patience", self.config["patience"]]
        if run.kind != BASELINE:
            flags += ["--tau", run.size, "--source-tau", self.config["source_tau"], *self.hiding()]
        return [*flags, *run.flags, *(self.config["frozen_train"] if run.start else ())]

    def hiding(self) -> List:
        """Flags of a training with all words, which sees no unknown word by itself. The lexicon tells which words are
        translations of each other."""
        strength = self.config["hide_rare_words"]
        return ["--hide-rare-words", strength, "--lexicon", self.data.lexicon(None)] if strength else []

    def train(self, run: TrainingRun) -> None:
        self.stages.stage(f"train.{run.name}", lambda: self.work(run))

    def work(self, run: TrainingRun) -> str:
        folder, hours, flags = self.out / run.name, self.hours(run), self.flags(run)
        last, first = folder / "checkpoint_last.pt", self.start(run) if run.start else None
        restored = last if last.exists() else first
        if first and not last.exists():
            flags += ["--restore-file", first]
        seconds = 3600 * (hours - (trained_hours(restored) if restored else 0))
        log = {"log": folder / "fairseq-train.log", "seconds": seconds}
        self.stages.command("fairseq-train", self.data.folder(run.data), *flags, "--stop-time-hours", hours, **log)
        return ""

    def seconds(self, name: str) -> float:
        """How long a run was trained, with what it went on from."""
        run = self.named(name)
        last = self.out / name / "checkpoint_last.pt"
        return 3600 * trained_hours(last if last.exists() or not run.start else self.start(run))

    def at_limit(self) -> List[str]:
        """Runs that should have converged, and ended because their time was over."""
        if self.config["measure"] != "equal convergence":
            return []
        runs = [run for run in self.plan if not run.time_of and self.ended(run.name) and self.possible(run)]
        return [run.name for run in runs if self.seconds(run.name) >= 3600 * self.hours(run)]

    def shown(self) -> List[TrainingRun]:
        """Runs with a learning curve: of tuning, the one that goes on from the best point only."""
        return [run for run in self.plan if self.ended(run.name) and (run.start is None or run.start[1] == 1)]
