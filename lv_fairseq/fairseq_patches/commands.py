"""fairseq's commands: their help, and what fairseq-interactive reads."""

import argparse
import fileinput
import os
import sys
from functools import partial


def show_every_flag_in_help() -> None:
    """Let ``--help`` show the flags of the chosen task, architecture and criterion too.

    fairseq parses its command line twice, to learn from the first time which flags to add
    (``fairseq.options.parse_args_and_arch``), but ``--help`` ends the command there. Here it waits for the second time.
    """
    show = argparse._HelpAction.__call__
    parsed_once = set()

    def show_the_second_time(action, parser, *args, **kwargs):
        if "--user-dir" in parser._option_string_actions and id(parser) not in parsed_once:
            parsed_once.add(id(parser))
            return
        show(action, parser, *args, **kwargs)

    argparse._HelpAction.__call__ = show_the_second_time


def answer_every_line() -> None:
    """Let fairseq-interactive read whatever comes: a byte that is not UTF-8 would end it, a lone CR make two lines, a
    byte order mark belong to the first word, and without a standard input it would not even start."""
    if "fairseq_cli.interactive" in sys.modules:
        fileinput.hook_encoded = lambda _: partial(open, encoding="utf-8-sig", errors="replace", newline="\n")
        if sys.stdin is None:
            sys.stdin = open(os.devnull)
        if hasattr(sys.stdin, "reconfigure"):  # not what a notebook, say, puts there
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")
