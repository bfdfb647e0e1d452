"""Replaces unknown words through the attention (section 3.3 of the paper)."""

import sys
import weakref
from collections import deque
from typing import Deque, Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.data import Dictionary
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from lv_fairseq.decoding.subwords import Segmentation, replace_pieces
from lv_fairseq.decoding.transfers import to_host
from lv_fairseq.decoding.unknown_alignment import Alignment
from lv_fairseq.errors import UserError
from lv_fairseq.lexicon import Lexicon

RULES = ("none", "copy", "lexicon", "lexicon-lowercase")


class OpenDictionary(Dictionary):
    """A dictionary that can also print words it does not hold.

    A replacement may be any word. It gets a number far above those of the dictionary, which turns back into the word
    wherever fairseq prints or scores a hypothesis; the dictionary itself stays as it is. The word is known as long as
    the hypothesis is there (`forget_with`), and a while longer.

    What it encodes without adding words remembers its words, as ``words``, beside their numbers.
    """

    FIRST, NUMBERS = 1 << 30, 1 << 30  # the first number, and how many there are
    WHILE = 1 << 18  # bytes of words that stay known though nobody seems to need them, for copies of a hypothesis

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._others: Dict[int, str] = {}
        self._next = 0
        self._old: Deque[int] = deque()
        self._bytes = 0  # of the old ones

    def number_of(self, word: str) -> int:
        """A number for any word."""
        known = self.indices.get(word)
        if known is not None and known >= self.nspecial:
            return known
        number = self.FIRST + self._next
        self._next = (self._next + 1) % self.NUMBERS
        self._others[number] = word
        return number

    def forget_with(self, hypothesis: Tensor, numbers: Sequence[int]) -> None:
        """Some time after a hypothesis is gone, the words of these numbers need not be known any more."""
        others = [number for number in numbers if number >= self.FIRST]
        weakref.finalize(hypothesis, self._forget, others).atexit = False

    def _forget(self, numbers: Sequence[int]) -> None:
        self._old.extend(numbers)
        self._bytes += sum(sys.getsizeof(self._others[number]) for number in numbers)
        while self._bytes > self.WHILE:
            self._bytes -= sys.getsizeof(self._others.pop(self._old.popleft()))

    def encode_line(self, line, line_tokenizer=tokenize_line, add_if_not_exist=True, **kwargs) -> Tensor:
        numbers = super().encode_line(line, line_tokenizer, add_if_not_exist, **kwargs)
        if not add_if_not_exist and not kwargs.get("reverse_order"):
            numbers = numbers.long()  # fairseq calls this, which then gives the very tensor that remembers
            numbers.words = line_tokenizer(line)
        return numbers

    def __getitem__(self, idx):
        return self._others.get(int(idx), self.unk_word) if idx >= self.FIRST else super().__getitem__(idx)


def with_unknown(hypotheses: List[List[Dict]], unknown: int) -> List[Tuple[int, Dict, Tensor]]:
    """The hypotheses of a batch that have an unknown word: the sentence's number, the hypothesis, its tokens on the
    host."""
    every = [(i, hypothesis) for i, sentence in enumerate(hypotheses) for hypothesis in sentence]
    tokens = to_host([hypothesis["tokens"] for _, hypothesis in every])
    return [(*x, numbers) for x, numbers in zip(every, tokens) if unknown in numbers.tolist()]


def replace_unknown(
    hypothesis: Dict,
    source_words: Sequence[str],
    places: Tensor,
    rule: str,
    dictionary: OpenDictionary,
    lexicon: Optional[Lexicon],
    align: Alignment,
    segmentation: Optional[Segmentation] = None,
) -> Tuple[int, int]:
    """Give each unknown word of a hypothesis the word that its source word calls for.

    Args:
        hypothesis: fairseq's, with "tokens" (length) and "attention" (source length x length), on the host
        source_words: the sentence as text
        places: where its words are among the source positions
        rule: one of RULES
        align: which source word an unknown word stands for
        segmentation: of words into pieces; None: all tokens are words

    Returns: how many words were unknown, and how many of them were replaced. The hypothesis has its tokens as they were
    as "searched", and as "stands_for" from the place of each unknown word to that of its source word.
    """
    tokens = hypothesis["tokens"]
    unknown = torch.nonzero(tokens == dictionary.unk()).flatten()
    hypothesis.update(searched=tokens, stands_for={})
    if not len(unknown) or not len(places):
        return len(unknown), 0
    attention = hypothesis["attention"]
    if attention is None or attention.numel() == 0:
        raise UserError("--unk-replacement needs a model with attention")
    looked_at = align(attention[places][:, unknown].detach().float().numpy(), source_words)
    hypothesis["stands_for"] = dict(zip(unknown.tolist(), map(int, looked_at)))
    if segmentation is not None:
        everything = attention[places].argmax(dim=0).index_put((unknown,), unknown.new_tensor(looked_at)).tolist()
        return replace_unknown_pieces(hypothesis, everything, source_words, rule, dictionary, lexicon, segmentation)
    words = [replacement(source_words[place], rule, lexicon) for place in looked_at]
    numbers = [dictionary.number_of(word) for word in words]
    hypothesis["tokens"] = tokens.index_put((unknown,), tokens.new_tensor(numbers))
    return len(unknown), sum(word != dictionary.unk_word for word in words)


def replace_unknown_pieces(
    hypothesis: Dict,
    looked_at: List[int],
    source_pieces: Sequence[str],
    rule: str,
    dictionary: OpenDictionary,
    lexicon: Optional[Lexicon],
    segmentation: Segmentation,
) -> Tuple[int, int]:
    """The same for pieces of words, each of which looks at a source piece."""

    def translate(word: str) -> Optional[str]:
        known = word and dictionary.unk_word not in word
        return replacement(word, rule, lexicon, segmentation) if known else None

    numbers = hypothesis["tokens"].tolist()
    pieces = [None if number == dictionary.unk() else dictionary[number] for number in numbers]
    written = replace_pieces(pieces, looked_at, source_pieces, segmentation, translate)
    for place, (old, new) in enumerate(zip(pieces, written)):
        if new != old:
            numbers[place] = dictionary.number_of(new)
    hypothesis["tokens"] = hypothesis["tokens"].new_tensor(numbers)
    unknown = pieces.count(None)
    return unknown, unknown - written.count(None)


def replacement(word: str, rule: str, lexicon: Optional[Lexicon], segmentation: Optional[Segmentation] = None) -> str:
    """The most likely translation of a source word, or the word itself."""
    return translated(word, rule, lexicon, segmentation) or word


def translated(
    word: str, rule: str, lexicon: Optional[Lexicon], segmentation: Optional[Segmentation] = None
) -> Optional[str]:
    """The most likely translation of a source word, if a rule asks for it and the lexicon knows it."""
    if rule != "lexicon" and not (rule == "lexicon-lowercase" and word[:1].islower()):
        return None
    if segmentation is None:
        return lexicon.best(word)
    found = ((lexicon.best(key), key) for key in segmentation.keys(word))
    return next((segmentation.text(best) for best, key in found if best and segmentation.is_word(best, key)), None)
