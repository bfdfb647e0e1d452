"""Translates with the models of the rows of the table, and scores what comes out."""

import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from preparation.text import read_lines
from scoring import best_hypotheses, score, write_hypotheses

from experiment.data import Data
from experiment.outputs import Searched, attention, pace, replaced_words, soft_alignments
from experiment.rows import Replica, Row
from experiment.seeds import over_seeds
from experiment.stages import Stages
from experiment.trainings import PLUGIN, Trainings
from lv_fairseq import results

SETS = {"dev": "valid", "test": "test"}
SCORES = ("bleu", "interval", "hypotheses", "ms_per_word", "decoding")


class Decoder:
    """
    Args:
        config: see config.py
        out: outputs go to OUT/outputs
    """

    def __init__(self, config: Dict, out: Path, data: Data, trainings: Trainings, stages: Stages):
        self.config, self.out, self.data, self.trainings, self.stages = config, out, data, trainings, stages

    def paths(self, replica: Replica) -> List[Path]:
        """The checkpoints that decode together."""
        there = (point for point in replica.points if self.trainings.possible(self.trainings.named(point[0])))
        return [self.trainings.points(run, place)[-1] for run, place in there]

    def generate(
        self,
        name: str,
        subset: str,
        row: Row,
        replica: Replica,
        data: Optional[Path] = None,
        sentences: Optional[int] = None,
    ) -> Dict:
        """Translate and score a subset, or its first sentences, which are in ``data`` then."""
        output = self.out / "outputs" / f"{name}.{subset}.out"
        own = ["--gen-subset", subset, "--beam", self.config["beam"], *self.config["generate"], *row.lists]
        if row.replace or row.lists:
            own += ["--lexicon", self.data.lexicon(row.data, row.lexicon)]
        if row.replace:
            own += ["--unk-replacement", self.config["unk_replacement"]]
            own += ["--source-text", self.data.text(subset, 0)]
        elif subset == "test":
            own += ["--print-alignment", "soft"]
        path = ":".join(map(str, self.paths(replica)))
        started = time.monotonic()
        where = data or self.data.folder(row.data)
        text = self.stages.command("fairseq-generate", where, *PLUGIN, "--path", path, *own, log=output)
        detokenised, scores = score(self.data.prepared, output, subset, sentences)
        hypotheses = output.with_suffix(".hyp")
        write_hypotheses(hypotheses, detokenised)
        return {
            **scores,
            "hypotheses": str(hypotheses.relative_to(self.out)),
            "ms_per_word": pace(text),
            "seconds": time.monotonic() - started,
            "decoding": results.in_output(text),
        }

    def decode(self, row: Row, replica: Replica, subset: str, **first) -> Dict:
        """Translations of one row of the table, by the models of one seed, for the development or the test set."""
        name = f"{row.id}.{replica.name}"
        work = lambda: self.generate(name, subset, row, replica, **first)
        return self.stages.stage(f"decode.{name}.{subset}", work, dict, SCORES)

    def decode_all(self, table: Sequence[Row]) -> List[Dict]:
        """What results.json says of the rows of the table."""
        for row in table:
            if row.replace or row.lists:
                self.data.lexicon(row.data, row.lexicon)
        jobs = [(row, replica, subset) for row in table for replica in row.replicas for subset in SETS.values()]
        longest_first = sorted(jobs, key=lambda job: -len(job[1].points))
        self.stages.together(lambda job=job: self.decode(*job) for job in longest_first)
        self.stages.together(lambda row=row: self.searched(row, table) for row in table)
        return [self.figures(row, table) for row in table]

    def searched(self, row: Row, table: Sequence[Row]) -> Searched:
        """What the search of a row found in the test set, with the first seed. Its own words and its attention are in
        the output of a row that differs in nothing but replacement; if there is none, the test set is decoded once
        more."""
        replica = row.replicas[0]
        before = row
        if row.replace:
            same = (other for other in table if not other.replace and other.search == row.search)
            before = next(same, row._replace(id=f"{row.id}-unreplaced", replace=False))
            self.decode(before, replica, "test")
        outputs = [self.out / "outputs" / f"{one.id}.{replica.name}.test.out" for one in (before, row)]
        return Searched(row.id, *map(best_hypotheses, outputs), soft_alignments(outputs[0]))

    def figures(self, row: Row, table: Sequence[Row]) -> Dict:
        """What results.json says of a row."""
        figures: Dict = {"id": row.id, "name": row.title, "note": row.note, "against": row.against}
        first = row.replicas[0]
        figures["checkpoints"] = [str(path.relative_to(self.out)) for path in self.paths(first)]
        for which, subset in SETS.items():
            figures[which] = self.decode(row, first, subset)
        if len(row.replicas) > 1:
            seeds = [
                {"seed": replica.seed, **{which: self.decode(row, replica, subset) for which, subset in SETS.items()}}
                for replica in row.replicas
            ]
            figures["seeds"] = seeds
            figures["over_seeds"] = {which: over_seeds([one[which]["bleu"] for one in seeds]) for which in SETS}
        figures["training"] = {"seconds": self.training_seconds(row)}
        figures["decoding"] = {**figures["test"]["decoding"], "ms_per_word": figures["test"]["ms_per_word"]}
        searched = self.searched(row, table)
        if row.replace:
            figures["test"]["replaced"] = replaced_words(searched)
        else:  # what is unknown stands in the output
            figures["decoding"]["unknown"] = sum(line.split().count("<unk>") for line in searched.after)
        return figures

    def training_seconds(self, row: Row) -> float:
        """Of one model: the mean over seeds, or over the models of an ensemble."""
        runs = {run for replica in row.replicas for run, _ in replica.points}
        runs = {run for run in runs if self.trainings.possible(self.trainings.named(run))}
        return sum(map(self.trainings.seconds, runs)) / len(runs)

    def attention(self, table: Sequence[Row]) -> List[Dict]:
        """Where all rows looked in the same sentences of the test set."""
        sources = read_lines(self.data.text("test", 0))
        return attention([self.searched(row, table) for row in table], sources, self.config["attention"])

    def output_words(self, row: Row, subset: str = "test") -> List[List[str]]:
        """Sentences of each seed, in words, as they were generated."""
        outputs = (self.out / "outputs" / f"{row.id}.{replica.name}.{subset}.out" for replica in row.replicas)
        return [best_hypotheses(path) for path in outputs]
