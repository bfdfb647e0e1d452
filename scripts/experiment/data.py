"""What the runs of an experiment read: binarised text with all words or a shortlist, lexicons, texts for the report."""

import hashlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from preparation import folder as preparation
from programs import made_whole

from experiment.plan import shortlists, suffix
from experiment.stages import Stages


class Data:
    """
    Args:
        config: see config.py
        prepared: what scripts/prepare made
        out: where shortlists go
    """

    def __init__(self, config: Dict, prepared: Path, out: Path, stages: Stages):
        self.config, self.prepared, self.out, self.stages = config, prepared, out, stages
        settings = preparation.read(prepared)
        self.languages = [settings["source_lang"], settings["target_lang"]]
        self.in_words = settings["segmentation"] == "words"

    def folder(self, shortlist: Optional[int]) -> Path:
        """Binarised text with the most frequent words only, or with all."""
        if shortlist is None:
            return self.prepared / "data"
        return self.out / f"shortlist{suffix(shortlist, shortlists(self.config))}"

    def make(self) -> None:
        """The same text with each shortlist."""
        for words in shortlists(self.config):
            folder = self.folder(words)
            if folder.exists():
                continue
            prefixes = [
                x for split in ("train", "valid", "test") for x in (f"--{split}pref", self.prepared / "text" / split)
            ]
            flags = ["-s", self.languages[0], "-t", self.languages[1], "--workers", os.cpu_count() or 1]
            flags += ["--nwordssrc", words, "--nwordstgt", words]
            with made_whole(folder) as part:
                log = self.out / "logs" / f"{folder.name}.log"
                self.stages.command("fairseq-preprocess", *prefixes, *flags, "--destdir", part, log=log)

    def text(self, subset: str, side: int, kind: str = "text") -> Path:
        """The segmented or raw text of a subset; side 0 is the source."""
        return self.prepared / kind / f"{subset}.{self.languages[side]}"

    def words(self) -> int:
        """How many target words the models over all words know."""
        return sum(1 for _ in open(self.prepared / "data" / f"dict.{self.languages[1]}.txt", "rb"))

    def lexicon(self, shortlist: Optional[int], other: Optional[Path] = None) -> Path:
        """A lexicon may be made for the dictionaries of all words; a shortlist takes it as a table of words. The files
        are made once: not by several works at a time."""
        lexicon = other or self.prepared / "lexicon"
        if shortlist is None:
            return lexicon
        folder, of = self.folder(shortlist), hashlib.sha256(str(other).encode()).hexdigest()[:8]
        path = folder.with_name(f"{folder.name}-{of}.lexicon" if other else f"{folder.name}.lexicon")
        if not path.exists():
            table, log = path.with_suffix(".tsv"), self.out / "logs" / "convert.log"
            for source, target in ((lexicon, table), (table, path)):
                self.stages.command("lv-lexicon", "convert", source, "--out", target, log=log)
            table.unlink()
        return path

    def texts(self) -> Dict:
        """Copies of the texts that a report shows."""
        texts: Dict[str, Dict[str, str]] = {}
        (self.out / "texts").mkdir(parents=True, exist_ok=True)
        for name, subset in (("dev", "valid"), ("test", "test")):
            texts[name] = {}
            for kind, folder, side in (("source", "raw", 0), ("reference", "raw", 1), ("tokenised_source", "text", 0)):
                path = self.out / "texts" / f"{name}.{kind}"
                shutil.copyfile(self.text(subset, side, folder), path)
                texts[name][kind] = str(path.relative_to(self.out))
        return texts

    def first_sentences(self) -> Tuple[Path, int]:
        """The first sentences of the development set, binarised, and how many they are."""
        folder = self.out / "grid"
        if not folder.exists():
            with made_whole(folder) as part:
                self.binarise_first(part)
        return folder, sum(1 for _ in open(folder / f"text.{self.languages[0]}", "rb"))

    def binarise_first(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        flags: List = ["--validpref", folder / "text", "--destdir", folder]
        flags += ["-s", self.languages[0], "-t", self.languages[1]]
        for side, language in enumerate(self.languages):
            with open(self.text("valid", side), "rb") as text:
                lines = list(itertools.islice(text, self.config["grid_sentences"]))
            (folder / f"text.{language}").write_bytes(b"".join(lines))
            flags += [f"--{('src', 'tgt')[side]}dict", self.prepared / "data" / f"dict.{language}.txt"]
        self.stages.command("fairseq-preprocess", *flags, log=self.out / "logs" / "grid.log")
