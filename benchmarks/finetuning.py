"""What fine-tuning a released model with --tau takes on the device, and what it learns, against fine-tuning all rows.

    python benchmarks/finetuning.py --text TEXT/train --languages en,de    # 256,206 rows, 512 dims; 4 minutes
    python benchmarks/finetuning.py --released DIR --data DATA             # a model that is there, and text of its own

The first makes a model with random weights and the structure of NLLB-200 (scripts/small_released_model.py) with the
pieces of a text, PREFIX.LANG, filled up to the rows of the release. The second takes a folder as that script makes them
(model.json, data, checkpoint.pt), for losses that mean something. Both ways of training get the same sentences, update
by update, through fairseq's own trainer with Adam. The loss is that of the validation text, over all words, in bits a
piece, and the same over the target words of the training text alone, as a list may hold them. Bytes are those of the
tensors that are there after an update: the word table's rows on the device, their gradients and moments, and with --tau
what says which word is in which row. All rows, with their moments, are in the host's memory then. Below the table stand
what the formula says of both, and what the other parameters take; the last line is from fairseq without the plug-in,
which opens what was saved.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from torch.nn import functional

import lv_fairseq
from lv_fairseq.word_tables.memory import Rows, bytes_of_machine, bytes_of_worker

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import small_released_model  # noqa: E402

COLUMNS = {"": 20, "rows": 9, "table": 9, "gradient": 10, "moments": 9, "index": 7, "MB": 9, "%": 8}
COLUMNS |= {"s/update": 10, "loss before": 13, "after": 9, "its words": 11, "after ": 9}
OPEN = """
import argparse, sys, torch
torch.serialization.add_safe_globals([argparse.Namespace])  # which torch's loader wants to be told
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
parsed = options.parse_args_and_arch(options.get_generation_parser(), sys.argv[1:])
cfg = convert_namespace_to_omegaconf(parsed)
task = tasks.setup_task(cfg.task)  # as fairseq-generate does
(model,), _ = checkpoint_utils.load_model_ensemble([cfg.common_eval.path], task=task)
assert not any(name.split(".")[0] == "lv_fairseq" for name in sys.modules)
rows, dim = model.decoder.embed_tokens.weight.shape
print(f"fairseq without the plug-in opens the checkpoint: {rows:,} rows of {dim} numbers")
"""


class Released(NamedTuple):
    """A folder of scripts/small_released_model.py, and the data to tune it with."""

    folder: Path
    data: Path
    about: Dict

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"


class Tuning:
    """fairseq's trainer, at the first update from a released checkpoint.

    Args:
        flags: criterion and --tau
    """

    def __init__(self, released: Released, args: argparse.Namespace, *flags):
        about = released.about
        given = [released.data, "--task", f"lv_{about['task']}", *about["flags"], *about["arch"], *flags]
        given += ["--optimizer", "adam", "--lr", args.lr, "--clip-norm", 1]
        given += ["--max-tokens", args.tokens, "--cpu", "--num-workers", 0, "--no-save-optimizer-state"]
        given += ["--finetune-from-model", released.checkpoint]
        parsed = options.parse_args_and_arch(options.get_training_parser(), [str(x) for x in given])
        cfg = convert_namespace_to_omegaconf(parsed)
        utils.set_torch_seed(1)
        self.task = tasks.setup_task(cfg.task)
        self.model = self.task.build_model(cfg.model)
        self.trainer = Trainer(cfg, self.task, self.model, self.task.build_criterion(cfg.criterion))
        self.trainer.load_checkpoint(str(released.checkpoint), True, True, "{}", True)
        self.iterator = self.trainer.get_train_iterator(1)
        self.trainer.begin_epoch(1)
        self.task.load_dataset("valid")
        self.seconds: List[float] = []

    def update(self, sample: Dict) -> None:
        start = time.process_time()
        self.trainer.train_step([sample])
        self.seconds.append(time.process_time() - start)

    def same_sentences(self, sample: Dict) -> Dict:
        """A batch of another one's iterator, as this task's data has it."""
        dataset = self.task.dataset("train")
        return dataset.collater([dataset[number] for number in sample["id"].tolist()])

    def loss(self) -> float:
        """Of the validation text over all words, in bits a piece."""
        batches = self.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
        logs = [self.task.valid_step(sample, self.model, self.trainer.criterion)[2] for sample in batches]
        return float(sum(log["loss"] for log in logs) / sum(log["sample_size"] for log in logs) / np.log(2))

    def loss_over(self, words: torch.Tensor) -> float:
        """The same over some words only, as lists have it; other words of the text do not count."""
        others = torch.ones(len(self.task.target_dictionary), dtype=torch.bool)
        others[words] = False
        total = count = 0
        self.model.eval()
        for sample in self.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            with torch.no_grad():
                scores = self.model(**sample["net_input"])[0].float().masked_fill_(others, float("-inf"))
            target = sample["target"].masked_fill(others[sample["target"]], self.task.target_dictionary.pad())
            kept = target != self.task.target_dictionary.pad()
            total += float(functional.cross_entropy(scores[kept], target[kept], reduction="sum"))
            count += int(kept.sum())
        return total / count / np.log(2)

    def words(self) -> torch.Tensor:
        """All target words of the training text."""
        dataset = self.task.dataset("train")
        sentences = [dataset[number] for number in range(len(dataset))]
        return torch.unique(torch.cat([x[1]["target"] for x in sentences]))  # x[0]: of which language pair

    def on_device(self) -> Dict[str, int]:
        """Bytes of the word tables' tensors that train, by what they are."""
        own = {id(table.weight): table.weight for table in self.tables()}.values()
        state = self.trainer.optimizer.optimizer.state
        moments = [x for p in own for x in state[p].values() if torch.is_tensor(x)]
        page = getattr(self.model.decoder.embed_tokens, "page", None)  # of a joined table there is one
        index = [] if page is None else [page._row_of, page._offset]
        return {
            "table": size(own),
            "gradient": size(p.grad for p in own),
            "moments": size(moments),
            "index": size(index),
        }

    def formula(self) -> Tuple[int, int]:
        """What lv_fairseq.word_tables.memory says of the device and of the host's memory, for a joined table."""
        table = self.model.decoder.embed_tokens
        rows = [Rows(table.words, table.weight.size(1), len(table.weight))]
        return bytes_of_worker(rows, [table.words], table.page.scored), bytes_of_machine(rows)

    def others(self) -> Tuple[int, int]:
        """Parameters besides the tables, and the bytes of these with gradients and moments."""
        own, state = {id(table.weight) for table in self.tables()}, self.trainer.optimizer.optimizer.state
        others = [p for p in self.model.parameters() if id(p) not in own]
        moments = [x for p in others for x in state[p].values() if torch.is_tensor(x)]
        return sum(p.numel() for p in others), size(others) + size(p.grad for p in others) + size(moments)

    def tables(self) -> List[torch.nn.Module]:
        decoder = self.model.decoder
        return [self.model.encoder.embed_tokens, decoder.embed_tokens, decoder.output_projection]

    def rows(self) -> int:
        return len(self.model.decoder.embed_tokens.weight)


def size(tensors) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def show(name: str, tuning: Tuning, bytes_of: Dict[str, int], whole: int, losses: Sequence[float]) -> None:
    total = sum(bytes_of.values())
    figures = [f"{tuning.rows():,}", *(f"{x / 2**20:,.1f}" for x in (*bytes_of.values(), total))]
    figures += [f"{100 * total / whole:.1f}", f"{statistics.median(tuning.seconds):.2f}"]
    figures += [f"{loss:.3f}" for loss in losses]
    print(f"{name:20}" + "".join(f"{figure:>{width}}" for figure, width in zip(figures, [*COLUMNS.values()][1:])))


def compare(released: Released, args: argparse.Namespace) -> None:
    """The same updates of both, and what fairseq makes of the result."""
    paged = Tuning(released, args, "--criterion", "partition_cross_entropy", "--tau", args.tau)
    whole = Tuning(released, args, "--criterion", "cross_entropy")
    words = whole.words()
    losses = {tuning: [tuning.loss(), 0.0, tuning.loss_over(words), 0.0] for tuning in (whole, paged)}
    epoch, done = paged.iterator.next_epoch_itr(shuffle=True), 0
    while done < args.updates:
        for sample in epoch:
            if done < args.updates and not sample.get("filler"):
                paged.update(sample)
                whole.update(whole.same_sentences(sample))
                done += 1
        epoch = paged.iterator.next_epoch_itr(shuffle=True)
    each = whole.on_device(), paged.on_device()
    for tuning, found in losses.items():
        found[1::2] = tuning.loss(), tuning.loss_over(words)
    print("".join(f"{name:>{width}}" for name, width in COLUMNS.items()))
    everything = sum(each[0].values())
    show("all rows", whole, each[0], everything, losses[whole])
    show(f"--tau {args.tau:,}", paged, each[1], everything, losses[paged])
    (device, host), (parameters, taken) = paged.formula(), paged.others()
    print(f"by the formula: {device / 2**20:,.1f} MB on the device, {host / 2**20:,.1f} MB of the host's memory")
    print(f"besides: {parameters:,} parameters, {taken / 2**20:,.1f} MB; 16 bytes each: {parameters / 2**16:,.1f} MB")
    open_with_fairseq(released, paged)


def open_with_fairseq(released: Released, tuning: Tuning) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved, words = Path(folder) / "tuned.pt", Path(folder) / "all.txt"
        tuning.trainer.save_checkpoint(str(saved), {"train_iterator": tuning.iterator.state_dict(), "val_loss": 0.0})
        tuning.task.target_dictionary.save(str(words))  # fairseq itself does not know of NLLB's three tags
        source, target = released.about["pairs"][0].split("-")
        flags = [released.data, "--task", released.about["task"], *released.about["flags"], "-s", source, "-t", target]
        flags += ["--fixed-dictionary", words, "--path", saved]
        command = [sys.executable, "-c", OPEN, *map(str, flags)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(done.stdout.splitlines()[-1])


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--released", type=Path, metavar="DIR", help="a model that is there (default: one is made)")
    add("--data", type=Path, metavar="DIR", help="to tune it with (default: its own)")
    add("--text", metavar="PREFIX", help="for the model that is made: PREFIX.LANG (default: made-up sentences)")
    add("--languages", metavar="A,B", help="of the model that is made; its text is that of two of them")
    add("--rows", type=int, default=256_206, help="of its word table (256206)")
    add("--pieces", type=int, default=32_000, help="of sentencepiece, at most (32000)")
    add("--dim", type=int, default=512, help="of word vectors (512)")
    add("--layers", type=int, default=2, help="of encoder and decoder (2)")
    add("--heads", type=int, default=8, help="of attention (8)")
    add("--tau", type=int, default=15_000, help="words of a page (15000)")
    add("--tokens", type=int, default=500, help="of an update (500)")
    add("--updates", type=int, default=10, help="(10)")
    add("--lr", type=float, default=0.0005, help="(0.0005)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lv_fairseq.register()
    with tempfile.TemporaryDirectory() as folder:
        if args.released is None:
            args.released = Path(folder)
            flags = ["nllb", "--out", folder]
            for name in ("rows", "pieces", "dim", "layers", "heads", "text", "languages"):
                flags += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
            small_released_model.main([str(x) for x in flags])
        about = json.loads((args.released / "model.json").read_text(encoding="utf-8"))
        print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.updates} updates")
        compare(Released(args.released, args.data or args.released / "data", about), args)


if __name__ == "__main__":
    main()
