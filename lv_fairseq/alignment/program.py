"""Which aligner to call: the user's fast_align, the built-in one, which has the same command line, or eflomal."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from lv_fairseq.errors import UserError
from lv_fairseq.processes import end, start

BUILT_IN = Path(__file__).with_name("builtin")  # a folder that Python runs
ALIGNERS = ("fast_align", "builtin", "eflomal")
WIDE = "-1000000"  # a threshold for -t that keeps every entry of the table
PATIENCE = 30  # seconds for a program to print its usage


@dataclass(frozen=True)
class Aligner:
    command: List[str]  # what its arguments are appended to
    name: str
    table_flag: str = "-p"  # writes the table
    takes_threshold: bool = True  # whether it has -t; builds without write the whole table anyway
    unsteady: bool = False  # with several threads, a few alignments differ from run to run
    links_only: bool = False  # eflomal: aligns in both directions at once, and has no table


def find_aligner(given: Optional[str] = None, kind: Optional[str] = None) -> Aligner:
    """One of ``ALIGNERS``. If none is named, in this order: the fast_align that is given, ``$FAST_ALIGN``,
    ``fast_align`` on the PATH, the built-in one."""
    if kind not in (None, *ALIGNERS):
        raise UserError(f"--aligner must be one of {', '.join(ALIGNERS)}, not {kind}")
    if kind in ("builtin", "eflomal"):
        if given:
            raise UserError(f"--fast-align {given} and --aligner {kind}: name one of them")
        return built_in() if kind == "builtin" else eflomal()
    for option, program in (("--fast-align", given), ("$FAST_ALIGN", os.environ.get("FAST_ALIGN"))):
        if program:
            return fast_align(option, resolve(option, program))
    found = shutil.which("fast_align")
    if found is None and kind == "fast_align":
        raise UserError("fast_align is not on the PATH: name it with --fast-align, or take --aligner builtin")
    return built_in() if found is None else fast_align("$PATH", found)


def resolve(option: str, program: str) -> str:
    found = shutil.which(program)
    if found is not None:
        return os.path.abspath(found)
    if os.path.isdir(program):
        raise UserError(f"{option} {program}: a folder, name the program in it")
    if os.path.exists(program):
        raise UserError(f"{option} {program}: not executable, try chmod +x")
    raise UserError(f"{option} {program}: no such program")


def built_in() -> Aligner:
    return Aligner([sys.executable, str(BUILT_IN)], f"built-in (numpy {importlib.metadata.version('numpy')})")


def eflomal() -> Aligner:
    """Beside this Python, where pip puts it, or on the PATH."""
    beside = Path(sys.executable).with_name("eflomal-align")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("eflomal-align")
    if found is None:
        raise UserError("eflomal is not installed: pip install 'lv_fairseq[eflomal]', or take another --aligner")
    return Aligner([found], f"eflomal ({found})", links_only=True)


def fast_align(option: str, path: str) -> Aligner:
    """Finds out from the program itself which build of fast_align it is."""
    flag = table_flag(usage(option, path))
    if flag is None:
        raise UserError(f"{option} {path}: does not print fast_align's usage when it is called without arguments")
    # -t is in no build's usage text. Without -i, this ends in the usage too, after a complaint if there is no -t.
    refused = re.search(r"(invalid|illegal|unrecognized|unknown) option", usage(option, path, "-t", WIDE))
    return Aligner([path], f"fast_align ({path})", flag, takes_threshold=refused is None, unsteady=True)


def table_flag(text: str) -> Optional[str]:
    """From the usage text; None: this is not fast_align.

    In old builds -c writes the table and -p is p_null. In those of today -p writes it and -q is p_null, but their text
    still says -c for the table, so it is the flag of p_null that tells the two apart.
    """
    if re.search(r"-p\b.*null", text):
        return "-c"
    if re.search(r"-q\b.*null", text) or re.search(r"-p\b.*table", text):
        return "-p"
    return "-c" if re.search(r"-c\b.*table", text) else None


def usage(option: str, path: str, *arguments: str) -> str:
    try:
        environment = {**os.environ, "LC_ALL": "C"}
        child = start([path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be executed: {error.strerror}") from None
    try:
        return child.communicate(timeout=PATIENCE)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise UserError(f"{option} {path}: printed no usage within {PATIENCE} s, is it fast_align?") from None
    finally:
        end(child)
