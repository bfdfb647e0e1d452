"""Unknown pieces of words: an unknown piece stands for a whole source word, all of its pieces.

So the source word that an unknown piece looks at is written in its place, once for neighbours that look at one word.
Known pieces beside it that look at this word too, and spell a part of it, are taken for parts of it and are not written
again. Marks are set so that the word comes out where fairseq joins pieces. In the place of a piece that is not written
there is one that disappears then (`nothing`), so that scores and alignments keep their places.
"""

import unicodedata
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

SPACE = "\u2581"  # sentencepiece puts it in the place of a space


class Word(NamedTuple):
    """A source word: pieces ``start`` to ``end`` of its sentence, not included."""

    start: int
    end: int


class SentencePiece:
    """A piece that begins with U+2581 begins a word. Text is as people write it: punctuation is a word of its own."""

    nothing = ""

    def text(self, piece: str) -> str:
        return piece.removeprefix(SPACE)

    def may_join(self, piece: Optional[str], after: Optional[str]) -> bool:
        """Whether two neighbours may be of one word; None: an unknown piece."""
        return after is None or not after.startswith(SPACE)

    def words(self, pieces: Sequence[str]) -> List[Word]:
        """The words of a sentence, in order."""
        found = []
        for run in runs(pieces, lambda i: not pieces[i].startswith(SPACE)):
            # a mark that stands alone belongs to the piece after it
            units = [Word(i, i + 1) for i in range(run.start, run.end)]
            if len(units) > 1 and pieces[run.start] == SPACE:
                units[:2] = [Word(run.start, run.start + 2)]
            proper = [i for i, unit in enumerate(units) if not self._is_punctuation(pieces[unit.start : unit.end])]
            first, last = (proper[0], proper[-1]) if proper else (0, len(units) - 1)
            found += [*units[:first], Word(units[first].start, units[last].end), *units[last + 1 :]]
        return found

    def _is_punctuation(self, pieces: Sequence[str]) -> bool:
        return all(unicodedata.category(x)[0] in "PS" for x in self.text("".join(pieces)))

    def written(self, word: str, pieces: Sequence[str], before: str) -> str:
        """A word as one piece.

        Args:
            pieces: those of the source word
            before: the piece that is written before it
        """
        apart = pieces[0].startswith(SPACE)
        if not apart and not self._is_punctuation(pieces):  # what it was joined with may not be there
            apart = not self._is_punctuation([before])
        return word if before == SPACE or not apart else SPACE + word

    def keys(self, word: str) -> List[str]:
        """A word as lexicons made of pieces have it, if it is one piece, and as those made of words."""
        return [SPACE + word, word]

    def is_word(self, translation: str, key: str) -> bool:
        """Whether a translation in a lexicon is that of a whole word."""
        return translation.startswith(SPACE) or not key.startswith(SPACE)


class BytePair:
    """A piece that ends with @@ goes on in the next one (subword-nmt, fastBPE)."""

    nothing = "@@"

    def text(self, piece: str) -> str:
        return piece.removesuffix("@@")

    def may_join(self, piece: Optional[str], after: Optional[str]) -> bool:
        return piece is None or piece.endswith("@@")

    def words(self, pieces: Sequence[str]) -> List[Word]:
        return runs(pieces, lambda i: pieces[i - 1].endswith("@@"))

    def written(self, word: str, pieces: Sequence[str], before: str) -> str:
        return word

    def keys(self, word: str) -> List[str]:
        return [word]

    def is_word(self, translation: str, key: str) -> bool:
        return not translation.endswith("@@")


Segmentation = SentencePiece | BytePair
NAMES: Dict[str, type] = {  # as --post-process (--remove-bpe) and --bpe of fairseq name them
    "sentencepiece": SentencePiece,
    **dict.fromkeys(("subword_nmt", "fastbpe", "@@ ", "@@"), BytePair),
}


def segmentation(*names: Optional[str]) -> Optional[Segmentation]:
    """The first that is named and known; None: pieces are words."""
    return next((NAMES[name]() for name in names if name in NAMES), None)


def runs(pieces: Sequence[str], goes_on: Callable[[int], bool]) -> List[Word]:
    """Pieces parted wherever one does not go on from the one before it."""
    starts = [i for i in range(len(pieces)) if i == 0 or not goes_on(i)]
    return [Word(start, end) for start, end in zip(starts, [*starts[1:], len(pieces)])]


def replace_pieces(
    target: Sequence[Optional[str]],
    looked_at: Sequence[int],
    source: Sequence[str],
    segmentation: Segmentation,
    translate: Callable[[str], Optional[str]],
) -> List[Optional[str]]:
    """As many pieces as there are, with unknown ones replaced.

    Args:
        target: None where a piece is unknown
        looked_at: the source piece that each target piece looks at most
        translate: from a source word to what is written for it; None if that is not known: an unknown piece stays
    """
    word_of = [word for word in segmentation.words(source) for _ in range(word.start, word.end)]
    looks = [word_of[place] for place in looked_at]
    written: List[Optional[str]] = []
    done = 0  # pieces that belong to words that were replaced
    while len(written) < len(target):
        place = len(written)
        if target[place] is not None:
            written.append(target[place])
            continue
        pieces = source[looks[place].start : looks[place].end]
        word = translate("".join(map(segmentation.text, pieces)))
        if word is None:
            written.append(None)
            continue
        start, done = parts(target, looks, place, done, word, segmentation)
        before = next((piece for piece in reversed(written[:start]) if piece != segmentation.nothing), "")
        piece = segmentation.written(word, pieces, "unknown" if before is None else before)
        written[start:] = [piece, *[segmentation.nothing] * (done - start - 1)]
    return written


def parts(
    target: Sequence[Optional[str]],
    looks: Sequence[Word],
    place: int,
    least: int,
    word: str,
    segmentation: Segmentation,
) -> Word:
    """The target pieces that a word is written for: an unknown one, unknown ones after it that look at the same source
    word, and as many known ones as spell the word together with these, after them first.

    Args:
        place: of the unknown piece
        least: the first piece that may be one of them
    """
    mine, start, end = looks[place], place, place + 1
    while end < len(target) and looks[end] == mine and segmentation.may_join(target[end - 1], target[end]):
        end += 1
    while start > least and looks[start - 1] == mine and segmentation.may_join(target[start - 1], target[start]):
        start -= 1
    end = next(x for x in range(end, place, -1) if spells(target[place:x], word, segmentation))
    start = next(x for x in range(start, place + 1) if spells(target[x:end], word, segmentation))
    return Word(start, end)


def spells(pieces: Sequence[Optional[str]], word: str, segmentation: Segmentation) -> bool:
    """Whether pieces are those of a word, if unknown ones are the right ones."""
    known = [""]  # before, between and after unknown pieces
    for piece in pieces:
        if piece is None:
            known.append("")
        else:
            known[-1] += segmentation.text(piece)
    first, *middle, last = known
    if not word.startswith(first):
        return False
    place = len(first)
    for text in middle:
        place = word.find(text, place) + len(text)
        if place < len(text):
            return False
    return len(word) - place >= len(last) and word.endswith(last)
