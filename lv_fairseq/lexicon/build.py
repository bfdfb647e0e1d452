"""From parallel text to a lexicon file, by way of a word aligner."""

import os
import time
from pathlib import Path
from typing import Dict, Optional

from lv_fairseq.alignment import CorpusCounts, align, find_aligner, write_corpus
from lv_fairseq.errors import UserError
from lv_fairseq.files import temporary_folder
from lv_fairseq.fingerprint import dictionary_words, fingerprint
from lv_fairseq.lexicon import formats
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.lexicon.lexicon import Lexicon
from lv_fairseq.progress import stage, stages


def build(
    source: Path,
    target: Path,
    out: Path,
    fast_align: Optional[str] = None,
    symmetrize: str = "none",
    iterations: int = 5,
    threads: Optional[int] = 1,
    max_per_word: int = 100,
    skip_bad_lines: bool = False,
    dictionaries: Optional[Dict[str, Path]] = None,
    aligner: Optional[str] = None,
) -> str:
    """Align two texts, write a lexicon and return a summary of one line.

    Args:
        source, target: tokenised text, one sentence a line
        out: the lexicon
        fast_align: the program (default: see `find_aligner`)
        symmetrize: none, intersection or grow-diag-final-and
        threads: of the aligner; None: one for each core, unless its alignments would then differ from run to run
        dictionaries: fairseq's of "source" and "target"; the lexicon then belongs to them
        aligner: fast_align, builtin or eflomal (default: see `find_aligner`)
    """
    started = time.monotonic()
    check_place(out, source, target, *(dictionaries or {}).values())
    prints = {side: fingerprint(dictionary_words(path)) for side, path in (dictionaries or {}).items()}
    found = find_aligner(fast_align, aligner)
    if threads is None:
        threads = 1 if found.unsteady and symmetrize != "none" else os.cpu_count() or 1
    with temporary_folder(out) as folder:
        corpus, table = folder / "corpus", folder / "table"
        with stages() as progress:
            counts = write_corpus(source, target, corpus, skip_bad_lines, progress)
        with stages() as progress:
            align(found, corpus, table, folder, symmetrize, iterations, threads, progress)
        with stage("reading the aligner's table", table.stat().st_size, "B") as progress:
            try:
                entries = formats.read(table, "fast_align", max_per_word, progress)
            except UserError as error:
                raise UserError(f"{found.name} wrote something else than a table: {error}") from None
        about = {
            "made_by": "lv-lexicon build",
            "aligner": found.name,
            "symmetrize": symmetrize,
            **({} if found.links_only else {"iterations": iterations}),  # eflomal chooses them itself
            "max_per_word": max_per_word,
            "pairs": counts.pairs,
            "dictionaries": prints,
        }
        target_counts = {word.encode(): count for word, count in counts.target_counts.items()}
        with stage("writing the lexicon", 1):
            lexicon = Lexicon.of(entries, about, target_counts)
            lexicon.save(out)
    return summary(out, counts, entries, lexicon) + f", {time.monotonic() - started:.1f} seconds"


def summary(out: Path, counts: CorpusCounts, entries: Entries, lexicon: Lexicon) -> str:
    impossible = f", {entries.impossible:,} of probability 0 left out" if entries.impossible else ""
    skipped = f" ({counts.skipped:,} bad lines left out)" if counts.skipped else ""
    without = len(counts.source_counts) - len(lexicon.keys)
    return (
        f"{out}: {counts.pairs:,} pairs{skipped}, {len(lexicon.targets):,} entries for {len(lexicon.keys):,} "
        f"source words ({without:,} without entry){impossible}"
    )


def check_place(out: Path, *inputs: Path) -> None:
    """Whether a file can be written there, before hours of work, and without losing another."""
    if not out.name:
        raise UserError("name a file to write with --out")
    if any(path.exists() and out.exists() and path.samefile(out) for path in inputs):
        raise UserError(f"{out} is to be read and written: name another file with --out")
    if out.exists() and not out.is_file() and not out.is_dir():
        raise UserError(f"{out} is no ordinary file: name another one with --out")
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file for the lexicon with --out")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} to: make it first")
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"cannot write to the folder {out.parent}: name another place with --out")
