"""The words of source sentences as they were written, also those that are outside the dictionary."""

from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
from fairseq.tokenizer import tokenize_line

from lv_fairseq.errors import UserError


class SourceText:
    """Gives the sentences of each batch as text.

    fairseq-generate names the sentences of a batch by number; fairseq-interactive does not, but decodes its batches one
    after the other, in the order in which they were made.
    """

    def __init__(self):
        self.sentences: Optional[List[List[str]]] = None
        self._batches: List[List[int]] = []  # of fairseq-interactive
        self.first = 0  # lines typed before

    def read(self, path: str, dictionary, dataset, progress: Callable[[int], None] = lambda done: None) -> None:
        """A text file, which must be the one that a dataset of word numbers was made from."""
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
        self.sentences = []
        for number, line in enumerate(lines):
            words = tokenize_line(line.decode(errors="replace"))
            encoded = [dictionary.index(word) for word in words]
            if encoded != np.asarray(dataset[number])[:-1].tolist():
                raise UserError(
                    f"--source-text {path}, line {number + 1}: not the sentence that is in the data: name the "
                    "tokenised text that fairseq-preprocess read"
                )
            self.sentences.append(words)
            progress(1)

    def type(self, sentences: Sequence[Sequence[str]]) -> None:
        """The next lines of fairseq-interactive, after its tokenizer and subwords."""
        self.first += len(self.sentences or ())
        self.sentences, self._batches = list(sentences), []

    def follow(self, batch: Dict) -> Dict:
        """A batch of the lines just typed, before it is decoded."""
        self._batches.append(batch["id"].tolist())
        return batch

    def of_batch(self, sample, dictionary) -> Tuple[List[int], List[List[str]]]:
        """The numbers that fairseq prints for the sentences of a batch, and their words; without a text, those of the
        dictionary."""
        if self._batches:
            numbers = self._batches.pop(0)
            return [self.first + number for number in numbers], [self.sentences[number] for number in numbers]
        tokens = sample["net_input"]["src_tokens"].tolist()
        numbers = sample["id"].tolist() if "id" in sample else list(range(len(tokens)))
        if self.sentences is not None and "id" in sample:
            return numbers, [self.sentences[number] for number in numbers]
        ignored = (dictionary.pad(), dictionary.eos())
        return numbers, [[dictionary[i] for i in row if i not in ignored] for row in tokens]
