"""The cost of decoding with candidate lists, against a small model and against the whole vocabulary.

    python benchmarks/decoding.py                       # rnnsearch at 250 units, 500,000 words, beam 12
    python benchmarks/decoding.py --scale 1             # the paper's sizes (needs 8 GB)
    python benchmarks/decoding.py --arch transformer    # transformer-base, 256,000 words, beam 5, batches of 1 and 16

Models of one size, with random weights: all of K words; a large vocabulary with lists of K frequent words and K' = 10
translations of each source word; all words of it; and the same without the plug-in, which must find the same. Each
translates the same sentences on one thread, through fairseq's own generator, in turns; the processor's time counts,
which other work on the machine disturbs less. Random weights do not know when to end, so that every sentence gets the
same number of words from all of them (--min-len and --max-len-b), which is what makes times comparable. Also: how long
it takes to open a checkpoint of the large vocabulary until its first sentence is translated, and the memory for that.

The transformer has one table for both languages. Their words take turns in its dictionary, so that the frequent ones of
a list are no slice of the table (--frequent-words).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

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
SIZES = {
    "rnnsearch": dict(
        encoder_embed_dim=620,
        encoder_hidden_size=1000,
        decoder_embed_dim=620,
        decoder_hidden_size=1000,
        decoder_out_embed_dim=620,
        attention_dim=1000,
        readout_dim=500,
    ),
    "transformer": dict(
        encoder_embed_dim=512,
        encoder_ffn_embed_dim=2048,
        decoder_embed_dim=512,
        decoder_ffn_embed_dim=2048,
    ),
}
SIZES["lstm"] = {name: size for name, size in SIZES["rnnsearch"].items() if name[:7] in ("encoder", "decoder")}
JOINED = {"transformer": ["--share-all-embeddings"]}  # the architectures with one table for both languages
SWITCHES = {**JOINED, "lstm": ["--encoder-bidirectional"]}
DEFAULTS = {
    "rnnsearch": dict(words=500_000, frequent=15_000, scale=0.25, beam=12, batch=[1], turns=6),
    "transformer": dict(words=256_000, frequent=5_000, scale=1.0, beam=5, batch=[1, 16], turns=3),
}


def make_data(folder: Path, words: int, joined: bool) -> None:
    """Dictionaries of so many words, or one for both languages, and a folder that looks like fairseq's data."""
    folder.mkdir()
    named = {side: [f"{side}{i}" for i in range(words - 4)] for side in ("src", "tgt")}
    if joined:
        named = dict.fromkeys(named, [word for pair in zip(*named.values()) for word in pair][: words - 4])
    for side, symbols in named.items():
        counted = [f"{word} {words - i}\n" for i, word in enumerate(symbols)]
        (folder / f"dict.{side}.txt").write_text("".join(counted))
        for kind in ("bin", "idx"):
            (folder / f"test.src-tgt.{side}.{kind}").touch()
    (folder / "frequent").write_text("".join(line for line in counted if line.startswith("tgt")))


def translations(words: int, per_word: int) -> Iterator[Tuple[List[bytes], List[bytes]]]:
    """Pairs of words, some at a time. Rare words are as likely as frequent ones, so that most are outside K."""
    random = np.random.default_rng(1)
    for start in range(0, words - 4, 10000):
        sources = [b"src%d" % i for i in range(start, min(start + 10000, words - 4)) for _ in range(per_word)]
        yield sources, [b"tgt%d" % i for i in random.integers(0, words - 4, len(sources))]


def make_lexicon(path: Path, words: int, per_word: int) -> None:
    random = np.random.default_rng(1)
    entries = Entries()
    for sources, targets in translations(words, per_word):
        entries.add(sources, targets, -random.random(len(sources)))
    Lexicon.of(entries, {"dictionaries": {}}).save(path)


class Run:
    """A model with random weights, and a generator.

    Args:
        task: "translation" does without the plug-in
        like: a run whose model is taken
        options: of the task
    """

    def __init__(self, data: Path, args: Namespace, task="lv_translation", like: Optional["Run"] = None, **options):
        torch.manual_seed(1)
        self.sizes = {name: max(int(size * args.scale), 4) for name, size in SIZES[args.arch].items()}
        flags = {"--user-dir": ROOT / "lv_fairseq", "--task": task, "--arch": args.arch, "-s": "src", "-t": "tgt"}
        named = {f"--{name.replace('_', '-')}": value for name, value in {**self.sizes, **options}.items()}
        flags = [str(x) for flag in {**flags, **named}.items() for x in flag] + SWITCHES.get(args.arch, [])
        parser = options_of_fairseq.get_training_parser()
        self.cfg = convert_namespace_to_omegaconf(options_of_fairseq.parse_args_and_arch(parser, [str(data), *flags]))
        self.task = tasks.setup_task(self.cfg.task)
        self.model = self.task.build_model(self.cfg.model).eval() if like is None else like.model
        self.model.prepare_for_inference_(self.cfg)  # as fairseq's commands do, which leaves out attention for nobody
        self.length = args.length
        self.seconds: List[float] = []  # for a word, of each batch
        self.search(args.beam)

    def search(self, beam: int) -> None:
        """From now on with so many hypotheses of a sentence."""
        limits = Namespace(beam=beam, min_len=self.length, max_len_b=self.length)
        self.generator = self.task.build_generator([self.model], limits)

    def translate(self, sentences: List[List[str]]) -> List[List[int]]:
        """Sentences of one length to word numbers of the best hypotheses."""
        dictionary = self.task.source_dictionary
        numbers = torch.tensor([[*map(dictionary.index, words), dictionary.eos()] for words in sentences])
        sample = {"net_input": {"src_tokens": numbers, "src_lengths": numbers.ne(dictionary.pad()).sum(dim=1)}}
        start = time.process_time()
        hypotheses = self.task.inference_step(self.generator, [self.model], sample)
        best = [sentence[0]["tokens"].tolist() for sentence in hypotheses]
        self.seconds.append((time.process_time() - start) / sum(map(len, best)))
        return best


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def first_sentence(data: Path, path: Path, lists: dict, beam: int) -> None:
    """The command, as a user runs it, from its start to its answer; and plain reading of the same file."""
    start = time.perf_counter()
    checkpoint_bytes = path.stat().st_size
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass
    read = time.perf_counter() - start
    command = [Path(sys.executable).parent / "fairseq-interactive", data, "--user-dir", ROOT / "lv_fairseq"]
    command += ["--task", "lv_translation", "--path", path, "--beam", beam, "--max-len-b", 10]
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


def parse_args(argv: Optional[Sequence[str]]) -> Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--arch", choices=DEFAULTS, default="rnnsearch")
    parser.add_argument("--words", type=int, help="of the large vocabulary")
    parser.add_argument("--frequent", type=int, help="K, and all words of the small vocabulary")
    parser.add_argument("--per-word", type=int, default=10, help="K' (default: 10)")
    parser.add_argument("--scale", type=float, help="of the sizes of the paper, or of transformer-base")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--batch", type=int, nargs="+", help="sentences that are translated together")
    parser.add_argument("--turns", type=int, help="batches to translate with each model")
    parser.add_argument("--length", type=int, default=25, help="words of a sentence and of its translation (25)")
    parser.add_argument("--no-checkpoint", action="store_true", default=False, help="do not save and open one")
    args = parser.parse_args(argv)
    return Namespace(**{**DEFAULTS[args.arch], **vars(args)})


def measure(runs: Dict[str, Run], args: Namespace, batch: int) -> None:
    """Some batches with each, in turns; a table of what a word takes."""
    for run in runs.values():
        run.seconds.clear()
    random = np.random.default_rng(2)
    for _ in range(args.turns + 1):
        drawn = random.integers(0, args.frequent // 2, (batch, args.length))
        sentences = [[f"src{i}" for i in row] for row in drawn]
        found = [run.translate(sentences) for run in runs.values()]
        assert all(len(words) == args.length + 1 for best in found for words in best)
        assert found[-1] == found[-2], "fairseq alone finds something else"
    seconds = {name: statistics.median(run.seconds[1:]) for name, run in runs.items()}
    small, lists, *whole = seconds.values()
    print(f"{f'batches of {batch}':34}{'ms a word':>10}{'least':>8}{'most':>8}{'ratio':>8}")
    for name, run in runs.items():
        least, most = (1000 * of(run.seconds[1:]) for of in (min, max))
        print(f"{name:34}{1000 * seconds[name]:10.2f}{least:8.2f}{most:8.2f}{seconds[name] / small:8.2f}")
    print(f"lists are {whole[0] / lists:.2f} times as fast as all words, {whole[1] / lists:.2f} as fairseq alone\n")


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    lv_fairseq.register()
    torch.set_num_threads(1)
    joined = args.arch in JOINED
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_data(folder / "small", args.frequent + 4, joined)
        make_data(folder / "large", args.words, joined)
        make_lexicon(folder / "lexicon", args.words // 2 if joined else args.words, args.per_word)
        lists = dict(
            lexicon=str(folder / "lexicon"),
            candidate_frequent=args.frequent,
            candidate_per_word=args.per_word,
            candidate_retries=0,  # all sentences are cut off here: they are not to be decoded again
            **({"frequent_words": folder / "large" / "frequent"} if joined else {}),
        )
        large = Run(folder / "large", args, **lists)
        runs = {
            f"all of {args.frequent:,} words": Run(folder / "small", args),
            f"{args.words:,} words, K = {args.frequent:,}": large,
            f"all of {args.words:,} words": Run(folder / "large", args, like=large),
            f"all of {args.words:,}, fairseq alone": Run(folder / "large", args, task="translation"),
        }
        print(f"torch {torch.__version__}, 1 thread, beam {args.beam}, {args.arch}, sizes {large.sizes}")
        for batch in args.batch:
            measure(runs, args, batch)
        print(large.task.decoding.statistics.summary())
        if args.no_checkpoint:
            return
        del runs
        save(folder / "checkpoint.pt", large)
        del large
        first_sentence(folder / "large", folder / "checkpoint.pt", lists, args.beam)


def save(path: Path, run: Run) -> None:
    """A checkpoint as fairseq writes it, without an optimiser."""
    history = [{"num_updates": 1, "optimizer_name": "x", "criterion_name": "x", "lr_scheduler_state": {}}]
    state = {"args": None, "cfg": OmegaConf.to_container(run.cfg, resolve=True), "model": run.model.state_dict()}
    state.update(optimizer_history=history, last_optimizer_state=None, extra_state={"epoch": 1})
    checkpoint_utils.torch_persistent_save(state, str(path))


if __name__ == "__main__":
    main()
