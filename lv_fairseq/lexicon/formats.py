"""Text files of other programs that hold a lexicon.

==========  ===================================================  ======================================
format      a line                                               of
==========  ===================================================  ======================================
fast_align  source TAB target TAB ln p(target | source)          fast_align -p
moses       target source p(target | source), parted by blanks   Moses (lex.s2t, lex.e2f), Marian's --shortlist
vmap        source words TAB target target ..., best first       CTranslate2; an empty source: always candidates
tsv         source TAB target TAB probability, after a heading   people and spreadsheets
==========  ===================================================  ======================================
"""

import re
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from lv_fairseq.errors import UnusableFileError
from lv_fairseq.files import open_text, written_whole
from lv_fairseq.lexicon.arrays_file import MAGIC
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.lexicon.lexicon import Lexicon
from lv_fairseq.progress import stage

FORMATS = ("fast_align", "moses", "vmap", "tsv")
NAMES = {"marian": "moses"}  # other names of a format
HEADING = b"source\ttarget\tprobability"
EMPTY_WORDS = {"fast_align": [b"<eps>"], "moses": [b"NULL"]}  # what programs call the word that is not there
# what would part a word in two
NOT_IN_KEY = {kind: re.compile(r"[\t-\r ]" if kind == "moses" else r"[\t\n\r]") for kind in FORMATS}
NOT_IN_TARGET = {kind: re.compile(r"[\t-\r ]" if kind in ("moses", "vmap") else r"[\t\n\r]") for kind in FORMATS}
BLOCK_BYTES = 1 << 24


class DamagedError(Exception):
    """A line that does not belong there: its number in a block, from 0, and what is wrong with it."""


def recognise(path: Path) -> str:
    """The format of a file by its first lines: one of FORMATS, or "lexicon"."""
    try:
        if path.exists() and not path.is_file():  # a pipe could be read only once
            raise UnusableFileError(f"cannot read {path}: it is {'a folder' if path.is_dir() else 'no ordinary file'}")
        with open_text(path) as file:
            start = file.read(1 << 16)
    except OSError as error:
        raise UnusableFileError(f"cannot read {path}: {error.strerror or error}") from None
    if start.startswith(MAGIC[: max(len(start), 1)]):
        return "lexicon"
    lines = start.split(b"\n")
    lines = [line.rstrip(b"\r") for line in (lines[:-1] or lines)][:100]
    if not start:
        raise UnusableFileError(f"{path} is empty")
    if lines[0] == HEADING:
        return "tsv"
    # by the first line; a later one that does not fit is named when the file is read
    first = lines[0].split(b"\t")
    if len(first) == 3 and is_number(first[2]):
        numbers = [line.rsplit(b"\t", 1)[-1] for line in lines]
        return "fast_align" if all(float(x) <= 0 for x in numbers if is_number(x)) else "tsv"
    if len(first) == 2:
        return "vmap"
    first = lines[0].split()
    if len(first) == 3 and is_number(first[2]):
        return "moses"
    formats = ", ".join((*FORMATS, *NAMES))
    raise UnusableFileError(f"{path} is no lexicon, and no table that lv-lexicon convert knows ({formats})")


def is_number(text: bytes) -> bool:
    try:
        return not np.isnan(float(text))
    except ValueError:
        return False


def read(
    path: Path, kind: str, most: Optional[int] = None, progress: Callable[[int], None] = lambda done: None
) -> Entries:
    """The entries of a text file, without those of the empty word.

    Args:
        kind: its format
        most: entries to keep of each source word
        progress: is told how many more bytes are done
    """
    entries, done = Entries(most, without=EMPTY_WORDS.get(kind, ())), 0
    try:
        for block in blocks(path):
            progress(len(block) + 1)
            if done == 0 and block.split(b"\n", 1)[0].rstrip(b"\r") == HEADING:
                done, (_, end, block) = 1, block.partition(b"\n")
                if not end:
                    continue
            try:
                block.decode()
                for sources, targets, scores in READERS[kind](block):
                    entries.add(sources, targets, scores)
            except UnicodeDecodeError as error:
                number = done + block.count(b"\n", 0, error.start) + 1
                raise UnusableFileError(f"{path}, line {number}: not UTF-8") from None
            except DamagedError as error:
                number, what = error.args
                raise UnusableFileError(f"{path}, line {done + number + 1}: {what}; this is no {kind} file") from None
            done += block.count(b"\n") + 1
    except OSError as error:
        raise UnusableFileError(f"cannot read {path}: {error.strerror or error}") from None
    return entries


def blocks(path: Path) -> Iterator[bytes]:
    """The file in pieces of whole lines, without the end of the last."""
    with open_text(path) as file:
        rest = b""
        while piece := file.read(BLOCK_BYTES):
            lines, end, after = piece.rpartition(b"\n")
            if end:
                yield rest + lines
                rest = after
            else:
                rest += piece
        if rest:
            yield rest


Rows = Iterator[Tuple[List[bytes], List[bytes], np.ndarray]]


class Columns(NamedTuple):
    separator: Optional[bytes]
    source: int
    target: int
    logarithm: bool


def read_columns(columns: Columns) -> Callable[[bytes], Rows]:
    """Reads lines of two words and a number."""

    def reader(block: bytes) -> Rows:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").rstrip(b"\r")
        # all fields of all lines in one list: far faster than line by line
        fields = block.replace(b"\n", b"\t").split(b"\t") if columns.separator else block.split()
        if len(fields) != 3 * (block.count(b"\n") + 1):
            raise DamagedError(*first_bad_line(block, columns))
        numbers = fields[2::3]
        try:
            scores = np.array(numbers, dtype="S").astype(np.float64)
        except ValueError:
            raise DamagedError(*first_bad_line(block, columns)) from None
        if not is_score(scores, columns).all():
            raise DamagedError(*first_bad_line(block, columns))
        sources, targets = fields[columns.source :: 3], fields[columns.target :: 3]
        if not all(sources) or not all(targets):
            raise DamagedError(*first_bad_line(block, columns))
        if not columns.logarithm:
            with np.errstate(divide="ignore"):
                scores = np.log(scores)
        yield sources, targets, np.minimum(scores, 0)

    return reader


def is_score(scores, columns: Columns):
    """A probability, or the logarithm of one; an aligner's may be a hair above 1."""
    return scores <= 1e-3 if columns.logarithm else (scores >= 0) & (scores <= 1.001)


def first_bad_line(block: bytes, columns: Columns) -> Tuple[int, str]:
    for number, line in enumerate(block.split(b"\n")):
        fields = line.split(columns.separator)
        if len(fields) != 3 or not all(fields[:2]):
            return number, "not two words and a number"
        if not is_number(fields[2]) or not is_score(float(fields[2]), columns):
            what = "the logarithm of a probability" if columns.logarithm else "a probability"
            return number, f"{fields[2].decode()!r} is not {what}"
    return number, "not a table"


def read_vmap(block: bytes) -> Rows:
    """A vmap gives an order, no probabilities: the n-th translation gets p = 1/n, which keeps the order."""
    sources, targets, ranks = [], [], []
    for number, row in enumerate(block.split(b"\n")):
        key, tab, words = row.rstrip(b"\r").partition(b"\t")
        translations = words.split(b" ") if words else []
        if not tab or b"\t" in words or b"" in translations:
            raise DamagedError(number, "not source words, one tab, and target words parted by single blanks")
        sources.extend([key] * len(translations))
        targets.extend(translations)
        ranks.extend(range(1, len(translations) + 1))
    yield sources, targets, -np.log(np.array(ranks, dtype=np.float64))


READERS = {
    "fast_align": read_columns(Columns(b"\t", 0, 1, logarithm=True)),
    "moses": read_columns(Columns(None, 1, 0, logarithm=False)),
    "tsv": read_columns(Columns(b"\t", 0, 1, logarithm=False)),
    "vmap": read_vmap,
}


class Written(NamedTuple):
    """How many keys and entries a text holds; ``left_out``: those of them that its format cannot hold."""

    keys: int
    entries: int
    keys_left_out: int
    entries_left_out: int  # of keys that are there


def write(lexicon: Lexicon, path: Path, kind: str, progress: Callable[[int], None] = lambda done: None) -> Written:
    """A lexicon as text, without keys and target words that would be read as something else.

    Args:
        progress: is told how many more keys are done
    """
    keys = entries = lost = 0
    words = list(lexicon.target_words)
    unfit = {number for number, word in enumerate(words) if NOT_IN_TARGET[kind].search(word) or not word}
    with written_whole(path) as file:
        if kind == "tsv":
            file.write(HEADING + b"\n")
        for number, key in enumerate(lexicon.keys):
            progress(1)
            part = slice(*lexicon.starts[number : number + 2])
            targets, scores = lexicon.targets[part].tolist(), lexicon.scores[part]
            fitting = [i for i, target in enumerate(targets) if target not in unfit]
            if NOT_IN_KEY[kind].search(key) or not (key or kind == "vmap") or targets and not fitting:
                continue
            lost += len(targets) - len(fitting)
            file.write(WRITERS[kind](key, [words[targets[i]] for i in fitting], scores[fitting]).encode())
            keys, entries = keys + 1, entries + len(fitting)
    return Written(keys, entries, len(lexicon.keys) - keys, lost)


def lines(form: str, numbers: Callable[[np.ndarray], np.ndarray]) -> Callable[[str, List[str], np.ndarray], str]:
    def writer(key: str, targets: List[str], scores: np.ndarray) -> str:
        return "".join(form.format(source=key, target=t, number=x) for t, x in zip(targets, numbers(scores).tolist()))

    return writer


WRITERS: Dict[str, Callable] = {
    "fast_align": lines("{source}\t{target}\t{number:.9g}\n", np.positive),
    "moses": lines("{target} {source} {number:.9g}\n", np.exp),
    "tsv": lines("{source}\t{target}\t{number:.9g}\n", np.exp),
    "vmap": lambda key, targets, scores: key + "\t" + " ".join(targets) + "\n",
}


def open_any(path: Path, kind: Optional[str] = None) -> Tuple[Lexicon, int]:
    """A lexicon, or any table as one, and how many of its entries were left out since their probability is 0."""
    kind = NAMES.get(kind, kind) or recognise(path)
    if kind == "lexicon":
        return Lexicon.load(path), 0
    with stage(f"reading {path}", path.stat().st_size, "B") as progress:
        entries = read(path, kind, progress=progress)
    about = {"made_by": f"lv-lexicon convert, from {kind}", "dictionaries": {}}
    return Lexicon.of(entries, about), entries.impossible
