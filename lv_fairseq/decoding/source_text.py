"""The words of source sentences as they were written, also those that are outside the dictionary.

They travel inside a batch, from the collater of its dataset on, as ``sample["source_words"]``.
"""

from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset
from fairseq.tokenizer import tokenize_line
from torch import Tensor

from lv_fairseq.errors import UserError


class Frame(NamedTuple):
    """How many tokens are around the words of a source sentence: language tokens, its beginning, its end."""

    before: int = 0
    after: int = 1


PLAIN = Frame()


class SourceWords:
    """The words of each sentence of a dataset: those of a text, those that a sentence remembers from its encoding
    (`OpenDictionary.encode_line`), or else those of the dictionary.

    Args:
        sentences: word numbers, in their frame
        dictionary: the source dictionary
        text: the words of each sentence
    """

    def __init__(
        self,
        sentences: Sequence[Tensor],
        dictionary,
        text: Optional[Sequence[List[str]]] = None,
        frame: Frame = PLAIN,
    ):
        self.sentences, self.dictionary, self.text, self.frame = sentences, dictionary, text, frame

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, sentence: int) -> List[str]:
        if self.text is not None:
            return self.text[sentence]
        numbers = self.sentences[sentence]
        return getattr(numbers, "words", None) or [self.dictionary[i] for i in inside(numbers.tolist(), self.frame)]

    def __iter__(self) -> Iterator[List[str]]:
        return (self[sentence] for sentence in range(len(self)))


class WithSourceWords(BaseWrapperDataset):
    """A dataset of sentence pairs whose batches bring the words of their source sentences.

    Args:
        words: of its sentences
        follow: is told of each batch
    """

    def __init__(self, dataset, words: SourceWords, follow: Optional[Callable[[Dict], None]] = None):
        super().__init__(dataset)
        self.words, self.follow = words, follow

    def __getattr__(self, name: str):
        if "dataset" not in self.__dict__:  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)  # fairseq asks a dataset for its sentences, dictionaries, ...

    def collater(self, samples, **kwargs) -> Dict:
        batch = self.dataset.collater(samples, **kwargs)
        if batch:  # fairseq fills up with empty ones
            batch["source_words"] = [self.words[number] for number in batch["id"].tolist()]
            if self.follow is not None:
                self.follow(batch)
        return batch


def inside(numbers: Sequence[int], frame: Frame) -> Sequence[int]:
    return numbers[frame.before : len(numbers) - frame.after]


def read_text(path: str, dictionary, dataset, cut: bool = False, frame: Frame = PLAIN) -> List[List[str]]:
    """The words of each line of a text, which must be the one that a dataset of word numbers was made from.

    Args:
        cut: sentences of the dataset may be the beginnings of lines (--truncate-source)
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read --source-text {path}: {error.strerror or error}") from None
    if lines[-1] == b"":
        lines.pop()
    if len(lines) != len(dataset):
        raise UserError(
            f"--source-text {path} has {len(lines):,} lines, the data {len(dataset):,} sentences: name the text "
            "that fairseq-preprocess read"
        )
    text = []
    for number, line in enumerate(lines):
        numbers = inside(np.asarray(dataset[number]).tolist(), frame)
        words = tokenize_line(line.decode(errors="replace"))
        words = words[: len(numbers)] if cut else words
        if [dictionary.index(word) for word in words] != numbers:
            raise UserError(
                f"--source-text {path}, line {number + 1}: not the sentence that is in the data: name the "
                "tokenised text that fairseq-preprocess read"
            )
        text.append(words)
    return text


def words_of_batch(tokens: Tensor, dictionary, frame: Frame = PLAIN) -> List[List[str]]:
    """The words that a dictionary has for a batch of sentences (sentences x length, padded on either side)."""
    result = []
    for row in tokens.tolist():
        real = [place for place, number in enumerate(row) if number != dictionary.pad()] or [0]
        result.append([dictionary[number] for number in inside(row[real[0] : real[-1] + 1], frame)])
    return result


def word_places(tokens: Tensor, words: int, pad: int, turned: bool = False, frame: Frame = PLAIN) -> Tensor:
    """Where an attention has the words of a sentence (words), among its source positions (length).

    They are counted from the end, since a text may hold the special symbols themselves: the last positions are those
    after the words if padding is on the left.

    Args:
        turned: fairseq's lstm turns its sentences round by as many places as they have padding
    """
    length = len(tokens)
    first = frame.before if tokens[-1] == pad else length - frame.after - words
    places = torch.arange(first, first + words, device=tokens.device)
    return (places - tokens.eq(pad).sum()) % length if turned else places
