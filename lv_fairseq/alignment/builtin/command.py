"""fast_align's command line.

Memory: about 30 bytes a pair, 14 a token, 200 a distinct word and 40 an entry of the table (a pair of words that stand
in a sentence pair together), and 256 MB of what is kept of links; the rest of that, about 6 bytes a link, is in a file
without a name in the folder of the corpus. Links are the words of one side times those of the other.
"""

import getopt
import os
import signal
import sys
import tempfile
from typing import Dict, List, NoReturn

from .dots import Dots, tell
from .entries import find_entries
from .model import Model, Settings
from .output import print_alignments, wanted, write_table
from .text import BadLineError, count_lines, read

USAGE = """Usage: {program} -i corpus [options]
  -i: lines `source words ||| target words` (required)
  -d: prefer links near the diagonal (required, the model always does)
  -o: optimise how near (required, the model always does)
  -v: Dirichlet prior on the translation probabilities
  -r: reverse: condition on the target side and predict the source side
  -p: file for the conditional probability table, source TAB target TAB ln p (also -c)
  -t: smallest probability in the table: p >= best p of the source word ** -t (default = -4)
  -I: iterations, of which the last only aligns (default = 5)
  -q: p_null parameter (default = 0.08)
Alignments go to standard output, progress to standard error. Takes OMP_NUM_THREADS threads (default = all processors).
"""
ALPHA = 0.01
FIXED = {"-a": ALPHA, "-T": 4.0}  # fast_align's defaults
UNSUPPORTED = {
    "-N": "no null word",
    "-s": "scores",
    "-f": "forced alignment",
    "-m": "a length ratio",
    "-b": "a buffer size",
}


def main(argv: List[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would wait for threads
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options = parse(argv[1:])
    if "-i" not in options:
        tell(USAGE.format(program=argv[0]))
        sys.exit(1)
    check(options)
    try:
        align(options)
    except BadLineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    except MemoryError:
        fail("not enough memory")


def parse(arguments: List[str]) -> Dict[str, str]:
    try:
        pairs, rest = getopt.getopt(arguments, "i:dovrp:c:t:I:q:a:T:Nsf:m:b:")
    except getopt.GetoptError as error:
        fail(error.msg)
    if rest:
        fail(f"{rest[0]} belongs to no option")
    return dict(pairs)


def check(options: Dict[str, str]) -> None:
    for flag, what in UNSUPPORTED.items():
        if flag in options:
            fail(f"{flag} ({what}) is not supported, take fast_align itself")
    for flag, value in FIXED.items():
        if number(options, flag, value) != value:
            fail(f"{flag} cannot be changed from {value}, take fast_align itself")
    for flag in ("-d", "-o"):
        if flag not in options:
            fail(f"{flag} is needed: the model always does this")
    if number(options, "-I", 5) < 2 or number(options, "-I", 5) % 1:
        fail("-I must be a whole number from 2: the last iteration does not learn")
    if not 0 < number(options, "-q", 0.08) < 1:
        fail("-q must be between 0 and 1")
    if not number(options, "-t", -4) <= 0:
        fail("-t must not be above 0")


def number(options: Dict[str, str], flag: str, default: float) -> float:
    try:
        return float(options.get(flag, default))
    except ValueError:
        fail(f"{flag} {options[flag]}: not a number")


def fail(message: str) -> NoReturn:
    tell(f"error: {message}\n")
    os._exit(1)  # not sys.exit, which would write once more what could not be written


def threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) > 0 else os.cpu_count() or 1


def align(options: Dict[str, str]) -> None:
    path, reverse, iterations = options["-i"], "-r" in options, int(number(options, "-I", 5))
    table = options.get("-p", options.get("-c"))
    out = None if table is None else open(table, "w", encoding="utf-8", newline="\n")  # fail now, not hours later
    settings = Settings(number(options, "-q", 0.08), ALPHA if "-v" in options else 0.0)
    model = start(path, reverse, settings)
    pairs = model.text.pairs
    for i in range(1, iterations):
        tell(f"ITERATION {i}\n")
        model.learn(Dots(pairs, pairs).told)
        tell("\n")
    tell(f"ITERATION {iterations} (FINAL)\n")
    if wanted(sys.stdout):
        positions = model.align(Dots(pairs, pairs).told)
        tell("\n")
        # not sys.stdout itself: with PYTHONUNBUFFERED it drops what a nearly full disk does not take
        with open(sys.stdout.fileno(), "w", encoding="ascii", newline="\n", closefd=False) as alignments:
            print_alignments(model.text, positions, reverse, alignments)
    if out is not None:
        tell(f"conditional probabilities: {table}\n")
        with out:
            write_table(model, number(options, "-t", -4), out)


def start(path: str, reverse: bool, settings: Settings) -> Model:
    """Reads the corpus. The first pass has three parts, which share its dots."""
    tell("INITIAL PASS\n")
    pairs = count_lines(path)
    if pairs == 0:
        fail(f"{path} is empty")
    dots = Dots(pairs, 3 * pairs)
    text = read(path, reverse, dots.told)
    entries = find_entries(text, folder_of(path), threads(), lambda done: dots.told(pairs + done))
    tell("\n")
    text.given.tokens = text.given.tokens[:0]  # are in the entries now
    return Model(text, entries, settings, threads())


def folder_of(path: str) -> str:
    """For the file of links: that of the corpus, if we may write there."""
    folder = os.path.dirname(os.path.abspath(path))
    return folder if os.access(folder, os.W_OK) else tempfile.gettempdir()
