"""Shows translations whose names were copied, with the replaced words in [brackets], and counts the names that arrived.

    python scripts/show_names.py --dict runs/demo/data/dict.src.txt --source runs/demo/text/test.src \\
      --reference runs/demo/text/test.tgt --output runs/demo/test.out --unreplaced runs/demo/unreplaced.out

Names are words of the source outside its dictionary that the reference has too. OUTPUT and UNREPLACED are what
fairseq-generate printed for the same text with and without --unk-replacement: replacement changes nothing in the
search, so that the words that were replaced are those that are unknown without it. Texts are tokenised.
"""

import argparse
from pathlib import Path
from typing import List, Optional, Sequence

from names import copied, count_names, marked, shown
from preparation.text import read_lines
from programs import Parser, file_errors
from scoring import best_hypotheses

from lv_fairseq.errors import UserError, command
from lv_fairseq.fingerprint import dictionary_words
from lv_fairseq.processes import printing, signals_as_exit


@printing()
def show(sources: List[str], references: List[str], outputs: List[str], before: List[str], known, most: int) -> None:
    for i in copied(sources, references, outputs, known)[:most]:
        print(sources[i], references[i], marked(outputs[i], before[i]), "", sep="\n")
    counts = count_names(sources, references, outputs, known)
    print(f"{shown(counts)} source words outside the dictionary that the reference has arrived")


@command
@signals_as_exit("nothing was written")
@file_errors()
def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = Parser(prog="show_names.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, text in (
        ("dict", "the source dictionary, DATA/dict.LANGUAGE.txt"),
        ("source", "the tokenised source text"),
        ("reference", "the tokenised reference"),
        ("output", "what fairseq-generate printed with --unk-replacement"),
        ("unreplaced", "what it printed without"),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help=text)
    parser.add_argument("--sentences", type=int, default=5, metavar="N", help="to show at most (default: 5)")
    args = parser.parse_args(argv)
    texts = [*map(read_lines, (args.source, args.reference)), *map(best_hypotheses, (args.output, args.unreplaced))]
    if len({len(text) for text in texts}) > 1:
        sizes = ", ".join(f"{len(text):,}" for text in texts)
        raise UserError(f"source, reference and outputs are not of the same text: they have {sizes} sentences")
    show(*texts, known=frozenset(dictionary_words(args.dict)), most=args.sentences)


if __name__ == "__main__":
    main()
