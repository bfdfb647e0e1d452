"""The paper's table by one command: trains, decodes and scores every row of it, on any prepared text.

    scripts/prepare ... --out runs/own
    python scripts/run_experiment.py examples/europarl_en_de/config.yaml --prepared runs/own --out runs/own/experiment
    lv-report runs/own/experiment

Rows: RNNsearch over a shortlist of words, or several; RNNsearch-LV over all words with partitions; decoding with
candidate lists, whose K and K' are the best on the development set; replaced unknown words; new partitions every epoch;
word vectors frozen at the end; an ensemble of the best and second-best points of several runs, each tuned with frozen
word vectors, as in the paper. Each can be trained with several seeds, for the same time or until the development set
gets no better. Then the paper's analysis: BLEU against K' for several K and tau, decoding times, rare words.

Every stage leaves its files behind and is not done again: start the command again after it was stopped. Figures go to
OUT/results.json, logs of the trainings are OUT/*/fairseq-train.log. One that was stopped shows what it has, with
--so-far. On CPUs several trainings or decodings run side by
side (`parallel`), which costs less than many threads for each.
"""

import argparse
import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from experiment.claims import claims
from experiment.config import DEFAULTS, keep_config, load_config, signature
from experiment.corpus import corpus_figures
from experiment.data import Data
from experiment.decoding import Decoder
from experiment.lists import Lists
from experiment.plan import shortlists, taus
from experiment.rare_words import rare_words
from experiment.rows import Row, Table, of_ended, partner, row_id
from experiment.stages import Stages
from experiment.times import decoding_times, timed
from experiment.training import curve, trained_hours
from experiment.trainings import ROOT, Trainings
from names import shown
from preparation import folder as preparation
from preparation.text import read_lines
from programs import Parser, file_errors

from lv_fairseq import results
from lv_fairseq.corpus_coverage import count_words
from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.lock import only_one
from lv_fairseq.processes import printing, signals_as_exit

STOPPED = (
    "the same command goes on; a training goes on from its last checkpoint, and fairseq saves one after each epoch if "
    "its flags do not say more often"
)


class Experiment:
    """
    Args:
        config: see experiment/config.py
        prepared: what scripts/prepare made
        out: where everything goes
    """

    def __init__(self, config: Dict, prepared: Path, out: Path):
        self.config, self.out = config, out
        self.stages = Stages(out, ROOT, config["parallel"])
        self.data = Data(config, prepared, out, self.stages)
        self.trainings = Trainings(config, out, self.data, self.stages)
        self.decoder = Decoder(config, out, self.data, self.trainings, self.stages)
        self.lists = Lists(config, self.data, self.decoder, self.stages)
        self.results: Dict = {"name": config["name"], "signature": signature(config), "systems": []}

    def run(self, so_far: bool = False) -> None:
        """``so_far``: nothing more is trained, and the table has the rows and seeds that are there."""
        if so_far:
            self.trainings.seeds = self.trainings.seeds_so_far()
        corpus = lambda: corpus_figures(*(self.data.text("train", side) for side in (0, 1)))
        found = {"corpus": self.stages.stage("corpus", corpus, dict, ("source", "target", "pairs"))}
        found["texts"] = self.data.texts()
        self.data.make()
        if not so_far:
            self.trainings.train_all()
        pending = self.trainings.pending()
        found["grid"] = [point for tau in taus(self.config) for point in self.lists.grid(tau)]
        best = self.lists.choose(found["grid"])
        table = Table(self.config, self.data.words(), best).rows()
        table = of_ended(table, self.trainings.seeds, self.trainings.ended)
        found["systems"] = self.decoder.decode_all(table)
        found["curves"] = self.curves()
        look = lambda: self.decoder.attention(self.of_main(table))
        found["attention"] = look() if pending else self.stages.stage("attention", look, list)  # of all rows
        found["lists"] = self.lists.analysis()
        found["times"] = self.times(table)
        found["rare_words"] = self.rare_words(table)
        found["claims"] = claims(self.config, found["lists"], [row.id for row in table])
        found["seconds"] = self.stages.seconds()
        self.results.update(found)
        self.results["signature"]["not converged in time"] = ", ".join(self.trainings.at_limit()) or None
        self.results["signature"]["not trained yet"] = ", ".join(pending) or None
        for tau, (k, per_word) in best.items():
            of = f", tau {tau:,}" if len(best) > 1 else ""
            self.results["signature"].update({f"K{of}": k, f"K'{of}": per_word})
        results.check(self.results)
        with written_whole(self.out / "results.json") as file:
            file.write(json.dumps(self.results, indent=1, ensure_ascii=False).encode())
        self.show()

    @printing()
    def show(self) -> None:
        for row in self.results["systems"]:
            names = f"   names {shown(row['test']['names'])}" if "names" in row["test"] else ""
            print(f"{row['name']:40} dev {score(row, 'dev')}   test {score(row, 'test')}{names}")
        print(f"{self.out / 'results.json'} is written: lv-report {self.out}")

    def curves(self) -> List[Dict]:
        """Learning curves, under names that say what was trained."""
        found = []
        for run in self.trainings.shown():
            before = 3600 * trained_hours(self.trainings.start(run)) if run.start else 0.0
            found.append({**curve(run.title, self.out / run.name / "train.log", before), "seed": run.seed})
        return found

    def of_main(self, table: Sequence[Row]) -> List[Row]:
        """The rows of the paper's table, of the last sizes if there are several, without what it did not try."""
        tau = taus(self.config)[-1]
        names = ("rnnsearch", "rnnsearch-unk"), ("lv", "lv-list", "lv-unk", "reshuffle", "frozen")
        ids = {row_id(self.config, name, shortlists(self.config)[-1]) for name in names[0]}
        ids |= {row_id(self.config, name, tau) for name in names[1]} | {"ensemble"}
        return [row for row in table if row.id in ids]

    def times(self, table: Sequence[Row]) -> List[Dict]:
        """Decoding times of the baseline, of LV over all words and of LV with lists, if they are asked for."""
        if not self.config["timing"]:
            return []
        tau = taus(self.config)[-1]
        ids = [row_id(self.config, "rnnsearch", partner(self.config, tau))]
        ids += [row_id(self.config, name, tau) for name in ("lv", "lv-list")]
        return decoding_times(timed(table, ids), self.decoder, self.stages)

    def rare_words(self, table: Sequence[Row]) -> List[Dict]:
        """Words of the references by their frequency in training, where all unknown words are replaced and where none
        are. Not of subwords."""
        if not self.data.in_words:
            return []
        references = read_lines(self.data.text("test", 1))
        seen = count_words(self.data.text("train", 1)).words
        outputs = {row.id: self.decoder.output_words(row) for row in table}
        return rare_words(references, outputs, seen)


def score(row: Dict, which: str) -> str:
    """BLEU of a row: the mean over seeds with its spread, if there are several."""
    over = row.get("over_seeds", {}).get(which)
    return f"{over['mean']:6.2f} \u00b1 {over['spread']:.2f}" if over else f"{row[which]['bleu']:6.2f}"


def check_prepared(folder: Path) -> str:
    """All that the rows need must be there, before any training. Returns what tells one prepared text from another."""
    about = preparation.read(folder)
    for language in (about["source_lang"], about["target_lang"]):
        for subset, kind in itertools.product(("train", "valid", "test"), ("text", "raw")):
            if (subset, kind) != ("train", "raw"):
                preparation.text_of(folder, subset, language, kind)
    if not (folder / "data").is_dir():
        raise UserError(f"there is no {folder / 'data'}: give the same scripts/prepare command again")
    if not (folder / "lexicon").is_file():
        raise UserError(f"{folder} has no lexicon: give the same scripts/prepare command without --no-lexicon")
    told = {name: value for name, value in about.items() if name not in preparation.NO_MATTER}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@command
@signals_as_exit(STOPPED)
@file_errors()
def main(argv: Optional[Sequence[str]] = None) -> None:
    keys = "\n".join(f"  {key}: {value}" for key, value in DEFAULTS.items())
    parser = Parser(
        prog="run_experiment.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"keys of a configuration and their defaults (scripts/experiment/config.py says more):\n{keys}",
    )
    parser.add_argument("config", type=Path, help="a small YAML file; see examples")
    parser.add_argument("--prepared", type=Path, required=True, help="what scripts/prepare made")
    parser.add_argument("--out", type=Path, required=True, help="where models, outputs and results.json go")
    text = "train nothing more: the table of what an experiment that was stopped has trained; it can go on later"
    parser.add_argument("--so-far", action="store_true", help=text)
    args = parser.parse_args(argv)
    config = load_config(args.config)
    prepared, out = args.prepared.resolve(), args.out.resolve()
    for path in (prepared, out):
        if os.pathsep in str(path):
            raise UserError(f"{path}: fairseq takes {os.pathsep!r} for the end of a path, name another folder")
    identity = check_prepared(prepared)
    if args.so_far and not (out / "config.json").exists():
        raise UserError(f"--so-far: there is no experiment in {out}, nothing was trained there yet")
    out.mkdir(parents=True, exist_ok=True)
    with only_one(out):
        keep_config(config, identity, out / "config.json")
        Experiment(config, prepared, out).run(args.so_far)


if __name__ == "__main__":
    main()
