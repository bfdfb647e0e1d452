"""Two processes that write to one folder would spoil each other's work."""

import errno
import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

from lv_fairseq.errors import UserError

NAME = ".lock"


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """While it lasts, another process that asks for the same folder gets a `UserError`.

    The lock is the kernel's: it goes when this process does, however it ends; the file stays and means nothing. A file
    system that has no locks cannot protect anybody.
    """
    path = Path(folder) / NAME
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                who = os.read(file, 20).decode(errors="replace").strip()
                raise UserError(
                    f"process {who or '?'} is at work in {folder}: wait for it, or name another folder"
                ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(file)
