"""What commands have printed and logged. fairseq-generate: how fast it was, where each word looked, which words were
replaced. lv-lexicon coverage: what candidate lists hold."""

import re
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from names import replaced_places

SHORTEST, LONGEST = 5, 20  # source words of a sentence whose attention is drawn

Weights = List[List[float]]  # target words x source words


class Searched(NamedTuple):
    """The translations of a system, before and after unknown words were replaced, and its attention."""

    system: str
    before: Sequence[str]
    after: Sequence[str]
    weights: Dict[int, Weights]  # by number of the sentence; may lack some

    def replaced(self, sentence: int) -> List[int]:
        return replaced_places(self.after[sentence], self.before[sentence])

    def looked(self, sentence: int, source_words: int) -> bool:
        """Whether there are weights of all words of a sentence."""
        rows, words = self.weights.get(sentence, []), len(self.after[sentence].split())
        return 0 < words <= len(rows) and all(len(row) >= source_words for row in rows)


def pace(log: str) -> Optional[float]:
    """Milliseconds a word, by fairseq's clock; None if the log does not say so."""
    found = re.search(r"Translated [\d,]+ sentences \(([\d,]+) tokens\) in ([\d.]+)s", log)
    return 1000 * float(found.group(2)) / max(int(found.group(1).replace(",", "")), 1) if found else None


def list_coverage(printed: str) -> List[Dict]:
    """What the two tables of lv-lexicon coverage say of each K and K', as results.json says it."""
    found: Dict[tuple, Dict] = {}
    for name, table in zip(("coverage", "mean_list"), printed.split("\n\n")[1:]):
        rows = [line.replace(",", "").replace(" %", "").split() for line in table.split("\n")[1:] if line]
        for k, *cells in rows[1:]:
            for per_word, cell in zip(rows[0], cells):
                point = found.setdefault((k, per_word), {"K": int(k), "K'": int(per_word)})
                point[name] = float(cell) / 100 if name == "coverage" else float(cell)
    return list(found.values())


def soft_alignments(output: Path) -> Dict[int, Weights]:
    """What --print-alignment soft printed of the first hypothesis of each sentence."""
    found: Dict[int, Weights] = {}
    for line in output.read_bytes().decode(errors="replace").split("\n"):
        match = re.match(r"A-(\d+)\t(.*)", line)
        if match and int(match.group(1)) not in found:
            found[int(match.group(1))] = [list(map(float, row.split(","))) for row in match.group(2).split()]
    return found


def replaced_words(searched: Searched) -> Dict[str, List[str]]:
    """By sentence, the words that were put in the place of unknown ones."""
    places = ((i, searched.replaced(i)) for i in range(len(searched.after)))
    return {str(i): [searched.after[i].split()[place] for place in some] for i, some in places if some}


def attention(systems: Sequence[Searched], sources: Sequence[str], most: int) -> List[Dict]:
    """What results.json says of the attention of all systems for the same sentences, first those with most words
    replaced. Systems without attention are left out."""
    systems = [system for system in systems if system.weights]
    counts = {}
    for i, source in enumerate(sources):
        words = len(source.split())
        if SHORTEST <= words <= LONGEST and all(system.looked(i, words) for system in systems):
            counts[i] = sum(len(system.replaced(i)) for system in systems)
    chosen = sorted(counts, key=lambda i: (-counts[i], i))[:most]
    return [one_sentence(system, i, sources[i].split()) for i in chosen for system in systems]


def one_sentence(searched: Searched, number: int, source: List[str]) -> Dict:
    """``source``: its words; fairseq prints <unk> for those that it does not know. Its weights have a column, and may
    have a row, for the end of the sentence."""
    target = searched.after[number].split()
    weights = [row[: len(source)] for row in searched.weights[number][: len(target)]]
    return {
        "system": searched.system,
        "sentence": number,
        "source": source,
        "target": target,
        "weights": weights,
        "replaced": searched.replaced(number),
    }
