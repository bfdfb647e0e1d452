"""Time and memory of a lexicon: to build it, to open it, and to make candidate lists from it.

    python benchmarks/lexicon.py --source text.en --target text.de                  # builds one, then measures it
    python benchmarks/lexicon.py --source text.en --target text.de --lexicon PATH   # measures one that is there

Text is tokenised, one sentence a line. Candidate lists are made for the first 10,000 sentences of the source text, with
K = 30,000 and K' = 10; what is shared by all lists, the K most frequent words, costs nothing and is not made again.
"""

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Optional, Sequence

import numpy as np
from fairseq.data import Dictionary

from lv_fairseq.candidates import CandidateLists
from lv_fairseq.lexicon import Lexicon

MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def build(args: argparse.Namespace, out: Path) -> None:
    command = [Path(sys.executable).parent / "lv-lexicon", "build", "--source", args.source, "--target", args.target]
    command += ["--out", out, "--skip-bad-lines", "--threads", args.threads]
    command += ["--fast-align", args.fast_align] if args.fast_align else []
    start = time.perf_counter()
    measured = [sys.executable, "-c", MEASURE, *map(str, command)]
    summary, peak = subprocess.run(measured, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    print(summary)
    print(f"build: {time.perf_counter() - start:.0f} s, peak memory of a process {int(peak) / 2**20:.1f} GB")


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="source text")
    parser.add_argument("--target", type=Path, required=True, help="target text")
    parser.add_argument("--lexicon", type=Path, help="a lexicon of this text (default: builds one)")
    parser.add_argument("--fast-align", help="the aligner (default: as lv-lexicon build)")
    parser.add_argument("--threads", type=int, default=1, help="of the aligner (default: 1)")
    parser.add_argument("--sentences", type=int, default=10_000, help="to make lists for (default: 10,000)")
    parser.add_argument("--frequent", type=int, default=30_000, help="K (default: 30,000)")
    parser.add_argument("--per-word", type=int, default=10, help="K' (default: 10)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        path = args.lexicon or Path(folder) / "lexicon"
        if args.lexicon is None:
            build(args, path)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            lexicon = Lexicon.load(path)
            times.append(time.perf_counter() - start)
        size = path.stat().st_size / 2**20
        print(f"file: {size:.0f} MB, {len(lexicon.keys):,} source words, {len(lexicon.targets):,} entries")
        print(f"open: {1000 * times[0]:.2f} ms the first time, {1000 * statistics.median(times[1:]):.2f} ms later")
        dictionary = Dictionary()
        start = time.perf_counter()
        for word in lexicon.target_words:
            dictionary.add_symbol(word)
        words = time.perf_counter() - start
        start = time.perf_counter()
        frequent = min(args.frequent, len(lexicon.target_words))
        lists = CandidateLists(dictionary, frequent, lexicon, args.per_word)
        print(f"numbers of {len(dictionary):,} words: {time.perf_counter() - start:.2f} s (dictionary {words:.2f} s)")
        with open(args.source, encoding="utf-8", newline="\n") as text:
            sentences = [line.split() for line in itertools.islice(text, args.sentences)]
        start = time.perf_counter()
        sizes = [len(lists.others(sentence)) for sentence in sentences]
        seconds = time.perf_counter() - start
        tokens = sum(map(len, sentences)) / len(sentences)
        print(
            f"lists of {len(sentences):,} sentences of {tokens:.0f} words: {1000 * seconds / len(sentences):.3f} ms, "
            f"{np.mean(sizes):.0f} words beyond the {frequent:,} most frequent"
        )


if __name__ == "__main__":
    main()
