"""From the start of a command to its first translated sentence: wall seconds, of a new process each time.

    cd benchmarks && python -m side_by_side.start      # or: make bench

Models with random weights (rnnsearch at a quarter of its sizes, fairseq's lstm of the same sizes), a lexicon with K'
translations of each source word, and dictionaries of so many words. Nobody starts faster than fairseq is imported,
which is measured too. Files have been written just before, and so are in memory.
"""

import json
import logging
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from importlib.metadata import version
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional

import torch
from decoding import SIZES, Run, make_data, make_lexicon, save
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import lv_fairseq
from lv_fairseq.processes import end, signals_as_exit, start
from side_by_side import rows as contract
from side_by_side.rows import Row, Rows

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TABLE = "from the start to the first sentence"
SENTENCE = "src5 src6"
PATIENCE = 300  # seconds
FLOOR = "python -c 'import fairseq'"
OURS, SERVER, ALONE = "fairseq-interactive, lists", "lv-serve, lists", "fairseq-interactive, fairseq's lstm, all words"


class Took(NamedTuple):
    wall: float  # seconds until the answer
    processor: float  # of all threads, until the end of the process


class Files(NamedTuple):
    """What is opened."""

    data: Path
    lexicon: Path
    listed: Path  # a checkpoint of rnnsearch
    alone: Path  # one of fairseq's lstm
    log: Path


def make_files(folder: Path, words: int, args: Namespace) -> Files:
    files = Files(*(folder / name for name in Files._fields))
    make_data(files.data, words, joined=False)
    make_lexicon(files.lexicon, words, args.per_word)
    sizes = Namespace(arch="rnnsearch", scale=args.scale, beam=args.beam, length=1)
    save(files.listed, Run(files.data, sizes))
    save(files.alone, lstm(files.data, args.scale))
    return files


def lstm(data: Path, scale: float) -> Namespace:
    """fairseq's, with random weights."""
    theirs = ("encoder_embed_dim", "encoder_hidden_size", "decoder_embed_dim", "decoder_hidden_size")
    sizes = {name: max(int(SIZES["rnnsearch"][name] * scale), 4) for name in (*theirs, "decoder_out_embed_dim")}
    flags = [str(x) for name, size in sizes.items() for x in (f"--{name.replace('_', '-')}", size)]
    flags += ["--task", "translation", "--arch", "lstm", "--source-lang", "src", "--target-lang", "tgt"]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), [str(data), *flags])
    )
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    cfg.model = vars(cfg.model)  # without our patches torch's safe loader refuses a namespace
    return Namespace(cfg=cfg, model=model)


def measured(work: Callable[[], float]) -> Took:
    """What one process took, which has ended when the work is done."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def import_only(module: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, capture_output=True)
    return time.perf_counter() - began


def interactive(files: Files, *flags) -> float:
    """Until fairseq-interactive has answered one line."""
    command = [BIN / "fairseq-interactive", files.data, "-s", "src", "-t", "tgt", "--max-len-b", 10, "--cpu", *flags]
    began = time.perf_counter()
    with open(files.log, "wb") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        child = start(command, **pipes, env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True, cwd=ROOT)
        try:
            child.stdin.write(f"{SENTENCE}\n")
            child.stdin.flush()
            answered = any(line.startswith("D-0\t") for line in child.stdout)
            seconds = time.perf_counter() - began
            child.stdin.close()
            child.stdout.read()
            child.wait(PATIENCE)
        finally:
            end(child)
    if not answered or child.returncode:
        sys.exit(f"fairseq-interactive did not answer: {files.log.read_text(errors='replace')[-2000:]}")
    return seconds


def serve(files: Files, *flags) -> float:
    """Until lv-serve is in health and has answered one request."""
    command = [
        sys.executable,
        "-m",
        "lv_fairseq.commands.serve",
        files.data,
        "-s",
        "src",
        "-t",
        "tgt",
        "--max-len-b",
        10,
    ]
    began = time.perf_counter()
    with open(files.log, "wb") as log:
        child = start([*command, "--cpu", "--port", 0, *flags], stdout=log, stderr=log, cwd=ROOT)
        try:
            address = wait_for_address(files.log, child)
            with urllib.request.urlopen(f"{address}/health", timeout=PATIENCE) as answer:
                assert answer.status == 200
            asked = urllib.request.Request(f"{address}/translate", json.dumps({"text": SENTENCE}).encode())
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                assert len(json.load(answer)["translations"]) == 1
            return time.perf_counter() - began
        finally:
            end(child)


def wait_for_address(log: Path, server: subprocess.Popen) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        found = re.search(r"(http://\S+) answers", log.read_text(errors="replace"))
        if found:
            return found.group(1)
        time.sleep(0.02)
    sys.exit(f"lv-serve did not start: {log.read_text(errors='replace')[-2000:]}")


def compare(words: int, args: Namespace, rows: Rows) -> None:
    """All systems in turns, with so many words."""
    frequent = min(args.frequent, words // 3)
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), words, args)
        lists = ["--lexicon", files.lexicon, "--candidate-frequent", frequent, "--candidate-per-word", args.per_word]
        lists += ["--path", files.listed, "--beam", args.beam, "--candidate-retries", 0]
        plugin = ["--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation"]
        alone = ["--task", "translation", "--path", files.alone, "--beam", args.beam]
        systems = {
            "python -c 'import torch'": lambda: import_only("torch"),
            FLOOR: lambda: import_only("fairseq"),
            OURS: lambda: interactive(files, *plugin, *lists),
            SERVER: lambda: serve(files, *lists),
            ALONE: lambda: interactive(files, *alone),
        }
        took = {name: [] for name in systems}
        systems[OURS]()  # not counted: what all of them import was not read yet
        for _ in range(args.turns):
            for name, work in systems.items():
                took[name].append(measured(work))
        size = {
            OURS: files.listed.stat().st_size,
            SERVER: files.listed.stat().st_size,
            ALONE: files.alone.stat().st_size,
        }
    setting = f"{words:,} words, beam {args.beam}, 1 thread"
    note = {OURS: f"K = {frequent:,}, K' = {args.per_word}", SERVER: "until /health and a first answer"}
    for name, mine in took.items():
        more = {"processor s": median([x.processor for x in mine])}
        if name in size:
            for kind in Took._fields:
                beyond = median([getattr(x, kind) - getattr(floor, kind) for x, floor in zip(mine, took[FLOOR])])
                more[f"{kind} s beyond importing fairseq"] = beyond
            more["MB of the checkpoint"] = round(size[name] / 1e6, 1)
        walls, who = [round(x.wall, 3) for x in mine], {"ours": name == OURS, "peer": name == ALONE}
        rows.add(Row(TABLE, setting, name, "s", walls, more=more, note=note.get(name, ""), **who))


def median(figures: List[float]) -> float:
    return round(statistics.median(figures), 3)


@signals_as_exit()
def main(argv: Optional[List[str]] = None) -> None:
    parser = contract.section_parser(__doc__)
    parser.add_argument("--words", type=int, nargs="+", help="of each dictionary (default: 15,000, and 500,000)")
    parser.add_argument("--frequent", type=int, default=15_000, help="K, but at most a third of the words (15,000)")
    parser.add_argument("--per-word", type=int, default=10, help="K' (default: 10)")
    parser.add_argument("--scale", type=float, default=0.25, help="of the sizes of the paper (default: 0.25)")
    parser.add_argument("--beam", type=int, default=12)
    args = contract.parse(parser, argv)
    logging.disable(logging.INFO)
    lv_fairseq.register()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of all that is started
    rows = Rows(args.out)
    rows.versions = {name: version(name) for name in ("torch", "fairseq-fixed")}
    for words in args.words or ([15_000] if args.quick else [15_000, 500_000]):
        compare(words, args, rows)
    rows.close()


if __name__ == "__main__":
    main()
