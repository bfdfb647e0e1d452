"""``lv-checkpoint``: an ordinary checkpoint of one with tables in a folder beside it, or one without statistics."""

import argparse
import os
from pathlib import Path
from typing import Optional, Sequence

from lv_fairseq.errors import UserError, command
from lv_fairseq.processes import signals_as_exit
from lv_fairseq.progress import stage


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-checkpoint",
        description="Makes one ordinary file of a checkpoint that was trained with --word-table-dir: all words and "
        "statistics are inside, and any program that reads fairseq's checkpoints opens it. Words that training has "
        "not met yet get the values that it would have begun with. With --no-optimizer also of an ordinary one, which "
        "is then a third of its size.",
        epilog="Needs the memory of a small part of a table, and, until it ends, the disk space of the file twice.",
    )
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", type=Path, help="a .pt; its folder of tables stands beside it")
    add("--out", metavar="FILE", type=Path, required=True, help="the ordinary checkpoint to write")
    add("--no-optimizer", action="store_true", help="leave out the optimiser's statistics: to decode, not to resume")
    return parser.parse_args(argv)


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    if not args.checkpoint.is_file():
        raise UserError(f"there is no checkpoint {args.checkpoint}")
    if args.out.exists() and os.path.samefile(args.checkpoint, args.out):
        raise UserError(f"--out {args.out} is the checkpoint itself: name another file")
    if not args.out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {args.out.absolute().parent} for --out")
    from lv_fairseq.word_tables.ordinary import rows_inside, write_ordinary  # torch takes seconds

    total = rows_inside(args.checkpoint, not args.no_optimizer)
    with stage("writing", total, "B") as advance:
        write_ordinary(args.checkpoint, args.out, not args.no_optimizer, advance)
    print(f"{args.out}: an ordinary checkpoint, {args.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
