"""The cost of an update with a very large vocabulary, against a small one and against fairseq's own softmaxes.

    python benchmarks/flat_cost.py                                      # text of the demo's made-up languages
    python benchmarks/flat_cost.py --source text.en --target text.de    # any tokenised parallel text

Every row trains the same `rnnsearch_small` (256 dims) with Adam and clipping through fairseq's own trainer, about 2,000
target tokens an update. The dictionaries are filled up with words that never occur: it is the size of the tables that
counts. Each row is measured in turns with the small vocabulary, so that a noisy machine slows both, and the ratio is of
the medians of these turns; swaps are added to the update as often as the partitions ask for. The full softmax gets its
2,000 tokens in four parts, since its scores alone would not fit into memory otherwise. The last column is the largest
memory of the process up to then.
"""

import argparse
import collections
import itertools
import logging
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional, Sequence

import torch
from fairseq import options, tasks, utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import AdaptiveSoftmax
from fairseq.trainer import Trainer
from fairseq_cli import preprocess

import lv_fairseq

ROOT = Path(__file__).resolve().parent.parent
UNMEASURED = 2  # updates at the beginning of a row


def binarise(source: Path, target: Path, pairs: int, words: int, folder: Path) -> Path:
    """The first sentences of a text with dictionaries of exactly `words` words."""
    folder.mkdir(parents=True)
    for language, path in (("src", source), ("tgt", target)):
        with open(path, encoding="utf-8") as text:
            lines = list(itertools.islice(text, pairs))
        (folder / f"text.{language}").write_text("".join(lines), encoding="utf-8")
        counts = collections.Counter(word for line in lines for word in line.split())
        kept = counts.most_common(words - 4)
        with open(folder / f"dict.{language}", "w", encoding="utf-8") as dictionary:
            dictionary.writelines(f"{word} {count}\n" for word, count in kept)
            dictionary.writelines(f"never{i} 1\n" for i in range(words - 4 - len(kept)))
    flags = ["--srcdict", folder / "dict.src", "--tgtdict", folder / "dict.tgt", "--destdir", folder / "bin"]
    flags += ["-s", "src", "-t", "tgt", "--trainpref", folder / "text"]
    preprocess.main(options.get_preprocessing_parser().parse_args([str(x) for x in flags]))
    return folder / "bin"


class Run:
    """One way of training, through fairseq's trainer, an update at a time."""

    def __init__(self, data: Path, tokens: int, *flags):
        args = ["--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation", "--arch", "rnnsearch_small"]
        args += ["--optimizer", "adam", "--lr", 0.001, "--clip-norm", 1.0, "--max-tokens", tokens, "--no-save"]
        args += ["--num-workers", 0, "--cpu", *flags]
        parser = options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(x) for x in (data, *args)]))
        utils.set_torch_seed(1)
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        self.task = task
        self.trainer = Trainer(cfg, task, model, self.criterion(cfg, task, model))
        iterator = self.trainer.get_train_iterator(1)
        self.trainer.begin_epoch(1)
        self.batches = len(iterator.frozen_batches)
        self.samples = itertools.cycle(iterator.next_epoch_itr(shuffle=True))
        self.parts = cfg.optimization.update_freq[0]
        self.updates, self.swaps = [], []

    def criterion(self, cfg, task, model):
        return task.build_criterion(cfg.criterion)

    def update(self) -> None:
        samples = [next(self.samples) for _ in range(self.parts)]
        swap = 0.0
        if self.task.pages is not None:
            self.trainer.zero_grad()  # of the update before
            start = time.perf_counter()
            if self.task.pages.turn_to(samples[0]["partition"]):
                swap = time.perf_counter() - start
                self.swaps.append(swap)
        start = time.perf_counter()
        self.trainer.train_step(samples)
        self.updates.append(time.perf_counter() - start)

    def seconds(self) -> float:
        """Median update, and its part of a swap at the proportions of the plan."""
        return statistics.median(self.updates[UNMEASURED:]) + self.swap_seconds()

    def a_swap(self) -> float:
        return statistics.median(self.swaps[1:] or self.swaps or [0.0])

    def swap_seconds(self) -> float:
        return self.a_swap() / self.updates_of_a_partition() if self.swaps else 0.0

    def swap_more(self) -> None:
        """A few swaps by themselves: there are fewer than updates."""
        self.trainer.zero_grad()
        for partition in range(4):
            start = time.perf_counter()
            if self.task.pages.turn_to(partition % len(self.task.pages.plan)):
                self.swaps.append(time.perf_counter() - start)

    def updates_of_a_partition(self) -> float:
        return self.batches / len(self.task.pages.plan)

    def trained_bytes(self) -> int:
        """What device and optimiser hold: parameters, gradients and statistics."""
        total = 0
        for group in self.trainer.optimizer.optimizer.param_groups:
            for parameter in group["params"]:
                total += 2 * parameter.numel() * parameter.element_size()
                state = self.trainer.optimizer.optimizer.state[parameter]
                total += sum(x.numel() * x.element_size() for x in state.values() if torch.is_tensor(x))
        return total


class AdaptiveRun(Run):
    """The same model with fairseq's adaptive softmax (and its loss) in place of the output table."""

    def criterion(self, cfg, task, model):
        words = len(task.target_dictionary)
        softmax = AdaptiveSoftmax(words, 256, [15000, 100000] if words > 100000 else [words // 2], dropout=0.0)
        decoder = model.decoder
        del decoder.output_projection
        decoder.output_projection = None
        decoder.adaptive_softmax = softmax
        decoder.output_layer = lambda features, **unused: features
        return AdaptiveLoss(task, sentence_avg=False)


OWN = ("--criterion", "partition_cross_entropy")
ROWS = {
    "pages": (
        "{words:,} words, tau {tau:,}",
        lambda data, args: Run(data, args.tokens, *OWN, "--tau", args.tau, "--source-tau", args.tau),
    ),
    "adaptive": (
        "{words:,} words, adaptive_loss",
        lambda data, args: AdaptiveRun(data, args.tokens, "--criterion", "cross_entropy"),
    ),
    "full": (
        "{words:,} words, cross_entropy",
        lambda data, args: Run(data, args.tokens // 4, "--criterion", "cross_entropy", "--update-freq", 4),
    ),
}


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="tokenised source text (default: the demo corpus)")
    parser.add_argument("--target", type=Path, help="tokenised target text (default: the demo corpus)")
    parser.add_argument("--pairs", type=int, default=200_000, help="sentence pairs to take (default: 200,000)")
    parser.add_argument("--words", type=int, default=500_000, help="size of the vocabularies (default: 500,000)")
    parser.add_argument("--tau", type=int, default=15_000, help="target words of a partition (default: 15,000)")
    parser.add_argument("--tokens", type=int, default=2000, help="target tokens of an update (default: 2,000)")
    parser.add_argument("--turns", type=int, default=15, help="updates to measure of pages (default: 15; others: 3)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="what to measure (default: all)")
    args = parser.parse_args(argv)
    if (args.source is None) != (args.target is None):
        parser.error("--source and --target go together")
    return args


def demo_text(pairs: int, folder: Path) -> tuple:
    command = [sys.executable, ROOT / "scripts" / "demo_corpus.py", "--out", folder, "--pairs", pairs]
    subprocess.run([str(x) for x in command], check=True, stdout=subprocess.DEVNULL)
    return folder / "train.src", folder / "train.tgt"


def show(name: str, run: Run, baseline: float) -> None:
    seconds = run.seconds()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name:34}{seconds:10.3f}{seconds / baseline:8.2f}{run.a_swap():8.3f}{100 * run.swap_seconds() / seconds:8.2f}"
        f"{run.trained_bytes() / 2**20:12.0f}{peak:9.1f}",
        flush=True,
    )


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    lv_fairseq.register()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        source, target = (args.source, args.target) if args.source else demo_text(args.pairs, folder / "demo")
        large = binarise(source, target, args.pairs, args.words, folder / "large")
        small = Run(binarise(source, target, args.pairs, args.tau, folder / "small"), args.tokens, *OWN)
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, |V| = {args.words:,}, tau = {args.tau:,}")
        print(f"{'':34}{'s/update':>10}{'ratio':>8}{'swap s':>8}{'swap %':>8}{'MB trained':>12}{'peak GB':>9}")
        for kind in args.rows:
            name, make = ROWS[kind]
            run = make(large, args)
            small.updates.clear()
            for _ in range(UNMEASURED + (args.turns if kind == "pages" else min(args.turns, 3))):
                small.update()
                run.update()
            if kind == "pages":
                run.swap_more()
            if kind == args.rows[0]:
                show(f"all of {args.tau:,} words", small, small.seconds())
            show(name.format(**vars(args)), run, small.seconds())
            del run


if __name__ == "__main__":
    main()
