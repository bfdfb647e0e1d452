"""``lv-lexicon``: build, convert, inspect, coverage."""

import argparse
import time
from pathlib import Path
from typing import Callable, List, Optional, Sequence

import numpy as np

from lv_fairseq.candidates.common_list import most_frequent
from lv_fairseq.errors import UserError, command
from lv_fairseq.fingerprint import SPECIALS, dictionary_words
from lv_fairseq.lexicon import formats
from lv_fairseq.lexicon.build import build, check_place
from lv_fairseq.lexicon.coverage import Coverage, parallel_lines
from lv_fairseq.lexicon.formats import open_any
from lv_fairseq.lexicon.lexicon import Lexicon
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.progress import stage

KINDS = ("lexicon", *formats.FORMATS, *formats.NAMES)
MOST_PASSES, MOST_THREADS = 1000, 1024  # what is more is a slip of the finger


def number(text: str, least: int = 0) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):  # 16: larger than any count
        raise argparse.ArgumentTypeError(f"must be a number of {least} or more, not {text[:40]}")
    return int(text)


def numbers(text: str) -> List[int]:
    try:
        return sorted({number(part.strip()) for part in text.split(",")})
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of numbers such as 0,5,10") from None


def at_least_one(text: str) -> int:
    return number(text, 1)


def passes(text: str) -> int:
    if not 2 <= number(text) <= MOST_PASSES:
        raise argparse.ArgumentTypeError(f"must be from 2, since the last pass does not learn, to {MOST_PASSES:,}")
    return int(text)


def threads(text: str) -> int:
    if not 1 <= number(text) <= MOST_THREADS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_THREADS:,}, not {text}")
    return int(text)


Add = Callable[..., argparse.Action]


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-lexicon", description="Makes, converts and looks into lexicons: likely translations of source words."
    )
    commands = parser.add_subparsers(required=True, metavar="{build,convert,inspect,coverage}")

    def command(name: str, run, help: str, description: str) -> Add:
        new = commands.add_parser(name, help=help, description=description)
        new.set_defaults(run=run)
        return new.add_argument

    add = command(
        "build",
        build_command,
        "from parallel text, with a word aligner",
        "Aligns the words of two texts and writes the most likely translations of each source word.",
    )
    build_flags(add)
    add = command(
        "convert",
        convert_command,
        "between lexicons and tables of other programs",
        "Reads and writes lexicons, fast_align's tables, lex files of Moses, shortlists of Marian, vmaps of "
        "CTranslate2 and tab-separated text.",
    )
    convert_flags(add)
    add = command(
        "inspect",
        inspect_command,
        "what is in a lexicon",
        "Reads the whole lexicon, to see if it is damaged, and shows its size and how it was made; for words, their "
        "translations with probabilities.",
    )
    inspect_flags(add)
    add = command(
        "coverage",
        coverage_command,
        "how many reference words candidate lists would hold",
        "For a grid of K (most frequent target words) and K' (lexicon entries for each source word): the share of the "
        "reference words that are in the candidate lists of their sentences, and how long these lists are.",
    )
    coverage_flags(add)
    return parser.parse_args(argv)


def build_flags(add: Add) -> None:
    add("--source", type=Path, required=True, metavar="FILE", help="source text, tokenised, one sentence a line")
    add("--target", type=Path, required=True, metavar="FILE", help="target text, the same number of lines")
    add("--out", type=Path, required=True, metavar="PATH", help="the lexicon to write")
    add(
        "--aligner",
        choices=("fast_align", "builtin", "eflomal"),
        help="which aligner (default: fast_align if it is there, else the built-in one, which is of the same kind); "
        "eflomal takes longer and aligns better: pip install 'lv_fairseq[eflomal]'",
    )
    add(
        "--fast-align",
        metavar="PROGRAM",
        help="where fast_align is (default: $FAST_ALIGN, else on the PATH)",
    )
    add(
        "--symmetrize",
        choices=("none", "intersection", "grow-diag-final-and"),
        help="align in both directions, join the alignments and take relative frequencies of linked words (default: "
        "none: one direction, the aligner's own probabilities; for eflomal, which has none, grow-diag-final-and)",
    )
    add("--iterations", type=passes, default=5, metavar="N", help="passes of the aligner, not of eflomal (default: 5)")
    add(
        "--threads",
        type=threads,
        metavar="N",
        help="threads of the aligner (default: one for each core; of fast_align with --symmetrize 1, since with more "
        "of them a few of its alignments differ from run to run)",
    )
    add(
        "--max-per-word",
        type=at_least_one,
        default=100,
        metavar="N",
        help="translations to keep of a source word (default: 100)",
    )
    add("--skip-bad-lines", action="store_true", help="leave out pairs that cannot be aligned, instead of stopping")
    add("--source-dict", type=Path, metavar="FILE", help="fairseq's dictionary, to notice later if a model has another")
    add("--target-dict", type=Path, metavar="FILE", help="the same for the target language")


def convert_flags(add: Add) -> None:
    add("input", type=Path, metavar="IN", help="the file to read")
    add("--out", type=Path, required=True, metavar="OUT", help="the file to write")
    add("--from", dest="origin", choices=KINDS, help="format of IN (default: is recognised)")
    add("--to", choices=KINDS, help="format of OUT (default: by its name: .tsv, .vmap, lex.*, else a lexicon)")
    add(
        "--max-per-word",
        type=at_least_one,
        metavar="N",
        help="translations to keep of a source word (default: all)",
    )


def inspect_flags(add: Add) -> None:
    add("lexicon", type=Path, metavar="PATH", help="a lexicon, or a table that convert can read")
    add("words", nargs="*", metavar="WORD", help="source words to look up")
    add("--most", type=at_least_one, default=20, metavar="N", help="translations to show of a word (default: 20)")


def coverage_flags(add: Add) -> None:
    add("lexicon", type=Path, metavar="PATH", help="a lexicon")
    add("--source", type=Path, required=True, metavar="FILE", help="source text, tokenised, one sentence a line")
    add("--target", type=Path, required=True, metavar="FILE", help="its reference translation")
    default = [0, 1000, 5000, 15000, 30000, 50000]
    add("--frequent", type=numbers, default=default, metavar="K,K,...", help="K to try (default: %(default)s)")
    default = [0, 1, 5, 10, 20, 50, 100]
    add("--per-word", type=numbers, default=default, metavar="K',...", help="K' to try (default: %(default)s)")
    add(
        "--target-dict",
        type=Path,
        metavar="FILE",
        help="fairseq's dictionary of the model: its most frequent words, and no word outside it (default: the words "
        "of the text that the lexicon was built from)",
    )
    add(
        "--frequent-words",
        type=Path,
        metavar="FILE",
        help="which words are the K most frequent: a tokenised target text or a dictionary with counts, as for "
        "decoding (default: the order of the dictionary)",
    )
    add("--source-words", action="store_true", help="lists as --candidate-source-words makes them")


def build_command(args: argparse.Namespace) -> None:
    sides = {"source": args.source_dict, "target": args.target_dict}
    symmetrize = args.symmetrize or ("grow-diag-final-and" if args.aligner == "eflomal" else "none")
    summary = build(
        args.source,
        args.target,
        args.out,
        fast_align=args.fast_align,
        aligner=args.aligner,
        symmetrize=symmetrize,
        iterations=args.iterations,
        threads=args.threads,
        max_per_word=args.max_per_word,
        skip_bad_lines=args.skip_bad_lines,
        dictionaries={side: path for side, path in sides.items() if path is not None},
    )
    print(summary)


def convert_command(args: argparse.Namespace) -> None:
    started = time.monotonic()
    check_place(args.out, args.input)
    lexicon, impossible = open_any(args.input, args.origin)
    if args.max_per_word is not None:
        lexicon = lexicon.limited_to(args.max_per_word)
    by_name = {".tsv": "tsv", ".vmap": "vmap"}.get(args.out.suffix, "lexicon")
    kind = formats.NAMES.get(args.to, args.to) or ("moses" if args.out.name.startswith("lex.") else by_name)
    if kind == "lexicon":
        lexicon.save(args.out)
        done = formats.Written(len(lexicon.keys), len(lexicon.targets), 0, 0)
    else:
        with stage(f"writing {args.out}", len(lexicon.keys), " words") as progress:
            done = formats.write(lexicon, args.out, kind, progress)
    left_out = {"keys": done.keys_left_out, "translations": done.entries_left_out}
    left_out = " and ".join(f"{count:,} {what}" for what, count in left_out.items() if count)
    reason = f", {left_out} left out that {kind} cannot hold" if left_out else ""
    reason += f", {impossible:,} of probability 0 left out" if impossible else ""
    seconds = time.monotonic() - started
    print(f"{args.out}: {kind}, {done.entries:,} entries for {done.keys:,} source words{reason}, {seconds:.1f} seconds")


def inspect_command(args: argparse.Namespace) -> None:
    lexicon, _ = open_any(args.lexicon)
    if args.words:
        show_words(lexicon, args.words, args.most)
        return
    lexicon.verify()
    for name, value in lexicon.about.items():
        if name == "dictionaries":
            value = ", ".join(f"{side} {number:014x}" for side, number in value.items()) or "any"
        print(f"{name.replace('_', ' ')}: {f'{value:,}' if type(value) is int else value}")
    counts = np.diff(lexicon.starts)
    print("checksums: " + ("right" if lexicon.has_checksums else "none; lv-lexicon convert makes a lexicon with them"))
    print(f"source words: {len(lexicon.keys):,}")
    print(f"target words: {len(lexicon.target_words):,}")
    print(f"entries: {len(lexicon.targets):,}")
    if not len(counts):
        return
    print("\nentries of a source word:")
    limits = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    limits = [limit for limit in limits if limit < counts.max()] + [int(counts.max())]
    lowest = 0
    for limit in limits:
        words = int(np.count_nonzero((counts > lowest) & (counts <= limit)))
        name = str(limit) if limit == lowest + 1 else f"{lowest + 1}-{limit}"
        print(f"{name:>10}  {words:>11,}  {bar(words / len(counts))}")
        lowest = limit


def show_words(lexicon: Lexicon, words: Sequence[str], most: int) -> None:
    for word in words:
        found = lexicon.translations(word)
        print(f"{word}: {len(found):,} translations" if found else f"{word}: no entry")
        width = max((len(target) for target, _ in found[:most]), default=0)
        for target, probability in found[:most]:
            print(f"  {target:<{width}}  {probability:.6f}  {bar(probability)}".rstrip())
        if len(found) > most:
            print(f"  ... {len(found) - most:,} more: --most {len(found)}")


def bar(share: float, width: int = 40) -> str:
    return "#" * round(min(share, 1) * width)


def coverage_command(args: argparse.Namespace) -> None:
    lexicon, _ = open_any(args.lexicon)
    if args.target_dict is not None:
        words = [word for word in dictionary_words(args.target_dict) if word not in SPECIALS]
    elif lexicon.by_frequency:
        words = list(lexicon.target_words)
    else:
        raise UserError(f"{args.lexicon} does not know which words are frequent: name a dictionary with --target-dict")
    number_of = {word: number for number, word in enumerate(words)}
    outside = len(words)
    if args.frequent_words is not None:
        order = most_frequent(args.frequent_words, lambda word: number_of.get(word, outside), range(outside))
        number_of = {words[number]: place for place, number in enumerate(order.tolist())}
    numbers_of_targets = np.array([number_of.get(word, outside) for word in lexicon.target_words], dtype=np.int64)
    coverage = Coverage(lexicon, numbers_of_targets, outside, args.frequent, args.per_word)
    with stage("counting", args.source.stat().st_size, "B") as progress:
        for source, target, size in parallel_lines(args.source, args.target):
            reference = np.array([number_of.get(word, outside) for word in target.split()], dtype=np.int64)
            source_words = source.split()
            joining = [number_of[word] for word in source_words if word in number_of] if args.source_words else []
            coverage.add(source_words, reference, joining)
            progress(size)
    if not coverage.tokens:
        raise UserError(f"{args.target} holds no words")
    print(f"{coverage.sentences:,} sentences, {coverage.tokens:,} reference words, vocabulary of {outside:,}")
    rows = list(coverage.table())
    for title, show in (
        ("reference words in the lists", lambda share, _: f"{100 * share:.2f} %"),
        ("mean length of a list", lambda _, length: f"{length:,.0f}"),
    ):
        print(f"\n{title}, by K (rows) and K' (columns)")
        print("".join(f"{text:>11}" for text in ("", *(f"{k:,}" for k in args.per_word))))
        for k in args.frequent:
            cells = [show(share, length) for row_k, _, share, length in rows if row_k == k]
            print("".join(f"{text:>11}" for text in (f"{k:,}", *cells)))


@command
@signals_as_exit("nothing was written")
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    try:
        with printing():
            args.run(args)
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'}: {error.strerror or error}") from None


if __name__ == "__main__":
    main()
