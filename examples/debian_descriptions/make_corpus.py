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
from typing import Dict, Iterator, List, Tuple

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole


def fetch(folder: Path, languages: List[str]) -> Dict[str, List[Path]]:
    """Files of descriptions by language."""
    if shutil.which("apt-get") is None:
        raise UserError("there is no apt-get here: this example needs Debian, Ubuntu or a relative")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    options = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "cache", "Debug::NoLocking": 1}
    options["Acquire::Languages"] = ",".join(languages)
    command = ["apt-get", "update", *(x for name, value in options.items() for x in ("-o", f"{name}={value}"))]
    result = subprocess.run(command, capture_output=True, text=True)
    found = {x: sorted((folder / "lists").glob(f"*_i18n_Translation-{x}*")) for x in languages}
    for language, files in found.items():
        if not files:
            reason = (result.stderr.strip().splitlines() or ["no such language"])[-1]
            raise UserError(f"apt-get brought no descriptions in {language}: {reason}")
    return found


def read(path: Path, language: str) -> Iterator[Tuple[str, List[str]]]:
    """Checksum of the English text, and the description: its first line and its paragraphs."""
    process = subprocess.run(["/usr/lib/apt/apt-helper", "cat-file", str(path)], stdout=subprocess.PIPE, check=True)
    for stanza in process.stdout.decode(errors="replace").split("\n\n"):
        checksum = re.search(r"^Description-md5: (\S+)", stanza, re.M)
        text = re.search(rf"^Description-{language}: (.*(?:\n .*)*)", stanza, re.M)
        if checksum and text:
            first, *rest = text.group(1).split("\n")
            paragraphs = re.split(r"\n \.\s*(?=\n|$)", "\n" + "\n".join(rest))
            # lines that begin with two blanks are lists and examples: they are not one sentence
            plain = [p for p in paragraphs if p.strip() and not re.search(r"^  ", p, re.M)]
            if len(plain) == len([p for p in paragraphs if p.strip()]):
                yield checksum.group(1), [first.strip(), *(" ".join(p.split()) for p in plain)]


@command
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--language", default="de", help="to translate into (default: de)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the text goes")
    parser.add_argument("--longest", type=int, default=60, metavar="N", help="words of a paragraph (default: 60)")
    args = parser.parse_args()
    args.out = args.out.resolve()  # apt takes other paths as parts of its own folders
    args.out.mkdir(parents=True, exist_ok=True)
    files = fetch(args.out / "apt", ["en", args.language])
    texts = {x: dict(pair for path in files[x] for pair in read(path, x)) for x in ("en", args.language)}
    splits: Dict[str, List[Tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    seen = set()
    for checksum, translated in sorted(texts[args.language].items()):
        english = texts["en"].get(checksum, [])
        if len(english) != len(translated):
            continue
        number = zlib.crc32(english[0].split(" - ")[0].encode()) % 40  # sisters of a package stay together
        split = {0: "dev", 1: "test"}.get(number, "train")
        for pair in zip(english, translated):
            fits = all(0 < len(side.split()) <= args.longest for side in pair)
            if fits and pair[0] != pair[1] and pair not in seen and pair[0] not in seen:
                seen.update((pair, pair[0]))
                splits[split].append(pair)
    for split, pairs in splits.items():
        for side, language in enumerate(("en", args.language)):
            with written_whole(args.out / f"{split}.{language}") as file:
                file.writelines(pair[side].encode() + b"\n" for pair in pairs)
        print(f"{split}: {len(pairs):,} pairs")
    if len(splits["train"]) < 1000:
        print("there are few translations into this language: try another", file=sys.stderr)


if __name__ == "__main__":
    main()
