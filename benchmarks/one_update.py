"""One way of training, an update at a time, on sentences that others get too: what benchmarks of updates share."""

import argparse
import collections
import itertools
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional, Sequence, Type

import torch
from fairseq import options, tasks, utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules import AdaptiveSoftmax
from fairseq.trainer import Trainer
from fairseq_cli import preprocess

ROOT = Path(__file__).resolve().parent.parent
UNMEASURED = 2  # updates at the beginning of a row
DIM, INNER, LAYERS, HEADS = 256, 1024, 3, 4  # of the transformer
SIZES = {"embed-dim": DIM, "ffn-embed-dim": INNER, "layers": LAYERS, "attention-heads": HEADS}
ARCHS = {
    "rnnsearch_small": [],
    "transformer": ["--share-all-embeddings"]
    + [x for side in ("encoder", "decoder") for name, size in SIZES.items() for x in (f"--{side}-{name}", size)],
}


def demo_text(pairs: int, folder: Path) -> tuple:
    command = [sys.executable, ROOT / "scripts" / "demo_corpus.py", "--out", folder, "--pairs", pairs]
    subprocess.run([str(x) for x in command], check=True, stdout=subprocess.DEVNULL)
    return folder / "train.src", folder / "train.tgt"


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
            samples = self.collated(sentences)
        if self.pages is not None:
            self.swap_to(samples[0]["partition"])
        start = self.clock()
        self.step(samples)
        self.updates.append(self.clock() - start)
        return [number for sample in samples for number in sample["id"].tolist()]

    def collated(self, sentences: Sequence[int]) -> list:
        """Samples of some sentences, as many as an update has parts."""
        dataset, size = self.task.datasets["train"], -(-len(sentences) // self.parts)
        parts = [sentences[start : start + size] for start in range(0, len(sentences), size)]
        return [dataset.collater([dataset[number] for number in part]) for part in parts]

    def step(self, samples: list) -> None:
        self.trainer.train_step(samples)

    @property
    def pages(self):
        """None: there are none, or the task is fairseq's own."""
        return getattr(self.task, "pages", None)

    def swap_to(self, partition: int) -> None:
        self.trainer.zero_grad()  # of the update before
        start = self.clock()
        if self.pages.turn_to(partition):
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
            self.swap_to(partition % len(self.pages.plan))

    def updates_of_a_partition(self) -> float:
        return self.batches / len(self.pages.plan)

    def optimisers(self) -> list:
        return [self.trainer.optimizer.optimizer]

    def optimiser_bytes(self) -> int:
        """Of the statistics."""
        states = (state for optimiser in self.optimisers() for state in optimiser.state.values())
        return sum(tensor_bytes(x) for state in states for x in state.values() if torch.is_tensor(x))

    def trained_bytes(self) -> int:
        """What device and optimiser hold: parameters, gradients and statistics."""
        groups = (group for optimiser in self.optimisers() for group in optimiser.param_groups)
        parameters = [parameter for group in groups for parameter in group["params"]]
        gradients = [x if x.grad is None else x.grad for x in parameters]  # they may be cleared
        return sum(map(tensor_bytes, [*parameters, *gradients])) + self.optimiser_bytes()


def tensor_bytes(tensor: torch.Tensor) -> int:
    if tensor.is_sparse:
        return tensor_bytes(tensor._indices()) + tensor_bytes(tensor._values())
    return tensor.numel() * tensor.element_size()


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


def with_pages(data: Path, args: argparse.Namespace, run: Type[Run] = Run) -> Run:
    return run(data, args, *OWN, "--tau", args.tau, "--source-tau", 0 if joined(args) else args.tau)
