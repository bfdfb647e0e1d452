"""A user's mistake ends in one line that says what to do, not in a stack trace."""


class UserError(SystemExit):
    """Ends a command with its message and exit code 1.

    Not an ``Exception``: fairseq catches those, wraps them and saves a crash checkpoint.
    """


class UnusableFileError(UserError, ValueError):
    """The same for files that Python code may open by itself: there it can be caught as a ``ValueError``."""
