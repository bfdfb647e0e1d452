"""The cost of decoding with candidate lists, against a small model and against the whole vocabulary.

    python benchmarks/decoding.py                       # rnnsearch at 250 units, 500,000 words
    python benchmarks/decoding.py --scale 1             # the paper's sizes (needs 8 GB)

Three models of one size, with random weights: all of 15,000 words; 500,000 words with lists of K = 15,000 and K' = 10;
and all 500,000 words. Each translates the same sentences with beam 12 on one thread, through fairseq's own generator,
in turns. Random weights do not know when to end, so that every sentence gets the same number of words from all three
(--min-len and --max-len-b), which is what makes times comparable. Also: how long it takes to open a checkpoint of
500,000 words until its first sentence is translated, and what memory that needs.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Optional, Sequence

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks
from fairseq import options as options_of_fairseq
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

import lv_fairseq
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries

ROOT = Path(__file__).resolve().parent.parent
SIZES = dict(
    encoder_embed_dim=620,
    encoder_hidden_size=1000,
    decoder_embed_dim=620,
    decoder_hidden_size=1000,
    decoder_out_embed_dim=620,
    attention_dim=1000,
    readout_dim=500,
)


def make_data(folder: Path, words: int) -> None:
    """Dictionaries of so many words, and a folder that looks like fairseq's data."""
    folder.mkdir()
    for side in ("src", "tgt"):
        with open(folder / f"dict.{side}.txt", "w") as file:
            file.writelines(f"{side}{i} {words - i}\n" for i in range(words - 4))
    for part in ("src", "tgt"):
        for kind in ("bin", "idx"):
            (folder / f"test.src-tgt.{part}.{kind}").touch()


def make_lexicon(path: Path, words: int, per_word: int) -> None:
    """Random translations, rare words as likely as frequent ones, so that most of them are outside K."""
    random = np.random.default_rng(1)
    entries = Entries()
    for start in range(0, words - 4, 10000):
        sources = [b"src%d" % i for i in range(start, min(start + 10000, words - 4)) for _ in range(per_word)]
        targets = [b"tgt%d" % i for i in random.integers(0, words - 4, len(sources))]
        entries.add(sources, targets, -random.random(len(sources)))
    Lexicon.of(entries, {"dictionaries": {}}).save(path)


class Run:
    """A model with random weights, and a generator."""

    def __init__(self, data: Path, scale: float, length: int, **options):
        torch.manual_seed(1)
        self.sizes = {name: max(int(size * scale), 4) for name, size in SIZES.items()}
        flags = {
            "--user-dir": ROOT / "lv_fairseq",
            "--task": "lv_translation",
            "--arch": "rnnsearch",
            "-s": "src",
            "-t": "tgt",
        }
        named = {f"--{name.replace('_', '-')}": value for name, value in {**self.sizes, **options}.items()}
        flags = [str(x) for flag in {**flags, **named}.items() for x in flag]
        parser = options_of_fairseq.get_training_parser()
        self.cfg = convert_namespace_to_omegaconf(options_of_fairseq.parse_args_and_arch(parser, [str(data), *flags]))
        self.task = tasks.setup_task(self.cfg.task)
        self.model = self.task.build_model(self.cfg.model).eval()
        args = Namespace(beam=12, min_len=length, max_len_b=length)
        self.generator = self.task.build_generator([self.model], args)
        self.seconds = []

    def translate(self, sentence: torch.Tensor) -> int:
        sample = {"net_input": {"src_tokens": sentence, "src_lengths": torch.tensor([sentence.size(1)])}}
        start = time.perf_counter()
        hypotheses = self.task.inference_step(self.generator, [self.model], sample)
        words = len(hypotheses[0][0]["tokens"])
        self.seconds.append((time.perf_counter() - start) / words)
        return words


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def first_sentence(data: Path, path: Path, lists: dict) -> None:
    """The command, as a user runs it, from its start to its answer; and plain reading of the same file."""
    start = time.perf_counter()
    checkpoint_bytes = path.stat().st_size
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    read = time.perf_counter() - start
    command = [Path(sys.executable).parent / "fairseq-interactive", data, "--user-dir", ROOT / "lv_fairseq"]
    command += ["--task", "lv_translation", "--path", path, "--beam", 12, "--max-len-b", 10]
    command += [x for name, value in lists.items() for x in (f"--{name.replace('_', '-')}", value)]
    command += ["--source-lang", "src", "--target-lang", "tgt", "--cpu"]
    start = time.perf_counter()
    # by way of a small process, since a child begins with the memory of the one that starts it
    measured = [sys.executable, "-c", MEASURE, *map(str, command)]
    result = subprocess.run(measured, input="src5 src6\n", capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    assert "D-0\t" in result.stdout
    peak = int(result.stdout.splitlines()[-1]) / 2**20
    print(
        f"checkpoint of {checkpoint_bytes / 2**30:.1f} GB: read in {read:.1f} s; fairseq-interactive from its start to"
    )
    print(
        f"the end of its first sentence {seconds:.1f} s, peak memory {peak:.1f} GB (mapped pages of the file included)"
    )


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--words", type=int, default=500_000, help="of the large vocabulary (default: 500,000)")
    parser.add_argument("--frequent", type=int, default=15_000, help="K, and all words of the small one (15,000)")
    parser.add_argument("--per-word", type=int, default=10, help="K' (default: 10)")
    parser.add_argument("--scale", type=float, default=0.25, help="of the paper's sizes (default: 0.25)")
    parser.add_argument("--sentences", type=int, default=6, help="to translate with each model (default: 6)")
    parser.add_argument("--length", type=int, default=25, help="words of a sentence and of its translation (25)")
    args = parser.parse_args(argv)
    lv_fairseq.register()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_data(folder / "small", args.frequent + 4)
        make_data(folder / "large", args.words)
        make_lexicon(folder / "lexicon", args.words, args.per_word)
        lists = dict(
            lexicon=str(folder / "lexicon"),
            candidate_frequent=args.frequent,
            candidate_per_word=args.per_word,
            candidate_retries=0,  # all sentences are cut off here: they are not to be decoded again
        )
        runs = {
            f"all of {args.frequent:,} words": Run(folder / "small", args.scale, args.length),
            f"{args.words:,} words, K = {args.frequent:,}": Run(folder / "large", args.scale, args.length, **lists),
            f"all of {args.words:,} words": Run(folder / "large", args.scale, args.length),
        }
        names = list(runs)
        random = np.random.default_rng(2)
        for _ in range(args.sentences + 1):
            for run in runs.values():
                state = random.bit_generator.state
                numbers = random.integers(4, args.frequent, args.length).tolist()
                random.bit_generator.state = state
                words = run.translate(torch.tensor([[*numbers, 2]]))
                assert words == args.length + 1, words
            random.integers(4, args.frequent, args.length)
        base = statistics.median(runs[names[0]].seconds[1:])
        print(f"torch {torch.__version__}, 1 thread, beam 12, sizes {runs[names[0]].sizes}")
        print(f"{'':34}{'ms a word':>10}{'ratio':>8}")
        for name, run in runs.items():
            seconds = statistics.median(run.seconds[1:])
            print(f"{name:34}{1000 * seconds:10.1f}{seconds / base:8.2f}")
        large = runs[names[1]]
        print(large.task.decoding.statistics.summary())
        del runs[names[0]], runs[names[2]]
        save(folder / "checkpoint.pt", large)
        del runs, run, large
        first_sentence(folder / "large", folder / "checkpoint.pt", lists)


def save(path: Path, run: Run) -> None:
    """A checkpoint as fairseq writes it, without an optimiser."""
    history = [{"num_updates": 1, "optimizer_name": "x", "criterion_name": "x", "lr_scheduler_state": {}}]
    state = {"args": None, "cfg": OmegaConf.to_container(run.cfg, resolve=True), "model": run.model.state_dict()}
    state.update(optimizer_history=history, last_optimizer_state=None, extra_state={"epoch": 1})
    checkpoint_utils.torch_persistent_save(state, str(path))


if __name__ == "__main__":
    main()
