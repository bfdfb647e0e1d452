"""A user's mistake ends in one line that says what to do, not in a stack trace."""


class UserError(SystemExit, ValueError):
    """Ends a command with its message and exit code 1; a caller in Python can catch it as ``ValueError``."""
