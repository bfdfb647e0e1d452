"""Writes results.json of the demo, for lv-report, and prints what candidate lists and replacement bring.

    python scripts/demo_results.py runs/demo

FOLDER is what examples/demo/run.sh has made, with what fairseq-generate printed (NAME.out) and logged (NAME.log).
"""

import argparse
import json
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from experiment.config import made_with
from experiment.corpus import corpus_figures
from experiment.outputs import Searched, attention, list_coverage, pace, replaced_words, soft_alignments
from experiment.training import curve, trained_with
from names import count_names, shown
from preparation.text import read_lines
from programs import Parser, file_errors
from scoring import best_hypotheses, write_hypotheses

from lv_fairseq import results
from lv_fairseq.errors import command
from lv_fairseq.files import written_whole
from lv_fairseq.fingerprint import dictionary_words
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.report.scores import bootstrap

SYSTEMS = (  # file, name, note, and the file of the same search without replacement
    ("all-words", "all words", "each word is chosen among all of the dictionary", "all-words"),
    ("lists", "candidate list", "among the frequent words and translations of the source words", "lists"),
    ("test", "list + replacement", "the same, and unknown words and rare names are copied", "unreplaced"),
)
TOKENISED = "tok:none"  # words as they are: punctuation is split off already


def system(folder: Path, name: str, searched: Searched, references: List[str]) -> Dict:
    """What results.json says of one way to decode."""
    log = (folder / f"{name}.log").read_bytes().decode(errors="replace")
    sources, known = read_lines(folder / "text" / "test.src"), dictionary_words(folder / "data" / "dict.src.txt")
    write_hypotheses(folder / f"{name}.hyp", list(searched.after))
    (bleu,), signature = bootstrap((tuple(searched.after),), tuple(references), TOKENISED)
    test = {
        "hypotheses": f"{name}.hyp",
        "bleu": float(bleu.score),
        "interval": float(bleu.ci),
        "signature": signature,
        "names": count_names(sources, references, searched.after, frozenset(known)),
        "replaced": replaced_words(searched),
    }
    unknown = sum(line.split().count("<unk>") for line in searched.before)
    return {"id": name, "test": test, "decoding": {"unknown": unknown, **said(log), "ms_per_word": pace(log)}}


def said(log: str) -> Dict:
    """What decoding said of itself, as far as it was asked to do it."""
    return {name: value for name, value in results.in_output(log).items() if value is not None}


def everything(folder: Path, sentences: int) -> Dict:
    """All of results.json. ``sentences``: how many show their attention."""
    text = folder / "text"
    sources, references = read_lines(text / "test.src"), read_lines(text / "test.tgt")
    systems, searches = [], []
    for name, title, note, before in SYSTEMS:
        outputs = [folder / f"{file}.out" for file in (before, name)]
        searches.append(Searched(name, *map(best_hypotheses, outputs), soft_alignments(outputs[0])))
        about = {"name": title, "note": note, "against": [one["id"] for one in systems[-1:]]}
        systems.append({**system(folder, name, searches[-1], references), **about})
    checkpoint = folder / "model" / "checkpoint_best.pt"
    return {
        "name": "demo",
        "signature": {"flags of the training": trained_with(checkpoint), **made_with()},
        "corpus": corpus_figures(text / "train.src", text / "train.tgt"),
        "texts": {"test": {"source": "text/test.src", "reference": "text/test.tgt"}},
        "systems": systems,
        "grid": list_coverage((folder / "coverage.txt").read_text(encoding="utf-8")),
        "curves": [curve("RNNsearch-LV", folder / "train.log")],
        "attention": attention(searches, sources, sentences),
    }


@printing()
def show(systems: List[Dict]) -> None:
    print(f"{'':20}{'BLEU':>15}{'ms a word':>12}{'names that arrive':>20}")
    for one in systems:
        test, milliseconds = one["test"], one["decoding"]["ms_per_word"]
        score = f"{test['bleu']:.1f} \u00b1 {test['interval']:.1f}"
        print(f"{one['name']:20}{score:>15}{milliseconds or 0:>12.2f}{shown(test['names']):>20}")


@command
@signals_as_exit("nothing was written")
@file_errors()
def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = Parser(prog="demo_results.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what examples/demo/run.sh made")
    parser.add_argument("--sentences", type=int, default=3, metavar="N", help="whose attention is shown (default: 3)")
    args = parser.parse_args(argv)
    found = everything(args.folder, args.sentences)
    results.check(found)
    with written_whole(args.folder / "results.json") as file:
        file.write(json.dumps(found, indent=1, ensure_ascii=False).encode())
    show(found["systems"])


if __name__ == "__main__":
    main()
