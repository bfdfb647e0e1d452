"""A checkpoint with the rows of some words only, and its dictionaries and sentencepiece model: all in one new folder.

What it writes is an ordinary checkpoint. Kept rows stay in their order and have the same bits, so that scores of kept
words are what they were. Optimiser state is left out.
"""

import copy
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor

from lv_fairseq.errors import UserError
from lv_fairseq.files import temporary_folder
from lv_fairseq.fingerprint import fingerprint
from lv_fairseq.progress import stage
from lv_fairseq.trim.checkpoint import FINGERPRINTS, Checkpoint, Table, chunks, in_a_file, save_state, writing
from lv_fairseq.trim.dictionaries import Languages, Words, listed, name_pair, tokens_to_keep, words_of
from lv_fairseq.trim.pieces import PieceModel
from lv_fairseq.trim.rows_file import save_rows
from lv_fairseq.trim.texts import SPACE, Needed, needed

Progress = Callable[[float], None]


@dataclass
class Trimmed:
    """What was done.

    Args:
        checkpoint: the one that was trimmed
        path: the new one
        words: by side, before
        rows: by side, that are kept
        unknown: words of the texts that were unknown before, too, and where they are
        files: bytes of files, before and after
    """

    checkpoint: Checkpoint
    path: Path
    words: Dict[str, Words]
    rows: Dict[str, np.ndarray]
    unknown: Dict[str, Path]
    files: Dict[str, tuple] = field(default_factory=dict)


def trim(
    path: Path,
    data: Path,
    texts: Sequence[Path],
    out: Path,
    languages: Optional[Sequence[str]] = None,
    sentencepiece_model: Optional[Path] = None,
    allow_unknown: bool = False,
    pair: Tuple[Optional[str], Optional[str]] = (None, None),
) -> Trimmed:
    """Write the smaller model to a new folder.

    Args:
        path: of the checkpoint
        data: folder with its dictionaries
        texts: whose words, or pieces, stay
        languages: whose tokens stay (default: of all)
        sentencepiece_model: with which texts are cut into pieces (default: the one beside the dictionaries, if any)
        allow_unknown: pieces that no dictionary has are no mistake
        pair: source and target language of a bilingual model, if neither settings nor data say
    """
    refuse_existing(out)
    checkpoint = Checkpoint(path)
    name_pair(checkpoint, data, *pair)
    spoken = Languages(checkpoint, data)
    if languages is not None:
        spoken.check(languages)
    words = words_of(checkpoint, data, spoken)
    pieces = find_pieces(data, path, sentencepiece_model, words)
    need = needed(texts, list(words.values()), pieces)
    if need.unknown and pieces is not None and not allow_unknown:
        piece, text = next(iter(need.unknown.items()))
        raise UserError(
            f"{text} needs {piece!r}, which the dictionary lacks ({len(need.unknown):,} such pieces in all): take such "
            "lines out, or give --allow-unknown, and they are unknown as before"
        )
    rows = {
        side: of_side.rows(need.words | tokens_to_keep(spoken, of_side, languages)) for side, of_side in words.items()
    }
    done = Trimmed(checkpoint, out / path.name, words, rows, need.unknown)
    with writing(out), temporary_folder(out) as folder:
        whole = folder / "whole"
        whole.mkdir()
        write_words(whole, done, need, pieces, spoken.dropped(languages))
        save_rows(whole, checkpoint, words, rows)
        write_settings(whole, out, checkpoint, spoken, languages)
        select = lambda ties, progress: selected(folder, checkpoint, ties, rows, progress)
        model = with_tables(checkpoint, "picking rows", select)
        if FINGERPRINTS in model:
            kept = [[side.words[row] for row in rows[name]] for name, side in words.items()]
            model[FINGERPRINTS] = torch.tensor([fingerprint(symbols) for symbols in kept])
        save_model(checkpoint, model, whole / path.name)
        done.files[path.name] = path.stat().st_size, (whole / path.name).stat().st_size
        refuse_existing(out)
        os.rename(whole, out)
    return done


def refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} is there already: name a new one with --out")
    if not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.absolute().parent} to write {out.name} to")


def find_pieces(data: Path, checkpoint: Path, given: Optional[Path], words: Dict[str, Words]) -> Optional[PieceModel]:
    """The sentencepiece model that is named, or that is alone beside the dictionaries or the checkpoint; None if they
    hold no pieces."""
    if given is not None:
        return PieceModel(given)
    if not any(word.startswith(SPACE) for side in words.values() for word in side.words):
        return None
    for folder in (data, checkpoint.absolute().parent):
        models = sorted(folder.glob("*.model"))
        if len(models) == 1:
            return PieceModel(models[0])
        if models:
            raise UserError(f"{folder} holds several files *.model: name the one with --sentencepiece-model FILE")
    raise UserError("the dictionary holds pieces of sentencepiece: name its model with --sentencepiece-model FILE")


def write_words(
    folder: Path, done: Trimmed, need: Needed, pieces: Optional[PieceModel], dropped: Sequence[str]
) -> None:
    """Dictionaries, but for those of languages that are dropped, and sentencepiece model."""
    others = {f"dict.{name}.txt" for name in dropped}
    contents = {}
    for side, words in done.words.items():
        contents.update(dict.fromkeys(words.files, words.lines(done.rows[side])))
    contents = {path: content for path, content in contents.items() if path.name not in others}
    if pieces is not None:
        contents[pieces.path] = need.model
    if len({path.name for path in contents}) < len(contents):
        raise UserError(
            f"two of {', '.join(map(str, contents))} have one name, and cannot be in one folder: rename one"
        )
    for path, content in contents.items():
        (folder / path.name).write_bytes(content)
        done.files[path.name] = path.stat().st_size, len(content)


def write_settings(
    folder: Path,
    out: Path,
    checkpoint: Checkpoint,
    languages: Languages,
    names: Optional[Sequence[str]],
) -> None:
    """Let the settings name the files of the new folder and, if languages are named, these."""
    out = out.absolute()
    checkpoint.set("data", str(out))
    for name in ("fixed_dictionary", "source_dict", "target_dict", "lang_dict", "sentencepiece_model"):
        value = checkpoint.get(name)
        if value and (folder / Path(value).name).is_file():
            checkpoint.set(name, str(out / Path(value).name))
    if languages.file is not None:
        kept = languages.names if names is None else [name for name in languages.names if name in names]
        (folder / languages.file.name).write_text("".join(f"{name}\n" for name in kept), encoding="utf-8")
        checkpoint.set("lang_dict", str(out / languages.file.name))
    if names is None:
        return
    kept = [name for name in languages.names if name in names]
    pairs = [pair for pair in listed(checkpoint.get("lang_pairs")) if set(pair.split("-")) <= set(kept)]
    every = ["-".join(pair) for pair in itertools.permutations(kept, 2)]
    for name, value in (("langs", kept), ("lang_pairs", pairs or every)):
        before: Any = checkpoint.get(name)
        if before is not None:
            checkpoint.set(name, ",".join(value) if isinstance(before, str) else value)


def with_tables(
    checkpoint: Checkpoint, what: str, make: Callable[[List[Table], Progress], Tensor]
) -> Dict[str, Tensor]:
    """All parameters in their order, with new tables: one for all names of a table."""
    model = copy.copy(checkpoint.model)
    ties = checkpoint.ties()
    with stage(what, sum(checkpoint.model[tables[0].name].nbytes for tables in ties), "B") as progress:
        for tables in ties:
            new = make(tables, progress)
            model.update((table.name, new) for table in tables)
    return model


def selected(
    folder: Path, checkpoint: Checkpoint, ties: List[Table], rows: Dict[str, np.ndarray], progress: Progress
) -> Tensor:
    """Some rows of a table."""
    before, kept = checkpoint.model[ties[0].name], torch.from_numpy(rows[ties[0].side])
    after = in_a_file(folder, (len(kept), *before.shape[1:]), before.dtype)
    for some in chunks(len(kept), before):
        after[some] = before[kept[some]]
        progress(before.nbytes * (some.stop - some.start) / len(kept))
    return after


def save_model(checkpoint: Checkpoint, model: Dict[str, Tensor], path: Path) -> None:
    """A checkpoint with these parameters and without optimiser state."""
    state = {name: value for name, value in checkpoint.state.items() if name != "last_optimizer_state"}
    extra = state.get("extra_state")
    if isinstance(extra, dict):  # averages of all parameters, with all rows
        state["extra_state"] = {name: value for name, value in extra.items() if not str(name).startswith("ema")}
    save_state({**state, "model": model}, path)
