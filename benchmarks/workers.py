"""Two workers on one machine against one: the memory that they take together, and whether they train the same.

    python benchmarks/workers.py                                 # 500,000 words x 256 x 3 tables with Adam, on CPUs
    python benchmarks/workers.py --words 5000 --dim 16           # a moment

Each row is a real fairseq-train. One worker makes with --update-freq 2 the updates of two; the last row begins with two
workers, goes on with one and ends with two, a checkpoint between. "memory" is the most that all processes of a training
had at a time, where what they share counts once (their proportional set size); "difference" is the largest one of any
parameter or statistic at the end from those of the first row.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import torch
from large_text import write_data

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {"": 34, "memory GB": 11, "ratio": 7, "difference": 12}
SMALL = ["encoder-hidden-size", "decoder-hidden-size", "attention-dim", "readout-dim"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(data: Path, save: Path, args: argparse.Namespace, workers: int, updates: int) -> List[str]:
    flags = [data, "--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation", "--arch", "rnnsearch_small", "--cpu"]
    for name in ("encoder-embed-dim", "decoder-embed-dim", "decoder-out-embed-dim"):
        flags += [f"--{name}", args.dim]
    flags += [x for name in SMALL for x in (f"--{name}", 16)]
    flags += ["--criterion", "partition_cross_entropy", "--tau", args.tau, "--max-tokens", 400, "--dropout", 0]
    flags += ["--optimizer", "adam", "--lr", 0.001, "--clip-norm", 1.0, "--save-dir", save, "--max-update", updates]
    flags += ["--disable-validation", "--no-epoch-checkpoints", "--num-workers", 0, "--ddp-backend", "legacy_ddp"]
    flags += ["--update-freq", 2 // workers, "--distributed-world-size", workers, "--log-format", "none"]
    return [str(x) for x in (Path(sys.executable).with_name("fairseq-train"), *flags)]


def run(*how) -> int:
    """Train; gives the most bytes that all its processes had at a time."""
    most = 0
    with tempfile.TemporaryFile("w+") as log:
        training = subprocess.Popen(command(*how), stdout=log, stderr=log, env=ONE_THREAD, start_new_session=True)
        while training.poll() is None:
            most = max(most, sum(map(memory_of, session(training.pid))))
            time.sleep(0.1)
        if training.returncode:
            log.seek(0)
            sys.exit(log.read()[-2000:])
    return most


def session(leader: int) -> List[int]:
    """The processes of a session that are there now."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [int(process)] if os.getsid(int(process)) == leader else []
        except ProcessLookupError:
            pass
    return found


def memory_of(process: int) -> int:
    try:
        with open(f"/proc/{process}/smaps_rollup") as lines:
            return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, ProcessLookupError):  # it has ended
        return 0


def numbers(save: Path) -> Dict[str, torch.Tensor]:
    """All parameters and statistics of a checkpoint."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        state = torch.load(save / "checkpoint_last.pt", mmap=True, weights_only=True)
    statistics = state["last_optimizer_state"]["state"]
    return {
        **state["model"],
        **{
            f"{name} of {number}": x
            for number, of in statistics.items()
            for name, x in of.items()
            if torch.is_tensor(x)
        },
    }


def largest_difference(some: Dict[str, torch.Tensor], others: Dict[str, torch.Tensor]) -> float:
    return max((some[name].float() - others[name].float()).abs().max().item() for name in some)


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=500_000, help="of each dictionary (default: 500,000)")
    parser.add_argument("--dim", type=int, default=256, help="of each of the three tables (default: 256)")
    parser.add_argument("--tau", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=6, help="in each third of a training (default: 6)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data = write_data(folder / "text", args.words, pairs=2000)
        first = None
        print(
            f"torch {torch.__version__}, {args.words:,} words x {args.dim} x 3 tables, Adam, {3 * args.updates} updates"
        )
        print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()), flush=True)
        for name, legs in (
            ("one worker, --update-freq 2", [(1, 3)]),
            ("two workers", [(2, 3)]),
            ("two, then one, then two workers", [(2, 1), (1, 2), (2, 3)]),
        ):
            save = folder / name.replace(" ", "-")
            most = max(run(data, save, args, workers, thirds * args.updates) for workers, thirds in legs)
            reached = numbers(save)
            if first is None:
                first, least = reached, most
            difference = largest_difference(first, reached)
            row = [f"{most / 1e9:.2f}", f"{most / least:.2f}", f"{difference:.1e}"]
            print(f"{name:34}" + "".join(f"{x:>{w}}" for x, w in zip(row, [*COLUMNS.values()][1:])), flush=True)


if __name__ == "__main__":
    main()
