"""How much of the batches of a training is padding, with --tau and without, on tokenised text, one sentence a line.

    python benchmarks/padding.py --source train.src --target train.tgt --tau 5000 15000

Without --tau fairseq sorts the whole corpus by length and cuts it into batches; with --tau only the sentences of a
partition, by the larger of both lengths ("sorted"), of which neighbouring batches then share out theirs anew ("shared
out", what training does). Nothing is trained. Padding is in percent of all positions of a side, seconds are the
processor's, for cutting and sharing out without finding the partitions.
"""

import argparse
import time
from typing import List, Optional, Sequence

import numpy as np
from fairseq.data import Dictionary, LanguagePairDataset
from partitions import SPECIALS, read

from lv_fairseq import fairseq_patches
from lv_fairseq.batching.look_ahead import sorted_look_ahead
from lv_fairseq.batching.padding import Limits, with_less_padding
from lv_fairseq.partitions.plan import PartitionPlan, partition
from lv_fairseq.partitions.reshuffling import training_order

COLUMNS = {"": 42, "batches": 10, "target tokens each": 20, "source %": 10, "target %": 10, "both %": 8, "seconds": 9}


def show(name: str, batches: List[np.ndarray], sizes: np.ndarray, seconds: float) -> None:
    padded = sum(len(batch) * sizes[batch].max(axis=0) for batch in batches)  # (sides)
    words = sum(sizes[batch].sum(axis=0) for batch in batches)
    shares = [*(100 * (1 - words / padded)), 100 * (1 - words.sum() / padded.sum())]
    cells = [f"{len(batches):,}", f"{words[1] / len(batches):,.0f}", *(f"{x:.2f}" for x in shares), f"{seconds:.1f}"]
    print(f"{name:42}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, [*COLUMNS.values()][1:])), flush=True)


def partitioned(plan: PartitionPlan, pairs: LanguagePairDataset, limits: Limits, share_out: bool) -> List[np.ndarray]:
    """The batches of all partitions."""
    batches, tokens = [], pairs.sizes.max(axis=1)
    for start, end in zip(plan.bounds[:-1], plan.bounds[1:]):
        run = sorted_look_ahead(plan.order[start:end], pairs.sizes, end - start)
        cut = pairs.batch_by_size(run, **limits._asdict())
        batches.extend(with_less_padding(cut, pairs.sizes, tokens, limits) if share_out else cut)
    return batches


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--target", required=True, metavar="FILE")
    parser.add_argument("--lines", type=int, default=10**9, help="read no more than these (default: all)")
    parser.add_argument("--tau", type=int, nargs="+", default=[5000, 15000], help="(default: 5000 15000)")
    parser.add_argument("--max-tokens", type=int, default=2000, help="longer sentences are left out (default: 2000)")
    parser.add_argument("--batch-size", type=int, help="most sentences of a batch (default: any number)")
    parser.add_argument("--required-batch-size-multiple", type=int, default=8, help="(default: 8)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    fairseq_patches.apply()  # which sentences share a batch
    target, source = read(args.target, args.lines), read(args.source, args.lines)
    count = len(target.lengths)
    blank = [None] * count  # sentences that are not read
    pairs = LanguagePairDataset(blank, source.lengths, Dictionary(), blank, target.lengths, Dictionary())
    limits = Limits(args.max_tokens, args.batch_size, args.required_batch_size_multiple)
    fits = pairs.sizes.max(axis=1) <= args.max_tokens
    print(f"{fits.sum():,} pairs, {source.lengths[fits].sum():,} and {target.lengths[fits].sum():,} tokens, {limits}")
    print("".join(f"{column:>{width}}" for column, width in COLUMNS.items()))
    np.random.seed(1)
    start, order = time.process_time(), pairs.ordered_indices()
    whole = pairs.batch_by_size(order[fits[order]], **limits._asdict())
    show("without --tau", whole, pairs.sizes, time.process_time() - start)
    for tau in args.tau:
        for reshuffled in (False, True):
            order = training_order(count, reshuffled, seed=1, epoch=1)
            plan = partition(target, order[fits[order]], tau, SPECIALS, source)
            print(f"tau {tau:,}, {'reshuffled' if reshuffled else 'order of the corpus'}: {len(plan):,} partitions")
            for name, share_out in (("sorted", False), ("shared out", True)):
                start = time.process_time()
                batches = partitioned(plan, pairs, limits, share_out)
                show(f"  {name}", batches, pairs.sizes, time.process_time() - start)


if __name__ == "__main__":
    main()
