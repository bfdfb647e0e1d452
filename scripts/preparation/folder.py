"""What scripts/prepare makes, and FOLDER/prepare.json, which says of which texts and with which settings.

Until everything is done the file has another name: a folder that is half made is never taken for a ready one.
"""

import json
import os
from pathlib import Path
from typing import Dict, List, Optional

from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole

READY, UNFINISHED = "prepare.json", "prepare.unfinished.json"
SEGMENTATIONS = ("words", "sentencepiece")
NO_MATTER = ("trainpref", "validpref", "testpref")  # where texts were: what was in them is compared


def begin(folder: Path, about: Dict, parts: List[str]) -> bool:
    """Go on in a folder, or begin one; whether there is anything to do. Texts or settings other than those of what is
    there already are refused: two kinds of data would be mixed.

    Args:
        about: settings, and "texts"
        parts: what there will be in the end
    """
    before = next((path for path in (folder / READY, folder / UNFINISHED) if path.exists()), None)
    finished = anything_finished(folder)
    if finished and before is None:
        raise UserError(f"{finished} was not made by scripts/prepare: name another --out")
    if finished:
        check_same(folder, parsed(before), about)
    if finished and before == folder / READY:
        if all((folder / part).exists() for part in parts):
            return False
        os.replace(before, folder / UNFINISHED)
    else:
        with written_whole(folder / UNFINISHED) as file:
            file.write(json.dumps(about, indent=1).encode())
        (folder / READY).unlink(missing_ok=True)
    return True


def finish(folder: Path) -> None:
    os.replace(folder / UNFINISHED, folder / READY)


def anything_finished(folder: Path) -> Optional[Path]:
    """Something that there is already."""
    patterns = ("data", "lexicon", "text/[!.]*", "raw/[!.]*", "spm.*.model")
    return next((path for pattern in patterns for path in folder.glob(pattern)), None)


def check_same(folder: Path, before: Dict, now: Dict) -> None:
    texts = before.get("texts")
    if not isinstance(texts, dict):
        raise UserError(f"{folder} does not say of which texts it was made: name another --out")
    for name in now:
        if name not in (*NO_MATTER, "texts") and before.get(name) != now[name]:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{folder} was made with {flag} {before.get(name)}, not {now[name]}: name another --out")
    for name in sorted({*texts, *now["texts"]}):
        if texts.get(name) != now["texts"].get(name):
            how = "with another" if name in texts else "without the"
            how = how if name in now["texts"] else "with a"
            raise UserError(f"{folder} was made {how} text {name}: name another --out")


def read(folder: Path) -> Dict:
    """The settings of a folder that is ready."""
    if not (folder / READY).is_file():
        if (folder / UNFINISHED).is_file():
            raise UserError(f"{folder} is half made: give the same scripts/prepare command again")
        raise UserError(f"{folder} was not made by scripts/prepare: there is no {READY} in it")
    return parsed(folder / READY)


def parsed(path: Path) -> Dict:
    try:
        about = json.loads(path.read_bytes())
        languages = [about["source_lang"], about["target_lang"]]
        sound = all(isinstance(x, str) for x in languages) and about["segmentation"] in SEGMENTATIONS
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError, KeyError, TypeError):
        sound = False
    if not sound:
        raise UserError(f"{path} is damaged: prepare the text again, with another --out")
    return about


def text_of(folder: Path, subset: str, language: str, kind: str = "raw") -> Path:
    """The raw or segmented text of a subset."""
    path = folder / kind / f"{subset}.{language}"
    if not path.is_file():
        raise UserError(f"there is no {path}: scripts/prepare makes it if it is given --{subset}pref")
    return path
