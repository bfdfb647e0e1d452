"""What a section of `make bench` hands over: a row for each system, with a figure for each turn.

A section is a module with `main(argv)`, started as a process of its own: `python -m side_by_side.NAME --out FILE`.
Systems that are compared take turns, so that a noisy machine slows all of them; the ratio of two is the median of that
of each turn. Figures are times (or bytes): less is better.
"""

import argparse
import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

FULL_TURNS, QUICK_TURNS = 5, 3
PRODUCTS = "% products"  # among `more` of our rows: which part of the time is matrix products


@dataclass
class Row:
    """
    Args:
        table: what is measured, and the heading of its table: "an update of rnnsearch_small"
        setting: what systems of one comparison have in common: "500,000 words", "batch 1, beam 5, 1 thread"
        system: who: "lv_fairseq, lists", "CTranslate2 4.8, int8, vmap"
        unit: of the figures: "s", "ms a word"
        turns: a figure of each turn; none: the system is absent, or cannot do it, and `note` says so
        ours: the row that the others of this table and setting are compared with
        peer: another program, or fairseq without us, that we want to be at or below
        more: other figures: {"MB trained": 143.0, "peak MB": 900}
        note: what a reader must know: why it is absent, that it had fewer turns
    """

    table: str
    setting: str
    system: str
    unit: str
    turns: List[float] = field(default_factory=list)
    ours: bool = False
    peer: bool = False
    more: Dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def median(self) -> Optional[float]:
        return statistics.median(self.turns) if self.turns else None

    @property
    def spread(self) -> Optional[Tuple[float, float]]:
        """Between which two figures half of the turns lie."""
        return middle_half(self.turns) if self.turns else None

    def ratio(self, ours: "Row") -> Optional[float]:
        """Ours by this one's: below 1 we are better."""
        pairs = list(zip(ours.turns, self.turns))
        return statistics.median(mine / its for mine, its in pairs) if pairs else None


def middle_half(figures: List[float]) -> Tuple[float, float]:
    if len(figures) == 1:
        return figures[0], figures[0]
    low, _, high = statistics.quantiles(figures, n=4, method="inclusive")
    return low, high


class Rows:
    """Collects rows and writes them after each, so that who is stopped loses nothing.

    Args:
        out: JSON, {"rows": [...], "versions": {...}, "complete": whether the section came to its end}
    """

    def __init__(self, out: Optional[Path]):
        self.out, self.rows, self.versions, self.complete = out, [], {}, False

    def add(self, *rows: Row) -> None:
        for row in rows:
            self.rows.append(row)
            figure = "-" if row.median is None else f"{row.median:.4g} {row.unit}"
            print(f"{row.table} | {row.setting} | {row.system}: {figure} {row.note}".rstrip(), flush=True)
        self.write()

    def close(self) -> None:
        """These are all."""
        self.complete = True
        self.write()

    def write(self) -> None:
        if self.out is not None:
            written = {"rows": [asdict(row) for row in self.rows], "versions": self.versions, "complete": self.complete}
            part = self.out.with_name(self.out.name + ".part")
            part.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
            os.replace(part, self.out)


def read(path: Path) -> Tuple[List[Row], Dict[str, str]]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    return [Row(**row) for row in stored["rows"]], stored["versions"]


def is_complete(path: Path) -> bool:
    """Whether a section has measured all that it was asked for."""
    return path.exists() and json.loads(path.read_text(encoding="utf-8"))["complete"]


def section_parser(text: str) -> argparse.ArgumentParser:
    """The flags that all sections have."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON for the rows (default: they are only printed)")
    parser.add_argument("--source", type=Path, metavar="FILE", help="tokenised source text (default: the demo's)")
    parser.add_argument("--target", type=Path, metavar="FILE", help="tokenised target text (default: the demo's)")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and turns")
    parser.add_argument("--turns", type=int, help=f"(default: {FULL_TURNS}, with --quick {QUICK_TURNS})")
    return parser


def parse(parser: argparse.ArgumentParser, argv: Optional[List[str]]) -> argparse.Namespace:
    args = parser.parse_args(argv)
    if (args.source is None) != (args.target is None):
        parser.error("--source and --target go together")
    if args.turns is None:
        args.turns = QUICK_TURNS if args.quick else FULL_TURNS
    if args.turns < 1:
        parser.error(f"--turns must be 1 or more, not {args.turns}")
    return args


PEERS = Path(__file__).resolve().parents[2] / ".venv-peers"


def peer_python(peers: Path = PEERS) -> Optional[Path]:
    """The Python of the environment that `make .venv-peers/.installed` makes; None: it is not there."""
    return peers / "bin" / "python" if (peers / ".installed").exists() else None


def peer_packages(peers: Path = PEERS) -> Path:
    return peers / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
