"""A way of training in a process of its own, so that it has a peak of memory of its own; it takes turns with others.

The process is a fork of this one, which has imported everything. It ends with it, however that ends.
"""

import contextlib
import multiprocessing
import os
import re
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from lv_fairseq.processes import GRACE, die_with

MEGABYTE = 1 << 20


class EndedError(RuntimeError):
    """A process that is gone, which happens to one that wants more memory than there is."""


class Beside:
    """A `Run` that is somewhere else.

    Args:
        make: gives the `Run`, over there
    """

    def __init__(self, make: Callable[[], Any]):
        fork = multiprocessing.get_context("fork")
        self.connection, other = fork.Pipe()
        self.process = fork.Process(target=serve, args=(make, other, self.connection, os.getpid()), daemon=True)
        self.process.start()
        other.close()
        try:
            self.answer()  # that it is there
        except BaseException:
            self.end()
            raise

    def ask(self, what: str, *args) -> Any:
        with contextlib.suppress(BrokenPipeError):  # that it has ended is told below
            self.connection.send((what, args))
        return self.answer()

    def answer(self) -> Any:
        try:
            failed, answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            raise EndedError(f"ended with exit status {self.process.exitcode} (not enough memory?)") from None
        if failed:
            raise RuntimeError(f"a system failed:\n{answer}")
        return answer

    def end(self) -> None:
        self.process.terminate()
        self.process.join(GRACE)
        self.process.kill()
        self.process.join()
        self.connection.close()


def serve(make: Callable[[], Any], connection, other, parent: int) -> None:
    """Over there: does what is asked until nobody asks."""
    die_with(parent)
    other.close()
    forget_peak()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        try:
            system = System(make())
            connection.send((False, None))
            while True:
                what, args = connection.recv()
                connection.send((False, getattr(system, what)(*args)))
        except EOFError:
            raise
        except Exception:
            connection.send((True, traceback.format_exc()))


class System:
    """What can be asked for."""

    def __init__(self, run):
        self.run = run

    def update(
        self, sentences: Optional[Sequence[int]], page: Optional[Sequence[int]] = None
    ) -> Tuple[List, Any, float]:
        """Trains on these sentences, or on those that come next; gives their numbers, the target words of their page
        (None: it has none) and the seconds."""
        if hasattr(self.run, "take_page"):
            self.run.take_page(page)
        sentences = self.run.update(sentences)
        pages = self.run.pages
        words = None
        if pages is not None and pages.target is not None:
            words = pages.plan.target_words[pages.partition]
        return sentences, words, self.run.updates[-1]

    def swap_seconds(self) -> float:
        """A swap's part of an update."""
        if self.run.pages is not None:
            self.run.swap_more()
        return self.run.swap_seconds()

    def sizes(self) -> Dict[str, float]:
        figures = {"MB trained": self.run.trained_bytes(), "MB optimiser": self.run.optimiser_bytes()}
        return {"peak MB": peak(), **{name: round(figure / MEGABYTE, 1) for name, figure in figures.items()}}


def forget_peak() -> None:
    """The largest memory so far is that of now."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """The largest memory of this process, in MB."""
    found = re.search(r"^VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return round(int(found[1]) / 1024, 1)
