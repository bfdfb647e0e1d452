"""``lv-report``: a page with the tables and figures of runs."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Optional, Sequence

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.progress import stage
from lv_fairseq.report.computing import computed, drawn, file_names
from lv_fairseq.report.contents import sections
from lv_fairseq.report.markdown import markdown
from lv_fairseq.report.page import page
from lv_fairseq.report.run import Run, read_run


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-report",
        description="Writes one HTML page with the tables and figures of a run: coverage, BLEU with confidence "
        "intervals, candidate lists, decoding time, learning curves, attention, and outputs side by side. The page is "
        "one file and needs no network.",
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run, with results.json in it")
    add("--out", type=Path, metavar="FILE", help="the page to write (default: report.html in the first RUN)")
    add("--png", type=Path, metavar="FOLDER", help="write the pictures there too, as PNG files")
    add("--markdown", type=Path, metavar="FILE", help="write the tables there too, as Markdown, such as for a README")
    return parser.parse_args(argv)


def check_file(out: Path, flag: str, runs: Sequence[Run]) -> None:
    """Whether a file can be written, before the work."""
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file with {flag}")
    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} to write {out.name} to: make it first")
    if not os.access(out.parent, os.W_OK):
        raise UserError(f"cannot write to the folder {out.parent}: name another place with {flag}")
    check_free(out, flag)
    if any(out.exists() and file.exists() and out.samefile(file) for run in runs for file in run.files()):
        raise UserError(f"{out} is a file of the run itself: name another one with {flag}")


def check_places(out: Path, text: Optional[Path], folder: Optional[Path], runs: Sequence[Run]) -> None:
    """Whether all files can be written, before the work."""
    check_file(out, "--out", runs)
    if text is not None:
        check_file(text, "--markdown", runs)
        if text.resolve() == out.resolve():
            raise UserError(f"{text} is the page itself: name another file with --markdown")
    if folder is not None:
        there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        if not there.is_dir():
            raise UserError(f"{there} is no folder: name another one with --png")
        if not os.access(there, os.W_OK):
            raise UserError(f"cannot write to the folder {there}: name another one with --png")


def check_free(path: Path, flag: str) -> None:
    """A file may be replaced; a device, a pipe or a folder is there for something else."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is in the way, and no ordinary file: remove it, or name another place with {flag}")


def report(args: argparse.Namespace) -> str:
    """Write what is asked for; returns one line about it."""
    started = time.monotonic()
    runs = [read_run(folder) for folder in args.runs]
    out = args.out or args.runs[0] / "report.html"
    check_places(out, args.markdown, args.png, runs)
    everything = [computed(run, f"run{i + 1}-") for i, run in enumerate(runs)]
    parts = [sections(results) for results in everything]
    with stage("drawing", 1):
        text = page(list(zip(everything, parts)))
        files = drawn(dict(zip(file_names(runs), parts))) if args.png else {}
    for name in files:
        check_free(args.png / name, "--png")
    for name, content in files.items():
        args.png.mkdir(parents=True, exist_ok=True)
        with written_whole(args.png / name) as file:
            file.write(content)
    pages = {out: text}
    if args.markdown:
        pages[args.markdown] = markdown(list(zip(everything, parts)))
    for path, content in pages.items():
        with written_whole(path) as file:
            file.write(content.encode())
    systems = sum(len(run.systems) for run in runs)
    counts = f"{len(runs)} run{'s' if len(runs) > 1 else ''}, {systems} system{'' if systems == 1 else 's'}"
    images = f", {len(files)} pictures in {args.png}" if args.png else ""
    return f"{out}: {counts}{images}, {time.monotonic() - started:.1f} seconds"


@command
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    try:
        with signals_as_exit():
            about = report(args)
            with printing():
                print(about)
    except KeyboardInterrupt:
        sys.exit("interrupted: no page was written")
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'}: {error.strerror or error}") from None


if __name__ == "__main__":
    main()
