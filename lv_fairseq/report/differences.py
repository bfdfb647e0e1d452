"""The sentences on which systems differ most, and which words of an output the reference does not have."""

import unicodedata
from typing import Callable, Dict, List, NamedTuple, Tuple

from sacrebleu.metrics import CHRF

from lv_fairseq.report.scores import SetScores

MOST = 20
SHORT = 5  # a reference of fewer words: one word makes all the difference there


class Sentence(NamedTuple):
    number: int  # from 0
    chrf: Dict[int, float]  # by number of the system

    @property
    def difference(self) -> float:
        return max(self.chrf.values()) - min(self.chrf.values())


def most_different(scores: SetScores, progress: Callable[[float], None] = lambda done: None) -> List[Sentence]:
    """The sentences with the largest difference of chrF between two systems, the largest first, but short sentences
    after all others; none twice."""
    metric = CHRF()
    found, seen = [], set()
    for number, reference in enumerate(scores.references):
        progress(1)
        outputs = {i: lines[number] for i, lines in scores.hypotheses.items()}
        key = (reference, *outputs.values())
        if len(set(outputs.values())) < 2 or key in seen:
            continue
        seen.add(key)
        by_text = {text: metric.sentence_score(text, [reference]).score for text in set(outputs.values())}
        found.append(Sentence(number, {i: by_text[text] for i, text in outputs.items()}))
    found = [sentence for sentence in found if sentence.difference > 0]
    short = lambda sentence: len(scores.references[sentence.number].split()) < SHORT
    return sorted(found, key=lambda sentence: (short(sentence), -sentence.difference, sentence.number))[:MOST]


def words_outside(text: str, reference: str) -> List[Tuple[str, bool]]:
    """The words of a text, and whether the reference is without them; punctuation around a word does not count."""
    known = {bare(word) for word in reference.split()}
    return [(word, bool(bare(word)) and bare(word) not in known) for word in text.split()]


def bare(word: str) -> str:
    letters = [i for i, char in enumerate(word) if not unicodedata.category(char).startswith("P")]
    return word[letters[0] : letters[-1] + 1] if letters else ""
