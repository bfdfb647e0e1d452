"""The cost of an update with a very large vocabulary, against a small one and against fairseq's own softmaxes.

    python benchmarks/flat_cost.py                                      # text of the demo's made-up languages
    python benchmarks/flat_cost.py --source text.en --target text.de    # any tokenised parallel text
    python benchmarks/flat_cost.py --arch transformer --rows pages      # one table for both languages

Every row trains the same model of 256 dims with Adam and clipping through fairseq's own trainer, about 2,000 target
tokens an update: `rnnsearch_small`, or a transformer of 3 + 3 layers with --share-all-embeddings. The dictionaries are
filled up with words that never occur: it is the size of the tables that counts. Each row is measured in turns with the
small vocabulary and on the same sentences, so that a noisy machine slows both: the ratio is the median of that of each
turn. Swaps are added to the update as often as the partitions ask for. With OMP_NUM_THREADS=1 the processor's time
counts, which other work on the machine disturbs less. The full softmax gets its 2,000 tokens in four parts, since its
scores alone would not fit into memory otherwise. The spread is that of the middle half of the turns, the last column
the largest memory of the process up to then.

The page of a joined table holds the words of both languages, tau together, of which the target words are scored. The
small vocabulary is of both languages together too.
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
COLUMNS = {"": 34, "s/update": 10, "spread": 8, "ratio": 8, "swap s": 8, "swap %": 8, "MB trained": 12, "peak GB": 9}
UNMEASURED = 2  # updates at the beginning of a row
DIM, INNER, LAYERS, HEADS = 256, 1024, 3, 4  # of the transformer
SIZES = {"embed-dim": DIM, "ffn-embed-dim": INNER, "layers": LAYERS, "attention-heads": HEADS}
ARCHS = {
    "rnnsearch_small": [],
    "transformer": ["--share-all-embeddings"]
    + [x for side in ("encoder", "decoder") for name, size in SIZES.items() for x in (f"--{side}-{name}", size)],
}


def joined(args: argparse.Namespace) -> bool:
    return "--share-all-embeddings" in ARCHS[args.arch]


def binarise(args: argparse.Namespace, words: int, folder: Path) -> Path:
    """The first sentences of a text with dictionaries of exactly `words` words, or one for both languages."""
    folder.mkdir(parents=True)
    counts = {}
    for language, path in (("src", args.source), ("tgt", args.target)):
        with open(path, encoding="utf-8") as text:
            lines = list(itertools.islice(text, args.pairs))
        (folder / f"text.{language}").write_text("".join(lines), encoding="utf-8")
        counts[language] = collections.Counter(word for line in lines for word in line.split())
    if joined(args):
        counts = dict.fromkeys(counts, sum(counts.values(), collections.Counter()))
    for language, counted in counts.items():
        kept = counted.most_common(words - 4)
        with open(folder / f"dict.{language}", "w", encoding="utf-8") as dictionary:
            dictionary.writelines(f"{word} {count}\n" for word, count in kept)
            dictionary.writelines(f"never{i} 1\n" for i in range(words - 4 - len(kept)))
    flags = ["--srcdict", folder / "dict.src", "--tgtdict", folder / "dict.tgt", "--destdir", folder / "bin"]
    flags += ["-s", "src", "-t", "tgt", "--trainpref", folder / "text"]
    preprocess.main(options.get_preprocessing_parser().parse_args([str(x) for x in flags]))
    return folder / "bin"


class Run:
    """One way of training, through fairseq's trainer, an update at a time."""

    def __init__(self, data: Path, args: argparse.Namespace, *flags, parts: int = 1):
        given = [data, "--user-dir", ROOT / "lv_fairseq", "--task", "lv_translation", "--num-workers", 0, "--cpu"]
        given += ["--arch", args.arch, *ARCHS[args.arch], "--optimizer", "adam", "--lr", 0.001, "--clip-norm", 1.0]
        given += ["--max-tokens", args.tokens // parts, "--update-freq", parts, "--no-save", *flags]
        parser = options.get_training_parser()
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(x) for x in given]))
        utils.set_torch_seed(1)
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        self.task = task
        self.trainer = Trainer(cfg, task, model, self.criterion(cfg, task, model))
        iterator = self.trainer.get_train_iterator(1)
        self.trainer.begin_epoch(1)
        self.batches = len(iterator.frozen_batches)
        self.samples = itertools.cycle(iterator.next_epoch_itr(shuffle=True))
        self.parts = parts
        self.clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        self.updates, self.swaps = [], []

    def criterion(self, cfg, task, model):
        return task.build_criterion(cfg.criterion)

    def update(self, sentences: Optional[Sequence[int]] = None) -> Sequence[int]:
        """An update with some sentences (default: those that come next); gives their numbers."""
        if sentences is None:
            samples = [next(self.samples) for _ in range(self.parts)]
        else:
            dataset = self.task.datasets["train"]
            samples = [dataset.collater([dataset[number] for number in sentences])]
        if self.task.pages is not None:
            self.swap_to(samples[0]["partition"])
        start = self.clock()
        self.trainer.train_step(samples)
        self.updates.append(self.clock() - start)
        return [number for sample in samples for number in sample["id"].tolist()]

    def swap_to(self, partition: int) -> None:
        self.trainer.zero_grad()  # of the update before
        start = self.clock()
        if self.task.pages.turn_to(partition):
            self.swaps.append(self.clock() - start)

    def seconds(self) -> Sequence[float]:
        """Of each update, and its part of a swap at the proportions of the plan."""
        return [update + self.swap_seconds() for update in self.updates[UNMEASURED:]]

    def a_swap(self) -> float:
        return statistics.median(self.swaps[1:] or self.swaps or [0.0])

    def swap_seconds(self) -> float:
        return self.a_swap() / self.updates_of_a_partition() if self.swaps else 0.0

    def swap_more(self) -> None:
        """A few swaps by themselves: there are fewer than updates."""
        for partition in range(4):
            self.swap_to(partition % len(self.task.pages.plan))

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
        softmax = AdaptiveSoftmax(words, DIM, [15000, 100000] if words > 100000 else [words // 2], dropout=0.0)
        decoder = model.decoder
        del decoder.output_projection
        decoder.output_projection = None
        decoder.adaptive_softmax = softmax
        decoder.output_layer = lambda features, **unused: features
        return AdaptiveLoss(task, sentence_avg=False)


OWN = ("--criterion", "partition_cross_entropy")


def with_pages(data: Path, args: argparse.Namespace) -> Run:
    return Run(data, args, *OWN, "--tau", args.tau, "--source-tau", 0 if joined(args) else args.tau)


ROWS = {
    "pages": ("{words:,} words, tau {tau:,}", with_pages),
    "adaptive": (
        "{words:,} words, adaptive_loss",
        lambda data, args: AdaptiveRun(data, args, "--criterion", "cross_entropy"),
    ),
    "full": (
        "{words:,} words, cross_entropy",
        lambda data, args: Run(data, args, "--criterion", "cross_entropy", parts=4),
    ),
}


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHS, default="rnnsearch_small")
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


def ratios(run: Run, other: Run) -> Sequence[float]:
    """Of the seconds of updates with the same sentences."""
    return [mine / its for mine, its in zip(run.seconds(), other.seconds())]


def middle_half(numbers: Sequence[float]) -> Sequence[float]:
    """Between which two numbers half of them lie."""
    return statistics.quantiles(numbers, n=4)[::2] if len(numbers) > 1 else [*numbers, *numbers]


def show(name: str, run: Run, baseline: Run) -> None:
    seconds, (low, high) = statistics.median(run.seconds()), middle_half(run.seconds())
    figures = {
        "s/update": f"{seconds:.3f}",
        "spread": f"{high - low:.3f}",
        "ratio": f"{statistics.median(ratios(run, baseline)):.2f}",
        "swap s": f"{run.a_swap():.3f}",
        "swap %": f"{100 * run.swap_seconds() / seconds:.2f}",
        "MB trained": f"{run.trained_bytes() / 2**20:.1f}",
        "peak GB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f}",
    }
    print(f"{name:34}" + "".join(f"{figure:>{COLUMNS[column]}}" for column, figure in figures.items()), flush=True)


def compare(run: Run, small: Run) -> None:
    low, high = middle_half(ratios(run, small))
    time, in_bytes = statistics.median(ratios(run, small)), run.trained_bytes() / small.trained_bytes()
    print(f"  {time:.3f} of the time ({low:.3f} to {high:.3f}), {in_bytes:.3f} of the bytes trained")


def measure(run: Run, small: Run, turns: int) -> None:
    """Some updates of each, in turns and with the same sentences."""
    small.updates.clear()
    for _ in range(UNMEASURED + turns):
        small.update(run.update())
    if run.task.pages is not None:
        run.swap_more()


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    lv_fairseq.register()
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if args.source is None:
            args.source, args.target = demo_text(args.pairs, folder / "demo")
        large = binarise(args, args.words, folder / "large")
        small = Run(binarise(args, args.tau, folder / "small"), args, *OWN)
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.arch}, |V| = {args.words:,}")
        print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()))
        for kind in args.rows:
            name, make = ROWS[kind]
            run = make(large, args)
            measure(run, small, args.turns if kind == "pages" else min(args.turns, 3))
            if kind == args.rows[0]:
                show(f"all of {args.tau:,} words", small, small)
            show(name.format(**vars(args)), run, small)
            if kind == "pages":
                compare(run, small)
            del run


if __name__ == "__main__":
    main()
