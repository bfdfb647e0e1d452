"""``lv-partition``: what the partitions of a training corpus look like, before anything is trained. Writes nothing."""

import argparse
import logging
import os
import signal
import sys
from typing import List, Optional, Sequence

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.tasks.translation import load_langpair_dataset
from tqdm import tqdm

from lv_fairseq import fairseq_patches
from lv_fairseq.batching.partitioned import in_partitions
from lv_fairseq.batching.sentences import sentences
from lv_fairseq.data_folder import check_shards, check_subset, languages, load_dictionary, reading
from lv_fairseq.errors import UserError, command
from lv_fairseq.partitions.plan import Sentences
from lv_fairseq.processes import signals_as_exit

SHOWN = 5  # first and last partitions in the table


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-partition",
        description="Shows how a training corpus falls into partitions of at most tau different target words.",
        epilog="Tokens include the end of each sentence; special symbols do not count as words.",
    )
    add = parser.add_argument
    add("data", metavar="DATA", help="folder that fairseq-preprocess has made; several shards: a:b:c")
    add("--tau", type=int, required=True, metavar="N", help="most target words of a partition")
    add("--source-tau", type=int, default=0, metavar="N", help="most source words of a partition (default: any number)")
    add(
        "--share-all-embeddings",
        action="store_true",
        help="as for fairseq-train: one table for both languages, so that tau counts the words of both",
    )
    add("-s", "--source-lang", metavar="SRC", help="source language (default: from the names of the files)")
    add("-t", "--target-lang", metavar="TGT", help="target language (default: from the names of the files)")
    add("--train-subset", default="train", metavar="NAME", help="which files to read (default: train)")
    add("--max-tokens", type=int, metavar="N", help="of a batch, as for fairseq-train: shows updates too")
    add("--batch-size", type=int, metavar="N", help="sentences of a batch, as for fairseq-train: shows updates too")
    add(
        "--max-source-positions", type=int, default=1024, metavar="N", help="leave longer sentences out (default: 1024)"
    )
    add(
        "--max-target-positions", type=int, default=1024, metavar="N", help="leave longer sentences out (default: 1024)"
    )
    add(
        *("--shuffle", "--reshuffle-partitions"),
        action="store_true",
        dest="reshuffle_partitions",
        help="random order in place of the order of the corpus",
    )
    add("--seed", type=int, default=1, metavar="N", help="for --shuffle (default: 1)")
    add(
        "--epoch",
        type=int,
        metavar="N",
        help="for --shuffle, --update-freq and shards (default: the first of each shard)",
    )
    add("--sort-window", type=int, default=0, metavar="N", help="sentences sorted by length together (default: all)")
    add("--update-freq", type=numbers, default=[1], metavar="N,...", help="batches of an update, by epoch (default: 1)")
    add("--distributed-world-size", type=int, default=1, metavar="N", help="workers that share an update (default: 1)")
    add("--required-batch-size-multiple", type=int, default=8, metavar="N", help="as for fairseq-train (default: 8)")
    add("--all", action="store_true", help=f"show every partition, not only the first and last {SHOWN}")
    args = parser.parse_args(argv)
    check(args)
    return args


def numbers(text: str) -> List[int]:
    return [int(x) for x in text.split(",")]


def check(args: argparse.Namespace) -> None:
    """Refuse numbers that make no sense, or that fairseq-train would refuse."""
    may_be_zero = ("source_tau", "sort_window", "seed")
    for name, value in vars(args).items():
        least = 0 if name in may_be_zero else 1
        for number in value if isinstance(value, list) else [value]:
            if type(number) is int and number < least:
                raise UserError(f"--{name.replace('_', '-')} must be {least} or more, not {number}")
    if args.seed + (args.epoch or 1) >= 2**32:  # fairseq adds them, and numpy takes no more
        raise UserError(f"--seed must be below 2**32, as for fairseq-train, not {args.seed}")


def load(folder: str, subset: str, source: str, target: str, dictionaries: Sequence[Dictionary]) -> LanguagePairDataset:
    """The sentence pairs that fairseq-train reads: train, and train1, train2, ... if they are there."""
    check_subset(folder, subset)
    with reading(subset):
        pairs = load_langpair_dataset(
            folder,
            subset,
            source,
            dictionaries[0],
            target,
            dictionaries[1],
            combine=True,
            dataset_impl=None,
            upsample_primary=1,
            left_pad_source=True,
            left_pad_target=False,
            max_source_positions=sys.maxsize,
            max_target_positions=sys.maxsize,
        )
    if pairs.tgt is None:
        raise UserError(f"{folder} holds no target sentences of {subset}: make them with fairseq-preprocess")
    return pairs


def flat(dataset, what: str) -> Sentences:
    with progress_bar(len(dataset), f"reading {what}") as bar:
        return sentences(dataset, lambda done: bar.update(done - bar.n))


def progress_bar(total: int, what: str) -> tqdm:
    """Is drawn on a terminal only, and only if the work takes more than a second."""
    return tqdm(total=total, desc=what, unit=" sentences", unit_scale=True, leave=False, delay=1, disable=None)


def table(columns: dict, totals: dict, everything: bool) -> str:
    """Columns of numbers by partition, then their total, mean, least and most."""
    numbers = np.array(list(columns.values()), dtype=np.int64)  # (columns x partitions)
    count = numbers.shape[1]
    rows = [(f"{i + 1:,}", *(f"{x:,}" for x in numbers[:, i])) for i in range(count)]
    if not everything and count > 2 * SHOWN + 1:
        rows[SHOWN:-SHOWN] = [("...",) * (1 + len(columns))]
    rows.append(("total", *(f"{totals[name]:,}" for name in columns)))
    rows.append(("mean", *(f"{x:,.1f}" for x in numbers.mean(axis=1))))
    rows.append(("min", *(f"{x:,}" for x in numbers.min(axis=1))))
    rows.append(("max", *(f"{x:,}" for x in numbers.max(axis=1))))
    rows.insert(0, ("partition", *columns))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


def different(sets: Sequence[np.ndarray], specials: Sequence[int]) -> int:
    """How many words, without special symbols, are in any of the sets."""
    used = np.zeros(1 + max(int(words[-1]) for words in sets), dtype=bool)
    for words in sets:
        used[words] = True
    return int(used.sum()) - len(specials)


def cut(pairs: LanguagePairDataset, args: argparse.Namespace, specials: Sequence[int], epoch: int) -> tuple:
    """What training makes of a corpus: the dataset in partitions, its batches, and how many sentences are too long."""
    targets, sources = flat(pairs.tgt, "target sentences"), flat(pairs.src, "source sentences")
    with progress_bar(len(pairs), "partitions") as bar:
        advance = lambda done: bar.update(done - bar.n)
        workers = args.distributed_world_size
        joined = args.share_all_embeddings
        parts = in_partitions(pairs, targets, sources, args, joined, specials, args.seed, epoch, workers, advance)
        limits = utils.resolve_max_positions((args.max_source_positions, args.max_target_positions), args.max_tokens)
        order, too_long = parts.filter_indices_by_size(parts.ordered_indices(), limits)
        if len(order) == 0:
            raise UserError(f"none of the {len(pairs):,} sentences is within the limits of length")
        batches = parts.batch_by_size(
            order,
            max_tokens=args.max_tokens,
            max_sentences=args.batch_size,
            required_batch_size_multiple=args.required_batch_size_multiple,
        )
    return parts, batches, len(too_long)


def report(
    folder: str, args: argparse.Namespace, source: str, target: str, dictionaries: Sequence[Dictionary], epoch: int
) -> str:
    """What is to be said of one shard."""
    specials = range(dictionaries[1].nspecial)
    pairs = load(folder, args.train_subset, source, target, dictionaries)
    try:
        dataset, batches, left_out = cut(pairs, args, specials, epoch)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from None
    plan = dataset.plan
    parts = [plan.order[begin:end] for begin, end in zip(plan.bounds[:-1], plan.bounds[1:])]
    columns = {
        "sentences": [len(part) for part in parts],
        "target tokens": [int(pairs.tgt_sizes[part].sum()) for part in parts],
        "target words": [len(words) - len(specials) for words in plan.target_words],
        "source words": [len(words) - len(specials) for words in plan.source_words],
    }
    if args.max_tokens is not None or args.batch_size is not None:
        columns["updates"] = (np.bincount(dataset.partitions_of(batches)) // dataset.group).tolist()
    totals = {name: sum(column) for name, column in columns.items()}
    totals["target words"] = different(plan.target_words, specials)
    totals["source words"] = different(plan.source_words, specials)

    how = (
        f"shuffled with seed {args.seed} for epoch {epoch}"
        if args.reshuffle_partitions
        else "in the order of the corpus"
    )
    source_limit = f"{args.source_tau:,}" if args.source_tau else "any number of"
    fillers = sum(batch[0] < 0 for batch in batches)
    lines = [
        f"{folder}: {args.train_subset}, {source} to {target}, {how}",
        f"at most {args.tau:,} {'words of both languages' if args.share_all_embeddings else 'target words'}"
        f" and {source_limit} source words a partition",
        f"dictionaries: {len(dictionaries[1]):,} target and {len(dictionaries[0]):,} source words",
        *([f"{left_out:,} sentences left out: too long"] if left_out else []),
        *([f"{fillers:,} batches that count nothing, to fill up updates of {dataset.group}"] if fillers else []),
        f"partitions: {len(plan):,}",
    ]
    return "\n".join([*lines, "", table(columns, totals, args.all)])


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end in silence if the reader does, as `head`
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    fairseq_patches.apply()  # which sentences share a batch
    shards = utils.split_paths(args.data)
    source, target = languages(shards[0], args.source_lang, args.target_lang)
    check_shards(shards, source, target)
    dictionaries = [load_dictionary(os.path.join(shards[0], f"dict.{name}.txt")) for name in (source, target)]
    for folder in shards:
        languages(folder, source, target)
    # fairseq trains a shard an epoch, in turn
    epochs = range(1, 1 + len(shards)) if args.epoch is None else [args.epoch]
    for i, epoch in enumerate(epochs):
        folder = shards[(epoch - 1) % len(shards)]
        print(("\n" if i > 0 else "") + report(folder, args, source, target, dictionaries, epoch), flush=True)


if __name__ == "__main__":
    main()
