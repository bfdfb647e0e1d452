"""``lv-trim``: a smaller model for some texts or languages, and its fine-tuned rows back into the whole one."""

import argparse
from pathlib import Path
from typing import List, Optional, Sequence

from lv_fairseq.errors import UserError, command
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.trim import merge, trim
from lv_fairseq.trim.measuring import measure
from lv_fairseq.trim.trim import Trimmed

EXAMPLES = """\
a model for two languages, with all pieces that these texts need, and its own way to cut texts into pieces:
  lv-trim checkpoint.pt --data data --sentencepiece-model spm.model --keep train.en train.de \\
      --keep-languages en,de --out small
  (now cut texts with small/spm.model, binarise them with fairseq-preprocess --srcdict small/dict.en.txt
  --tgtdict small/dict.de.txt, and use small/checkpoint.pt as any other checkpoint, with --langs en,de)

its fine-tuned rows, and all that is no row, back into the whole model:
  lv-trim --merge tuned/checkpoint_best.pt --into checkpoint.pt --data small --out merged.pt

What the texts need stays as it is: translations of them differ in nothing but the words that are gone. Other texts are
cut into smaller pieces, and get no more unknown ones; of a model of whole words, words that no text has are unknown.
"""


def parse_args(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lv-trim",
        description="Makes a smaller model of one with a very large vocabulary: an ordinary checkpoint, dictionaries\n"
        "and sentencepiece model with what some texts need. Or puts the fine-tuned rows of such a model back.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("checkpoint", type=Path, nargs="?", metavar="CHECKPOINT", help="the model to trim; it is only read")
    add("--data", type=Path, metavar="DIR", help="folder with its dictionaries; with --merge: with trim.json")
    add(
        "--keep",
        type=Path,
        nargs="+",
        metavar="TEXT",
        help="texts of any of its languages, UTF-8: as they are if "
        "there is a sentencepiece model, else tokenised as for fairseq-preprocess",
    )
    add(
        "--keep-languages",
        type=names,
        metavar="A,B",
        help="of a multilingual model, keep only these languages' tokens (default: all)",
    )
    add(
        "--sentencepiece-model",
        type=Path,
        metavar="FILE",
        help="what cuts texts into pieces (default: the one *.model in DIR or beside CHECKPOINT, if there is one)",
    )
    add(
        "--allow-unknown",
        action="store_true",
        help="texts may need pieces that the dictionary lacks, and which are "
        "unknown as before; then other texts may also get more of these",
    )
    add("--out", type=Path, metavar="PATH", required=True, help="new folder; with --merge: new checkpoint")
    add("-s", "--source-lang", metavar="SRC", help="source language (default: from the names of the files)")
    add("-t", "--target-lang", metavar="TGT", help="target language (default: from the names of the files)")
    add("--merge", type=Path, metavar="TRIMMED", help="put the rows of this checkpoint, trained or not, ...")
    add("--into", type=Path, metavar="CHECKPOINT", help="... to their places in the one that was trimmed")
    args = parser.parse_args(argv)
    check(args)
    return args


def names(text: str) -> List[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def check(args: argparse.Namespace) -> None:
    """Refuse flags that do not go together."""
    if args.merge is None:
        for name in ("checkpoint", "data", "keep"):
            if getattr(args, name) is None:
                flag = "CHECKPOINT" if name == "checkpoint" else f"--{name}"
                raise UserError(f"{flag} is missing: lv-trim CHECKPOINT --data DIR --keep TEXT... --out DIR")
        if args.into is not None:
            raise UserError("--into goes with --merge TRIMMED")
    else:
        if args.into is None:
            raise UserError("--into is missing: lv-trim --merge TRIMMED --into CHECKPOINT --out FILE")
        for name in ("checkpoint", "keep", "keep_languages", "sentencepiece_model"):
            if getattr(args, name) is not None:
                raise UserError(f"--merge does not go with {name.replace('_', '-')}: it only puts rows back")


def show(done: Trimmed) -> None:
    """Rows, bytes and seconds, before and after."""
    lines = []
    for tables in done.checkpoint.ties():
        table = done.checkpoint.model[tables[0].name]
        before, after = len(table), len(done.rows[tables[0].side])
        size = table[:1].nbytes
        what = " = ".join(table.name for table in tables)
        lines.append((what, f"{before:,}", f"{after:,}", "rows"))
        lines.append(("", f"{before * size:,}", f"{after * size:,}", "bytes"))
    for name, (before, after) in done.files.items():
        lines.append((name, f"{before:,}", f"{after:,}", "bytes"))
    seconds = [measure(path) for path in (done.checkpoint.path, done.path)]
    for what, times in zip(("to open and read it", "to score one position"), zip(*seconds)):
        lines.append((what, *(f"{time:.6f}" for time in times), "seconds"))
    widths = [max(map(len, column)) for column in zip(*lines)]
    for what, *numbers, unit in [("", "before", "after", ""), *lines]:
        cells = [what.ljust(widths[0]), *(x.rjust(max(width, 6)) for x, width in zip(numbers, widths[1:])), unit]
        print("  ".join(cells).rstrip())
    if done.unknown:
        some = ", ".join(list(done.unknown)[:5])
        print(f"{len(done.unknown):,} different words of the texts were unknown before, and are: {some}")


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    with printing():
        if args.merge is not None:
            done = merge(args.merge, args.into, args.out, args.data)
            rows = ", ".join(f"{count:,} {side}" for side, count in done.rows.items())
            changed = f"{len(done.changed):,} parameters differ from it" if done.changed else "nothing differs from it"
            print(f"{args.out}: {args.into} with {rows} rows of {args.merge}; {changed}")
            return
        show(
            trim(
                args.checkpoint,
                args.data,
                args.keep,
                args.out,
                args.keep_languages,
                args.sentencepiece_model,
                args.allow_unknown,
                (args.source_lang, args.target_lang),
            )
        )


if __name__ == "__main__":
    main()
