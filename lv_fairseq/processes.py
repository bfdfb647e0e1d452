"""Runs a program, such as an aligner, as a child process that never outlives us."""

import collections
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from typing import BinaryIO, Callable, Iterator, List, Optional, Union

from lv_fairseq.errors import UserError

GRACE = 5  # seconds between SIGTERM and SIGKILL
LAST_LINES, LONGEST_LINE = 3, 200  # of stderr in an error message, and characters of each
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def run(
    command: List[str],
    name: str,
    threads: int = 1,
    stdout: Union[int, BinaryIO] = subprocess.DEVNULL,
    read: Optional[Callable[[str], None]] = None,
) -> None:
    """Returns when the program has ended well; else a UserError with its last words.

    Args:
        name: of the program, for messages
        threads: that OpenMP may use
        stdout: a file, or what ``subprocess`` has for it
        read: is given what the program prints to stderr, piece by piece
    """
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # so that what a wrapper script has started ends with it
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        raise UserError(f"{name} cannot be executed: {error.strerror}") from None
    last = collections.deque(maxlen=LAST_LINES)
    try:
        line = ""
        for text in pieces(child.stderr):
            *lines, line = (line + text).split("\n")
            last.extend(filter(telling, lines))
            line = line[-LONGEST_LINE:]
            if read is not None:
                read(text)
        last.extend(filter(telling, [line]))
        child.wait()
    finally:
        end(child)
    if child.returncode != 0:
        raise UserError(f"{name} {how_ended(child.returncode)}" + last_words(last))


def pieces(pipe: BinaryIO) -> Iterator[str]:
    with pipe:
        while True:
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                return
            yield piece.decode(errors="replace")


def telling(line: str) -> bool:
    """Whether a line of stderr is more than progress."""
    return bool(line.strip(". \r")) and not line.startswith("ARG=")


def last_words(lines) -> str:
    words = " / ".join(" ".join(line.split())[:LONGEST_LINE] for line in lines)
    return f"; its last words: {words}" if words else ", without a word"


def how_ended(status: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    try:
        which = signal.Signals(-status).name
    except ValueError:
        which = f"signal {-status}"
    return f"was killed by {which}" + (" (not enough memory?)" if -status == signal.SIGKILL else "")


def end(child: subprocess.Popen) -> None:
    """Terminate the child and what it has started, if it still runs; whatever happens meanwhile."""
    if child.poll() is not None:
        return
    try:
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(GRACE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def die_with_parent() -> None:
    """In the child, before it becomes the aligner: have the kernel kill it if we are killed without a chance to act."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def signals_as_exit() -> Iterator[None]:
    """SIGTERM and SIGHUP end us as an exception does, so that children and temporary files go too."""

    def leave(number, frame):
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
