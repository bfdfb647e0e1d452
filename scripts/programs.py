"""What the scripts share: one line for a mistake, folders that appear whole, and the commands that they run."""

import argparse
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, NoReturn

from lv_fairseq.errors import UserError

BIN = Path(sys.executable).parent
FORKING = ("fairseq-preprocess",)  # commands whose own processes would go on for a while if they were killed


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without all options before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def program(name: str, *arguments) -> List[str]:
    """A command of the environment that we run in."""
    start = [sys.executable, Path(__file__).with_name("forking.py")] if name in FORKING else []
    return list(map(str, [*start, BIN / name, *arguments]))


@contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name at the end. On any error nothing of it is left; what SIGKILL left goes the
    next time, so only one may be at work here (`only_one`)."""
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        yield part
        os.replace(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def file_errors() -> Iterator[None]:
    """A file or disk that fails is no stack trace."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'}: {error.strerror or error}") from None
