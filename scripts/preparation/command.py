"""From raw parallel text to what fairseq-train reads, with all that decoding needs later.

    scripts/prepare --source-lang en --target-lang de --trainpref raw/train --validpref raw/dev --testpref raw/test \\
      --out runs/own                                                       # words, as in the paper
    scripts/prepare ... --segmentation sentencepiece --vocab-size 256000   # large subword vocabularies

reads raw/train.en, raw/train.de and so on, one sentence a line, and makes

    OUT/raw            development and test text as they are, to score against
    OUT/text           all text in words or subwords; sentences of the training text that are too long, or whose sides
                       differ too much in length, are left out
    OUT/data           the same, binarised by fairseq-preprocess
    OUT/lexicon        translations of words, by lv-lexicon build
    OUT/spm.*          the sentencepiece models, if there are any
    OUT/prepare.json   of which texts and how, once everything is there

What is done already is not done again; of other texts or with other settings it is refused. scripts/score scores
translations against OUT/raw.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from programs import Parser, file_errors, made_whole, program

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.lock import only_one
from lv_fairseq.processes import end, printing, signals_as_exit, start
from lv_fairseq.progress import stage
from preparation import folder
from preparation.segmentation import moses, subword_model, subwords
from preparation.text import check_text, read_pairs
from preparation.workers import Workers, workers

BLOCK = 2000  # sentences that a worker takes at a time
UNCOMPARED = ("out", "workers", "no_lexicon")  # settings that change nothing in what is made


def whole(least: int, also: Optional[int] = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None
        if number is None or number < least and number != also:
            raise argparse.ArgumentTypeError(f"must be a whole number, at least {least}, not {text!r}")
        return number

    return read


def ratio(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number >= 1:  # nor is NaN
        raise argparse.ArgumentTypeError(f"must be a number, at least 1, not {text!r}")
    return number


def language(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise argparse.ArgumentTypeError(f"must be the ending of file names, without a dot, not {text!r}")
    return text


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = Parser(prog="prepare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    ending = "source language, also the ending of its files"
    add("-s", "--source-lang", type=language, required=True, metavar="SRC", help=ending)
    add("-t", "--target-lang", type=language, required=True, metavar="TGT", help="target language")
    for split in ("train", "valid", "test"):
        add(f"--{split}pref", type=Path, required=split != "test", metavar="PATH", help="files without their endings")
    add("--out", type=Path, required=True, metavar="FOLDER", help="where everything goes")
    add("--segmentation", choices=folder.SEGMENTATIONS, default="words", help="into what (default: words)")

    def number(name: str, kind: Callable, default, text: str) -> None:
        add(name, type=kind, default=default, metavar="N", help=text)

    number("--vocab-size", whole(1), 64000, "subwords of each language (default: 64,000)")
    number("--words", whole(1, also=-1), -1, "most frequent words to keep of each language (default: all)")
    number("--threshold", whole(0), 0, "leave out words that occur less often (default: none)")
    number("--max-length", whole(1), 50, "longest training sentence, (sub)words (paper: 50)")
    number("--max-ratio", ratio, 9.0, "of the lengths of a training pair (default: 9)")
    number("--pairs", whole(1), None, "take the first N pairs of the training text only")
    number("--workers", whole(1), os.cpu_count() or 1, "processes (default: one for each core)")
    add("--no-lexicon", action="store_true", help="make no lexicon")
    args = parser.parse_args(argv)
    if args.source_lang == args.target_lang:
        parser.error("--source-lang and --target-lang must be two different endings")
    return args


def train_subwords(args: argparse.Namespace, language: str, pool: Workers) -> Path:
    path = args.out / f"spm.{language}.model"
    if not path.exists():
        print(f"training a sentencepiece model of {args.vocab_size:,} subwords for {language}", file=sys.stderr)
        text = Path(f"{args.trainpref}.{language}")
        try:
            (model,) = pool.map(partial(subword_model, args.vocab_size, args.workers), [text])
        except (RuntimeError, OSError) as error:
            reason = str(error).split("] ", 1)[-1]
            raise UserError(f"sentencepiece cannot make {args.vocab_size:,} subwords of {language}: {reason}") from None
        with written_whole(path) as file:
            file.write(model)
    return path


def segment_split(args: argparse.Namespace, split: str, lines: int, functions, pool: Workers) -> None:
    """Raw text of so many lines to OUT/text, and to OUT/raw if it is scored against."""
    languages, prefix = [args.source_lang, args.target_lang], getattr(args, f"{split}pref")
    outs = [args.out / "text" / f"{split}.{language}" for language in languages]
    if all((args.out / part).exists() for part in parts_of(split, languages)):
        return
    training, pairs, kept = split == "train", 0, 0
    most = args.pairs if training else None
    with ExitStack() as files:
        segmented = [files.enter_context(written_whole(path)) for path in outs]
        raw = [args.out / "raw" / f"{split}.{language}" for language in languages]
        raw = [] if training else [files.enter_context(written_whole(path)) for path in raw]
        reader = read_pairs(prefix, languages, most)
        progress = files.enter_context(stage(f"{args.segmentation} of {split}", min(lines, most or lines), " pairs"))
        while some := list(islice(reader, BLOCK * 4 * args.workers)):  # memory for so many pairs, however long the text
            blocks = [some[i : i + BLOCK] for i in range(0, len(some), BLOCK)]
            sides = [chain(*pool.map(function, texts(blocks, side))) for side, function in enumerate(functions)]
            for pair in zip(*sides):
                words = [line.split() for line in pair]
                if not training or fits(*map(len, words), args):
                    kept += 1
                    for file, line in zip(segmented, words):
                        file.write(" ".join(line).encode() + b"\n")
            for side, file in enumerate(raw):
                file.writelines(pair[side].encode() + b"\n" for pair in some)
            pairs += len(some)
            progress(len(some))
        if not kept:
            raise UserError(f"{prefix} has no sentences to train on: all are empty or too long")
    if training:
        print(f"{kept:,} of {pairs:,} training pairs kept", file=sys.stderr)


def parts_of(split: str, languages: List[str]) -> List[str]:
    """The files that a split is made into."""
    folders = ("text",) if split == "train" else ("text", "raw")
    return [f"{folder}/{split}.{language}" for folder in folders for language in languages]


def texts(blocks: List[List[Tuple[str, str]]], side: int) -> List[List[str]]:
    return [[pair[side] for pair in block] for block in blocks]


def fits(source: int, target: int, args: argparse.Namespace) -> bool:
    """Whether a pair of so many words is trained on."""
    shorter, longer = sorted((source, target))
    return 0 < shorter and longer <= args.max_length and longer <= args.max_ratio * shorter


def run(*command, **options) -> bool:
    """Whether a command of fairseq or of ours ended well."""
    child = start(program(*command), **options)
    try:
        return child.wait() == 0
    finally:
        end(child)


def binarise(args: argparse.Namespace, splits: List[str]) -> None:
    if (args.out / "data").exists():
        return
    flags = ["-s", args.source_lang, "-t", args.target_lang, "--workers", args.workers]
    flags += [x for split in splits for x in (f"--{split}pref", args.out / "text" / split)]
    flags += ["--nwordssrc", args.words, "--nwordstgt", args.words]
    flags += ["--thresholdsrc", args.threshold, "--thresholdtgt", args.threshold]
    log = args.out / "preprocess.log"
    print("binarising", file=sys.stderr)
    with made_whole(args.out / "data") as part, open(log, "w") as output:
        if not run("fairseq-preprocess", *flags, "--destdir", part, stdout=output, stderr=subprocess.STDOUT):
            raise UserError(f"fairseq-preprocess failed: the reason is at the end of {log}")


def build_lexicon(args: argparse.Namespace) -> None:
    if args.no_lexicon or (args.out / "lexicon").exists():
        return
    flags = ["--out", args.out / "lexicon", "--threads", args.workers, "--skip-bad-lines"]
    for side, language in {"source": args.source_lang, "target": args.target_lang}.items():
        flags += [f"--{side}", args.out / "text" / f"train.{language}"]
        flags += [f"--{side}-dict", args.out / "data" / f"dict.{language}.txt"]
    if not run("lv-lexicon", "build", *flags):
        raise UserError("lv-lexicon build failed: see above")


def make(args: argparse.Namespace, texts: Dict[str, Dict], splits: List[str]) -> None:
    """Everything that is not there yet."""
    for name in ("text", "raw"):
        (args.out / name).mkdir(exist_ok=True)
    remove_temporary(args.out)
    languages = [args.source_lang, args.target_lang]
    with workers(args.workers) as pool:
        if args.segmentation == "words":
            functions = [partial(moses, language) for language in languages]
        else:
            functions = [partial(subwords, str(train_subwords(args, language, pool))) for language in languages]
        for split in splits:
            segment_split(args, split, texts[f"{split}.{args.source_lang}"]["lines"], functions, pool)
    binarise(args, splits)
    build_lexicon(args)


def remove_temporary(folder: Path) -> None:
    """What `written_whole` and `temporary_folder` had to leave when they were killed."""
    for path in list(folder.rglob(f".*.{'[0-9a-f]' * 16}.tmp")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # it may have been in such a folder


@command
@signals_as_exit("what was finished is kept")
@file_errors()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    languages = [args.source_lang, args.target_lang]
    splits = [split for split in ("train", "valid", "test") if getattr(args, f"{split}pref") is not None]
    texts = {}
    for split in splits:  # before anything is written
        found = check_text(getattr(args, f"{split}pref"), languages)
        texts.update({f"{split}.{language}": about for language, about in found.items()})
    given = {name: value for name, value in vars(args).items() if name not in UNCOMPARED}
    about = {name: str(x.resolve()) if isinstance(x, Path) else x for name, x in given.items()}
    parts = [part for split in splits for part in parts_of(split, languages)]
    parts += ["data"] if args.no_lexicon else ["data", "lexicon"]
    args.out.mkdir(parents=True, exist_ok=True)
    with only_one(args.out):
        if folder.begin(args.out, {**about, "texts": texts}, parts):
            make(args, texts, splits)
            folder.finish(args.out)
    with printing():
        data = shlex.quote(str(args.out / "data"))
        print(f"{args.out} is ready: fairseq-train {data} --user-dir lv_fairseq --task lv_translation ...")
        flags = shlex.join(typing_flags(args))
        print(f"To type or serve raw text later, give fairseq-interactive or lv-serve: {flags}")


def typing_flags(args: argparse.Namespace) -> List[str]:
    """With which fairseq-interactive cuts what is typed as the training text was cut."""
    flags = ["-s", args.source_lang, "-t", args.target_lang]
    if args.segmentation == "words":
        return [*flags, "--tokenizer", "moses", "--moses-no-escape", "--moses-no-dash-splits"]
    return [*flags, "--bpe", "sentencepiece", "--sentencepiece-model", str(args.out / f"spm.{args.source_lang}.model")]
