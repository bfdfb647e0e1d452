"""Raw parallel text. A line ends at a line feed and nowhere else: other characters that Python also takes for ends of
lines, such as a lone carriage return, would put line N of one side beside line N + 1 of the other."""

import codecs
import hashlib
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from lv_fairseq.errors import UserError


def check_text(prefix: Path, languages: List[str]) -> Dict[str, Dict]:
    """Both sides must be there, with as many lines. Returns by language what tells a text from another."""
    paths = [Path(f"{prefix}.{language}") for language in languages]
    for path in paths:
        if not path.is_file():
            raise UserError(f"there is no text {path}")
    found = [survey(path) for path in paths]
    if found[0]["lines"] != found[1]["lines"]:
        sizes = " and ".join(f"{path} has {about['lines']:,} lines" for path, about in zip(paths, found))
        raise UserError(f"{sizes}: line N of one must be the translation of line N of the other")
    if not found[0]["lines"]:
        raise UserError(f"{paths[0]} is empty: it needs sentences, one a line")
    return dict(zip(languages, found))


def survey(path: Path) -> Dict:
    """What tells a text from another."""
    lines, size, last, digest = 0, 0, b"\n", hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            lines, size, last = lines + block.count(b"\n"), size + len(block), block
            digest.update(block)
    lines += not last.endswith(b"\n")
    return {"lines": lines, "bytes": size, "sha256": digest.hexdigest()}


def read_text(path: Path, most: Optional[int] = None) -> Iterator[str]:
    """Lines, without what surrounds them and without the mark that some editors put before the first."""
    with open(path, "rb") as file:
        for number, line in enumerate(islice(file, most), start=1):
            if number == 1:
                line = line[len(codecs.BOM_UTF8) :] if line.startswith(codecs.BOM_UTF8) else line
            try:
                yield line.decode().strip()
            except UnicodeDecodeError:
                raise UserError(f"{path}, line {number}: not UTF-8") from None


def read_pairs(prefix: Path, languages: List[str], most: Optional[int] = None) -> Iterator[Tuple[str, str]]:
    left, right = (read_text(Path(f"{prefix}.{language}"), most) for language in languages)
    return zip(left, right)


def read_lines(path: Path) -> List[str]:
    """All lines as they are, of a text that we have written."""
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8: it was changed after it was written; make it again") from None
    return lines[:-1] if lines[-1] == "" else lines
