"""The paper's table by one command: trains, decodes and scores every row of it, on any prepared text.

    scripts/prepare ... --out runs/own
    python scripts/run_experiment.py examples/europarl_en_de/config.yaml --prepared runs/own --out runs/own/experiment
    lv-report runs/own/experiment

Rows: RNNsearch over a shortlist of words; RNNsearch-LV over all words with partitions; decoding with candidate lists,
whose K and K' are the best on the development set; replaced unknown words; new partitions every epoch; word vectors
frozen at the end; an ensemble of the best and second-best points of all LV runs, each tuned with frozen word vectors,
as in the paper. Every stage leaves its files behind and is not done again: start the command again after it was
stopped. Figures go to OUT/results.json, logs of the trainings are OUT/*/fairseq-train.log. On CPUs several trainings or
decodings run side by side (`parallel`), which costs less than many threads for each.
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from experiment.config import DEFAULTS, keep_config, load_config, signature
from experiment.corpus import corpus_figures
from experiment.outputs import Searched, attention, list_coverage, pace, replaced_words, soft_alignments
from experiment.rows import Row, rows
from experiment.stages import Stages
from experiment.training import best_points, curve, points, trained_hours
from names import shown
from preparation import folder as preparation
from preparation.text import read_lines
from programs import Parser, file_errors, made_whole
from scoring import best_hypotheses, score, write_hypotheses

from lv_fairseq import results
from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.lock import only_one
from lv_fairseq.processes import printing, signals_as_exit

ROOT = Path(__file__).resolve().parent.parent
PLUGIN = ["--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation"]
STOPPED = (
    "the same command goes on; a training goes on from its last checkpoint, and fairseq saves one after each epoch if "
    "its flags do not say more often"
)
SCORES = ("bleu", "interval", "hypotheses", "ms_per_word", "decoding")


class Experiment:
    """
    Args:
        config: see experiment/config.py
        prepared: what scripts/prepare made
        out: where everything goes
    """

    def __init__(self, config: Dict, prepared: Path, out: Path):
        self.config, self.prepared, self.out = config, prepared, out
        settings = preparation.read(prepared)
        self.languages = [settings["source_lang"], settings["target_lang"]]
        self.stages = Stages(out, ROOT, config["parallel"])
        self.results = {"name": config["name"], "signature": signature(config), "systems": [], "grid": [], "curves": []}

    def run(self) -> None:
        config = self.config
        texts = [self.prepared / "text" / f"train.{language}" for language in self.languages]
        corpus = lambda: corpus_figures(*texts)
        self.results["corpus"] = self.stages.stage("corpus", corpus, dict, ("source", "target", "pairs"))
        self.results["texts"] = self.texts()
        self.shortlist_data()
        runs = self.train_all()
        tuned = self.tune_all(runs)
        first = runs[f"lv{config['seeds'][0]}"]
        best_k = self.choose_lists(best_points(first)[0])
        self.results["signature"].update({"K": best_k[0], "K'": best_k[1]})
        models = {name: best_points(run) for name, run in runs.items()}
        models["lv"], models["frozen"] = best_points(first), tuned["reshuffle"][:1]
        models["ensemble"] = list(itertools.chain.from_iterable(tuned.values()))
        table = rows(config, models, self.out / "shortlist", self.prepared / "data", self.words(), *best_k)
        self.results["systems"] = self.decode_all(table)
        self.results["curves"] = self.curves(runs)
        self.results["attention"] = self.stages.stage("attention", lambda: self.attention(table), list)
        results.check(self.results)
        with written_whole(self.out / "results.json") as file:
            file.write(json.dumps(self.results, indent=1, ensure_ascii=False).encode())
        self.show()

    @printing()
    def show(self) -> None:
        for row in self.results["systems"]:
            names = f"   names {shown(row['test']['names'])}" if "names" in row["test"] else ""
            print(f"{row['name']:32} dev {row['dev']['bleu']:6.2f}   test {row['test']['bleu']:6.2f}{names}")
        print(f"{self.out / 'results.json'} is written: lv-report {self.out}")

    def train_all(self) -> Dict[str, Path]:
        """The folders of all runs."""
        full = self.prepared / "data"
        plans = {"rnnsearch": lambda: self.train("rnnsearch", self.out / "shortlist", 1, shortlist=True)}
        for seed in self.config["seeds"]:
            plans[f"lv{seed}"] = lambda seed=seed: self.train(f"lv{seed}", full, seed)
        plans["reshuffle"] = lambda: self.train("reshuffle", full, 1, reshuffle=True)
        return dict(zip(plans, self.stages.together(plans.values())))

    def tune_all(self, runs: Dict[str, Path]) -> Dict[str, List[Path]]:
        """The best points of each LV run, tuned with frozen word vectors until they get no better."""
        best = {name: best_points(run, self.config["points"]) for name, run in runs.items()}
        del best["rnnsearch"]  # looked at all the same: a run without a point is told of before hours of tuning

        def tune(name: str, place: int, point: Path) -> Path:
            seed = int(name[2:]) if name.startswith("lv") else 1
            flags = {"reshuffle": name == "reshuffle", "frozen_from": point}
            tuned = self.train(f"frozen-{name}-{place}", self.prepared / "data", seed, **flags)
            return (points(tuned) or [point])[0]

        jobs = [(name, i, point) for name, points in best.items() for i, point in enumerate(points, start=1)]
        tuned: Dict[str, List[Path]] = {}
        for job, path in zip(jobs, self.stages.together(lambda job=job: tune(*job) for job in jobs)):
            tuned.setdefault(job[0], []).append(path)
        return tuned

    def decode_all(self, table: List[Row]) -> List[Dict]:
        """What results.json says of the rows of the table."""
        self.lexicon_for(self.out / "shortlist")
        longest_first = sorted(itertools.product(table, ("valid", "test")), key=lambda job: -len(job[0].paths))
        self.stages.together(lambda job=job: self.decode(*job) for job in longest_first)
        self.stages.together(lambda row=row: self.searched(row, table) for row in table)
        return [self.figures(row, table) for row in table]

    def curves(self, runs: Dict[str, Path]) -> List[Dict]:
        """Learning curves, under names that say what was trained."""
        names = {"rnnsearch": f"RNNsearch, {self.config['shortlist']:,} words", "reshuffle": "RNNsearch-LV, reshuffled"}
        names.update({f"lv{seed}": f"RNNsearch-LV, seed {seed}" for seed in self.config["seeds"]})
        before = 3600 * trained_hours(best_points(runs["reshuffle"])[0])
        frozen = curve(f"{names['reshuffle']}, then frozen", self.out / "frozen-reshuffle-1" / "train.log", before)
        return [*(curve(names[name], run / "train.log") for name, run in runs.items()), frozen]

    def texts(self) -> Dict:
        """Copies of the texts that a report shows."""
        texts = {}
        (self.out / "texts").mkdir(parents=True, exist_ok=True)
        for name, subset in (("dev", "valid"), ("test", "test")):
            texts[name] = {}
            for kind, folder, language in (
                ("source", "raw", self.languages[0]),
                ("reference", "raw", self.languages[1]),
                ("tokenised_source", "text", self.languages[0]),
            ):
                path = self.out / "texts" / f"{name}.{kind}"
                shutil.copyfile(self.prepared / folder / f"{subset}.{language}", path)
                texts[name][kind] = str(path.relative_to(self.out))
        return texts

    def shortlist_data(self) -> None:
        """The same text with the most frequent words only."""
        folder, words = self.out / "shortlist", self.config["shortlist"]
        if folder.exists():
            return
        prefixes = [
            x for split in ("train", "valid", "test") for x in (f"--{split}pref", self.prepared / "text" / split)
        ]
        flags = ["-s", self.languages[0], "-t", self.languages[1], "--workers", os.cpu_count() or 1]
        flags += ["--nwordssrc", words, "--nwordstgt", words]
        with made_whole(folder) as part:
            log = self.out / "logs" / "shortlist.log"
            self.stages.command("fairseq-preprocess", *prefixes, *flags, "--destdir", part, log=log)

    def train(
        self, name: str, data: Path, seed: int, shortlist=False, reshuffle=False, frozen_from: Optional[Path] = None
    ) -> Path:
        """Train for the hours of the configuration, over all starts of the command together. Returns its folder."""
        folder = self.out / name
        hours, last = self.config["hours"], folder / "checkpoint_last.pt"
        if frozen_from:  # fairseq counts the time of the point that it goes on from
            hours = trained_hours(frozen_from) + self.config["frozen_hours"]
        restored = last if last.exists() else frozen_from
        seconds = 3600 * (hours - (trained_hours(restored) if restored else 0))
        flags = [*PLUGIN, *self.config["train"], "--seed", seed, "--save-dir", folder, "--stop-time-hours", hours]
        flags += ["--log-format", "json", "--log-file", folder / "train.log", "--criterion", "partition_cross_entropy"]
        flags += ["--max-epoch", 10000, "--no-epoch-checkpoints"]
        flags += ["--keep-best-checkpoints", max(self.config["points"], 2)]
        if not shortlist:
            tau = reshuffle and self.config["reshuffle_tau"] or self.config["tau"]
            flags += ["--tau", tau, "--source-tau", self.config["source_tau"]]
            flags += self.hiding()
        if reshuffle:
            flags += ["--reshuffle-partitions"]
        if frozen_from:
            flags += ["--freeze-word-tables"]
            if not last.exists():
                flags += ["--restore-file", frozen_from]
        log = {"log": folder / "fairseq-train.log", "seconds": seconds}
        self.stages.stage(f"train.{name}", lambda: self.stages.command("fairseq-train", data, *flags, **log)[:0])
        return folder

    def hiding(self) -> List:
        """Flags of a training with all words, which sees no unknown word by itself. The lexicon tells which words are
        translations of each other."""
        strength = self.config["hide_rare_words"]
        return ["--hide-rare-words", strength, "--lexicon", self.prepared / "lexicon"] if strength else []

    def generate(
        self,
        name: str,
        subset: str,
        paths: Sequence[Path],
        flags: Sequence,
        data: Path,
        replace: bool,
        sentences: Optional[int] = None,
    ) -> Dict:
        """Translate and score a subset, or its first sentences."""
        output = self.out / "outputs" / f"{name}.{subset}.out"
        own = ["--gen-subset", subset, "--beam", self.config["beam"], *self.config["generate"], *flags]
        if replace or "--candidate-per-word" in flags:
            own += ["--lexicon", self.lexicon_for(data)]
        if replace:
            own += ["--unk-replacement", self.config["unk_replacement"]]
            own += ["--source-text", self.prepared / "text" / f"{subset}.{self.languages[0]}"]
        elif subset == "test":
            own += ["--print-alignment", "soft"]
        path = ":".join(map(str, paths))
        started = time.monotonic()
        text = self.stages.command("fairseq-generate", data, *PLUGIN, "--path", path, *own, log=output)
        detokenised, scores = score(self.prepared, output, subset, sentences)
        hypotheses = output.with_suffix(".hyp")
        write_hypotheses(hypotheses, detokenised)
        return {
            **scores,
            "hypotheses": str(hypotheses.relative_to(self.out)),
            "ms_per_word": pace(text),
            "seconds": time.monotonic() - started,
            "decoding": results.in_output(text),
        }

    def lexicon_for(self, data: Path) -> Path:
        """The lexicon was made for the dictionaries of all words; the shortlist takes it as a table of words."""
        if data != self.out / "shortlist":
            return self.prepared / "lexicon"
        path = self.out / "shortlist.lexicon"
        if not path.exists():
            table = self.out / "shortlist.tsv"
            for source, target in ((self.prepared / "lexicon", table), (table, path)):
                self.stages.command(
                    "lv-lexicon", "convert", source, "--out", target, log=self.out / "logs" / "convert.log"
                )
            table.unlink()
        return path

    def words(self) -> int:
        """How many target words the models over all words know."""
        return sum(1 for _ in open(self.prepared / "data" / f"dict.{self.languages[1]}.txt", "rb"))

    def choose_lists(self, checkpoint: Path) -> List[int]:
        """K and K' with the best BLEU on (a part of) the development set."""
        frequent = sorted({min(k, self.words()) for k in self.config["frequent"]})
        grid = list(itertools.product(frequent, self.config["per_word"]))
        data, sentences = self.grid_data()

        def decode(k: int, per_word: int) -> Dict:
            flags = ["--candidate-frequent", k, "--candidate-per-word", per_word]
            name = f"grid.{k}.{per_word}"
            work = lambda: self.generate(name, "valid", [checkpoint], flags, data, False, sentences)
            return self.stages.stage(name, work, dict, SCORES)

        found = self.stages.together(lambda point=point: decode(*point) for point in grid)
        for (k, per_word), scores in zip(grid, found):
            entry = {"K": k, "K'": per_word, "bleu": scores["bleu"], "interval": scores["interval"]}
            entry.update({"sentences": sentences, "coverage": self.coverage(k, per_word)})
            entry["mean_list"] = scores["decoding"].get("mean_list")
            self.results["grid"].append(entry)
        best = max(self.results["grid"], key=lambda entry: entry["bleu"])
        return [best["K"], best["K'"]]

    def grid_data(self) -> Tuple[Path, int]:
        """The first sentences of the development set, binarised, and how many they are."""
        folder = self.out / "grid"
        if not folder.exists():
            with made_whole(folder) as part:
                self.binarise_grid(part)
        return folder, sum(1 for _ in open(folder / f"text.{self.languages[0]}", "rb"))

    def binarise_grid(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        flags = ["--validpref", folder / "text", "--destdir", folder, "-s", self.languages[0], "-t", self.languages[1]]
        for side, language in zip(("src", "tgt"), self.languages):
            with open(self.prepared / "text" / f"valid.{language}", "rb") as text:
                lines = list(itertools.islice(text, self.config["grid_sentences"]))
            (folder / f"text.{language}").write_bytes(b"".join(lines))
            flags += [f"--{side}dict", self.prepared / "data" / f"dict.{language}.txt"]
        self.stages.command("fairseq-preprocess", *flags, log=self.out / "logs" / "grid.log")

    def coverage(self, k: int, per_word: int) -> Optional[float]:
        """Share of the words of the development set's references that are on their lists."""
        text = self.prepared / "text"
        flags = ["--source", text / f"valid.{self.languages[0]}", "--target", text / f"valid.{self.languages[1]}"]
        flags += ["--frequent", k, "--per-word", per_word]
        flags += ["--target-dict", self.prepared / "data" / f"dict.{self.languages[1]}.txt"]
        log = self.out / "logs" / "coverage.log"
        work = lambda: self.stages.command("lv-lexicon", "coverage", self.prepared / "lexicon", *flags, log=log)
        points = list_coverage(self.stages.stage(f"coverage.{k}.{per_word}", work))
        return points[0]["coverage"] if points else None

    def decode(self, row: Row, split: str) -> Dict:
        """Translations of one row of the table for the development or the test set."""
        work = lambda: self.generate(row.id, split, row.paths, row.flags, row.data, row.replace)
        return self.stages.stage(f"decode.{row.id}.{split}", work, dict, SCORES)

    def searched(self, row: Row, table: List[Row]) -> Searched:
        """What the search of a row found in the test set. Its own words and its attention are in the output of a row
        that differs in nothing but replacement; if there is none, the test set is decoded once more."""
        same = (other for other in table if not other.replace and other.search == row.search)
        name = next(same, row).id if row.replace else row.id
        if row.replace and name == row.id:
            name = f"{row.id}-unreplaced"
            work = lambda: self.generate(name, "test", row.paths, row.flags, row.data, False)
            self.stages.stage(f"decode.{name}.test", work, dict, SCORES)
        outputs = [self.out / "outputs" / f"{one}.test.out" for one in (name, row.id)]
        return Searched(row.id, *map(best_hypotheses, outputs), soft_alignments(outputs[0]))

    def figures(self, row: Row, table: List[Row]) -> Dict:
        """What results.json says of a row."""
        figures = {"id": row.id, "name": row.title, "note": row.note, "against": row.against}
        figures["checkpoints"] = [str(path.relative_to(self.out)) for path in row.paths]
        figures.update({"dev": self.decode(row, "valid"), "test": self.decode(row, "test")})
        figures["decoding"] = {**figures["test"]["decoding"], "ms_per_word": figures["test"]["ms_per_word"]}
        searched = self.searched(row, table)
        if row.replace:
            figures["test"]["replaced"] = replaced_words(searched)
        else:  # what is unknown stands in the output
            figures["decoding"]["unknown"] = sum(line.split().count("<unk>") for line in searched.after)
        return figures

    def attention(self, table: List[Row]) -> List[Dict]:
        """Where all rows looked in the same sentences of the test set."""
        sources = read_lines(self.prepared / "text" / f"test.{self.languages[0]}")
        return attention([self.searched(row, table) for row in table], sources, self.config["attention"])


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
    args = parser.parse_args(argv)
    config = load_config(args.config)
    prepared, out = args.prepared.resolve(), args.out.resolve()
    for path in (prepared, out):
        if os.pathsep in str(path):
            raise UserError(f"{path}: fairseq takes {os.pathsep!r} for the end of a path, name another folder")
    identity = check_prepared(prepared)
    out.mkdir(parents=True, exist_ok=True)
    with only_one(out):
        keep_config(config, identity, out / "config.json")
        Experiment(config, prepared, out).run()


if __name__ == "__main__":
    main()
