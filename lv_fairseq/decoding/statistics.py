"""What decoding did, for a summary at its end."""

from dataclasses import dataclass

import numpy as np

from lv_fairseq import results


@dataclass
class Statistics:
    lists: int = 0
    words: int = 0  # of all lists
    expanded: int = 0  # sentences decoded again with longer lists
    sentences: int = 0
    replacing: bool = False
    unknown: int = 0
    replaced: int = 0
    list_seconds: float = 0.0
    search_seconds: float = 0.0

    def add_lists(self, sizes: np.ndarray) -> None:
        self.lists += len(sizes)
        self.words += int(sizes.sum())

    def summary(self) -> str:
        parts = [counted(self.sentences, "sentence")]
        if self.lists:
            mean = self.words / self.lists
            parts.append(f"candidate lists of {mean:,.0f} words on average")
            parts.append(f"{counted(self.expanded, 'sentence')} decoded again with longer lists")
            search = self.search_seconds - self.list_seconds
            parts.append(f"{self.list_seconds:.2f} s for lists, {search:.2f} s for the search")
        if self.replacing:
            parts.append(f"{self.replaced:,} of {counted(self.unknown, 'unknown word')} replaced")
        if self.replaced < self.unknown:
            parts.append(f"{self.unknown - self.replaced:,} need the source text (--source-text)")
        return ", ".join(parts)

    def figures(self) -> results.Decoding:
        """The same as data."""
        lists, replacing = bool(self.lists), self.replacing
        return {
            "sentences": self.sentences,
            "mean_list": round(self.words / self.lists) if lists else None,
            "expanded": self.expanded if lists else None,
            "list_seconds": self.list_seconds if lists else None,
            "search_seconds": self.search_seconds - self.list_seconds if lists else None,
            "unknown": self.unknown if replacing else None,
            "replaced": self.replaced if replacing else None,
        }


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
