"""What candidate lists of one language pair need, from raw text: a lexicon of pieces and their frequency in the target.

    python scripts/piece_lexicon.py --sentencepiece-model spm.model --dictionary dictionary.txt \\
        --source train.en --target train.de --out runs/en-de

The dictionary of a model of many languages is in no language's order of frequency, and its pieces are those of all. The
two texts, translations of each other line by line, are cut as the model reads them; runs/en-de then holds

    lexicon       for --lexicon: likely translations of each source piece
    frequent.txt  for --frequent-words: the pieces of the target text with their counts, the most frequent first
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Optional, Sequence

from pieces import cut, open_model
from programs import Parser, file_errors

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import open_text, temporary_folder, written_whole
from lv_fairseq.lexicon.build import build
from lv_fairseq.processes import signals_as_exit


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sentencepiece-model", type=Path, required=True, metavar="FILE", help="as it came with the model")
    add("--source", type=Path, required=True, metavar="FILE", help="raw source text, one sentence a line")
    add("--target", type=Path, required=True, metavar="FILE", help="its translation, the same number of lines")
    add("--dictionary", type=Path, metavar="FILE", help="fairseq's, of both sides, to notice if a model has another")
    add("--out", type=Path, required=True, metavar="DIR", help="folder of the two files; made if missing")
    add("--max-per-word", type=int, default=100, metavar="N", help="translations to keep of a piece (default: 100)")
    add("--threads", type=int, default=1, metavar="N", help="threads of the aligner (default: 1)")
    return parser.parse_args(argv)


def write_frequent(counts: Counter, path: Path) -> None:
    with written_whole(path) as file:
        file.writelines(b"%b %d\n" % entry for entry in counts.most_common())


def cut_texts(args: argparse.Namespace, folder: Path) -> Counter:
    """Both texts in pieces, into a folder; how often each piece of the target occurs."""
    model = open_model(args.sentencepiece_model)
    counts: Counter = Counter()
    lines = dict.fromkeys(("source", "target"), 0)
    for side in lines:
        path = getattr(args, side)
        with open_text(path) as text, open(folder / side, "wb") as file:
            for line in cut(model, text, str(path)):
                file.write(line)
                lines[side] += 1
                if side == "target":
                    counts.update(line.split())
    if lines["source"] != lines["target"]:
        numbers = f"{args.source} has {lines['source']:,} lines, {args.target} {lines['target']:,}"
        raise UserError(f"{numbers}: line by line they must be translations of each other")
    if not counts:
        raise UserError(f"{args.target} is empty")
    return counts


@command
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    dictionaries = {"source": args.dictionary, "target": args.dictionary} if args.dictionary else {}
    with signals_as_exit(), file_errors():
        args.out.absolute().parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(args.out.absolute()) as folder:
            counts = cut_texts(args, folder)
            args.out.mkdir(parents=True, exist_ok=True)
            said = build(
                folder / "source",
                folder / "target",
                args.out / "lexicon",
                threads=args.threads,
                max_per_word=args.max_per_word,
                skip_bad_lines=True,
                dictionaries=dictionaries,
            )
        write_frequent(counts, args.out / "frequent.txt")
    print(said)
    print(f"{args.out / 'frequent.txt'}: {len(counts):,} pieces, seen {counts.total():,} times")


if __name__ == "__main__":
    main()
