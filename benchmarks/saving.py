"""What a checkpoint of a training with pages costs: seconds, bytes and memory, next to a plain cp of the same bytes.

    python benchmarks/saving.py                              # 500,000 words x 620 x 3 tables with Adam: 11 GB
    python benchmarks/saving.py --words 50000 --folder DIR   # where the checkpoints are written

One update is made through fairseq's own trainer, and then fairseq saves as at the end of an epoch: checkpoint1.pt,
checkpoint_best.pt and checkpoint_last.pt. "copied" is how it does so by itself, "linked" how it does with --tau. Every
row waits until the disk has what was written; rows are measured in turns, figures are medians. "memory" is how much the
process grew while it saved.
"""

import argparse
import logging
import os
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from large_text import write_data

import lv_fairseq
from lv_fairseq import fairseq_patches

COLUMNS = {"": 42, "seconds": 9, "written GB": 12, "on disk GB": 12, "memory GB": 11, "of a cp": 9}
SMALL = ["encoder-hidden-size", "decoder-hidden-size", "attention-dim", "readout-dim"]


class Training:
    """A trainer of fairseq after an update."""

    def __init__(self, data: Path, args: argparse.Namespace):
        given = [data, "--task", "lv_translation", "--arch", "rnnsearch_small", "--num-workers", 0, "--cpu"]
        for name in ("encoder-embed-dim", "decoder-embed-dim", "decoder-out-embed-dim"):
            given += [f"--{name}", args.dim]
        given += [x for name in SMALL for x in (f"--{name}", 16)]
        given += ["--criterion", "partition_cross_entropy", "--tau", args.tau, "--max-tokens", 1000]
        given += ["--optimizer", "adam", "--lr", 0.001, "--save-dir", args.folder]
        parser = options.get_training_parser()
        self.cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(x) for x in given]))
        utils.set_torch_seed(1)
        task = tasks.setup_task(self.cfg.task)
        self.trainer = Trainer(
            self.cfg, task, task.build_model(self.cfg.model), task.build_criterion(self.cfg.criterion)
        )
        self.iterator = self.trainer.get_train_iterator(1)
        self.trainer.begin_epoch(1)
        samples = self.iterator.next_epoch_itr(shuffle=True)
        self.trainer.train_step([next(samples)])
        for page in task.pages.pages:
            page.write_back(statistics=True)  # from the first time on there are statistics of all words

    def save(self) -> None:
        """As at the end of an epoch."""
        for _ in self.iterator.next_epoch_itr(shuffle=True):
            pass
        vars(checkpoint_utils.save_checkpoint).clear()  # it remembers the best loss
        checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self.trainer, self.iterator, 1.0)


def memory_of_this() -> int:
    """Bytes that this process has for itself: without what it maps from files."""
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def written_by_this() -> int:
    with open("/proc/self/io") as numbers:
        return next(int(line.split()[1]) for line in numbers if line.startswith("wchar:"))


class Watched:
    """How much memory this process has at most, inside."""

    def __enter__(self):
        self.before = self.most = memory_of_this()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self) -> None:
        while not self.ended.wait(0.01):
            self.most = max(self.most, memory_of_this())

    def __exit__(self, *unused):
        self.ended.set()
        self.thread.join()


def measure(folder: Path, work: Callable[[], None]) -> List[float]:
    """Seconds, bytes written, blocks on disk and growth of memory."""
    os.sync()
    start, written = time.perf_counter(), written_by_this()
    with Watched() as watched:
        work()
        os.sync()
    seconds = time.perf_counter() - start
    files = {file.stat().st_ino: 512 * file.stat().st_blocks for file in folder.iterdir()}
    return [seconds, written_by_this() - written, sum(files.values()), watched.most - watched.before]


def copy(training: Training, other: Path) -> List[float]:
    """A plain cp of a checkpoint."""
    saved = Path(training.cfg.checkpoint.save_dir) / "checkpoint_last.pt"
    os.sync()
    start = time.perf_counter()
    subprocess.run(["cp", str(saved), str(other)], check=True)
    os.sync()
    seconds = time.perf_counter() - start
    size = other.stat().st_size
    other.unlink()
    return [seconds, size, size, 0]


def rows(training: Training) -> Iterator[Tuple[str, List[float]]]:
    """Every way of saving, once."""
    folder = Path(training.cfg.checkpoint.save_dir)
    for name, link, lean in (
        ("linked, --no-save-optimizer-state", True, True),
        ("best, last and the epoch's: copied", False, False),
        ("best, last and the epoch's: linked", True, False),
    ):
        for file in folder.iterdir():
            file.unlink()
        fairseq_patches.copy_checkpoints(link)
        training.cfg.checkpoint.no_save_optimizer_state = training.trainer.cfg.checkpoint.no_save_optimizer_state = lean
        yield name, measure(folder, training.save)
    yield CP, copy(training, folder.with_name("other"))


CP = "cp of one checkpoint"


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=500_000, help="of each dictionary (default: 500,000)")
    parser.add_argument("--dim", type=int, default=620, help="of each of the three tables (default: 620)")
    parser.add_argument("--tau", type=int, default=15_000)
    parser.add_argument("--turns", type=int, default=3, help="after one that does not count (default: 3)")
    parser.add_argument("--folder", type=Path, help="write to a new folder inside this one (default: the system's)")
    args = parser.parse_args(argv)
    logging.disable(logging.INFO)
    lv_fairseq.register()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        data = write_data(Path(folder) / "text", args.words, pairs=200)
        args.folder = Path(folder) / "saved"
        args.folder.mkdir()
        training = Training(data, args)
        turns = [dict(rows(training)) for _ in range(args.turns + 1)][1:]
    print(f"torch {torch.__version__}, {args.words:,} words x {args.dim} x 3 tables, Adam")
    print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()))
    for name in reversed(turns[0]):
        seconds, *sizes = (statistics.median(figure) for figure in zip(*(turn[name] for turn in turns)))
        ratio = statistics.median(turn[name][0] / turn[CP][0] for turn in turns)
        numbers = [f"{seconds:.1f}", *(f"{size / 1e9:.2f}" for size in sizes), f"{ratio:.2f}"]
        print(f"{name:42}" + "".join(f"{x:>{width}}" for x, width in zip(numbers, [*COLUMNS.values()][1:])))


if __name__ == "__main__":
    main()
