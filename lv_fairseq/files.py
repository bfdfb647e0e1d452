"""Files that appear whole or not at all."""

import os
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Iterator

from lv_fairseq.errors import UserError


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end. On any error nothing of it is left."""
    path = Path(os.path.realpath(path))  # what a link points to, not the link
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
