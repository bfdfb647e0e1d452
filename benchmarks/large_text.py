"""A small text with dictionaries of any size, for benchmarks in which only the size of the tables counts."""

import random
from pathlib import Path

from fairseq import options
from fairseq_cli import preprocess

OCCURRING = 2000  # words


def write_data(folder: Path, words: int, pairs: int, length: int = 20) -> Path:
    """Pairs of random words, the same in both languages, and dictionaries of exactly ``words`` words, in fairseq's
    format. Every part of ``pairs`` / 10 of them has words of its own, so that there are partitions."""
    folder.mkdir(parents=True)
    draw, own = random.Random(1), min(OCCURRING, words - 4) // 10
    lines = []
    for pair in range(pairs):
        part = 10 * pair // pairs * own
        lines.append(" ".join(f"word{part + draw.randrange(own)}" for _ in range(length)) + "\n")
    for language in ("src", "tgt"):
        (folder / f"text.{language}").write_text("".join(lines))
        with open(folder / f"dict.{language}", "w") as dictionary:
            dictionary.writelines(f"word{number} 1\n" for number in range(words - 4))
    flags = ["--srcdict", folder / "dict.src", "--tgtdict", folder / "dict.tgt", "--destdir", folder / "bin"]
    flags += ["-s", "src", "-t", "tgt", "--trainpref", folder / "text"]
    preprocess.main(options.get_preprocessing_parser().parse_args([str(x) for x in flags]))
    return folder / "bin"
