"""fairseq's commands: their help, what they say of wrong flags, and what fairseq-interactive reads."""

import argparse
import fileinput
import logging
import multiprocessing
import os
import sys
import traceback
import warnings
from typing import Optional

from fairseq.distributed import utils as distributed_utils

from lv_fairseq.errors import UserError
from lv_fairseq.processes import GRACE, signals_as_exit


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


# what hydra says of how fairseq calls it
OF_HYDRA = (
    r"hydra\.experimental\.",
    r"\s*The version_base parameter is not specified",
    r"In '.*': Usage of deprecated keyword",
    r"\s*'.*' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
)


def leave_out_warnings_of_hydra() -> None:
    """20 lines at the start of every command, which hide the one that counts, and of which no user can do anything."""
    for message in OF_HYDRA:
        warnings.filterwarnings("ignore", message, UserWarning)
    logging.getLogger("hydra").setLevel(logging.INFO)


def name_wrong_flags() -> None:
    """Let a command end with the line that fairseq has about flags (``--sampling requires --nbest to be ...``), or
    that numpy says about a seed, without a stack trace."""
    show = sys.excepthook

    def show_line(kind, error, trace):
        modules = {frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in traceback.walk_tb(trace)}
        line = wrong_flags(error) if "fairseq_cli" in modules else None  # and not in somebody's program
        if line is None:
            show(kind, error, trace)
        else:
            print(line, file=sys.stderr)

    sys.excepthook = show_line


def wrong_flags(error: BaseException) -> Optional[str]:
    """What an exception says about flags, None if it is about something else."""
    if isinstance(error, AssertionError) and "--" in str(error):
        return " ".join(str(error).split())
    if isinstance(error, NotImplementedError) and str(error).startswith("--"):
        return f"{error}: leave it out"
    if isinstance(error, ValueError) and str(error).startswith("Unsupported optimizer: "):  # which cannot train halves
        return f"--memory-efficient-fp16 and --memory-efficient-bf16: {error}, take adam, or --fp16 or --bf16"
    if isinstance(error, ValueError) and str(error).startswith("Cannot combine --fp16 and --tpu"):  # or --bf16
        return "--fp16 does not go with --bf16 or --tpu: leave out one of them"
    if isinstance(error, ValueError) and str(error).endswith(" is required!"):  # of a registry, such as optimizer
        return f"--{error}"
    if isinstance(error, ValueError) and str(error).startswith("language pair "):  # of --langs, or its file
        return f"{error}: name languages that the model has"
    if "tokenizer.source_lang=null" in str(error) or "tokenizer.target_lang=null" in str(error):  # hydra's words
        return "--tokenizer wants to know the languages: give -s/--source-lang and -t/--target-lang"
    if isinstance(error, ValueError) and str(error).startswith("Seed must be between"):
        return f"--seed: {error}, also after fairseq has added the number of the epoch"
    return None


def answer_every_line() -> None:
    """Let fairseq-interactive read whatever comes: a byte that is not UTF-8 would end it, a lone CR make two lines, a
    byte order mark belong to the first word, a file that is missing show a stack trace, and without a standard input
    it would not even start."""
    if "fairseq_cli.interactive" in sys.modules:
        fileinput.hook_encoded = lambda _: open_input
        if sys.stdin is None:
            sys.stdin = open(os.devnull)
        if hasattr(sys.stdin, "reconfigure"):  # not what a notebook, say, puts there
            sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")


def open_input(path: str, mode: str):
    try:
        return open(path, mode, encoding="utf-8-sig", errors="replace", newline="\n")
    except OSError as error:
        raise UserError(f"cannot read --input {path}: {error.strerror}") from None


def stop_in_order() -> None:
    """Let a signal end a command in one line, its workers with it, and without half a file: SIGTERM, which also says
    that a cluster wants its machine back, would leave a temporary file as large as a checkpoint."""
    call = distributed_utils.call_main

    def call_and_stop(cfg, main, **kwargs):
        if not main.__module__.startswith("fairseq_cli."):  # somebody's program
            call(cfg, main, **kwargs)
            return
        with signals_as_exit():
            try:
                call(cfg, main, **kwargs)
            except SystemExit:
                end_workers()
                raise

    distributed_utils.call_main = call_and_stop
    generate = sys.modules.get("fairseq_cli.generate")  # the one command that does not call it
    if generate is not None:
        generate.main = signals_as_exit()(generate.main)


def end_workers() -> None:
    """Those that fairseq has spawned: Python would wait for them."""
    workers = [child for child in multiprocessing.active_children() if not child.daemon]
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(GRACE)
        if worker.is_alive():
            worker.kill()
