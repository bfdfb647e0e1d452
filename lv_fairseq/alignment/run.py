"""From a corpus to the table of translation probabilities, whichever aligner does it."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import BinaryIO, Callable, Optional, Union

from lv_fairseq.alignment.links import write_table
from lv_fairseq.alignment.program import WIDE, Aligner
from lv_fairseq.alignment.progress import EflomalProgress, Progress
from lv_fairseq.alignment.symmetrize import grow_diag_final_and, intersection
from lv_fairseq.errors import UserError
from lv_fairseq.processes import run

METHODS = {"intersection": intersection, "grow-diag-final-and": grow_diag_final_and}
SYMMETRIZATIONS = ("none", *METHODS)
RUN_SHARE = 0.45  # of the time, for each direction; the rest is for symmetrising

Report = Optional[Callable[[float, str], None]]


def align(
    aligner: Aligner,
    corpus: Path,
    table: Path,
    folder: Path,
    symmetrize: str = "none",
    iterations: int = 5,
    threads: int = 1,
    progress: Report = None,
) -> None:
    """Write the table: rows ``source TAB target TAB ln p(target | source)``, those of a source word together.

    Without symmetrisation, p is the aligner's own, and rows of the empty word have the source ``<eps>``. With it, the
    aligner runs in both directions and p is the share of the target word among all links of the source word. eflomal
    gives links only, so that it needs symmetrisation.

    Args:
        corpus: what ``write_corpus`` has written
        table: is written, by the aligner itself if not symmetrised
        folder: for the alignments of both directions while they are needed
        symmetrize: one of ``SYMMETRIZATIONS``
        iterations: passes over the corpus; the last one only aligns and writes. eflomal chooses them itself.
        threads: that the aligner may use
        progress: is told which fraction is done, and what is going on
    """
    if symmetrize not in SYMMETRIZATIONS:
        raise UserError(f"symmetrize must be one of {', '.join(SYMMETRIZATIONS)}, not {symmetrize}")
    if aligner.links_only and symmetrize == "none":
        others = " or ".join(f"--symmetrize {method}" for method in METHODS)
        raise UserError(f"{aligner.name} gives links and no probabilities: take {others}")
    if iterations < 2:
        raise UserError(f"iterations must be 2 or more, not {iterations}: the last one does not learn")
    if threads < 1:
        raise UserError(f"threads must be 1 or more, not {threads}")
    job = Job(aligner, corpus, count_lines(corpus), iterations, threads, progress)
    if symmetrize == "none":
        own_table(job, table)
    else:
        frequency_table(job, table, folder, symmetrize)
    if progress is not None:
        progress(1.0, "aligned")


@dataclass(frozen=True)
class Job:
    """What the runs of an aligner over a corpus have in common."""

    aligner: Aligner
    corpus: Path
    pairs: int  # lines of the corpus
    iterations: int
    threads: int
    progress: Report

    def run(self, direction: str, *flags: str, stdout: Union[int, BinaryIO] = DEVNULL, begin=0.0, share=1.0) -> None:
        """``begin`` and ``share``: where in the progress of all the work this run is."""
        read = None
        if self.progress is not None:
            short = self.aligner.name.split(" (")[0]
            name = f"{'built-in aligner' if short == 'built-in' else short} {direction}"
            report = lambda done, what: self.progress(begin + share * done, what)
            read = Progress(report, name, self.pairs, self.iterations).read
        arguments = ["-i", str(self.corpus), "-d", "-o", "-v", "-I", str(self.iterations), *flags]
        run([*self.aligner.command, *arguments], self.aligner.name, self.threads, stdout, read)

    def run_both(self, forward: Path, reverse: Path, folder: Path, share: float) -> None:
        """eflomal, in both directions. What it keeps for itself while it runs goes into the folder, as ours does."""
        read = None
        if self.progress is not None:
            read = EflomalProgress(lambda done, what: self.progress(share * done, what)).read
        arguments = ["-i", self.corpus, "-f", forward, "-r", reverse, "--overwrite", "-v"]
        command = [*self.aligner.command, *map(str, arguments)]
        run(command, self.aligner.name, self.threads, DEVNULL, read, {"TMPDIR": str(folder)})


def own_table(job: Job, table: Path) -> None:
    """The table that the aligner itself writes."""
    try:
        open(table, "wb").close()  # an old one must not pass for the new one
    except OSError as error:
        raise UserError(f"cannot write {table}: {error.strerror}") from None
    threshold = ["-t", WIDE] if job.aligner.takes_threshold else []
    job.run("forward", *threshold, job.aligner.table_flag, str(table))
    check_written(table, job.aligner, "table")


def frequency_table(job: Job, table: Path, folder: Path, symmetrize: str) -> None:
    """Relative frequencies of the links of symmetrised alignments."""
    paths = {"forward": Path(folder) / "forward.align", "reverse": Path(folder) / "reverse.align"}
    try:
        if job.aligner.links_only:
            job.run_both(*paths.values(), folder, share=2 * RUN_SHARE)
        for i, (direction, path) in enumerate(paths.items()):
            flags = ["-r"] if direction == "reverse" else []
            if not job.aligner.links_only:
                with open(path, "wb") as out:
                    job.run(direction, *flags, stdout=out, begin=i * RUN_SHARE, share=RUN_SHARE)
            check_written(path, job.aligner, "alignment")
        report = None
        if job.progress is not None:
            what = f"symmetrising ({symmetrize})"
            report = lambda done: job.progress(2 * RUN_SHARE + (1 - 2 * RUN_SHARE) * done, what)
        write_table(job.corpus, *paths.values(), METHODS[symmetrize], table, job.aligner.name, job.pairs, report)
    except OSError as error:
        raise UserError(f"cannot keep alignments in {folder}: {error.strerror}") from None
    finally:
        for path in paths.values():
            with contextlib.suppress(OSError):
                path.unlink()


def check_written(path: Path, aligner: Aligner, what: str) -> None:
    """fast_align ends well even if it could not write, so look at what it has written."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            last = file.read(1)
    except OSError as error:
        raise UserError(f"{aligner.name} wrote no {what}, {path}: {error.strerror}") from None
    disk = os.statvfs(path)
    if disk.f_blocks > 0 and disk.f_bavail == 0:
        raise UserError(f"no space left for {path}: the {what} may be incomplete")
    if size == 0:
        raise UserError(f"{aligner.name} wrote no {what}, {path} is empty")
    if last != b"\n":
        raise UserError(f"{aligner.name} did not write the whole {what}, {path}: is the disk full?")


def count_lines(path: Path) -> int:
    try:
        with open(path, "rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
