"""Candidate lists: which K and K' are best on the development set, and the paper's analysis, BLEU against K' for
several K and tau on the test set."""

import itertools
from typing import Dict, List, Optional, Tuple

from experiment.data import Data
from experiment.decoding import SCORES, Decoder
from experiment.outputs import list_coverage
from experiment.plan import LV, suffix, taus
from experiment.rows import Row, list_flags, of_ended, replicas
from experiment.seeds import over_seeds
from experiment.stages import Stages


class Lists:
    """
    Args:
        config: see config.py
    """

    def __init__(self, config: Dict, data: Data, decoder: Decoder, stages: Stages):
        self.config, self.data, self.decoder, self.stages = config, data, decoder, stages

    def row(self, name: str, tau: int, k: int, per_word: int, replace: bool) -> Row:
        runs = self.decoder.trainings
        row = Row(name, "", "", [], replicas(self.config, LV, tau), None, list_flags(k, per_word), replace)
        return of_ended([row], runs.seeds, runs.ended)[0]

    def frequent(self, key: str) -> List[int]:
        """K of the configuration, none of them more than there are words."""
        return sorted({min(k, self.data.words()) for k in self.config[key]})

    def grid(self, tau: int) -> List[Dict]:
        """BLEU on (a part of) the development set, without replacement, with the first seed."""
        points = list(itertools.product(self.frequent("frequent"), self.config["per_word"]))
        data, sentences = self.data.first_sentences()

        def decode(k: int, per_word: int) -> Dict:
            name = f"grid{suffix(tau, taus(self.config))}.{k}.{per_word}"
            row = self.row(name, tau, k, per_word, False)
            work = lambda: self.decoder.generate(name, "valid", row, row.replicas[0], data, sentences)
            return self.stages.stage(name, work, dict, SCORES)

        found = []
        for (k, per_word), scores in zip(
            points, self.stages.together(lambda point=point: decode(*point) for point in points)
        ):
            entry = {"tau": tau, "K": k, "K'": per_word, "bleu": scores["bleu"], "interval": scores["interval"]}
            entry.update({"sentences": sentences, "coverage": self.coverage(k, per_word)})
            entry["mean_list"] = scores["decoding"].get("mean_list")
            found.append(entry)
        return found

    def choose(self, grid: List[Dict]) -> Dict[int, Tuple[int, int]]:
        """K and K' with the best BLEU for each tau."""
        best = {}
        for tau in taus(self.config):
            top = max((entry for entry in grid if entry["tau"] == tau), key=lambda entry: entry["bleu"])
            best[tau] = (top["K"], top["K'"])
        return best

    def coverage(self, k: int, per_word: int) -> Optional[float]:
        """Share of the words of the development set's references that are on their lists."""
        flags = ["--source", self.data.text("valid", 0), "--target", self.data.text("valid", 1)]
        flags += ["--frequent", k, "--per-word", per_word]
        flags += ["--target-dict", self.data.prepared / "data" / f"dict.{self.data.languages[1]}.txt"]
        log, lexicon = self.decoder.out / "logs" / "coverage.log", self.data.lexicon(None)
        work = lambda: self.stages.command("lv-lexicon", "coverage", lexicon, *flags, log=log)
        points = list_coverage(self.stages.stage(f"coverage.{k}.{per_word}", work))
        return points[0]["coverage"] if points else None

    def analysis(self) -> List[Dict]:
        """BLEU on the test set for each tau, K and K', over all seeds, unknown words replaced."""
        if not self.config["analysis_frequent"]:
            return []
        places = itertools.product(
            taus(self.config), self.frequent("analysis_frequent"), self.config["analysis_per_word"]
        )
        rows = {(tau, k, x): self.row(f"list-{tau}-{k}-{x}", tau, k, x, True) for tau, k, x in places}
        jobs = [(row, replica) for row in rows.values() for replica in row.replicas]
        self.stages.together(lambda job=job: self.decoder.decode(*job, "test") for job in jobs)
        found = []
        for (tau, k, per_word), row in rows.items():
            outputs = [self.decoder.decode(row, replica, "test") for replica in row.replicas]
            seeds = [{"seed": one.seed, "test": output} for one, output in zip(row.replicas, outputs)]
            mean_list = outputs[0]["decoding"].get("mean_list")
            about = {"id": row.id, "tau": tau, "K": k, "K'": per_word, "mean_list": mean_list}
            scores = over_seeds([output["bleu"] for output in outputs])
            found.append({**about, "seeds": seeds, "over_seeds": {"test": scores}})
        return found
