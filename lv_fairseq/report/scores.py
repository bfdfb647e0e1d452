"""BLEU of a run's systems, again from the files, with sacrebleu's bootstrap: intervals and paired tests."""

import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from lv_fairseq.errors import UserError
from lv_fairseq.report.run import Run, clean

SAMPLES = 1000
SEED = "12345"  # sacrebleu's own
TOLERANCE = 0.051  # results.json may hold a rounded score


@dataclass(frozen=True)
class Scored:
    """The score of one system on one set. ``interval`` is half the width of the 95 % interval."""

    bleu: Optional[float]
    interval: Optional[float] = None
    p_value: Optional[float] = None  # against the first system
    same_as_first: bool = False


@dataclass
class SetScores:
    """The scores of all systems on one set, and the texts they were taken from."""

    systems: List[Scored]
    hypotheses: Dict[int, List[str]] = field(default_factory=dict)  # by number of the system; only complete ones
    references: List[str] = field(default_factory=list)
    sources: List[str] = field(default_factory=list)
    signatures: List[str] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)  # what is missing


def score_set(run: Run, which: str, progress: Callable[[float], None] = lambda done: None) -> SetScores:
    """Score all systems on a set; a system without usable files keeps the score of results.json."""
    outputs = [system.outputs.get(which) for system in run.systems]
    result = SetScores([Scored(output.bleu if output else None) for output in outputs])
    result.signatures = sorted({output.signature for output in outputs if output and output.signature})
    if not any(outputs):
        return result
    read_texts(run, which, result)
    if not result.hypotheses:
        return result
    how = options(next((output.signature for output in outputs if output and output.signature), ""))
    first = min(result.hypotheses)
    signatures = set()
    for i in result.hypotheses:
        result.systems[i], signature = score(result.hypotheses[i], result.hypotheses[first], result.references, how)
        if first != 0:  # the first system itself has no files: there is nothing to compare with
            result.systems[i] = Scored(result.systems[i].bleu, result.systems[i].interval)
        signatures.add(signature)
        progress(1)
        said = outputs[i].bleu
        if said is not None and abs(said - result.systems[i].bleu) > TOLERANCE:
            result.notes.append(
                f"{run.systems[i].name}: results.json says {said:.2f} BLEU, the file gives "
                f"{result.systems[i].bleu:.2f}; the latter is shown."
            )
    result.signatures = sorted(signatures)
    return result


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
    """A text that is not there, or not whole."""


def read_lines(path: Optional[Path], what: str, lines: Optional[int] = None) -> List[str]:
    """The lines of a text, of which there must be a certain number."""
    if path is None:
        raise MissingError(f"{what[0].upper()}{what[1:]} is not named in results.json.")
    try:
        found = path.read_bytes().decode().split("\n")
    except (OSError, ValueError) as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        reason = "is missing" if isinstance(error, FileNotFoundError) else reason
        raise MissingError(f"{what[0].upper()}{what[1:]} ({clean(path.name)}) {reason}.") from None
    if found[-1] == "":
        found.pop()
    if not found:
        raise MissingError(f"{what[0].upper()}{what[1:]} ({clean(path.name)}) is empty.")
    if lines is not None and len(found) != lines:
        raise MissingError(
            f"{what[0].upper()}{what[1:]} ({clean(path.name)}) has {len(found):,} lines, the reference {lines:,}."
        )
    return [line.rstrip("\r") for line in found]


def options(signature: str) -> Dict:
    """How to score again what was scored with this signature."""
    tokenizer = re.search(r"(?:^|\|)tok:([^|]+)", signature)
    result = {"lowercase": bool(re.search(r"(?:^|\|)case:lc(?:\||$)", signature)), "force": True}
    return {**result, "tokenize": tokenizer.group(1)} if tokenizer else result


def score(hypotheses: List[str], first: List[str], references: List[str], how: Dict) -> Tuple[Scored, str]:
    """One system against the first one, by sacrebleu's paired bootstrap; intervals are those of its --confidence."""
    os.environ["SACREBLEU_SEED"] = SEED
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    same = hypotheses == first  # sacrebleu would call a system significantly different from itself
    systems = [("this", hypotheses)] if same else [("first", first), ("this", hypotheses)]
    try:
        test = PairedTest(systems, {"BLEU": BLEU(**how)}, [references], test_type="bs", n_samples=SAMPLES)
        signatures, results = test()
    except Exception as error:  # a tokeniser that is unknown, or not installed here
        raise UserError(f"sacrebleu cannot score with the signature in results.json: {error}") from None
    (name,) = signatures
    result = results[name][-1]
    scored = Scored(float(result.score), float(result.ci), None if same else float(result.p_value), same)
    return scored, signatures[name].format()
