"""fast_align's command line and file formats on ``thot.alignment.FastAlignModel``, the same model, of sil-thot.

Is run by its path, as a program of its own, so that it needs nothing of ``lv_fairseq``. Memory: about 1.6 KB a sentence
pair, and 40 bytes an entry of the table.
"""

import getopt
import math
import os
import signal
import sys
from typing import Dict, Iterator, List, NoReturn, TextIO, Tuple

from thot.alignment import FastAlignModel

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
Alignments go to standard output, progress to standard error.
"""
FIXED = {"-a": 0.01, "-T": 4.0}  # fast_align's defaults, which the model has built in
UNSUPPORTED = {
    "-N": "no null word",
    "-s": "scores",
    "-f": "forced alignment",
    "-m": "a length ratio",
    "-b": "a buffer size",
}
NULL, NULL_NAME = 0, "<eps>"
SMALLEST = sys.float_info.min  # probability that has a logarithm
# words that thot keeps for itself; a tab is in no word of a corpus
RESERVED = {word.encode(): b"\t" + word.encode() for word in ("NULL", "UNKNOWN_WORD", "<UNUSED_WORD>")}
BATCH = 10000  # pairs that are aligned at a time
DOT, LINE = 1000, 50000  # pairs after which a dot, and their number, is printed

Pair = Tuple[List[bytes], List[bytes]]  # words to condition on, words to predict


def main(argv: List[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would wait until an iteration is done
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options = parse(argv[1:])
    if "-i" not in options:
        sys.stderr.write(USAGE.format(program=argv[0]))
        sys.exit(1)
    check(options)
    try:
        align(options)
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
    if number(options, "-t", -4) > 0:
        fail("-t must not be above 0")


def number(options: Dict[str, str], flag: str, default: float) -> float:
    try:
        return float(options.get(flag, default))
    except ValueError:
        fail(f"{flag} {options[flag]}: not a number")


def fail(message: str) -> NoReturn:
    tell(f"error: {message}\n")
    os._exit(1)  # not sys.exit, which would write once more what could not be written


def align(options: Dict[str, str]) -> None:
    path, reverse, iterations = options["-i"], "-r" in options, int(number(options, "-I", 5))
    table = options.get("-p", options.get("-c"))
    out = None if table is None else open(table, "w", encoding="utf-8", newline="\n")  # fail now, not hours later
    model = FastAlignModel()
    model.variational_bayes = "-v" in options
    model.fast_align_p0 = number(options, "-q", 0.08)

    tell("INITIAL PASS\n")
    pairs = 0
    for given, predicted in read(path, reverse):
        model.add_sentence_pair(given, predicted, 1)
        pairs += 1
        dots(pairs)
    if pairs == 0:
        fail(f"{path} is empty")
    used = model.start_training()
    tell("\n")
    if used < pairs:
        tell(f"{pairs - used} pairs with more than {model.max_sentence_length} words a side are not used\n")
    for i in range(1, iterations):
        tell(f"ITERATION {i}\n")
        model.train()
    tell(f"ITERATION {iterations} (FINAL)\n")
    model.end_training()
    if wanted(sys.stdout):
        # not sys.stdout itself: with PYTHONUNBUFFERED it drops what a nearly full disk does not take
        with open(sys.stdout.fileno(), "w", encoding="ascii", newline="\n", closefd=False) as alignments:
            print_alignments(model, path, reverse, alignments)
    if out is not None:
        tell(f"conditional probabilities: {table}\n")
        with out:
            write_table(model, number(options, "-t", -4), out)


def read(path: str, reverse: bool) -> Iterator[Pair]:
    with open(path, "rb") as file:
        for i, line in enumerate(file, start=1):
            words = [RESERVED.get(word, word) for word in line.split()]
            try:
                line.decode()
                bar = words.index(b"|||")
            except UnicodeDecodeError:
                fail(f"{path}, line {i}: not UTF-8")
            except ValueError:
                fail(f"{path}, line {i}: no ||| between source and target")
            source, target = words[:bar], words[bar + 1 :]
            if not source or not target:
                fail(f"{path}, line {i}: one side is empty")
            yield (target, source) if reverse else (source, target)


def wanted(file: TextIO) -> bool:
    """Whether somebody reads what is written: a pass over the corpus can be saved if it is the null device."""
    return os.fstat(file.fileno()).st_rdev != os.stat(os.devnull).st_rdev


def print_alignments(model: FastAlignModel, path: str, reverse: bool, out: TextIO) -> None:
    """A line a pair: links ``source-target``, positions from 0."""
    batch, done = [], 0
    for pair in read(path, reverse):
        batch.append(pair)
        if len(batch) == BATCH:
            print_batch(model, batch, reverse, out)
            for _ in batch:
                done += 1
                dots(done)
            batch = []
    if batch:
        print_batch(model, batch, reverse, out)
    tell("\n")


def print_batch(model: FastAlignModel, batch: List[Pair], reverse: bool, out: TextIO) -> None:
    given, predicted = zip(*batch)
    lines = []
    for _, matrix in model.get_best_alignments(given, predicted):
        links = enumerate(matrix.to_list())  # of each predicted word: the position it comes from, from 1; 0: none
        if reverse:
            lines.append(" ".join([f"{j}-{i - 1}" for j, i in links if i]))
        else:
            lines.append(" ".join([f"{i - 1}-{j}" for j, i in links if i]))
    lines.append("")
    out.write("\n".join(lines))


def write_table(model: FastAlignModel, threshold: float, out: TextIO) -> None:
    """Rows ``source TAB target TAB ln p`` of entries with ln p >= -threshold * ln(best p of this source word)."""
    targets = [model.get_trg_word(i).lstrip("\t") for i in range(model.trg_vocab_size)]
    for i in range(model.src_vocab_size):
        entries = model.get_translations(i, 0)
        if entries:
            source = NULL_NAME if i == NULL else model.get_src_word(i).lstrip("\t")
            # 1 may come out as a little more than 1, and without -v as 0 what is nearly 0
            least = max(SMALLEST, min(1.0, max(p for _, p in entries)) ** -threshold)
            rows = [(t, min(0.0, math.log(p))) for t, p in entries if p >= least]
            out.write("".join([f"{source}\t{targets[t]}\t{log_p:.6g}\n" for t, log_p in rows]))


def dots(done: int) -> None:
    if done % DOT == 0:
        tell(f". [{done}]\n" if done % LINE == 0 else ".")


def tell(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv)
