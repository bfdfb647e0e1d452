"""``lv-partition``: what the partitions of a training corpus look like, before anything is trained. Writes nothing."""

import argparse
import logging
import os
import signal
import sys
from typing import List, Optional, Sequence

import numpy as np
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.tasks.translation import load_langpair_dataset
from tqdm import tqdm

from lv_fairseq import fairseq_patches
from lv_fairseq.batching.look_ahead import sorted_look_ahead
from lv_fairseq.data_folder import check_shards, check_subset, languages, load_dictionary
from lv_fairseq.errors import UserError, command
from lv_fairseq.partitions.plan import PartitionPlan, Sentences, partition
from lv_fairseq.partitions.sentences import sentences

SHOWN = 5  # first and last partitions in the table
BATCH_MULTIPLE = 8  # fairseq-train's --required-batch-size-multiple


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
    add("--shuffle", action="store_true", help="random order in place of the order of the corpus")
    add("--seed", type=int, default=1, metavar="N", help="for --shuffle (default: 1)")
    add("--all", action="store_true", help=f"show every partition, not only the first and last {SHOWN}")
    args = parser.parse_args(argv)
    least = dict(
        tau=1, source_tau=0, max_tokens=1, batch_size=1, max_source_positions=1, max_target_positions=1, seed=0
    )
    for name, value in least.items():
        if getattr(args, name) is not None and getattr(args, name) < value:
            raise UserError(f"--{name.replace('_', '-')} must be {value} or more, not {getattr(args, name)}")
    return args


def load(folder: str, subset: str, source: str, target: str, dictionaries: Sequence[Dictionary]) -> LanguagePairDataset:
    """The sentence pairs that fairseq-train reads: train, and train1, train2, ... if they are there."""
    check_subset(folder, subset)
    try:
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
    except FileNotFoundError as error:
        raise UserError(f"{error}: make it with fairseq-preprocess, or name another --train-subset") from None
    except (AssertionError, ValueError) as error:  # an index of another format
        raise UserError(f"{folder} cannot be read, make it again with fairseq-preprocess: {error}") from None
    if pairs.tgt is None:
        raise UserError(f"{folder} holds no target sentences of {subset}: make them with fairseq-preprocess")
    return pairs


def flat(dataset, what: str) -> Sentences:
    with progress_bar(len(dataset), f"reading {what}") as bar:
        return sentences(dataset, lambda done: bar.update(done - bar.n))


def progress_bar(total: int, what: str) -> tqdm:
    """Is drawn on a terminal only, and only if the work takes more than a second."""
    return tqdm(total=total, desc=what, unit=" sentences", unit_scale=True, leave=False, delay=1, disable=None)


def updates(
    plan: PartitionPlan, lengths: np.ndarray, max_tokens: Optional[int], batch_size: Optional[int]
) -> List[int]:
    """Batches of each partition if its sentences are sorted by length; ``lengths`` is (sentences x 2)."""
    longest = lengths.max(axis=1)
    result = []
    for begin, end in zip(plan.bounds[:-1], plan.bounds[1:]):
        numbers = sorted_look_ahead(plan.order[begin:end], lengths, window=end - begin)
        batches = data_utils.batch_by_size(
            numbers,
            num_tokens_fn=None,
            num_tokens_vec=longest[numbers],
            max_tokens=max_tokens,
            max_sentences=batch_size,
            required_batch_size_multiple=BATCH_MULTIPLE,
        )
        result.append(len(batches))
    return result


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


def report(folder: str, args: argparse.Namespace, source: str, target: str, dictionaries: Sequence[Dictionary]) -> str:
    """What is to be said of one shard."""
    pairs = load(folder, args.train_subset, source, target, dictionaries)
    sides = flat(pairs.src, source), flat(pairs.tgt, target)
    lengths = np.stack([side.lengths for side in sides], axis=1)  # (sentences x 2)
    limits = np.array([args.max_source_positions, args.max_target_positions])
    limits = limits if args.max_tokens is None else np.minimum(limits, args.max_tokens)
    with data_utils.numpy_seed(args.seed):
        order = np.random.permutation(len(lengths)) if args.shuffle else np.arange(len(lengths))
    order = order[(lengths[order] <= limits).all(axis=1)]
    if len(order) == 0:
        raise UserError(f"{folder}: none of the {len(lengths):,} sentences is within the limits of length")

    specials = range(dictionaries[1].nspecial)
    with progress_bar(len(order), "partitions") as bar:
        advance = lambda done: bar.update(done - bar.n)
        try:
            plan = partition(sides[1], order, args.tau, specials, sides[0], args.source_tau, advance)
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None

    parts = [plan.order[begin:end] for begin, end in zip(plan.bounds[:-1], plan.bounds[1:])]
    columns = {
        "sentences": [len(part) for part in parts],
        "target tokens": [int(lengths[part, 1].sum()) for part in parts],
        "target words": [len(words) - len(specials) for words in plan.target_words],
        "source words": [len(words) - len(specials) for words in plan.source_words],
    }
    if args.max_tokens is not None or args.batch_size is not None:
        columns["updates"] = updates(plan, lengths, args.max_tokens, args.batch_size)
    totals = {name: sum(column) for name, column in columns.items()}
    totals["target words"] = different(plan.target_words, specials)
    totals["source words"] = different(plan.source_words, specials)

    left_out = len(lengths) - len(order)
    how = f"shuffled with seed {args.seed}" if args.shuffle else "in the order of the corpus"
    source_limit = f"{args.source_tau:,}" if args.source_tau else "any number of"
    lines = [
        f"{folder}: {args.train_subset}, {source} to {target}, {how}",
        f"at most {args.tau:,} target words and {source_limit} source words a partition",
        f"dictionaries: {len(dictionaries[1]):,} target and {len(dictionaries[0]):,} source words",
        *([f"{left_out:,} sentences left out: too long"] if left_out else []),
        f"partitions: {len(plan):,}",
    ]
    return "\n".join([*lines, "", table(columns, totals, args.all)])


@command
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end in silence if the reader does, as `head`
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    fairseq_patches.apply()  # which sentences share a batch
    shards = utils.split_paths(args.data)
    source, target = languages(shards[0], args.source_lang, args.target_lang)
    check_shards(shards, source, target)
    dictionaries = [load_dictionary(os.path.join(shards[0], f"dict.{name}.txt")) for name in (source, target)]
    for i, folder in enumerate(shards):
        languages(folder, source, target)
        print(("\n" if i > 0 else "") + report(folder, args, source, target, dictionaries), flush=True)


if __name__ == "__main__":
    main()
