"""Whole trainings at equal time: what fairseq, with us and without, and Marian make of the same minutes.

    python -m side_by_side.training_runs --out rows.json    # from the folder benchmarks; 4 minutes each
    python -m side_by_side.training_runs --quick            # half a minute each, and no translation

All train a recurrent model of 256 dimensions with attention over all words of the text, with Adam, about 3,000 tokens
an update, on two threads, one after the other and without validation. Then each translates the test text with a beam
of 5, scores divided by length; BLEU is of the text as it is, which is tokenised. Minutes begin when fairseq's trainer
is there, which then reads the data, and when Marian's process does. Speed leaves out the first update of a run, and
with fairseq includes its checkpoint at the end.
"""

import argparse
import contextlib
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

import sacrebleu

import lv_fairseq
from lv_fairseq.errors import UserError, command
from lv_fairseq.processes import end, how_ended, run, signals_as_exit, start
from side_by_side.rows import PEERS, Row, Rows, parse, peer_python, section_parser

ROOT = Path(__file__).resolve().parents[2]
PLUGIN, BIN = ROOT / "lv_fairseq", Path(sys.executable).parent
SPLITS = {"train": ("source", "target"), "test": ("test_source", "test_target")}
MINUTES, QUICK_MINUTES = 4.0, 0.5
SENTENCES = 1000  # of the test text; none with --quick, where BLEU would be zero
PAIRS, QUICK_PAIRS = 29_000, 8_000  # of the demo's text
DEMO = ("--lemmas", 1000, "--max-clauses", 2)
THREADS, BEAM = 2, 5
TOKENS, RATE, CLIP_NORM, DROPOUT = 3000, 0.002, 1.0, 0.2
SAVING = 120  # seconds that Marian may take to end after it was told to


class Trained(NamedTuple):
    """Target words, seconds that they took, updates, and the translations of the test text."""

    words: float
    seconds: float
    updates: int
    translations: List[str]


@dataclass
class System:
    name: str
    train: Callable[[argparse.Namespace, Path], Trained]
    ours: bool = False
    peer: bool = False


def systems(args: argparse.Namespace) -> List[System]:
    plugin = ("--user-dir", PLUGIN, "--task", "lv_translation", "--criterion", "partition_cross_entropy")
    sizes = ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim", "decoder-hidden-size")
    sizes = [x for name in (*sizes, "decoder-out-embed-dim") for x in (f"--{name}", args.dim)]
    small = ("--arch", "rnnsearch_small", *sizes, "--attention-dim", args.dim, "--readout-dim", args.dim)
    lstm = (
        "--task",
        "translation",
        "--arch",
        "lstm",
        *sizes,
        "--encoder-bidirectional",
        "--criterion",
        "cross_entropy",
    )
    return [
        System(
            f"lv_fairseq, tau {args.tau:,}", partial(by_fairseq, flags=(*plugin, *small, "--tau", args.tau)), ours=True
        ),
        System("lv_fairseq, all words", partial(by_fairseq, flags=(*plugin, *small))),
        System("fairseq, lstm", partial(by_fairseq, flags=lstm), peer=True),
        System("Marian, s2s", by_marian, peer=True),
    ]


def by_fairseq(args: argparse.Namespace, folder: Path, flags: tuple) -> Trained:
    given = [BIN / "fairseq-train", folder / "data", *flags, "--save-dir", args.run, "--seed", args.seed, "--cpu"]
    given += ["--optimizer", "adam", "--lr", RATE, "--clip-norm", CLIP_NORM, "--dropout", DROPOUT]
    given += ["--max-tokens", TOKENS, "--num-workers", 0, "--stop-time-hours", args.minutes / 60]
    given += ["--disable-validation", "--no-epoch-checkpoints", "--save-interval", 1000000]  # but for the last one
    given += ["--log-format", "json", "--log-interval", 1000]
    shown = printed(given, "fairseq-train", args.run / "train.log")
    words, seconds, updates = fairseq_figures(shown.splitlines())
    translations = translated_by_fairseq(args, folder, flags) if args.sentences else []
    return Trained(words, seconds, updates, translations)


def translated_by_fairseq(args: argparse.Namespace, folder: Path, flags: tuple) -> List[str]:
    # fairseq alone does not open its own checkpoints with today's torch: the plug-in lets it
    task = flags[flags.index("--task") + 1]
    given = [BIN / "fairseq-generate", folder / "data", "--user-dir", PLUGIN, "--task", task]
    given += ["--path", args.run / "checkpoint_last.pt"]
    given += ["--beam", BEAM, "--max-tokens", TOKENS, "--cpu", "--num-workers", 0]
    shown = printed(given, "fairseq-generate", args.run / "test.out")
    hypotheses = [line.split("\t") for line in shown.split("\n") if line.startswith("D-")]
    return [text for _, text in sorted((int(number[2:]), text) for number, _, text in hypotheses)]


def printed(given: list, name: str, log: Path) -> str:
    """What a program prints."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as file:
        run([str(x) for x in given], name, threads=THREADS, stdout=file)
    return log.read_text(encoding="utf-8")


def fairseq_figures(lines: List[str]) -> tuple:
    """Target words, seconds and updates of the epochs that a log tells of. Of an epoch of one update, as one that ends
    with the time may be, fairseq tells no speed: it is left out."""
    words, seconds, updates = 0.0, 0.0, 0
    for line in lines:
        if '"train_wps"' not in line:
            continue
        epoch = json.loads(line[line.index("{") :])
        done, speed = int(epoch["train_num_updates"]), float(epoch["train_wps"])
        if speed > 0:
            trained = float(epoch["train_wpb"]) * (done - updates)
            words, seconds = words + trained, seconds + trained / speed
        updates = done
    if not words:
        raise UserError("fairseq-train made not even two updates of an epoch in its time: give more --minutes")
    return words, seconds, updates


def by_marian(args: argparse.Namespace, folder: Path) -> Trained:
    args.run.mkdir(parents=True, exist_ok=True)
    model, log = args.run / "model.npz", args.run / "train.log"
    vocabularies = [args.run / f"{side}.yml" for side in ("src", "tgt")]
    common = ["-m", model, "--vocabs", *vocabularies, "--cpu-threads", THREADS, "--quiet"]
    given = [
        "train",
        *common,
        "--train-sets",
        folder / "train.src",
        folder / "train.tgt",
        "--type",
        "s2s",
        "--log",
        log,
    ]
    given += ["--dim-emb", args.dim, "--dim-rnn", args.dim, "--dropout-rnn", DROPOUT, "--dropout-src", 0]
    given += ["--learn-rate", RATE, "--clip-norm", CLIP_NORM, "--cost-type", "ce-mean-words", "--sync-sgd"]
    given += ["--mini-batch-words", TOKENS, "--max-length", 200, "--workspace", 1000, "--seed", args.seed]
    given += ["--disp-freq", "1u", "--save-freq", "1000000u", "--overwrite"]
    marian(given, args, stop_after=60 * args.minutes)
    words, seconds, updates = marian_figures(log.read_text(encoding="utf-8").splitlines())
    if not args.sentences:
        return Trained(words, seconds, updates, [])
    translations = args.run / "test.out"
    given = ["decode", *common, "--input", folder / "test.src", "--output", translations, "--beam-size", BEAM]
    marian([*given, "--normalize", 1, "--mini-batch", 16, "--maxi-batch", 10, "--workspace", 500], args)
    return Trained(words, seconds, updates, lines_of(translations))


def lines_of(path: Path) -> List[str]:
    """As programs count them: Python would also cut a line where a text has other ends of lines in it."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def marian(given: list, args: argparse.Namespace, stop_after: Optional[float] = None) -> None:
    """A program of Marian; it may be told to save and end after some seconds."""
    begin, told = [peer_python(args.peers), "-m", "pymarian", *given], False
    with tempfile.TemporaryFile() as errors:
        child = start(begin, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(stop_after)
            if child.poll() is None:
                told = True
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(SAVING)
        finally:
            end(child)
        if child.returncode != 0 and not told:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-3:]
            raise UserError(f"Marian {how_ended(child.returncode)}; its last words: {' / '.join(last)}")


SHOWN = re.compile(r"Up\. ([\d,]+) : .* : Time ([\d.]+)s : ([\d.]+) words/s")


def marian_figures(lines: List[str]) -> tuple:
    """Target words, seconds and updates that a log tells of. The time of the first one is that of all before it too."""
    found = [match.groups() for match in map(SHOWN.search, lines) if match is not None]
    found = found[1:]
    if not found:
        raise UserError("Marian made not even two updates in its time: give more --minutes")
    shown = [(float(seconds), float(speed)) for _, seconds, speed in found]
    words, seconds = sum(seconds * speed for seconds, speed in shown), sum(seconds for seconds, _ in shown)
    return words, seconds, int(found[-1][0].replace(",", ""))


def prepare(args: argparse.Namespace, folder: Path) -> List[str]:
    """The text and fairseq's data of it; gives the references of the test text."""
    if args.source is None:
        pairs = QUICK_PAIRS if args.quick else PAIRS
        demo = [sys.executable, ROOT / "scripts" / "demo_corpus.py", "--out", folder / "demo", "--pairs", pairs, *DEMO]
        run([str(x) for x in demo], "demo_corpus.py")
        for split, names in SPLITS.items():
            for name, side in zip(names, ("src", "tgt")):
                setattr(args, name, folder / "demo" / f"{split}.{side}")
    for split, names in SPLITS.items():
        for name, side in zip(names, ("src", "tgt")):
            with open(getattr(args, name), encoding="utf-8") as text:
                lines = itertools.islice(text, args.sentences if split == "test" else None)
                (folder / f"{split}.{side}").write_text("".join(lines), encoding="utf-8")
    given = [BIN / "fairseq-preprocess", "-s", "src", "-t", "tgt", "--trainpref", folder / "train"]
    given += [*(["--testpref", folder / "test"] if args.sentences else []), "--destdir", folder / "data"]
    printed(given, "fairseq-preprocess", folder / "preprocess.log")
    return lines_of(folder / "test.tgt") if args.sentences else []


def measure(args: argparse.Namespace, folder: Path, references: List[str]) -> Iterator[Row]:
    """A row for each system; they take turns, each with another seed, and hand their rows over in the last one."""
    with open(folder / "train.tgt", "rb") as text:
        pairs = sum(1 for _ in text)
    which = "" if args.given else " of the demo's text"
    here = dict(table="a whole training", unit="s a 1,000 words")
    here["setting"] = f"{args.minutes:g} minutes, {THREADS} threads, {pairs:,} pairs{which}"
    found = [(system, Row(system=system.name, ours=system.ours, peer=system.peer, **here)) for system in systems(args)]
    trained: Dict[str, List[Trained]] = {}
    for seed, (system, row) in itertools.product(range(1, 1 + args.turns), found):
        if system.train is by_marian and peer_python(args.peers) is None:
            row.note = "absent: pymarian is not installed (make .venv-peers/.installed)"
            if seed == args.turns:
                yield row
            continue
        args.seed, args.run = seed, folder / f"{system.name} {seed}".replace(" ", "_").replace(",", "")
        one = system.train(args, folder)
        trained.setdefault(system.name, []).append(one)
        row.turns.append(1000 * one.seconds / one.words)
        print(f"  {system.name}, seed {seed}: {one.words / one.seconds:.0f} words a second", flush=True)
        if seed == args.turns:
            row.more = figures(trained[row.system], references)
            yield row


def figures(trained: List[Trained], references: List[str]) -> Dict[str, float]:
    """Means over seeds; BLEU only where something was translated."""
    found = {"words a second": round(statistics.median(one.words / one.seconds for one in trained), 1)}
    if references:
        how = dict(tokenize="none", force=True)
        scores = [sacrebleu.corpus_bleu(one.translations, [references], **how).score for one in trained]
        found["BLEU"] = round(statistics.fmean(scores), 2)
    return {**found, "updates": statistics.fmean(one.updates for one in trained)}


def parse_args(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = section_parser(__doc__)
    for name in ("--test-source", "--test-target"):
        parser.add_argument(name, type=Path, metavar="FILE", help="with --source")
    parser.add_argument("--minutes", type=float, help=f"of each training (default: {MINUTES:g})")
    parser.add_argument("--sentences", type=int, help=f"of the test text (default: {SENTENCES}, with --quick none)")
    parser.add_argument("--tau", type=int, default=5000, help="target words of a partition (default: 5,000)")
    parser.add_argument("--dim", type=int, default=256, help="of everything (default: 256)")
    parser.add_argument("--peers", type=Path, default=PEERS, metavar="DIR", help="environment with pymarian")
    given = parser.parse_args(argv)
    args = parse(parser, argv)
    texts = (args.source, args.test_source, args.test_target)
    if any(text is None for text in texts) and any(text is not None for text in texts):
        parser.error("--source, --target, --test-source and --test-target go together")
    args.turns, args.given = given.turns or 1, args.source is not None  # whole trainings
    args.minutes = args.minutes or (QUICK_MINUTES if args.quick else MINUTES)
    args.sentences = (0 if args.quick else SENTENCES) if args.sentences is None else args.sentences
    return args


@command
@signals_as_exit()
def main(argv: Optional[List[str]] = None) -> None:
    args = parse_args(argv)
    rows = Rows(args.out)
    rows.versions = {
        "fairseq": version("fairseq-fixed"),
        "torch": version("torch"),
        "lv_fairseq": lv_fairseq.__version__,
    }
    if peer_python(args.peers) is not None:
        code = "from importlib.metadata import version; print(version('pymarian'))"
        asked = subprocess.run([peer_python(args.peers), "-c", code], capture_output=True, text=True)
        rows.versions["pymarian"] = asked.stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        references = prepare(args, Path(folder))
        for row in measure(args, Path(folder), references):
            rows.add(row)
    rows.close()


if __name__ == "__main__":
    sys.exit(main())
