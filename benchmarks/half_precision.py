"""What half precision does to training with pages: validation losses after the same updates, with a resume between.

    python scripts/demo_corpus.py --out text && fairseq-preprocess ... --destdir data
    python benchmarks/half_precision.py data --tau 2000
    python benchmarks/half_precision.py data --tau 2000 --arch transformer

Every row trains the same model from the same initial values on the same batches, through fairseq's own trainer: some
updates, a checkpoint, as many updates again by a new trainer that has read it. Then come the updates that were left
out because a scaled gradient was too large, and whether a run without an interruption ends with the same bits. On a
CPU, --amp is single precision.
"""

import argparse
import copy
import itertools
import logging
import tempfile
from pathlib import Path
from typing import Optional, Sequence

import torch
from fairseq import metrics, options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from omegaconf import DictConfig

import lv_fairseq

PRECISIONS = ("single", "fp16", "memory-efficient-fp16", "bf16", "memory-efficient-bf16", "amp")
SIDES = ("encoder", "decoder")
DIMS = {  # what has the size of the model, by architecture
    "rnnsearch_small": ["encoder-hidden-size", "decoder-hidden-size", "decoder-out-embed-dim"]
    + ["attention-dim", "readout-dim"],
    "transformer": [f"{side}-ffn-embed-dim" for side in SIDES],
}
OTHERS = {
    "rnnsearch_small": [],
    "transformer": [x for side in SIDES for x in (f"--{side}-layers", 2, f"--{side}-attention-heads", 4)],
}


def configuration(args: argparse.Namespace, row: str) -> DictConfig:
    given = [args.data, "--task", "lv_translation", "--arch", args.arch, *OTHERS[args.arch], "--num-workers", 0]
    for name in ("encoder-embed-dim", "decoder-embed-dim", *DIMS[args.arch]):
        given += [f"--{name}", args.dim]
    given += ["--criterion", "partition_cross_entropy", "--tau", args.tau, "--max-tokens", args.tokens]
    given += ["--optimizer", "adam", "--lr", 0.001, "--clip-norm", 1.0, "--dropout", 0.1, "--no-save"]
    given += ["--reshuffle-partitions", *([f"--{row}"] if row != "single" else [])]
    parser = options.get_training_parser()
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [str(x) for x in given]))


def start(cfg: DictConfig) -> Trainer:
    cfg = copy.deepcopy(cfg)
    utils.set_torch_seed(1)
    task = tasks.setup_task(cfg.task)
    return Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))


def train(trainer: Trainer, first: int, last: int, load: bool = True) -> None:
    """Updates with the batches from number ``first`` to before ``last`` of the first epoch."""
    iterator = trainer.get_train_iterator(1, load_dataset=load)
    trainer.begin_epoch(1)
    for sample in itertools.islice(iterator.next_epoch_itr(shuffle=True), first, last):
        trainer.train_step([sample])


def validation_loss(trainer: Trainer) -> float:
    trainer.task.load_dataset("valid")
    with metrics.aggregate(new_root=True) as total:
        for sample in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trainer.valid_step(sample)
    return total.get_smoothed_values()["loss"]


def measure(args: argparse.Namespace, row: str, folder: Path) -> tuple:
    """Losses after some updates and after as many again, how many were left out, and whether the resume left no
    trace."""
    cfg, half = configuration(args, row), args.updates
    whole = start(cfg)
    train(whole, 0, half)
    whole.consolidate_optimizer()
    whole.save_checkpoint(str(folder / "half.pt"), {"train_iterator": {"epoch": 1}})
    losses = [validation_loss(whole)]
    train(whole, half, 2 * half, load=False)
    resumed = start(cfg)
    resumed.load_checkpoint(str(folder / "half.pt"))
    train(resumed, half, 2 * half)
    before, after = (trainer.model.state_dict() for trainer in (whole, resumed))
    same = all(torch.equal(after[name], value) for name, value in before.items())
    return *losses, validation_loss(resumed), 2 * half - resumed.get_num_updates(), same


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="folder that fairseq-preprocess has written, with train and valid")
    parser.add_argument("--arch", choices=DIMS, default="rnnsearch_small")
    parser.add_argument("--dim", type=int, default=256, help="size of everything in the model (default: 256)")
    parser.add_argument("--tau", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=1000, help="of a batch (default: 1000)")
    parser.add_argument("--updates", type=int, default=20, help="before and after the resume (default: 20)")
    parser.add_argument("--rows", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="which (default: all)")
    args = parser.parse_args(argv)

    logging.disable(logging.INFO)
    lv_fairseq.register()
    print(
        f"{'':26}{f'{args.updates} updates':>12}{f'{2 * args.updates}, resumed':>14}{'left out':>10}{'same bits':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for row in args.rows:
            first, second, left_out, same = measure(args, row, Path(folder))
            print(f"{row:26}{first:12.3f}{second:14.3f}{left_out:10}{'yes' if same else 'no':>11}", flush=True)


if __name__ == "__main__":
    main()
