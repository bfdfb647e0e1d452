"""One alignment from two: forward, where a target word has at most one link, and reverse, where a source word has.

A link is one number, ``source position << SHIFT | target position``, so a set of them is small and sorting them visits
source positions first. The rules, and the order in which candidates are visited (which matters), are those of
fast_align's ``atools``.
"""

from typing import Iterable, List, Set

SHIFT = 20  # bits: a sentence has less than a million words
MASK = (1 << SHIFT) - 1
ROW = 1 << SHIFT
NEIGHBOURS = (-ROW - 1, -ROW, -ROW + 1, -1, 1, ROW - 1, ROW, ROW + 1)


def parse(line: bytes) -> Set[int]:
    """Links of a line such as ``0-0 1-2``; ValueError if it is something else."""
    numbers = list(map(int, line.replace(b"-", b" ").split()))
    if 2 * line.count(b"-") != len(numbers):
        raise ValueError("not an alignment")
    return {source << SHIFT | target for source, target in zip(numbers[::2], numbers[1::2])}


def intersection(forward: Set[int], reverse: Set[int]) -> Set[int]:
    return forward & reverse


def grow_diag_final_and(forward: Set[int], reverse: Set[int]) -> Set[int]:
    """The intersection; then, again and again, links of the union next to one that is in, also diagonally, if the
    source or the target word has no link yet; then links of forward, then of reverse, if neither word has one."""
    links = forward & reverse
    sources, targets = {link >> SHIFT for link in links}, {link & MASK for link in links}

    candidates: List[int] = sorted((forward | reverse) - links)
    grown = bool(links)
    while grown and candidates:
        left = []
        for link in candidates:
            source, target = link >> SHIFT, link & MASK
            if (source not in sources or target not in targets) and has_neighbour(link, links):
                links.add(link)
                sources.add(source)
                targets.add(target)
            else:
                left.append(link)
        grown, candidates = len(left) < len(candidates), left

    for side in (forward, reverse):
        add_final(sorted(side - links), links, sources, targets)
    return links


def has_neighbour(link: int, links: Set[int]) -> bool:
    # left of position 0 is the end of the row before, where no sentence reaches
    for step in NEIGHBOURS:
        if link + step in links:
            return True
    return False


def add_final(candidates: Iterable[int], links: Set[int], sources: Set[int], targets: Set[int]) -> None:
    for link in candidates:
        source, target = link >> SHIFT, link & MASK
        if source not in sources and target not in targets:
            links.add(link)
            sources.add(source)
            targets.add(target)
