"""Cuts text into the pieces of a sentencepiece model, as fairseq-preprocess and lv-lexicon build read them.

    python scripts/pieces.py spm.model < train.en > pieces/train.en

One sentence a line, also empty ones. What fairseq-generate prints is put together again by --remove-bpe sentencepiece.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import BinaryIO, Iterator, Optional, Sequence

import sentencepiece
from programs import Parser, file_errors

from lv_fairseq.errors import UserError, command
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.progress import stage


def open_model(path: Path) -> sentencepiece.SentencePieceProcessor:
    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError):
        raise UserError(f"{path} is not a sentencepiece model that can be read") from None


def cut(model: sentencepiece.SentencePieceProcessor, text: BinaryIO, what: str) -> Iterator[bytes]:
    """Line by line, with a progress bar if the text is a file.

    Args:
        what: name of the text, for the bar and for messages
    """
    size = os.fstat(text.fileno()).st_size
    number = 0
    with stage(f"cutting {what} into pieces", size, "B") as progress:
        while lines := text.readlines(1 << 16):
            progress(sum(map(len, lines)))
            try:
                segmented = model.encode([line.decode().rstrip("\r\n") for line in lines], out_type=str)
            except UnicodeDecodeError:
                raise UserError(f"{what} is not UTF-8, somewhere after line {number:,}") from None
            number += len(lines)
            yield from (" ".join(pieces).encode() + b"\n" for pieces in segmented)


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="MODEL", help="of sentencepiece, as it came with the model")
    return parser.parse_args(argv)


@command
@printing()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    with signals_as_exit(), file_errors():
        sys.stdout.buffer.writelines(cut(open_model(args.model), sys.stdin.buffer, "standard input"))


if __name__ == "__main__":
    main()
