"""A sentencepiece model without the pieces that nobody needs: what given texts are cut into stays the same, and every
character that was known stays known.

The file is a message of Protocol Buffers, whose pieces are its field 1. Their records are left out or stay; all other
bytes stay as they are, except for tests that the model brings for itself.

Why the segmentation of the texts stays:

- unigram: the best path of a sentence is still there, with the same score, and no other path is new. The score of an
  unknown character depends on the lowest one of all pieces, that of a symbol of the user's on the highest: these stay
  where it matters.
- BPE: merges are applied by rank, so that one that was not applied to a sentence may go. The merges that lead to a
  piece lie inside it, and are the same wherever it occurs.

Why no text gets more unknown pieces: pieces of one character stay, and of longer pieces each that holds a character
that no dictionary has by itself. A text that loses a piece is cut finer. BPE's pieces that are in no dictionary and
only on the way to others become unused ones, which sentencepiece cuts again. For two kinds of models it cannot hold in
all cases: if texts to keep use pieces that are in no dictionary, other texts may come upon them too; and if a character
is in the dictionary only as a part of longer pieces, another way to cut its neighbours may leave it alone.
"""

import struct
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple

import sentencepiece

from lv_fairseq.errors import UserError
from lv_fairseq.files import open_file

NORMAL, OWN, UNUSED = 1, 4, 5  # types of pieces; own: a symbol of the user's
UNIGRAM, BPE, WORD = 1, 2, 3  # types of models
PIECES, TRAINER, SELF_TEST = 1, 2, 4  # fields of a model
AS_UNUSED = bytes([3 << 3, UNUSED])  # the field of a piece's type; the last one counts


class Piece(NamedTuple):
    text: str
    score: float
    type: int


class PieceModel:
    """A sentencepiece model, in memory.

    Args:
        path: of its file
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with open_file(path) as file:
                self.content = file.read()
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.content)
            records = list(fields(self.content))
            self.pieces = [read_piece(value) for number, value, _ in records if number == PIECES]
            if not self.pieces:
                raise ValueError("it has no pieces")
            (trainer,) = [value for number, value, _ in records if number == TRAINER] or [b""]
            self.type = ([value for number, value, _ in fields(trainer) if number == 3] or [UNIGRAM])[-1]
        except OSError as error:
            raise UserError(f"cannot read the sentencepiece model {path}: {error.strerror or error}") from None
        except (RuntimeError, ValueError, IndexError, struct.error) as error:
            raise UserError(f"{path} is no model of sentencepiece: {' '.join(str(error).split())[:100]}") from None
        if self.type == WORD:
            raise UserError(f"{path} is a model of whole words: without one of them, texts would get unknown words")
        self.scores = {piece.text: piece.score for piece in self.pieces if piece.type in (NORMAL, UNUSED)}

    def encode(self, lines: Sequence[str]) -> List[List[str]]:
        return self.processor.encode(list(lines), out_type=str)

    def needed(self, used: Set[str], dictionaries: Sequence[Set[str]]) -> Dict[str, bool]:
        """The pieces to keep, and whether each may be written; others are only on the way to longer ones.

        Args:
            used: pieces of the texts
            dictionaries: words of each
        """
        known = set().union(*dictionaries)
        normal = [piece for piece in self.pieces if piece.type == NORMAL]
        kept = {piece.text: True for piece in self.pieces if self.stays(piece, used, known, dictionaries)}
        characters = {character for text in kept if text in self.scores for character in text}
        if self.type == UNIGRAM and normal:
            ends = [min] if not characters <= self.scores.keys() else []
            ends += [max] if any(piece.type == OWN for piece in self.pieces) else []
            kept.update((end(normal, key=lambda piece: piece.score).text, True) for end in ends)
        if self.type == BPE:
            for piece in [piece for piece in normal if piece.text in kept]:
                for part in merges(piece.text, self.scores):
                    kept.setdefault(part, part in known)
        return kept

    def stays(self, piece: Piece, used: Set[str], known: Set[str], dictionaries: Sequence[Set[str]]) -> bool:
        if len(piece.text) == 1 or piece.text in used or piece.type not in (NORMAL, OWN):
            return True
        return piece.text in known if piece.type == OWN else only_way(piece.text, dictionaries)

    def trimmed(self, kept: Dict[str, bool]) -> bytes:
        """The content of a file with these pieces only."""
        content = bytearray()
        for number, value, record in fields(self.content):
            if number == SELF_TEST:
                continue
            if number == PIECES:
                written = kept.get(read_piece(value).text)
                if written is None:
                    continue
                if not written:
                    value += AS_UNUSED
                    record = bytes([PIECES << 3 | 2]) + varint(len(value)) + value
            content += record
        return bytes(content)


def only_way(piece: str, dictionaries: Sequence[Set[str]]) -> bool:
    """Whether a piece holds a character that a dictionary knows as a part of longer pieces only."""
    return any(piece in words and not words.issuperset(piece) for words in dictionaries)


def merges(piece: str, scores: Dict[str, float]) -> Iterator[str]:
    """What characters are merged to, one merge after the other, until they are a piece, as sentencepiece's BPE does:
    the highest score first, then the leftmost."""
    parts = list(piece)
    while len(parts) > 1:
        pairs = [left + right for left, right in zip(parts[:-1], parts[1:])]
        found = [place for place, pair in enumerate(pairs) if pair in scores]
        if not found:
            return
        best = max(found, key=lambda place: (scores[pairs[place]], -place))
        parts[best : best + 2] = [pairs[best]]
        yield pairs[best]


def fields(message: bytes) -> Iterator[Tuple[int, Any, bytes]]:
    """The fields of a message: number, value, and all bytes of the field."""
    value: Any
    place = 0
    while place < len(message):
        start = place
        key, place = read_varint(message, place)
        match key & 7:
            case 0:
                value, place = read_varint(message, place)
            case 1:
                value, place = message[place : place + 8], place + 8
            case 2:
                length, place = read_varint(message, place)
                value, place = message[place : place + length], place + length
            case 5:
                value, place = message[place : place + 4], place + 4
            case _:
                raise ValueError("a field of a type that sentencepiece does not use")
        if place > len(message):
            raise ValueError("it ends too early")
        yield key >> 3, value, message[start:place]


def read_varint(message: bytes, place: int) -> Tuple[int, int]:
    """A number of seven bits a byte, and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def varint(value: int) -> bytes:
    content = bytearray()
    while value > 127:
        content.append(value & 127 | 128)
        value >>= 7
    return bytes([*content, value])


def read_piece(message: bytes) -> Piece:
    values = {number: value for number, value, _ in fields(message)}
    (score,) = struct.unpack("<f", values.get(2, bytes(4)))
    return Piece(values.get(1, b"").decode(), score, values.get(3, NORMAL))


def same_pieces(one: Iterable[Sequence[str]], other: Iterable[Sequence[str]]) -> int:
    """The number of the first line, from 1, that is cut into other pieces; 0 if there is none."""
    return next((number for number, (a, b) in enumerate(zip(one, other), start=1) if a != b), 0)
