"""`RunFile`: a file of a run folder. Nothing outside the folder is read, whatever names and links say."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Optional, Sequence, Tuple

from lv_fairseq.errors import UserError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # a pipe does not keep us waiting
MEGABYTE = 1 << 20
LONGEST_NAME = 1000


@dataclass(frozen=True)
class RunFile:
    folder: Path  # of the run
    name: str  # relative to it

    @property
    def path(self) -> Path:
        return self.folder / self.name

    def place(self) -> Optional[Tuple[str, ...]]:
        """Where it is below the folder when all links are followed; None if that, or its name, leads out of it."""
        name = PurePath(self.name)
        if name.is_absolute() or ".." in name.parts or len(self.name) > LONGEST_NAME:
            return None
        root, file = PurePath(os.path.realpath(self.folder)), PurePath(os.path.realpath(self.path))
        return file.relative_to(root).parts if root in file.parents else None

    def read(self, most: int) -> bytes:
        """All of it. An OSError if it is not there, no ordinary file, or has more than ``most`` bytes."""
        place = self.place()
        if place is None:
            raise UserError(f"{self.path} leads out of the run's folder: put the file itself there")
        with os.fdopen(opened(os.path.realpath(self.folder), place), "rb") as file:
            check_ordinary(os.fstat(file.fileno()))
            content = file.read(most + 1)
        if len(content) > most:
            raise OSError(errno.EFBIG, f"it has more than {most // MEGABYTE} MB")
        return content


def opened(root: str, place: Sequence[str]) -> int:
    """A descriptor. Goes from folder to folder and follows no link, so that none can come between."""
    at = os.open(root, FOLDER)
    try:
        for folder in place[:-1]:
            outer, at = at, os.open(folder, FOLDER, dir_fd=at)
            os.close(outer)
        check_ordinary(os.stat(place[-1], dir_fd=at, follow_symlinks=False))  # opening a device may do something
        return os.open(place[-1], FILE, dir_fd=at)
    finally:
        os.close(at)


def check_ordinary(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no ordinary file")
