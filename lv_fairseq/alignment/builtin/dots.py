"""Progress on standard error, as fast_align prints it: a dot after every 1,000 pairs."""

import sys

DOT, LINE = 1000, 50000  # pairs after which a dot, and their number, is printed


class Dots:
    """Dots of one pass.

    Args:
        pairs: of the corpus
        work: in any unit, such as bytes; when all of it is done there is a dot for every 1,000 pairs
    """

    def __init__(self, pairs: int, work: int):
        self.pairs, self.work, self.printed = pairs, max(1, work), 0

    def told(self, done: int) -> None:
        """How much of the work is done."""
        pairs = done * self.pairs // self.work
        while (self.printed + 1) * DOT <= pairs:
            self.printed += 1
            tell("." if self.printed * DOT % LINE else f". [{self.printed * DOT}]\n")


def tell(text: str) -> None:
    if sys.stderr is not None:  # it was not closed
        sys.stderr.write(text)
        sys.stderr.flush()
