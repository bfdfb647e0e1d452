"""Writes docs/reference.md: all flags of fairseq's commands that this plug-in adds, and those of its own commands, from
the option classes and parsers themselves.

    python scripts/reference.py            # writes it
    python scripts/reference.py --check    # says, and ends with 1, if what stands there is not what it would write
"""

import argparse
import importlib
import tomllib
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple
from unittest import mock

from fairseq.tasks.translation import TranslationConfig

import lv_fairseq

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Reference

All flags that the plug-in adds to fairseq's commands, and those of its own commands. (Written by `python
scripts/reference.py` from the options themselves.)
"""


def parsers(module: str) -> Iterator[Tuple[str, argparse.ArgumentParser]]:
    """The parser of a command, or those of its subcommands: asked for at the moment when it would parse."""
    stop = {"autospec": True, "side_effect": StopIteration}
    with mock.patch.object(argparse.ArgumentParser, "parse_known_args", **stop) as parse:
        try:
            importlib.import_module(module).parse_args([])
        except StopIteration:
            (parser, *_) = parse.call_args.args
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield "", parser
    for name, parser in below[0].choices.items() if below else ():
        yield f" {name}", parser


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def value(action: argparse.Action) -> str:
    """What stands behind a flag."""
    if action.nargs == 0:
        return ""
    name = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper().replace("_", "-")
    )
    return f" {name if isinstance(name, str) else ' '.join(name)}" + (" ..." if action.nargs in ("+", "*") else "")


def rows_of_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        flag = f"{', '.join(action.option_strings)}{value(action)}" if action.option_strings else value(action).strip()
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        yield f"| `{cell(flag)}` | {cell(text)} |"


def own_fields(options: type, inherited: type) -> Iterator:
    theirs = {field.name for field in fields(inherited)} if is_dataclass(inherited) else set()
    for field in fields(options):
        if field.name not in theirs and field.metadata.get("help"):
            yield field


def rows_of_dataclass(options: type, inherited: type) -> Iterator[str]:
    for field in own_fields(options, inherited):
        flag = f"--{field.name.replace('_', '-')}"
        default = "" if field.default in (MISSING, None, False, "") else f" (default: {field.default})"
        text = field.metadata["help"] + (default if "default" not in field.metadata["help"] else "")
        yield f"| `{flag}` | {cell(text)} |"


def sections() -> Iterator[List[str]]:
    lv_fairseq.register()
    from lv_fairseq.criterions.partition_cross_entropy import PartitionCrossEntropyConfig
    from lv_fairseq.models.rnnsearch import RNNSearchConfig
    from lv_fairseq.task_config import LVTranslationConfig

    table = ["", "| flag | |", "|---|---|"]
    for heading, options, inherited in (
        (
            "`--task lv_translation`, `lv_translation_multi_simple_epoch`, `lv_translation_from_pretrained_bart`",
            LVTranslationConfig,
            TranslationConfig,
        ),
        ("`--criterion partition_cross_entropy`", PartitionCrossEntropyConfig, object),
        ("`--arch rnnsearch`, `rnnsearch_small`", RNNSearchConfig, object),
    ):
        yield [f"## {heading}", *table, *rows_of_dataclass(options, inherited)]
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, entry in commands.items():
        for subcommand, parser in parsers(entry.partition(":")[0]):
            about = cell((parser.description or "").strip().split("\n\n")[0])
            yield [f"## `{name}{subcommand}`", "", about, *table, *rows_of_parser(parser)]


def main(argv: Optional[Sequence[str]] = None) -> Optional[str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args(argv)
    text = "\n\n".join([HEAD.strip(), *("\n".join(lines) for lines in sections())]) + "\n"
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif text != PAGE.read_text(encoding="utf-8"):
        return f"{PAGE.name} is not what the options say: run python scripts/reference.py"
    return None


if __name__ == "__main__":
    raise SystemExit(main())
