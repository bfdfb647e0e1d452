"""A user's mistake ends a command in one line that says what to do, not in a stack trace."""

import functools
import sys
from typing import Callable, Optional


class UserError(Exception):
    """What is wrong and what to do, in one line. A program that uses this package may catch it; a command shows it."""


class UnusableFileError(UserError, ValueError):
    """The same for files that Python code may open by itself: there it can be caught as a ``ValueError``."""


def command(main: Callable) -> Callable:
    """The main function of a command, which ends with the line of a `UserError` and exit code 1."""

    @functools.wraps(main)
    def run(*args, **kwargs):
        try:
            return main(*args, **kwargs)
        except UserError as error:
            sys.exit(str(error))

    return run


def behind(error: Optional[BaseException]) -> Optional[UserError]:
    """The `UserError` that an exception is, or that it was raised for or after; None if there is none."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, UserError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def show_in_one_line() -> None:
    """Let a program that is not ours, such as fairseq's commands, end with the line of a `UserError` too.

    fairseq wraps some exceptions in others of its own, so the chain of causes is looked through.
    """
    show = sys.excepthook

    def show_line(kind, error, traceback):
        found = behind(error)
        if found is None:
            show(kind, error, traceback)
        else:
            print(found, file=sys.stderr)

    sys.excepthook = show_line
