"""The words of a checkpoint's rows: from the dictionaries of a data folder, and what the tasks put behind them.

fairseq's multilingual tasks add a token for each language, in the order of the settings, and maybe ``<mask>``. Released
checkpoints have more rows still: the tags of NLLB-200, fillers. A trimmed dictionary lists all of them: fairseq, which
adds no word that is there, then has as many rows as the checkpoint.
"""

import itertools
import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Union

import numpy as np

from lv_fairseq.data_folder import languages
from lv_fairseq.errors import UserError
from lv_fairseq.files import open_file
from lv_fairseq.fingerprint import SPECIALS, dictionary_words, fingerprint
from lv_fairseq.opening import last_words
from lv_fairseq.trim.checkpoint import FINGERPRINTS, READS, Checkpoint

BILINGUAL, BART, MULTI = "translation", "translation_from_pretrained_bart", "translation_multi_simple_epoch"
TASKS = (BILINGUAL, BART, MULTI)
TOKEN = re.compile(r"__\w+__|\[\w+\]|<\w+>")  # of a language, or a tag
STYLES = {"multilingual": "__{}__", "mbart": "[{}]"}
SPECS = {"main": "", "mono_dae": "_dae", "mined": "_mined"}


class Words(NamedTuple):
    """The words of one side.

    Args:
        files: dictionaries; the first holds all words that are in a file
        words: by row
        listed: how many of them come from a file, or are special symbols
    """

    files: List[Path]
    words: List[str]
    listed: int

    def rows(self, needed: Set[str]) -> np.ndarray:
        """Those of some words and of special symbols."""
        kept = (row for row, word in enumerate(self.words) if row < len(SPECIALS) or word in needed)
        return np.fromiter(kept, np.int64)

    def lines(self, rows: np.ndarray) -> bytes:
        """The content of a dictionary with these rows; what comes from a file stays as it stands there."""
        with open_file(self.files[0]) as file:
            lines = file.readlines()
        first = self.listed - len(lines)  # special symbols that are not in the file
        if lines and not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        lines += [f"{word} 0\n".encode() for word in self.words[self.listed :]]
        return b"".join(lines[row - first] for row in rows.tolist() if row >= first)


def task_of(checkpoint: Checkpoint) -> str:
    """The task of fairseq that a checkpoint was trained with; ours are theirs."""
    task = str(checkpoint.task or "").removeprefix("lv_")
    if task not in TASKS:
        known = ", ".join(TASKS)
        raise UserError(f"{checkpoint.path} is of task {checkpoint.task}, where only {known} (and lv_...) are known")
    return task


def name_pair(checkpoint: Checkpoint, folder: Path, source: Optional[str], target: Optional[str]) -> None:
    """Let the settings of a bilingual model say from which language to which it translates, as fairseq finds it out."""
    if not folder.is_dir():
        raise UserError(f"there is no data folder {folder}: name the one with the checkpoint's dictionaries")
    if task_of(checkpoint) == MULTI:
        return
    given = source or checkpoint.get("source_lang"), target or checkpoint.get("target_lang")
    for side, name in zip(READS, languages(str(folder), *given)):
        checkpoint.set(f"{side}_lang", name)


class Languages:
    """Those of a multilingual checkpoint, and their tokens.

    Args:
        folder: of the data, where files that the settings name may be
    """

    def __init__(self, checkpoint: Checkpoint, folder: Path):
        self.multilingual = task_of(checkpoint) != BILINGUAL
        self.file: Optional[Path] = None
        names = checkpoint.get("langs")
        if names is None and checkpoint.get("lang_dict"):
            self.file = found(folder, checkpoint.get("lang_dict"))
            content = self.file.read_bytes().decode(errors="replace")
            names = [line.strip() for line in content.splitlines() if line.strip()]
        if names is None and self.multilingual:
            names = sorted({name for pair in listed(checkpoint.get("lang_pairs")) for name in pair.split("-")})
        self.names = listed(names)
        style = "mbart" if task_of(checkpoint) == BART else checkpoint.get("lang_tok_style") or "multilingual"
        if style not in STYLES:
            raise UserError(f"{checkpoint.path} has language tokens of a style that is not known: {style}")
        self.style = STYLES[style]
        self.specs = [SPECS.get(spec, "") for spec in listed(checkpoint.get("langtoks_specs") or "main")]
        self.mask = style == "mbart" or "mono_dae" in (checkpoint.get("extra_data") or {})

    def tokens(self, names: Sequence[str]) -> List[str]:
        return [self.style.format(name + spec) for spec in self.specs for name in names]

    def added(self) -> List[str]:
        """What the task puts behind the words of a file, unless they are there."""
        return [*self.tokens(self.names), *(["<mask>"] if self.mask else [])] if self.multilingual else []

    def dropped(self, names: Optional[Sequence[str]]) -> List[str]:
        """Languages that are not among those to keep; None if all are."""
        return [] if names is None else [name for name in self.names if name not in names]

    def check(self, names: Sequence[str]) -> None:
        if not self.multilingual:
            raise UserError("--keep-languages is for multilingual models: this one has no language tokens")
        unknown = [name for name in names if name not in self.names]
        if unknown:
            some = ", ".join(self.names[:8]) + (", ..." if len(self.names) > 8 else "")
            raise UserError(f"--keep-languages: the checkpoint does not know {', '.join(unknown)}; it knows {some}")
        if len(set(names)) < 2:
            raise UserError("--keep-languages: name at least two languages, to translate from and to")


def listed(value: Union[None, str, Sequence[str]]) -> List[str]:
    """A setting that may be text with commas or a list."""
    if isinstance(value, str):
        return [part for part in value.split(",") if part]
    return list(map(str, value)) if isinstance(value, (list, tuple)) else []


def found(folder: Path, name: str) -> Path:
    """A file that a setting names: of that name in the data folder, or beside it. Not where the setting says: a
    stranger may have written it."""
    for path in (folder / Path(name).name, folder.parent / Path(name).name):
        if path.is_file():
            return path
    raise UserError(f"there is no {Path(name).name} in {folder}, which the checkpoint's settings name: copy it there")


def files_of(checkpoint: Checkpoint, folder: Path, spoken: Languages) -> Dict[str, List[Path]]:
    """The dictionaries of each side, the one with all words first."""
    if task_of(checkpoint) != MULTI:
        return {side: [folder / f"dict.{checkpoint.get(f'{side}_lang')}.txt"] for side in READS}
    there = {x: folder / f"dict.{x}.txt" for x in spoken.names if (folder / f"dict.{x}.txt").is_file()}
    if checkpoint.get("fixed_dictionary"):
        whole = [found(folder, checkpoint.get("fixed_dictionary")), *there.values()]
        return {side: whole for side in READS}
    files = {}
    for place, side in enumerate(READS):
        own = checkpoint.get(f"{side}_dict")
        pairs = [pair.split("-") for pair in listed(checkpoint.get("lang_pairs"))]
        named = {pair[place] for pair in pairs if len(pair) == 2}
        of_side = [path for name, path in there.items() if name in named] or list(there.values())
        files[side] = [found(folder, own)] if own else of_side
        if not files[side]:
            raise UserError(f"{folder} holds no dict.LANG.txt of the checkpoint's languages: copy its dictionary there")
    return files


def words_of(checkpoint: Checkpoint, folder: Path, spoken: Languages) -> Dict[str, Words]:
    """By side; one line if dictionaries and rows do not go together."""
    sides = {}
    for side, files in files_of(checkpoint, folder, spoken).items():
        words = dictionary_words(files[0])
        for path in files[1:]:
            others = dictionary_words(path)
            if others != words[: len(others)]:
                raise UserError(f"{path} is another dictionary than {files[0]}: the checkpoint has one for both")
        known, count, rows = set(words), len(words), checkpoint.rows(side)
        words += [token for token in spoken.added() if token not in known]
        if len(words) > rows or (len(words) < rows and not spoken.multilingual):
            added = f" and {len(words) - count} tokens of languages" if len(words) > count else ""
            raise UserError(
                f"{files[0]} does not fit {checkpoint.path}: {count:,} words{added} for {rows:,} rows of the {side} "
                "table; name the folder that the checkpoint was trained with"
            )
        words += last_words(words, rows - len(words), {}) or fillers(words, rows - len(words))
        sides[side] = Words(files, words, count)
    shared = any(len({table.side for table in tables}) > 1 for tables in checkpoint.ties())
    if shared and sides["source"].words != sides["target"].words:
        raise UserError(
            f"{checkpoint.path} has one table for both languages, {folder} different dictionaries: name the folder "
            "that it was trained with"
        )
    saved = checkpoint.model.get(FINGERPRINTS)
    if saved is not None and saved.tolist() != [fingerprint(side.words) for side in sides.values()]:
        raise UserError(f"{checkpoint.path} is of other dictionaries than {folder} holds: name those of its training")
    return sides


def fillers(words: List[str], count: int) -> List[str]:
    """Names for rows of which nothing is known."""
    known, names = set(words), (f"madeupword{number:04}" for number in itertools.count())
    return list(itertools.islice((name for name in names if name not in known), count))


def tokens_to_keep(spoken: Languages, words: Words, names: Optional[Sequence[str]]) -> Set[str]:
    """Tokens of languages, tags, and all that is in no file; if languages are named, no others' tokens."""
    if not spoken.multilingual:
        return set()
    tokens = {word for word in words.words if TOKEN.fullmatch(word)}.union(words.words[words.listed :])
    return tokens.difference(spoken.tokens(spoken.dropped(names)))
