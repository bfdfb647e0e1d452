"""What candidate lists over the pieces of several languages cost in quality, on a model that is trained here.

    python benchmarks/piece_lists.py --text TEXT --out runs/piece_lists     # 45 minutes of training, one core

TEXT holds {train,valid,test}.LANG, raw, one sentence a line, translations of each other: of the two languages, and of
more, which only share the vocabulary (--languages). As for NLLB-200 there is one sentencepiece vocabulary and one table
for all of them, in sentencepiece's order, and language tokens; a transformer learns one direction of it. Then it
translates the test text over all words and over lists of the K most frequent pieces of the target language and K'
translations of each source piece, which scripts/piece_lexicon.py finds in the training text. What is there already in
the folder is not made again: other K and K' can be tried later.

BLEU, with the half width of its 95 % interval, and chrF are sacrebleu's, of running text; p is that of the paired
bootstrap of BLEU against all words. "outside": how many of the reference's different pieces are not on their sentence's
list. "again": sentences that were decoded once more with longer lists.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

import sacrebleu
import sentencepiece

from lv_fairseq.report.scores import bootstrap

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TASK = "translation_multi_simple_epoch"
SPLITS = ("train", "valid", "test")
SENTENCE = re.compile(r"D-(\d+)\t[^\t]*\t(.*)")
LISTED = re.compile(r"L-\d+\t(\d+) words\t(\d+) of (\d+) words outside")
AGAIN = re.compile(r"([\d,]+) sentences? decoded again")


def run(command: Sequence, output: Optional[Path] = None) -> None:
    """A command, one thread; what it prints goes into a file, which has its name at the end, and a .log."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [str(word) for word in command]
    if output is None:
        subprocess.run(words, check=True, env=environment)
        return
    part = output.with_suffix(".part")
    with open(part, "w", encoding="utf-8") as file, open(output.with_suffix(".log"), "w", encoding="utf-8") as log:
        subprocess.run(words, check=True, env=environment, stdout=file, stderr=log)
    part.rename(output)


def make_vocabulary(args: argparse.Namespace) -> None:
    """sentencepiece's model over the training texts of all languages, and fairseq's dictionary in its order."""
    lines = (
        line.rstrip("\n")
        for language in args.languages.split(",")
        for line in open(args.text / f"train.{language}", encoding="utf-8")
    )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_prefix=str(args.out / "sentencepiece"),
        vocab_size=args.pieces,
        hard_vocab_limit=False,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(args.out / "sentencepiece.model"))
    words = [pieces.id_to_piece(number) for number in range(3, len(pieces))]
    text = "".join(f"{word} {len(words) - place}\n" for place, word in enumerate(words))
    (args.out / "dictionary.txt").write_text(text, encoding="utf-8")


def make_data(args: argparse.Namespace) -> None:
    (args.out / "pieces").mkdir(exist_ok=True)
    for split in SPLITS:
        for language in (args.source, args.target):
            with open(args.text / f"{split}.{language}") as text:
                with open(args.out / "pieces" / f"{split}.{language}", "w") as file:
                    command = [sys.executable, ROOT / "scripts" / "pieces.py", args.out / "sentencepiece.model"]
                    subprocess.run(command, stdin=text, stdout=file, check=True)
    prefixes = [x for split in SPLITS for x in (f"--{split}pref", args.out / "pieces" / split)]
    dictionary = args.out / "dictionary.txt"
    run(
        [BIN / "fairseq-preprocess", "-s", args.source, "-t", args.target, *prefixes, "--destdir", args.out / "data"]
        + ["--srcdict", dictionary, "--tgtdict", dictionary]
    )


def task(args: argparse.Namespace) -> List:
    flags = [args.out / "data", "--user-dir", ROOT / "lv_fairseq", "--task", f"lv_{TASK}", *languages(args)]
    return [*flags, "--cpu", "--num-workers", 0]


def languages(args: argparse.Namespace) -> List:
    flags = ["--langs", args.languages, "--lang-pairs", f"{args.source}-{args.target}"]
    return [*flags, "--encoder-langtok", "src", "--decoder-langtok"]


def architecture(args: argparse.Namespace) -> List:
    flags = ["--arch", "transformer", "--share-all-embeddings"]
    for side in ("encoder", "decoder"):
        flags += [f"--{side}-normalize-before", f"--{side}-layers", args.layers, f"--{side}-attention-heads", 4]
        flags += [f"--{side}-embed-dim", args.dim, f"--{side}-ffn-embed-dim", 2 * args.dim]
    return flags


def train(args: argparse.Namespace) -> None:
    """Over partitions of tau words of both languages, which is quicker."""
    flags = [*task(args), *architecture(args), "--save-dir", args.out / "model"]
    flags += ["--tau", args.tau, "--reshuffle-partitions", "--criterion", "partition_cross_entropy"]
    flags += ["--label-smoothing", 0.1, "--dropout", 0.2, "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
    flags += ["--lr", 0.0015, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", 400, "--clip-norm", 1]
    flags += [
        "--max-tokens",
        args.max_tokens,
        "--seed",
        1,
        "--no-epoch-checkpoints",
        "--no-progress-bar",
        "--log-interval",
        100,
    ]
    flags += ["--max-update", args.updates, "--stop-time-hours", args.hours]
    run([BIN / "fairseq-train", *flags])


def translate(args: argparse.Namespace, name: str, lists: Sequence) -> Path:
    output = args.out / f"test.{name}.out"
    if not output.exists():
        flags = [*task(args), "--path", args.out / "checkpoint.pt", "--beam", args.beam, *lists]
        flags += ["-s", args.source, "-t", args.target, "--batch-size", 16, "--remove-bpe", "sentencepiece"]
        run([BIN / "fairseq-generate", *flags, "--max-len-a", 1.5, "--max-len-b", 10], output)
    return output


def translations(path: Path) -> Tuple[str, ...]:
    found = {int(m[1]): m[2] for m in map(SENTENCE.match, path.read_text(encoding="utf-8").split("\n")) if m}
    return tuple(found[place] for place in range(len(found)))


def of_lists(path: Path) -> List[str]:
    """The mean length of the lists, reference pieces outside in percent, sentences decoded again."""
    found = [list(map(int, m.groups())) for m in map(LISTED.match, path.read_text(encoding="utf-8").split("\n")) if m]
    if not found:
        return ["", "", ""]
    words, outside, wanted = map(sum, zip(*found))
    again = AGAIN.search(path.with_suffix(".log").read_text(encoding="utf-8"))[1]
    return [f"{words / len(found):,.0f}", f"{100 * outside / wanted:.2f}", again]


def measure(args: argparse.Namespace) -> None:
    """The test set over all words and over each of the lists, and a table."""
    common = ["--lexicon", args.out / "lists" / "lexicon", "--frequent-words", args.out / "lists" / "frequent.txt"]
    outputs = {"all words": translate(args, "all", [])}
    for frequent in args.frequent:
        for per_word in args.per_word:
            flags = ["--candidate-frequent", frequent, "--candidate-per-word", per_word, "--print-candidates"]
            name = f"K = {frequent:,}, K' = {per_word}"
            outputs[name] = translate(args, f"{frequent}.{per_word}", [*common, *flags])
    reference = tuple((args.text / f"test.{args.target}").read_text(encoding="utf-8").splitlines())
    said = {name: translations(path) for name, path in outputs.items()}
    scores, signature = bootstrap(tuple(said.values()), reference, "")
    print(signature)
    columns = ("words", "outside %", "again", "BLEU", "+-", "p", "chrF", "same %")
    print(f"{'':22}" + "".join(f"{column:>10}" for column in columns))
    for (name, path), score in zip(outputs.items(), scores):
        chrf = sacrebleu.CHRF().corpus_score(said[name], [reference]).score
        same = sum(a == b for a, b in zip(said[name], said["all words"])) / len(reference)
        p = "" if score.p_value is None else f"{score.p_value:.3f}"
        row = [*of_lists(path), f"{score.score:.2f}", f"{score.ci:.2f}", p, f"{chrf:.2f}", f"{100 * same:.1f}"]
        print(f"{name:22}" + "".join(f"{figure:>10}" for figure in row))


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--text", type=Path, required=True, metavar="DIR", help="with {train,valid,test}.LANG")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of all that is made")
    add("--source", default="en", metavar="LANG")
    add("--target", default="de", metavar="LANG")
    add("--languages", default="en,de,fr", metavar="LANG,...", help="that share the vocabulary (en,de,fr)")
    add("--pieces", type=int, default=32000, help="of sentencepiece (32000)")
    add("--dim", type=int, default=256, help="of word vectors (256)")
    add("--layers", type=int, default=3, help="of encoder and decoder (3)")
    add("--tau", type=int, default=4000, help="words of a partition (4000)")
    add("--max-tokens", type=int, default=1200, help="of a batch (1200)")
    add("--hours", type=float, default=0.75, help="of training, at most (0.75)")
    add("--updates", type=int, default=100_000, help="of training, at most (100000)")
    add("--beam", type=int, default=5)
    add("--frequent", type=int, nargs="+", default=[1000, 2000, 5000], metavar="K")
    add("--per-word", type=int, nargs="+", default=[10, 20], metavar="K'")
    return parser.parse_args(argv)


def prepare(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.out / "dictionary.txt").exists():
        make_vocabulary(args)
    if not (args.out / "data" / f"test.{args.source}-{args.target}.{args.target}.idx").exists():
        make_data(args)
    if not (args.out / "lists" / "frequent.txt").exists():
        texts = [x for s in ("source", "target") for x in (f"--{s}", args.text / f"train.{getattr(args, s)}")]
        command = [sys.executable, ROOT / "scripts" / "piece_lexicon.py", *texts, "--out", args.out / "lists"]
        command += ["--sentencepiece-model", args.out / "sentencepiece.model"]
        run([*command, "--dictionary", args.out / "dictionary.txt"])
    if not (args.out / "checkpoint.pt").exists():
        train(args)
        (args.out / "model" / "checkpoint_best.pt").rename(args.out / "checkpoint.pt")
    about = {
        "task": TASK,
        "flags": languages(args),
        "arch": architecture(args),
        "pairs": [f"{args.source}-{args.target}"],
    }
    (args.out / "model.json").write_text(json.dumps(about) + "\n", encoding="utf-8")  # for benchmarks/finetuning.py


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    prepare(args)
    measure(args)


if __name__ == "__main__":
    main()
