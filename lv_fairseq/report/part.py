"""`Part`: a value of ``results.json`` and where it stands. Whatever is wrong with it is said in one line."""

import json
import re
import reprlib
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from lv_fairseq.errors import UserError
from lv_fairseq.report.run_file import MEGABYTE, RunFile
from lv_fairseq.report.tables import NOTHING
from lv_fairseq.results import Results, inside

NAME = "results.json"
BEYOND = 1e15  # all measure
LARGEST, DEEPEST = 16 * MEGABYTE, 20  # bytes of the file, and lists and objects in one another
LONGEST = 500  # characters of a text; the rest is cut off


def clean(text: str) -> str:
    """Text that any font and encoder takes: no control characters, no halves of surrogate pairs."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)


class Part:
    """A value of the JSON file and where it stands, so that an error can say what is wrong where.

    Args:
        kind: what `lv_fairseq.results` says of it: no name can be asked for that is not in the schema
    """

    def __init__(self, value: Any, place: str, file: RunFile, kind: Any = Any):
        self.value, self.place, self.file, self.kind = value, place, file, kind

    def wrong(self, expected: str) -> UserError:
        shown = reprlib.repr(self.value)  # a short one of anything
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        place = self.place if len(self.place) <= 100 else self.place[:97] + "..."
        return UserError(clean(f"{self.file.path}: {place or 'the whole'} must be {expected}, not {shown}"))

    def items(self) -> Iterator[Tuple[str, "Part"]]:
        """The fields of an object; none if it is missing."""
        if not isinstance(self.value, (dict, type(None))):
            raise self.wrong("an object")
        for name, value in (self.value or {}).items():
            yield name, Part(value, f"{self.place}.{name}" if self.place else name, self.file)

    def __getitem__(self, name: str) -> "Part":
        if not isinstance(self.value, (dict, type(None))):
            raise self.wrong("an object")
        place = f"{self.place}.{name}" if self.place else name
        return Part((self.value or {}).get(name), place, self.file, inside(self.kind, name))

    def elements(self, most: int) -> List["Part"]:
        """The elements of a list; none if it is missing."""
        if not isinstance(self.value, (list, type(None))):
            raise self.wrong("a list")
        if len(self.value or []) > most:
            raise self.wrong(f"a list of at most {most:,}")
        parts = enumerate(self.value or [])
        return [Part(value, f"{self.place}[{i}]", self.file, inside(self.kind, i)) for i, value in parts]

    def number(self) -> Optional[float]:
        """None if it is missing or nothing that can be measured: negative, not finite, or beyond all measure."""
        if self.value is None:
            return None
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            raise self.wrong("a number")
        return measured(self.value)

    def whole_number(self) -> int:
        number = self.number()
        if number is None or number != int(number):
            raise self.wrong("a whole number")
        return int(number)

    def text(self, default: str = "") -> str:
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            raise self.wrong("text")
        return short(self.value)

    def run_file(self) -> Optional[RunFile]:
        if not self.text():
            return None
        file = RunFile(self.file.folder, clean(self.value))
        if file.place() is None:
            raise self.wrong("the name of a file inside this folder")
        return file

    def words(self, most: int) -> List[str]:
        return [part.text() for part in self.elements(most)]

    def flat(self, prefix: str = "") -> Iterator[Tuple[str, str]]:
        """Names and values of an object, also of the objects in it."""
        for name, part in self.items():
            name = prefix + short(name)
            if isinstance(part.value, dict):
                yield from part.flat(f"{name}: ")
            elif part.value is not None:
                number = isinstance(part.value, (int, float)) and not isinstance(part.value, bool)
                yield name, thousands(part.value) if number else short(str(part.value))


def measured(number: float) -> Optional[float]:
    return float(number) if 0 <= number < BEYOND else None  # NaN is not less


def short(text: str) -> str:
    return clean(text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026")


def thousands(number: float) -> str:
    if not abs(number) <= sys.float_info.max:  # as NaN
        return NOTHING
    return f"{int(number):,}" if abs(number) < BEYOND and number == int(number) else f"{number:.6g}"


def read_part(folder: Path) -> Part:
    """All that the file says."""
    file = RunFile(folder, NAME)
    return Part(parsed(file), "", file, Results)


def parsed(file: RunFile) -> Dict:
    damaged = lambda why: UserError(f"{file.path} is damaged, make it again: {clean(why)}")
    try:
        value = json.loads(file.read(LARGEST))
    except (FileNotFoundError, NotADirectoryError):
        when = "scripts/run_experiment.py writes it when all is done"
        raise UserError(f"{file.folder} is no run folder: there is no {NAME} in it ({when})") from None
    except OSError as error:
        raise UserError(f"cannot read {file.path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise damaged(str(error)) from None
    if not isinstance(value, dict):
        raise Part(value, "", file).wrong("an object")
    if is_deep(value):
        raise damaged("lists and objects are nested too deep")
    return value


def is_deep(value: Any) -> bool:
    """Whether more lists and objects are in one another than there can be reason for."""
    level = [value]
    for _ in range(DEEPEST):
        values = (part.values() if isinstance(part, dict) else part for part in level)
        level = [inside for part in values for inside in part if isinstance(inside, (dict, list))]
    return bool(level)
