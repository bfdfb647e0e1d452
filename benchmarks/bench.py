"""All systems side by side, in one run on one machine: `make bench`, or `make bench QUICK=1` in less than 10 minutes.

    python benchmarks/bench.py --source text.en --target text.de        # any tokenised parallel text
    python benchmarks/bench.py --quick --only updates decoding          # some sections only
    python benchmarks/bench.py --more "training_runs:--minutes 1"      # flags of a section, which it shows with
    cd benchmarks && python -m side_by_side.training_runs --help

Sections, one after the other, each a process of its own: an update (updates) and whole trainings (training_runs), a
decoded word (decoding), the first sentence from a cold start (start), aligning and partitioning (lexicon). What they
measure goes to WORK/SECTION.json as it comes, then to OUT/bench.json, and to OUT/README.md with pictures. Measure with
nothing else running. Peers are those of .venv-peers, which the make target installs; absent ones are named.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from side_by_side import page, plots
from side_by_side.rows import Row, is_complete, peer_python, read

from lv_fairseq import __version__
from lv_fairseq.files import written_whole
from lv_fairseq.processes import end, signals_as_exit, start

HERE = Path(__file__).resolve().parent
SECTIONS = ("updates", "training_runs", "decoding", "start", "lexicon")
PICTURES = {
    "cost.svg": (plots.cost, "Cost against the vocabulary"),
    "shares.svg": (plots.shares, "Where our time goes"),
}
NAMES = """
import importlib.metadata, json, sys
found = {x.metadata["Name"]: x.version for x in importlib.metadata.distributions()}
print(json.dumps({name: found[name] for name in sys.argv[1:] if name in found}))
"""


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="fewer sizes and turns: less than 10 minutes (else 2 hours)"
    )
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="sections (default: all)")
    parser.add_argument("--source", type=Path, metavar="FILE", help="tokenised source text (default: the demo's)")
    parser.add_argument("--target", type=Path, metavar="FILE", help="tokenised target text (default: the demo's)")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/bench"), metavar="DIR", help="what was measured (runs/bench)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for the page, which is written anew (benchmarks, with --quick WORK)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="do not measure sections again that WORK has, whatever their flags were"
    )
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="a sentence for the page, such as what text was taken"
    )
    parser.add_argument(
        "--more", action="append", default=[], metavar="SECTION:FLAGS", help="flags of a section; several times"
    )
    args = parser.parse_args(argv)
    if (args.source is None) != (args.target is None):
        parser.error("--source and --target go together")
    for path in filter(None, (args.source, args.target)):
        if not path.is_file() or not path.stat().st_size:
            parser.error(f"there is no text {path}" if not path.is_file() else f"{path} is empty")
    for more in args.more:
        section, colon, _ = more.partition(":")
        if section not in args.only or not colon:
            parser.error(f"--more {more}: write SECTION:FLAGS, with one of {', '.join(args.only)}")
    return args


def versions() -> Dict[str, str]:
    """The signature of a run: machine and programs."""
    model = "unknown processor"
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    found = {f"{model} x {os.cpu_count()}": "", "Python": platform.python_version(), "lv_fairseq": __version__}
    for name in ("fairseq-fixed", "torch", "numpy", "eflomal"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    python = peer_python()
    if python is not None:
        asked = [str(python), "-c", NAMES, "ctranslate2", "pymarian", "eflomal"]
        found |= json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    return found


def measure(section: str, args: argparse.Namespace) -> Tuple[List[Row], bool]:
    """What a section found, and whether that is all. One that fails gives what it had, and leaves what was measured
    before it as it was."""
    kept, fresh = (args.work / f"{section}{ending}" for ending in (".json", ".new.json"))
    if args.keep and is_complete(kept):
        print(f"== {section}, as it was measured before", flush=True)
        return known(kept, args), True
    print(f"== {section}", flush=True)
    fresh.unlink(missing_ok=True)
    flags = ["--out", fresh.resolve(), *(["--quick"] if args.quick else [])]
    if args.source is not None and section != "training_runs":  # which has test texts too: --more names them
        flags += ["--source", args.source.resolve(), "--target", args.target.resolve()]
    for more in args.more:
        flags += shlex.split(more.partition(":")[2]) if more.startswith(f"{section}:") else []
    child = start([sys.executable, "-m", f"side_by_side.{section}", *map(str, flags)], cwd=HERE)
    try:
        if child.wait():
            print(f"{section} failed: exit code {child.returncode}", file=sys.stderr)
    finally:
        end(child)
    if is_complete(fresh):
        os.replace(fresh, kept)
        return known(kept, args), True
    return known(fresh, args) if fresh.exists() else [], False


def known(path: Path, args: argparse.Namespace) -> List[Row]:
    rows, found = read(path)
    args.versions |= found
    return rows


def write(rows: List[Row], args: argparse.Namespace, how: str) -> None:
    """bench.json, pictures and the page."""
    ours = page.ours_of(rows)
    derived = [{"median": row.median, "half": row.spread, "ours / it": page.ratio_of(row, ours)} for row in rows]
    with written_whole(args.out / "bench.json") as file:
        shown = [{**asdict(row), **more} for row, more in zip(rows, derived)]
        content = {"versions": args.versions, "how": how, "rows": shown}
        file.write(json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n")
    drawn = [(name, what) for name, (draw, what) in PICTURES.items() if draw(rows, args.out / name)]
    with written_whole(args.out / "README.md") as file:
        file.write(page.page(rows, args.versions, how, drawn).encode())


@signals_as_exit("what sections had measured that had ended is in --work: with --keep they are not measured again")
def main(argv: Optional[Sequence[str]] = None) -> int:
    args = parse_args(argv)
    args.out = args.out or (args.work if args.quick else HERE)
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    args.versions = versions()
    began, rows, done = time.monotonic(), [], []
    for section in args.only:
        found, complete = measure(section, args)
        rows += found
        done += [section] if complete else []
        how = f"sections {', '.join(args.only)}{' with QUICK=1' if args.quick else ''}"
        how += "" if args.keep else f", {(time.monotonic() - began) / 60:.0f} minutes"
        how += f". {time.strftime('%-d %B %Y')}."
        if not args.keep:
            texts = f"{args.source.name} and {args.target.name}" if args.source is not None else "the demo's"
            how += f" The text is {texts}, unless a setting says otherwise."
        how += f" {args.note}" if args.note else ""
        unfinished = [section for section in args.only if section not in done]
        how += f" **Not complete: {', '.join(unfinished)}.**" if unfinished else ""
        if rows:
            write(rows, args, how)
    if rows:
        print(f"{args.out / 'README.md'} and bench.json are written")
    return 1 if unfinished else 0


if __name__ == "__main__":
    sys.exit(main())
