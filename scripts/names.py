"""Names: source words outside the dictionary that the reference has too, and whether they arrive in the output.

They are names, numbers and whatever else is copied: what no model knows, and what it can get right all the same. A word
counts as often as it stands in both the source sentence and its reference, and arrives as often as the output has it.
"""

from collections import Counter
from typing import Container, Dict, Iterable, List, Sequence

from lv_fairseq.errors import UserError


def names(source: str, reference: str, known: Container[str]) -> Counter:
    """The names of a sentence, and how many of each. Sentences are words with spaces between them.

    Args:
        known: the words of the source dictionary
    """
    outside = Counter(word for word in source.split() if word not in known)
    return outside & Counter(reference.split())


def count_names(
    sources: Iterable[str], references: Iterable[str], outputs: Iterable[str], known: Container[str]
) -> Dict[str, int]:
    """How many names there are in a text, and how many of them arrived."""
    wanted = arrived = 0
    for source, reference, output in zip(sources, references, outputs, strict=True):
        found = names(source, reference, known)
        wanted += found.total()
        arrived += (found & Counter(output.split())).total()
    return {"wanted": wanted, "arrived": arrived}


def shown(counts: Dict[str, int]) -> str:
    return f"{counts['arrived']:,} of {counts['wanted']:,}"


def replaced_places(output: str, unreplaced: str) -> List[int]:
    """Which words of an output were replaced: those that are unknown in the output of the same search without
    replacement."""
    words, before = output.split(), unreplaced.split()
    if len(words) != len(before) or any(old not in (new, "<unk>") for new, old in zip(words, before)):
        raise UserError("the two outputs are not of the same search, with and without --unk-replacement")
    return [place for place, (new, old) in enumerate(zip(words, before)) if old == "<unk>" != new]


def marked(output: str, unreplaced: str) -> str:
    """An output in which the words that were replaced stand in brackets."""
    places = replaced_places(output, unreplaced)
    return " ".join(f"[{word}]" if place in places else word for place, word in enumerate(output.split()))


def copied(
    sources: Sequence[str], references: Sequence[str], outputs: Sequence[str], known: Container[str]
) -> List[int]:
    """The numbers of sentences with names that arrived, the sentence with most of them first."""
    counts = [
        count_names([source], [reference], [output], known)["arrived"]
        for source, reference, output in zip(sources, references, outputs, strict=True)
    ]
    return sorted((i for i, count in enumerate(counts) if count), key=lambda i: -counts[i])
