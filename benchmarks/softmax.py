"""Loss and gradients of the softmax over a page, against the usual matrix of all scores, in one run.

    python benchmarks/softmax.py                     # 2,000 words of text, a page of 15,000 rows, 256 dimensions
    python benchmarks/softmax.py --rows 30000 --dim 620
    python benchmarks/softmax.py --validation --rows 150000 --tokens 1000     # the loss alone, over all words

The bare matrix products (scores, and their two gradients) are the least that any of them must do. Machines are noisy:
read the ratios. Rows are measured in turns, and the best of all turns counts. With OMP_NUM_THREADS=1 the processor's
time counts, which other work on the machine disturbs less. Memory is what a process of its own had at its peak beyond
its inputs; the gradients themselves are part of it. It is only measured on Linux.
"""

import argparse
import functools
import resource
import subprocess
import sys
import time
from typing import Iterator, Optional, Sequence

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from lv_fairseq.softmax import full_cross_entropy, limited_cross_entropy, tau

ROWS = 16384  # of a table that validation takes at a time, as `ScoringTable.chunks` hands them over
SCORES = 1 << 28  # of others: in parts of so many, a gigabyte


def make_inputs(args) -> tuple:
    torch.manual_seed(1)
    features = torch.randn(args.tokens, args.dim)
    weight, bias = 0.05 * torch.randn(args.rows, args.dim), 0.1 * torch.randn(args.rows)
    return (*(x.requires_grad_() for x in (features, weight, bias)), torch.randint(args.rows, (args.tokens,)))


def bare_products(features, weight, bias, targets) -> None:
    with torch.no_grad():
        scores = torch.mm(features, weight.t())
        torch.mm(scores, weight)
        torch.mm(scores.t(), features)


def plain(features, weight, bias, targets, smoothing=0.0) -> None:
    """As fairseq's models and criteria do it."""
    log_p = F.log_softmax(F.linear(features, weight, bias), dim=-1, dtype=torch.float32)
    if smoothing:
        label_smoothed_nll_loss(log_p, targets, smoothing)[0].backward()
    else:
        F.nll_loss(log_p, targets, reduction="sum").backward()


def by_chunks(features, weight, bias, targets, smoothing=0.0, chunk=None) -> None:
    limited_cross_entropy(features, weight, bias, None, targets, smoothing, chunk)[0].backward()


# --- validation: the loss alone ---


def chunks(weight, bias) -> Iterator[tuple]:
    return ((first, weight[first : first + ROWS], bias[first : first + ROWS]) for first in range(0, len(weight), ROWS))


@torch.no_grad()
def bare_scores(features, weight, bias, targets) -> None:
    for part in features.split(max(1, SCORES // len(weight))):
        torch.mm(part, weight.t())


@torch.no_grad()
def plain_loss(features, weight, bias, targets) -> torch.Tensor:
    """As fairseq's models and criteria do it."""
    size, loss = max(1, SCORES // len(weight)), 0.0
    for part, right in zip(features.split(size), targets.split(size)):
        log_p = F.log_softmax(F.linear(part, weight, bias), dim=-1, dtype=torch.float32)
        loss = loss + F.nll_loss(log_p, right, reduction="sum")
    return loss


@torch.no_grad()
def torchs_loss(features, weight, bias, targets) -> torch.Tensor:
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=max(1, SCORES // len(weight)))
    return F.linear_cross_entropy(features, weight, targets, linear_bias=bias, reduction="sum", options=options)


def full_loss(features, weight, bias, targets) -> torch.Tensor:
    return full_cross_entropy(features, chunks(weight.detach(), bias.detach()), targets)[0]


LOSSES = {"plain": plain_loss, "torch, linear_cross_entropy": torchs_loss, "full": full_loss}


def contestants(args) -> dict:
    if args.validation:
        return {"bare products": bare_scores, **LOSSES}
    default = max(1, tau.CHUNK_BYTES // (4 * args.rows))
    chunks = [chunk for chunk in (32, 64, 128, 256, 512, 1024) if chunk < args.tokens] + [args.tokens]
    return {
        "bare products": bare_products,
        "plain": plain,
        "plain, smoothed": functools.partial(plain, smoothing=0.1),
        **{f"limited, chunks of {chunk}": functools.partial(by_chunks, chunk=chunk) for chunk in chunks},
        f"limited, default ({default})": by_chunks,
        "limited, default, smoothed": functools.partial(by_chunks, smoothing=0.1),
    }


def seconds(function, inputs) -> float:
    for x in inputs:
        x.grad = None
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function(*inputs)
    return clock() - start


def peak() -> float:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def megabytes(name: str, argv: Sequence[str]) -> float:
    """What a process of its own takes at its peak."""
    command = [sys.executable, __file__, *argv, "--memory-of", name]
    return float(subprocess.check_output(command, text=True).split()[-1])


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2000, help="words of a batch (default: 2000)")
    parser.add_argument("--rows", type=int, default=15000, help="rows of the page (default: 15000)")
    parser.add_argument("--dim", type=int, default=256, help="size of a word vector (default: 256)")
    parser.add_argument("--validation", action="store_true", help="the loss alone, over all words: --rows of them")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--no-memory", action="store_true", help="measure time only: memory takes a process a row")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    functions = contestants(args)

    if args.memory_of:
        inputs = make_inputs(args)
        by_chunks(*(x[:8] for x in inputs[:3]), inputs[3][:8] % 8)  # libraries set up what they need once
        before = peak()
        functions[args.memory_of](*inputs)
        print(peak() - before)
        return

    # A process starts with the peak of the one that started it: measure memory before this one grows.
    measured = sys.platform == "linux" and not args.no_memory
    memory = {name: f"{megabytes(name, argv):.0f}" if measured else "-" for name in functions}
    inputs = make_inputs(args)
    times = {name: [] for name in functions}
    for _ in range(args.turns + 1):
        for name, function in functions.items():
            times[name].append(seconds(function, inputs))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{args.tokens} words of text, {args.rows} rows, {args.dim} dimensions")
    print(f"{'':28}{'seconds':>10}{'ratio':>8}{'MB':>8}")
    for name in functions:
        best = min(times[name][1:])
        print(f"{name:28}{best:10.3f}{best / min(times['bare products'][1:]):8.2f}{memory[name]:>8}")


if __name__ == "__main__":
    main()
