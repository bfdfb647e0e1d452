"""Opens checkpoints that have rows of words which a dictionary lacks.

Released models have more rows than fairseq makes of their dictionary and languages: NLLB-200 three tags of a branch of
fairseq, M2M-100 fillers up to a multiple of 8, models that were trained to denoise ``<mask>``. They are the last rows.
What is known of the layout of a checkpoint, by its number of rows and its settings, is added to the dictionary; what is
not is named in one line. A checkpoint is only looked at: nothing of it is run, and its numbers are not read.
"""

import os
from argparse import Namespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary

from lv_fairseq.errors import UserError

TAGS = ("<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>")
MASK = ("<mask>",)
FILLER, MULTIPLE = "madeupword", 8  # of fairseq's dictionaries
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")


class Opened(NamedTuple):
    """What a checkpoint says of its words."""

    path: str
    rows: Sequence[Optional[int]]  # of the source and the target table
    settings: Dict[str, Any]  # of its task

    @property
    def languages(self) -> List[str]:
        named = self.settings.get("langs") or []
        return named.split(",") if isinstance(named, str) else list(named)


def checkpoint_of(cfg) -> Optional[str]:
    """The checkpoint that a command will open, by its options and fairseq's rules; None if there is none."""
    if cfg.path:
        return cfg.path.split(os.pathsep)[0]
    if not cfg.restore_file:
        return None
    if cfg.restore_file != "checkpoint_last.pt":
        return cfg.restore_file
    last = os.path.join(cfg.save_dir or "", cfg.restore_file)
    return last if os.path.exists(last) else cfg.finetune_from_model


def look_at(path: Optional[str]) -> Optional[Opened]:
    """None if it is no ordinary file, of which fairseq says more."""
    if not path or not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        state = checkpoint_utils.torch.load(file, map_location=torch.device("cpu"))
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        return None
    tables = [state["model"].get(name) for name in TABLES]
    rows = [len(table) if torch.is_tensor(table) and table.dim() else None for table in tables]
    settings = state.get("args")
    if settings is None:
        settings = (state.get("cfg") or {}).get("task")
    settings = vars(settings) if isinstance(settings, Namespace) else settings
    return Opened(path, rows, settings if isinstance(settings, dict) else {})


def complete(dictionary: Dictionary, rows: int, opened: Opened, token_of) -> None:
    """Give a dictionary the last words of a checkpoint.

    Args:
        rows: of the checkpoint's table
        token_of: from a language to its token
    """
    more = rows - len(dictionary)
    lacking = [x for x in opened.languages if token_of(x) not in dictionary]
    found = None if lacking or more < 0 else last_words(dictionary, more, opened.settings)
    if found is not None:
        for word in found:
            dictionary.add_symbol(word)
        return
    why = f"{opened.path} has {rows:,} rows of words, the dictionary with its languages {len(dictionary):,}: "
    if more > 0:
        why += f"nothing is known of the rows {len(dictionary):,} to {rows - 1:,}"
    elif more < 0:
        why += f"it has no rows {rows:,} to {len(dictionary) - 1:,} ({', '.join(shown(dictionary.symbols[rows:]))})"
    if lacking:
        why += f"; it was trained with --langs {','.join(opened.languages)}, of which {', '.join(shown(lacking))} "
        why += "are not given"
    raise UserError(f"{why}. Name the dictionary and the languages that it was trained with, in their order")


def last_words(dictionary: Dictionary, more: int, settings: Dict) -> Optional[List[str]]:
    """The names of ``more`` rows at the end, by the layouts that are known; None if none of them has so many."""
    mask, tags = ([word for word in known if word not in dictionary] for known in (MASK, TAGS))
    layouts = [[], tags, mask, [*mask, *tags]]
    if settings.get("add_data_source_prefix_tags"):
        layouts = layouts[1::2]
    for layout in layouts:
        fillers = more - len(layout)
        if fillers == 0:
            return layout
    rows = len(dictionary) + more
    if 0 < more <= MULTIPLE and rows % MULTIPLE == 0:
        names = (f"{FILLER}{number:04}" for number in range(len(dictionary) + MULTIPLE))
        return [name for name in names if name not in dictionary][:more]
    return None


def shown(words: Sequence[str]) -> List[str]:
    return [*words[:5], *(["..."] if len(words) > 5 else [])]
