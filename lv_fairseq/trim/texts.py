"""Which words of the dictionaries some texts need: as they stand, or cut into pieces by a sentencepiece model."""

from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

import sentencepiece

from lv_fairseq.corpus_coverage.counting import count_words, decoded, size_of
from lv_fairseq.errors import UserError
from lv_fairseq.files import open_text
from lv_fairseq.progress import stage
from lv_fairseq.trim.dictionaries import Words
from lv_fairseq.trim.pieces import PieceModel, same_pieces

BLOCK = 10000  # lines that are cut at a time
SPACE = "\u2581"  # how sentencepiece writes it


class Needed(NamedTuple):
    """What texts need.

    Args:
        words: of the dictionaries
        model: the content of a sentencepiece model for them, None for words
        unknown: words of the texts that no dictionary has
    """

    words: Set[str]
    model: Optional[bytes]
    unknown: Dict[str, Path]


def needed(texts: Sequence[Path], sides: Sequence[Words], pieces: Optional[PieceModel]) -> Needed:
    """Args:
    texts: tokenised, or, with a sentencepiece model, as they are
    """
    for path in texts:  # before minutes of reading
        size_of(path)
        if pieces is not None and not path.is_file():
            raise UserError(f"{path} is no ordinary file, and would have to be read twice: save it as one")
    dictionaries = [set(side.words) for side in sides]
    known = set().union(*dictionaries)
    words: Set[str] = set()
    used: Set[str] = set()
    unknown: Dict[str, Path] = {}
    for path in texts:
        with stage(f"reading {path}", size_of(path), "B") as progress:
            if pieces is None:
                of_text = set(count_words(path, progress).words)
            else:
                cut = pieces_of(path, pieces.processor, progress)
                used |= cut
                of_text = {word for piece in cut for word in piece.split()}  # as fairseq splits lines
        if not of_text:
            raise UserError(f"{path} holds no words")
        if not of_text & known:
            raise UserError(f"{path}: no dictionary has any of its words; is it tokenised as the training text was?")
        words |= of_text & known
        unknown.update((word, path) for word in sorted(of_text - known) if word not in unknown)
    if pieces is None:
        return Needed(words, None, unknown)
    kept = pieces.needed(used, dictionaries)
    content = pieces.trimmed(kept)
    check(texts, pieces, content)
    words.update(piece for piece in kept if piece in known)
    words |= {word for word in known - pieces.scores.keys() if pieces.scores.keys().isdisjoint(word)}
    return Needed(words, content, unknown)


def pieces_of(path: Path, processor, progress=lambda done: None) -> Set[str]:
    found = set()
    for lines in blocks(path):
        for cut in processor.encode(lines, out_type=str):
            found.update(cut)
        progress(sum(len(line.encode()) + 1 for line in lines))
    return found


def check(texts: Sequence[Path], pieces: PieceModel, content: bytes) -> None:
    """That a trimmed model cuts the texts as the whole one does."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    for path in texts:
        done = 0
        with stage(f"checking {path}", size_of(path), "B") as progress:
            for lines in blocks(path):
                wrong = same_pieces(pieces.encode(lines), processor.encode(lines, out_type=str))
                if wrong:
                    raise UserError(
                        f"{path}, line {done + wrong}: without the other pieces of {pieces.path} it would be cut in "
                        "another way, which should not be; please report it"
                    )
                done += len(lines)
                progress(sum(len(line.encode()) + 1 for line in lines))


def blocks(path: Path) -> Iterator[List[str]]:
    """The lines of a text that is not cut yet."""
    done = 0
    try:
        with open_text(path) as file:
            while block := list(islice(file, BLOCK)):
                lines = decoded(path, done, block).removesuffix("\n").split("\n")
                if 2 * sum(SPACE in line for line in lines) > len(lines):
                    raise UserError(f"{path} is cut into pieces already: name the text as it was before")
                done += len(block)
                yield lines
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
