"""Child processes that never outlive us, signals that end a command in one line, and what it prints.

- However we end in an orderly way, by an exception or by a signal inside `signals_as_exit`, `end` ends the child and
  all of its session: also what a wrapper script or a launcher has started.
- If we are killed (SIGKILL) the kernel kills the child. It does not kill what the child has started: data loader
  workers of torch and the pools of ``multiprocessing`` notice by themselves that their parent is gone.
"""

import collections
import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from typing import BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Set, Union

from lv_fairseq.errors import UserError

GRACE = 5  # seconds between SIGTERM and SIGKILL
CLEANING = 10  # seconds after a signal in which others change nothing
LAST_LINES, LONGEST_LINE = 3, 200  # of stderr in an error message, and characters of each
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # that end a command
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def run(
    command: List[str],
    name: str,
    threads: int = 1,
    stdout: Union[int, BinaryIO] = subprocess.DEVNULL,
    read: Optional[Callable[[str], None]] = None,
    environment: Optional[Dict[str, str]] = None,
) -> None:
    """Returns when the program has ended well; else a UserError with its last words.

    Args:
        name: of the program, for messages
        threads: that OpenMP may use
        stdout: a file, or what ``subprocess`` has for it
        read: is given what the program prints to stderr, piece by piece
        environment: variables that it has beside ours
    """
    try:
        variables = {**os.environ, "OMP_NUM_THREADS": str(threads), **(environment or {})}
        child = start(command, stdout=stdout, stderr=subprocess.PIPE, env=variables)
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


def start(command: Sequence[str], **options) -> subprocess.Popen:
    """A child that ends if we do; ``options`` are those of ``Popen``. Whoever starts one says at last ``end(child)``.

    The thread that starts it must live as long as the child is needed: the kernel takes its end for ours. A signal that
    comes meanwhile waits: else it could end us when the child is there and nobody knows it yet.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = None
    try:
        child = subprocess.Popen(
            list(map(str, command)),
            **{"stdin": subprocess.DEVNULL, **options},
            start_new_session=True,  # a group that can be ended as a whole
            preexec_fn=functools.partial(begin, os.getpid(), before),
        )
    finally:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except BaseException:  # of a signal that has waited
            if child is not None:
                end(child)
            raise
    return child


def begin(parent: int, signals: Set[signal.Signals]) -> None:
    """In a child, before it becomes another program."""
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)
    die_with(parent)


def die_with(parent: int) -> None:
    """In a child: have the kernel kill it when its parent is gone."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before we had asked
            os._exit(128 + signal.SIGKILL)


def end(child: subprocess.Popen) -> None:
    """Terminate the child, if it still runs, and what is left of that which it has started; whatever happens
    meanwhile."""
    try:
        signal_group(child, signal.SIGTERM)
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        signal_group(child, signal.SIGKILL)
        child.wait()


def signal_group(child: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all have ended; have become another user's
        os.killpg(child.pid, number)


@contextlib.contextmanager
def signals_as_exit(result: Optional[str] = "") -> Iterator[None]:
    """SIGTERM, SIGHUP and SIGINT end a command as an exception does, so that children and temporary files go too, and
    in one line, with exit code 128 + the signal's number. For main functions: ``@signals_as_exit()``, below
    ``@command``.

    A signal that is ignored, as SIGHUP under nohup, stays so. More of them while we are cleaning up change nothing.

    Args:
        result: to say what the signal leaves, such as "nothing was written"; None: somebody else says it
    """
    us, last = os.getpid(), -CLEANING

    def leave(number, frame):
        nonlocal last
        if os.getpid() != us:  # a fork of ours, which has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif time.monotonic() - last > CLEANING:
            last = time.monotonic()
            raise StoppedError(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for number in SIGNALS:
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, leave)
    try:
        yield
    except StoppedError as stopped:
        if result is not None:
            with contextlib.suppress(OSError):  # the terminal may be gone
                print(f"stopped by {stopped.name}" + f": {result}" * bool(result), file=sys.stderr, flush=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_at_once() -> Iterator[None]:
    """What waits in here outside of Python, where no handler of ours is heard, and has nothing to clean up, a signal
    ends at once."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in SIGNALS if getattr(signal.getsignal(number), "__module__", None) == __name__]
        before = {number: signal.signal(number, signal.SIG_DFL) for number in ours}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """For a command that prints its result: it ends in silence if the reader does, as `head`, in one line if what it
    prints cannot be written, and writes characters that the reader's encoding does not have as escapes."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try once more
        raise UserError(f"cannot print the result: {error.strerror or error}") from None
    finally:
        signal.signal(signal.SIGPIPE, before)


class StoppedError(SystemExit):
    """A signal has told us to end."""

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.name = signal.Signals(number).name
