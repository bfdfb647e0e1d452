"""Files that appear whole or not at all, folders that do not stay, and texts.

Their names are not to be guessed, and are known before anything of that name is there: an exception, such as the one
that `signals_as_exit` makes of a signal, finds what to remove at any moment. Only SIGKILL leaves something behind.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Iterator

from lv_fairseq.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HIDDEN = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
FICLONE = 0x40049409  # Linux: let a file have the blocks of another one until either is written to


def open_file(path: Path) -> BinaryIO:
    """A file, a pipe or a terminal to read; an OSError for others: some devices have no end."""
    file = open(path, "rb")
    mode = os.fstat(file.fileno()).st_mode
    if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
        file.close()
        raise OSError(errno.EINVAL, "it is a device", str(path))
    return file


def open_text(path: Path) -> BinaryIO:
    """The same without the mark that some programs put at the start of UTF-8: it is part of no word."""
    file = open_file(path)
    if file.peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):
        file.read(len(BYTE_ORDER_MARK))
    return file


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end, with its permissions. On any error nothing of
    it is left. Who has the old file open still reads the old one."""
    path = Path(os.path.realpath(path))  # what a link points to, not the link
    temporary = hidden(path)
    try:
        try:
            before = mode_of(path)
            with open(temporary, "xb") as file:  # x: never a file that is already there
                if before is not None:
                    os.fchmod(file.fileno(), before)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def copied_whole(source: Path, path: Path, link: bool = False) -> None:
    """A copy of a file takes the place of ``path``. Some file systems give it the same blocks, which takes no time.

    Args:
        link: elsewhere, make ``path`` another name of the file, if it is one that is replaced and never written to
    """
    second = hidden(Path(os.path.realpath(path)))
    with open_file(source) as file, written_whole(path) as copy:
        with suppress(OSError):
            fcntl.ioctl(copy.fileno(), FICLONE, file.fileno())
            return
        if link and os.fstat(copy.fileno()).st_mode == os.fstat(file.fileno()).st_mode:
            with suppress(OSError):  # another file system, or one without links
                os.link(os.path.realpath(source), second)
                os.replace(second, copy.name)
                return
        shutil.copyfileobj(file, copy, 1 << 20)


def share_or_copy(source: int, copy: int) -> None:
    """The content of an open file becomes that of another one, of the same size and empty. Some file systems let both
    have the same blocks, which takes no time; holes stay holes."""
    with suppress(OSError):
        fcntl.ioctl(copy, FICLONE, source)
        return
    place, size = 0, os.fstat(source).st_size
    while place < size:
        try:
            place = os.lseek(source, place, os.SEEK_DATA)
        except OSError:  # nothing but a hole
            break
        end = os.lseek(source, place, os.SEEK_HOLE)
        while place < end:
            content = os.pread(source, min(end - place, 1 << 20), place)
            if not content:
                raise OSError(errno.EIO, "it is shorter than it was")
            place += os.pwrite(copy, content, place)


@contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """A new folder for us alone, next to a file that is to be written, which may be larger than what the system's own
    folder for such things holds. It is removed at the end, with all that is in it."""
    folder = hidden(beside)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hidden(path: Path) -> Path:
    """A name that nobody can guess, next to ``path``, not longer than file systems take."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def remove_left(folder: Path, begin: str, before: float) -> None:
    """Remove what a process that was killed has not finished: files with `hidden` names that begin so.

    Args:
        before: those that were written to since then may be of a process that is at work
    """
    for path in folder.glob(f".{begin}*.tmp"):
        with suppress(OSError):
            if HIDDEN.fullmatch(path.name) and not path.is_symlink() and path.is_file():
                if path.stat().st_mtime < before:
                    path.unlink()


def mode_of(path: Path):
    """The permissions of a file; None if there is none yet. Not for folders, devices and the like: they stay."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise UserError(f"cannot write {path}: it is a {'folder' if stat.S_ISDIR(mode) else 'special file'}")
    return stat.S_IMODE(mode)
