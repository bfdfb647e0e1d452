"""BLEU of a run's systems, again from the files, with sacrebleu's bootstrap: intervals and paired tests."""

import functools
import logging
import os
import re
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Tuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from lv_fairseq.report.part import clean, short
from lv_fairseq.report.run import Run
from lv_fairseq.report.run_file import MEGABYTE, RunFile

SAMPLES = 1000
SEED = "12345"  # sacrebleu's own
TOLERANCE = 0.051  # results.json may hold a rounded score
LARGEST = 4 * MEGABYTE  # of a text
SENTENCES, LONGEST = 10_000, 10_000  # of a text, and characters of each: sacrebleu holds SAMPLES texts in memory
TOKENISERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")  # for the others it fetches files

Lines = Tuple[str, ...]


@dataclass(frozen=True)
class Scored:
    """The score of one system on one set. ``interval`` is half the width of the 95 % interval."""

    bleu: Optional[float]
    interval: Optional[float] = None


@dataclass(frozen=True)
class Difference:
    """How much more BLEU a system has than another one, and how likely chance alone gives as much."""

    bleu: float
    p_value: Optional[float] = None  # None if it is not known, as without files
    same_output: bool = False


@dataclass
class SetScores:
    """The scores of all systems on one set, and the texts they were taken from."""

    systems: List[Scored]
    differences: Dict[Tuple[int, int], Difference] = field(default_factory=dict)  # by the run's comparisons
    hypotheses: Dict[int, Lines] = field(default_factory=dict)  # by number of the system; only complete ones
    references: Lines = ()
    sources: Lines = ()
    signatures: List[str] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)  # what is missing


def score_set(run: Run, which: str, progress: Callable[[float], None] = lambda done: None) -> SetScores:
    """Score all systems on a set; a system without usable files keeps the score of results.json."""
    outputs = [system.outputs.get(which) for system in run.systems]
    result = SetScores([Scored(output.bleu if output else None) for output in outputs])
    result.signatures = sorted({output.signature for output in outputs if output and output.signature})
    if any(outputs):
        read_texts(run, which, result)
    signature = next((output.signature for output in outputs if output and output.signature), "")
    try:
        score_again(run, result, signature, progress)
    except MissingError as error:
        signature = None
        result.notes.append(f"{error} Scores are those of results.json, without intervals.")
    for i, other in run.comparisons:
        if result.systems[i].bleu is not None and result.systems[other].bleu is not None:
            result.differences[i, other] = difference(result, i, other, signature)
    return result


def score_again(run: Run, result: SetScores, signature: str, progress: Callable[[float], None]) -> None:
    """Scores of the outputs that were read in place of those of results.json."""
    signatures = set()
    for i, hypotheses in result.hypotheses.items():
        (scored,), used = bootstrap((hypotheses,), result.references, signature)
        said, result.systems[i] = result.systems[i].bleu, Scored(float(scored.score), float(scored.ci))
        signatures.add(used)
        progress(1)
        if said is not None and abs(said - result.systems[i].bleu) > TOLERANCE:
            result.notes.append(
                f"{run.systems[i].name}: results.json says {said:.2f} BLEU, the file gives "
                f"{result.systems[i].bleu:.2f}; the latter is shown."
            )
    result.signatures = sorted(signatures) or result.signatures


def difference(scores: SetScores, i: int, other: int, signature: Optional[str]) -> Difference:
    """One system against another, by sacrebleu's paired bootstrap if both have files that it can score."""
    more = scores.systems[i].bleu - scores.systems[other].bleu
    if not {i, other} <= scores.hypotheses.keys():
        return Difference(more)
    pair = (scores.hypotheses[other], scores.hypotheses[i])
    if pair[0] == pair[1]:  # sacrebleu would call a system significantly different from itself
        return Difference(more, same_output=True)
    if signature is None:
        return Difference(more)
    (_, tested), _ = bootstrap(pair, scores.references, signature)
    return Difference(more, float(tested.p_value))


def read_texts(run: Run, which: str, result: SetScores) -> None:
    """Read references, sources and those outputs that have as many lines; note what is missing."""
    text = run.texts.get(which)
    try:
        result.references = read_lines(text.reference if text else None, f"the reference of {which}")
    except MissingError as error:
        result.notes.append(f"{error} Scores are those of results.json, without intervals.")
        return
    try:
        result.sources = read_lines(text.source, f"the source of {which}", len(result.references))
    except MissingError as error:
        result.notes.append(str(error))
    for i, system in enumerate(run.systems):
        if which not in system.outputs:
            continue
        try:
            what = f"the output of {system.name} for {which}"
            result.hypotheses[i] = read_lines(system.outputs[which].hypotheses, what, len(result.references))
        except MissingError as error:
            result.notes.append(f"{error} The score is that of results.json.")


class MissingError(Exception):
    """A text that is not there, or not whole, or that cannot be scored."""


def read_lines(file: Optional[RunFile], what: str, lines: Optional[int] = None) -> Lines:
    """The lines of a text, of which there must be a certain number."""
    what = f"{what[0].upper()}{what[1:]}"
    if file is None:
        raise MissingError(f"{what} is not named in results.json.")
    what = f"{what} ({clean(file.path.name)})"
    try:
        found = file.read(LARGEST).decode().split("\n")
    except FileNotFoundError:
        raise MissingError(f"{what} is missing.") from None
    except UnicodeDecodeError:
        raise MissingError(f"{what} is not UTF-8.") from None
    except OSError as error:
        raise MissingError(f"{what} cannot be read: {error.strerror or error}.") from None
    if found[-1] == "":
        found.pop()
    if not found:
        raise MissingError(f"{what} is empty.")
    if lines is not None and len(found) != lines:
        raise MissingError(f"{what} has {len(found):,} lines, the reference {lines:,}.")
    if len(found) > SENTENCES:
        raise MissingError(f"{what} has {len(found):,} lines; a report scores no more than {SENTENCES:,}.")
    longest = max(map(len, found))
    if longest > LONGEST:
        raise MissingError(f"{what} has a line of {longest:,} characters: that is no sentence.")
    return tuple(line.rstrip("\r") for line in found)


def options(signature: str) -> Dict:
    """How to score again what was scored with this signature."""
    result = {"lowercase": bool(re.search(r"(?:^|\|)case:lc(?:\||$)", signature)), "force": True}
    found = re.search(r"(?:^|\|)tok:([^|]*)", signature)
    if found is None:
        return result
    for name in TOKENISERS:
        if found.group(1) == name or found.group(1).startswith(f"{name}-"):  # a version follows
            return {**result, "tokenize": name}
    raise MissingError(f"Outputs are not scored with the tokeniser {found.group(1)}: lv-report downloads nothing.")


@functools.cache  # the same output may be that of several systems
def bootstrap(systems: Tuple[Lines, ...], references: Lines, signature: str) -> Tuple[List[Result], str]:
    """Scores, intervals as of sacrebleu --confidence, and p of all systems but the first; and the signature. The one
    given says how to score; an empty one: by sacrebleu's defaults."""
    how = options(signature)
    os.environ["SACREBLEU_SEED"] = SEED
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    named = [(str(i), hypotheses) for i, hypotheses in enumerate(systems)]
    try:
        test = PairedTest(named, {"BLEU": BLEU(**how)}, [references], test_type="bs", n_samples=SAMPLES)
        signatures, results = test()
    except Exception as error:  # a tokeniser that is not installed here
        raise MissingError(f"sacrebleu cannot score outputs: {short(str(error))}.") from None
    (name,) = signatures
    return results[name], signatures[name].format()
