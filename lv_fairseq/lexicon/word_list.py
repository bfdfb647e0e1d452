"""A list of words in two arrays, which may be those of a file, and look-up of words in it."""

import hashlib
import math
from typing import Dict, Iterator, List, Sequence, Tuple

import numpy as np

from lv_fairseq.lexicon.arrays_file import damaged

MOST_SEEN = 1 << 17  # words to remember


class WordList(Sequence):
    """Words by number. Nothing is decoded before it is asked for.

    Args:
        text: all words in UTF-8, one after the other (bytes)
        starts: where each begins, and the end of the last (words + 1)
    """

    def __init__(self, text: np.ndarray, starts: np.ndarray):
        self.text, self.starts = text, starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        number %= len(self)
        return self._decoded(self.text[self.starts[number] : self.starts[number + 1]].tobytes())

    def take(self, numbers: np.ndarray) -> List[str]:
        """The words of some numbers."""
        begins = self.starts[numbers]
        lengths = self.starts[numbers + 1] - begins
        ends = np.cumsum(lengths)  # of the words, one after the other
        whole = self.text[ranges(begins, lengths)].tobytes()
        return [self._decoded(whole[end - length : end]) for end, length in zip(ends.tolist(), lengths.tolist())]

    def __iter__(self) -> Iterator[str]:
        whole, starts = self.text[:].tobytes(), self.starts[:].tolist()
        return (self._decoded(whole[begin:end]) for begin, end in zip(starts[:-1], starts[1:]))

    def _decoded(self, word: bytes) -> str:
        try:
            return word.decode()
        except UnicodeDecodeError:
            raise damaged(self.text, "a word is not UTF-8") from None


class WordIndex:
    """Finds the numbers of words by their hashes; the words themselves are compared too.

    Args:
        words: the words
        hashes: their hashes, sorted (words)
        order: the numbers of the words in the order of their hashes (words)
    """

    def __init__(self, words: WordList, hashes: np.ndarray, order: np.ndarray):
        self.words, self.hashes, self.order = words, hashes, order
        self._seen: Dict[str, int] = {}  # words that were looked for before

    def find(self, words: Sequence[str]) -> np.ndarray:
        """The number of each word, -1 for a word that is not there."""
        new = [word for word in words if word not in self._seen]
        if new:
            if len(self._seen) > MOST_SEEN:
                self._seen.clear()
                new = list(words)
            self._seen.update(zip(new, self._search(new)))
        return np.fromiter(map(self._seen.__getitem__, words), np.int64, len(words))

    def _search(self, words: Sequence[str]) -> List[int]:
        wanted = np.array([word_hash(word.encode(errors="surrogatepass")) for word in words], dtype=np.uint64)
        begins, counts = find_hashes(self.hashes, wanted)
        candidates = self.order[ranges(begins, counts)]
        numbers = [-1] * len(words)
        owners = np.repeat(np.arange(len(words)), counts)
        for owner, number, word in zip(owners.tolist(), candidates.tolist(), self.words.take(candidates)):
            if word == words[owner]:
                numbers[owner] = number
        return numbers

    def verify(self, words: Sequence[bytes]) -> None:
        """Whether these words, all that there are, would be found."""
        order = self.order[:]
        hashes = np.fromiter(map(word_hash, words), np.uint64, len(words))
        if not np.array_equal(hashes[order], self.hashes[:]) or len(np.unique(order)) < len(order):
            raise damaged(self.hashes, "its index does not lead to its words")


def ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers of all ranges, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - (ends - lengths), lengths)


def find_hashes(hashes: np.ndarray, wanted: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Where each of ``wanted`` begins in the sorted hashes, and how often it is there: more than once if they collide.

    Hashes are spread evenly, so that each is near the place that its size tells, give or take the square root of their
    number: of a file, a few blocks are read. Those that are not near are looked for everywhere.
    """
    if not len(hashes):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    bits = (3 * math.isqrt(len(hashes))).bit_length()
    near = np.maximum((wanted / 2.0**64 * len(hashes)).astype(np.int64) - (1 << bits - 1), 0)
    begins = first_not_below(hashes, wanted, near, bits)
    far = (begins == near) | (begins == near + (1 << bits) - 1)  # at an end of what was searched: may be beyond it
    if far.any():
        begins[far] = first_not_below(hashes, wanted[far], np.zeros(1, np.int64), len(hashes).bit_length())
    ends, last = begins.copy(), len(hashes) - 1
    while (same := (ends <= last) & (hashes[np.minimum(ends, last)] == wanted)).any():
        ends += same
    return begins, ends - begins


def first_not_below(values: np.ndarray, wanted: np.ndarray, begins: np.ndarray, bits: int) -> np.ndarray:
    """The place of the first value that is not below each of ``wanted``, by halves of 2 ** bits places from where each
    begins. Looks only at the values that it needs."""
    places, last = begins, len(values) - 1
    for bit in reversed(range(bits)):
        below = values[np.minimum(places + ((1 << bit) - 1), last)] < wanted
        places = places + (below.astype(np.int64) << bit)
    return np.minimum(places, len(values))


def word_hash(word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(word, digest_size=8).digest(), "little")


def pack(words: Sequence[bytes]) -> Tuple[np.ndarray, np.ndarray]:
    """The two arrays of a `WordList`."""
    starts = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, words), np.int64, len(words)), out=starts[1:])
    return np.frombuffer(b"".join(words), dtype=np.uint8), starts


def index(words: Sequence[bytes]) -> Dict[str, np.ndarray]:
    """The arrays of a `WordIndex`."""
    hashes = np.fromiter(map(word_hash, words), np.uint64, len(words))
    order = np.argsort(hashes, kind="stable")
    return {"hashes": hashes[order], "order": order.astype(np.int32)}
