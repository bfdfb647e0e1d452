"""A real parallel corpus from the package descriptions of the user's own Debian or Ubuntu.

    python examples/debian_descriptions/make_corpus.py --language de --out runs/debian/raw

Fetches the English descriptions and their translations with apt-get into a folder of its own (no root needed, nothing
of the system is touched), pairs them by the checksum of the English text, and writes OUT/{train,dev,test}.{en,de}:
short descriptions and paragraphs, one a line, each pair once. A package goes whole into one of the three.
"""

import argparse
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.processes import end, signals_as_exit, start

HELPER = "/usr/lib/apt/apt-helper"


def run(*command) -> Tuple[int, bytes, bytes]:
    """Exit status, and what a program printed to stdout and to stderr."""
    child = start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        printed = child.communicate()
        return child.returncode, *printed
    finally:
        end(child)


def fetch(folder: Path, languages: List[str]) -> Dict[str, List[Path]]:
    """Files of descriptions by language."""
    if shutil.which("apt-get") is None or not Path(HELPER).exists():
        raise UserError("there is no apt-get here: this example needs Debian, Ubuntu or a relative")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache", "Debug::NoLocking": 1}
    options["Acquire::Languages"] = ",".join(languages)
    _, _, said = run("apt-get", "update", *(x for name, value in options.items() for x in ("-o", f"{name}={value}")))
    found = {x: sorted((folder / "lists").glob(f"*_i18n_Translation-{x}*")) for x in languages}
    for language, files in found.items():
        if not files:
            reason = said.decode(errors="replace").strip().split("\n")[-1] or "no such language"
            raise UserError(f"apt-get brought no descriptions in {language}: {reason}")
    return found


def read(path: Path, language: str) -> Iterator[Tuple[str, List[str]]]:
    """Checksum of the English text, and the description: its first line and its paragraphs."""
    status, text, _ = run(HELPER, "cat-file", path)
    if status != 0:
        raise UserError(f"apt cannot read {path}: remove it, and start again")
    return parse(text.decode(errors="replace"), language)


def parse(text: str, language: str) -> Iterator[Tuple[str, List[str]]]:
    for stanza in text.split("\n\n"):
        checksum = re.search(r"^Description-md5: (\S+)", stanza, re.M)
        text = re.search(rf"^Description-{re.escape(language)}: (.*(?:\n .*)*)", stanza, re.M)
        if checksum and text:
            first, *rest = text.group(1).split("\n")
            paragraphs = re.split(r"\n \.\s*(?=\n|$)", "\n" + "\n".join(rest))
            # lines that begin with two blanks are lists and examples: they are not one sentence
            plain = [p for p in paragraphs if p.strip() and not re.search(r"^  ", p, re.M)]
            if len(plain) == len([p for p in paragraphs if p.strip()]):
                yield checksum.group(1), [" ".join(p.split()) for p in (first, *plain)]


def pair_up(english: Dict[str, List[str]], translated: Dict[str, List[str]], longest: int) -> Dict[str, List]:
    """Pairs of paragraphs of at most so many words, by split."""
    splits: Dict[str, List[Tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    seen = set()
    for checksum, target in sorted(translated.items()):
        source = english.get(checksum, [])
        if len(source) != len(target):
            continue
        number = zlib.crc32(source[0].split(" - ")[0].encode()) % 40  # sisters of a package stay together
        split = {0: "dev", 1: "test"}.get(number, "train")
        for pair in zip(source, target):
            fits = all(0 < len(side.split()) <= longest for side in pair)
            if fits and pair[0] != pair[1] and pair not in seen and pair[0] not in seen:
                seen.update((pair, pair[0]))
                splits[split].append(pair)
    return splits


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="de", help="to translate into (default: de)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the text goes")
    parser.add_argument("--longest", type=int, default=60, metavar="N", help="words of a paragraph (default: 60)")
    args = parser.parse_args(argv)
    if not re.fullmatch(r"[A-Za-z_]+(@[a-z]+)?", args.language) or args.language == "en":
        raise UserError(f"--language must be one that apt has besides en, such as de or pt_BR, not {args.language!r}")
    try:
        make(args.out.resolve(), args.language, args.longest)  # apt takes other paths as parts of its own folders
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'}: {error.strerror or error}") from None


def make(out: Path, language: str, longest: int) -> None:
    files = fetch(out / "apt", ["en", language])
    texts = {x: dict(pair for path in files[x] for pair in read(path, x)) for x in ("en", language)}
    splits = pair_up(texts["en"], texts[language], longest)
    for split, pairs in splits.items():
        for side, ending in enumerate(("en", language)):
            with written_whole(out / f"{split}.{ending}") as file:
                file.writelines(pair[side].encode() + b"\n" for pair in pairs)
        print(f"{split}: {len(pairs):,} pairs")
    if len(splits["train"]) < 1000:
        print("there are few translations into this language: try another", file=sys.stderr)


if __name__ == "__main__":
    main()
