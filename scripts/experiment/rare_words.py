"""Rare words: how many of the reference's words arrive in the output, by how often they were seen in training."""

from collections import Counter
from typing import Dict, Iterable, List, Mapping, Sequence, Tuple

BANDS = ((0, 0), (1, 2), (3, 10), (11, 100), (101, 1000), (1001, None))  # occurrences in training; None: and more


def band_of(count: int) -> int:
    return next(i for i, (_, most) in enumerate(BANDS) if most is None or count <= most)


def recall(references: Iterable[str], outputs: Iterable[str], seen: Mapping[str, int]) -> List[Tuple[int, int]]:
    """For each band, how many words the references have, and how many of them the outputs have. A word counts as often
    as it stands in a reference, and arrives as often as its output has it.

    Args:
        seen: occurrences of a word in training
    """
    wanted, arrived = Counter(), Counter()
    for reference, output in zip(references, outputs, strict=True):
        words = Counter(reference.split())
        for word, count in words.items():
            wanted[band_of(seen.get(word, 0))] += count
        for word, count in (words & Counter(output.split())).items():
            arrived[band_of(seen.get(word, 0))] += count
    return [(wanted[i], arrived[i]) for i in range(len(BANDS))]


def rare_words(
    references: Sequence[str], outputs: Mapping[str, Sequence[Sequence[str]]], seen: Mapping[str, int]
) -> List[Dict]:
    """What results.json says of some systems.

    Args:
        outputs: by the id of a system, the sentences of each seed
    """
    found = []
    for system, seeds in outputs.items():
        counted = [recall(references, sentences, seen) for sentences in seeds]
        bands = [
            {"least": least, "most": most, "wanted": counted[0][i][0], "arrived": [seed[i][1] for seed in counted]}
            for i, (least, most) in enumerate(BANDS)
        ]
        found.append({"system": system, "bands": bands})
    return found
