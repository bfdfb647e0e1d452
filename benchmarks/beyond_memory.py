"""Training with tables larger than memory: fairseq-train with --word-table-dir in a process that may have 4 GB.

    python benchmarks/beyond_memory.py                                  # 5,000,000 words of each language, 256 dims
    python benchmarks/beyond_memory.py --words 500000 --limit 2

Both rows run fairseq-train on `rnnsearch_small` with Adam, clipping and about 2,000 target tokens an update, over
made-up sentences. Half of a sentence's words are frequent ones, the others are from all over the dictionary and new in
every partition. Words of both languages are read, those of the target are scored too: with Adam's statistics these are
three tables of rows of 3 x 256 + 1 numbers, 46 GB for 5,000,000 words. The first row of the figures is of a dictionary
that fits on a page, and has no files.

The limit is RLIMIT_DATA, what `ulimit -d` sets: memory that a process has for itself, whether it uses it or not, while
files that are mapped do not count. The private memory shown is the largest that was in use at the end of an update,
dictionaries included. An update's time is the median; swaps, which are not in it, are added at the rate at which they
came, and "swap %" is their share. With OMP_NUM_THREADS=1 the processor's time counts. In the first epoch rows of words
that are not frequent are drawn and written; in the others they come from the file. "disk" is what the files of the run
take, "save s" and "saved" are of its last checkpoint.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, Optional, Sequence

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {"": 30, "s/update": 10, "spread": 8, "ratio": 7, "swap s": 8, "swap %": 8, "private GB": 12}
COLUMNS.update({"disk GB": 9, "save s": 8, "saved GB": 10})
LENGTH, FREQUENT, UNMEASURED = 20, 5000, 3
SIZES = ("encoder-embed-dim", "encoder-hidden-size", "decoder-embed-dim", "decoder-hidden-size")
SIZES += ("decoder-out-embed-dim", "attention-dim", "readout-dim")


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--words", type=int, default=5_000_000, help="of each language (default: 5,000,000)")
    add("--tau", type=int, default=15_000, help="words of a page, and of the small dictionaries (default: 15,000)")
    add("--dim", type=int, default=256, help="of all that has a size (default: 256)")
    add("--tokens", type=int, default=2000, help="target tokens of an update (default: 2,000)")
    add("--updates", type=int, default=60, help="updates of an epoch (default: 60)")
    add("--epochs", type=int, default=2, help="(default: 2)")
    add("--limit", type=float, default=4.0, help="GB of private memory (default: 4)")
    add("--folder", type=Path, help="for the tables (default: where temporary files are)")
    add("--train", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # in the process that is measured
    return parser.parse_args(argv)


def write_data(folder: Path, words: int, args: argparse.Namespace) -> Path:
    """A binarised corpus, the same for any number of words but for the words that are not frequent."""
    import torch
    from fairseq.data import indexed_dataset

    folder.mkdir()
    random = np.random.default_rng(1)
    sentences = args.updates * args.tokens // (LENGTH + 1)
    frequent = min(FREQUENT, words // 2)
    shape = sentences, LENGTH
    common = 4 + (frequent ** random.random(shape)).astype(np.int64) - 1  # about as frequent as words are
    others = frequent + 4 + random.permutation(np.arange(sentences * LENGTH) * 7919) % (words - frequent - 4)
    numbers = np.where(np.arange(LENGTH) % 2, common, others.reshape(shape)).astype(np.int32)
    for language in ("src", "tgt"):
        with open(folder / f"dict.{language}.txt", "w") as file:
            file.writelines(f"{language}{i} 1\n" for i in range(words - 4))
        path = str(folder / f"train.src-tgt.{language}")
        builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{path}.bin", np.int32)
        for sentence in numbers:
            builder.add_item(torch.from_numpy(np.append(sentence, 2)))
        builder.finalize(f"{path}.idx")
    return folder


def measured(data: Path, save: Path, args: argparse.Namespace, *flags) -> Dict:
    """What fairseq-train in a process with limited memory says of itself."""
    given = [data, "--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation", "--arch", "rnnsearch_small"]
    given += [x for size in SIZES for x in (f"--{size}", args.dim)]
    given += ["--criterion", "partition_cross_entropy", "--optimizer", "adam", "--lr", 0.001, "--clip-norm", 1.0]
    given += ["--max-tokens", args.tokens, "--required-batch-size-multiple", 1, "--num-workers", 0, "--cpu"]
    given += ["--max-epoch", args.epochs, "--disable-validation", "--save-dir", save, "--log-format", "none"]
    given += ["--no-epoch-checkpoints", "--save-interval", args.epochs, *flags]
    command = [sys.executable, __file__, "--limit", args.limit, "--train", *given]
    ended = subprocess.run([str(x) for x in command], capture_output=True, text=True, cwd=ROOT)
    if ended.returncode:
        sys.exit(f"fairseq-train ended with {ended.returncode}:\n{ended.stderr[-3000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def train(limit: float, flags: Sequence[str]) -> None:
    """fairseq-train, in this process; the last line that it prints is what was measured."""
    bytes_of = int(limit * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (bytes_of, bytes_of))
    import torch
    from fairseq.trainer import Trainer
    from fairseq_cli import train as fairseq_train

    import lv_fairseq

    lv_fairseq.register()
    from lv_fairseq.page_turner import PageTurner

    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    found = {"updates": [], "swaps": [], "saves": [], "private": 0, "disk": 0, "tables": 0}

    def timed(function, name: str, after=lambda *args: None):
        def run(*args, **kwargs):
            start = clock() if name != "saves" else time.perf_counter()
            result = function(*args, **kwargs)
            found[name].append((clock() if name != "saves" else time.perf_counter()) - start)
            after(*args)
            return result

        return run

    def look(trainer, *unused) -> None:
        lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
        found["private"] = max(found["private"], int(lines["RssAnon"].split()[0]) * 1024)
        homes = [parameter.host.home for parameter in trainer.model.parameters() if hasattr(parameter, "host")]
        files = [os.fstat(home.table.file.fileno()) for home in homes]
        found["disk"], found["tables"] = sum(x.st_blocks * 512 for x in files), sum(x.st_size for x in files)

    Trainer.train_step = timed(Trainer.train_step, "updates", look)
    Trainer.save_checkpoint = timed(Trainer.save_checkpoint, "saves")
    PageTurner.turn_to = timed(PageTurner.turn_to, "swaps")
    sys.argv = ["fairseq-train", *flags]
    fairseq_train.cli_main()
    print(json.dumps(found))


def spent(folder: Path) -> int:
    """Bytes on the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def show(name: str, found: Dict, saved: int, baseline: Optional[float]) -> float:
    """Prints a row of the table; gives the seconds of an update with its part of the swaps."""
    updates = [both - swap for both, swap in zip(found["updates"], found["swaps"] or [0] * len(found["updates"]))]
    updates = updates[UNMEASURED:] or updates
    swaps = [swap for swap in found["swaps"] if swap > 1e-3]  # the others found their page in place
    swapping = sum(found["swaps"]) / len(found["updates"])
    seconds = statistics.median(updates) + swapping
    low, _, high = statistics.quantiles(updates, n=4) if len(updates) > 1 else updates * 3
    figures = {
        "s/update": f"{seconds:.3f}",
        "spread": f"{high - low:.3f}",
        "ratio": f"{seconds / (baseline or seconds):.2f}",
        "swap s": f"{statistics.median(swaps or [0]):.3f}",
        "swap %": f"{100 * swapping / seconds:.1f}",
        "private GB": f"{found['private'] / 2**30:.2f}",
        "disk GB": f"{found['disk'] / 2**30:.2f}",
        "save s": f"{found['saves'][-1]:.1f}",
        "saved GB": f"{saved / 2**30:.2f}",
    }
    print(f"{name:30}" + "".join(f"{figure:>{COLUMNS[column]}}" for column, figure in figures.items()), flush=True)
    return seconds


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    if args.train is not None:
        train(args.limit, args.train)
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        print(f"rnnsearch_small, {args.dim} dims, {args.updates} updates an epoch, {args.epochs} epochs; ", end="")
        print(f"at most {args.limit:g} GB of private memory; {os.environ.get('OMP_NUM_THREADS', 'all')} threads")
        print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()))
        small = write_data(folder / "small", args.tau, args)
        found = measured(small, folder / "saved-small", args, "--tau", args.tau, "--source-tau", args.tau)
        baseline = show(f"all of {args.tau:,} words", found, spent(folder / "saved-small"), None)
        large = write_data(folder / "large", args.words, args)
        flags = ("--tau", args.tau, "--source-tau", args.tau, "--word-table-dir", folder)
        found = measured(large, folder / "saved-large", args, *flags)
        show(f"{args.words:,} words, tau {args.tau:,}", found, spent(folder / "saved-large"), baseline)
        print(f"tables: {found['tables'] / 2**30:.1f} GB, of which the words so far take {found['disk'] / 2**30:.1f}")


if __name__ == "__main__":
    main()
