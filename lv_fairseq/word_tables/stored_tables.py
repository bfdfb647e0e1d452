"""The tables of a checkpoint, in a folder beside its file: a copy of each table file, and TABLES, which describes them.

The folder is there, whole and on the disk, before a checkpoint refers to it, and goes when none does any more.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple

import torch

from lv_fairseq.errors import UserError
from lv_fairseq.files import hidden, share_or_copy, written_whole
from lv_fairseq.word_tables.drawing import Recipe
from lv_fairseq.word_tables.file_home import FileHome, InFile
from lv_fairseq.word_tables.stored_rows import stand_in
from lv_fairseq.word_tables.table_file import Field, Layout, TableFile

TABLES, FORMAT = "tables.json", 1
KEY = "word_tables"  # in a checkpoint: the folder's name, and what stands where
_made: Set[str] = set()  # the names of folders of this process
_held: Optional[BinaryIO] = None  # of the last one, locked: a checkpoint is about to refer to it
NAME = re.compile(r"word-tables-[0-9a-f]{16}|\.word-tables-[0-9a-f]{16}\.[0-9a-f]{16}\.tmp")


def store(state: Any, path: Path) -> Any:
    """What a checkpoint is to hold, with the tables that are in files taken out and put into a folder beside it."""
    path, places = Path(os.path.realpath(path)), []
    found = list(in_files(state))
    if not found:
        return state
    homes = list({id(rows.home): rows.home for _, rows in found}.values())
    for keys, rows in found:
        state = without(state, keys)
        places.append([*keys, homes.index(rows.home), rows.name])
    folder = path.with_name(f"word-tables-{secrets.token_hex(8)}")
    part = hidden(folder)
    try:
        part.mkdir()
        with written_whole(part / TABLES) as file:
            file.write(json.dumps({"format": FORMAT, "tables": [described(home) for home in homes]}, indent=1).encode())
        hold(part / TABLES)
        for number, home in enumerate(homes):
            copy_table(home, part / file_name(number))
        make_lasting(part)
        _made.add(folder.name)
        os.rename(part, folder)
        make_lasting(folder.parent)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return {**state, KEY: {"folder": folder.name, "places": places}}


def in_files(value: Any, keys: Tuple = ()) -> Iterator[Tuple[Tuple, InFile]]:
    """Where rows of files stand in dictionaries of dictionaries."""
    if isinstance(value, InFile):
        yield keys, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from in_files(part, (*keys, key))


def without(state: Dict, keys: Tuple) -> Dict:
    """The same with None in this place."""
    first, *others = keys
    return {**state, first: without(state[first], tuple(others)) if others else None}


def file_name(number: int) -> str:
    return f"{number}.rows"


def copy_table(home: FileHome, path: Path) -> None:
    with open(path, "xb", buffering=0) as file:
        os.ftruncate(file.fileno(), home.table.layout.size)
        share_or_copy(home.table.file.fileno(), file.fileno())
        os.fsync(file.fileno())


def make_lasting(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def described(home: FileHome) -> Dict:
    layout = home.table.layout
    fields = [{**field._asdict(), "dtype": str(field.dtype).removeprefix("torch.")} for field in layout.fields]
    recipe = None if layout.recipe is None else layout.recipe._asdict()
    return {"words": layout.words, "fields": fields, "recipe": recipe}


def layout_of(table: Dict) -> Layout:
    def field(name: str, row: List[int], dtype: str, value: float) -> Field:
        kind = getattr(torch, dtype)
        if not isinstance(kind, torch.dtype):
            raise ValueError(dtype)
        return Field(name, tuple(map(int, row)), kind, float(value))

    recipe = table["recipe"] and Recipe(**{**table["recipe"], "zero": tuple(table["recipe"]["zero"])})
    return Layout(int(table["words"]), tuple(field(**found) for found in table["fields"]), recipe)


def fetch(state: Any, path: Path) -> Any:
    """What a checkpoint holds, with stand-ins for the tables that are in a folder beside it (`stored_rows`)."""
    about = state.get(KEY) if isinstance(state, dict) else None
    if about is None:
        return state
    path = Path(os.path.realpath(path))
    folder = path.with_name(Path(str(about["folder"])).name)
    try:
        tables = opened(folder)
    except FileNotFoundError as error:
        raise UserError(
            f"the checkpoint {path} cannot be used: its word tables are missing, {error.filename}: the folder belongs "
            "beside it"
        ) from None
    except (OSError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"the checkpoint {path} cannot be used: {folder} holds no word tables ({error})") from None
    try:
        for *keys, last, number, name in about["places"]:
            place = state
            for key in keys:
                place = place[key]
            place[last] = stand_in(tables[number], name)
    except (LookupError, TypeError, ValueError):
        raise UserError(f"the checkpoint {path} cannot be used: it is not the one of {folder}") from None
    return {key: value for key, value in state.items() if key != KEY}


def opened(folder: Path) -> List[TableFile]:
    about = json.loads((folder / TABLES).read_bytes())
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, where {FORMAT} is known")
    tables = []
    for number, table in enumerate(about["tables"]):
        file, layout = open(folder / file_name(number), "rb", buffering=0), layout_of(table)
        if os.fstat(file.fileno()).st_size != layout.size:
            raise ValueError(f"{file.name} is of another size than {TABLES} says")
        table = TableFile(file, layout, private=True, folder=folder if os.access(folder, os.W_OK) else None)
        used = table.places[table.places != 0].unique()
        if len(used) != int(table.places.count_nonzero()) or (len(used) and (used[0] < 1 or used[-1] > layout.words)):
            raise ValueError(f"{file.name} has no place for some words, or one for several")
        tables.append(table)
    return tables


def tidy(folder: Path) -> None:
    """Remove the tables that no checkpoint of a folder refers to: of those that have been replaced or removed, and of
    a process that was killed, unless it may still be at work. A checkpoint that cannot be read may refer to any."""
    make_lasting(folder)  # the new checkpoints, before what the old ones had goes
    ours = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    ours = [path for path in ours if (path / TABLES).is_file() and not path.is_symlink()]
    if not ours:
        return
    referred = b""
    for path in folder.iterdir():
        if path.is_file() and not path.name.startswith("."):
            try:
                referred += pickled(path)
            except (OSError, zipfile.BadZipFile, KeyError):
                if ".pt" in path.name:
                    return
    for path in ours:
        if path.name.startswith(".") or path.name.encode() not in referred:
            if path.name in _made or not held(path / TABLES):
                shutil.rmtree(path, ignore_errors=True)


def hold(path: Path) -> None:
    """Let other processes see that this one is at work, until it ends or holds another one."""
    global _held
    _held = open(path, "rb")
    with suppress(OSError):  # a file system without locks
        fcntl.flock(_held, fcntl.LOCK_SH)


def held(path: Path) -> bool:
    try:
        with open(path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def pickled(path: Path) -> bytes:
    """Of a file that torch has saved, what is no tensor."""
    with zipfile.ZipFile(path) as archive:
        return b"".join(archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
