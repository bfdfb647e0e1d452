"""How far an aligner is, from what it prints to stderr."""

import re
from typing import Callable

DOT = 1000  # sentence pairs: after each, fast_align prints a dot


class Progress:
    """Reads an aligner's stderr piece by piece.

    The aligner reads the corpus once (not all builds do), then once an iteration, then writes the table. It heads each
    of these with a line, then prints dots, and the number of pairs after every 50 of them.

    Args:
        report: is told which fraction is done, all passes taken for equally long, and what is going on
        name: of what is going on, such as "fast_align forward"
        pairs: sentence pairs of the corpus
        iterations: passes after the first
    """

    def __init__(self, report: Callable[[float, str], None], name: str, pairs: int, iterations: int):
        self.report, self.name, self.pairs, self.iterations = report, name, pairs, iterations
        self.passes, self.dots, self.line = 0, 0, ""  # passes done, dots in lines done of this pass, the current line
        self.what = f"{name}, reading"

    def read(self, text: str) -> None:
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            self.dots += leading_dots(line)
            head = re.match(r"ITERATION (\d+)", line)
            if head:
                number = int(head.group(1))
                self.start(number, f"{self.name}, iteration {number} of {self.iterations}")
            elif line.startswith("conditional probabilities"):
                self.start(self.iterations + 1, f"{self.name}, writing the table")
        self.tell(self.dots + leading_dots(self.line))

    def start(self, passes: int, what: str) -> None:
        self.passes, self.dots, self.what = passes, 0, what
        self.tell(0)

    def tell(self, dots: int) -> None:
        share = min(1.0, dots * DOT / max(1, self.pairs))  # of this pass
        self.report((self.passes + share) / (self.iterations + 2), self.what)


def leading_dots(line: str) -> int:
    return len(line) - len(line.lstrip("."))


class EflomalProgress:
    """Reads eflomal's stderr piece by piece. In each of two directions, at the same time or one after the other, it
    runs three models, and says when one of them begins and when it has ended.

    Args:
        report: is told which fraction is done, and what is going on
    """

    SHARES = {"1": 0.15, "2": 0.2, "3": 0.65}  # of the time that a direction takes, about

    def __init__(self, report: Callable[[float, str], None]):
        self.report, self.line = report, ""
        self.begun = []  # models, of both directions
        self.ended = 0  # how many of them have ended

    def read(self, text: str) -> None:
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            begins = re.match(r"Aligning with model ([123]) ", line)
            if begins:
                self.begun.append(begins.group(1))
            elif line.startswith("Done"):
                self.ended += 1
            else:
                continue
            # of the models that have begun, those that were first have ended
            done = sum(self.SHARES[model] for model in sorted(self.begun)[: self.ended]) / 2
            self.report(min(1.0, done), f"eflomal, model {max(self.begun, default='1')} of 3")
