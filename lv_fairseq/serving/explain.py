"""Where each word of a translation came from, and why a word was or was not on the list: as data for JSON."""

import math
from typing import Dict, List, Optional, Sequence

from torch import Tensor

from lv_fairseq.candidates import CandidateLists
from lv_fairseq.candidates.reasons import Reason
from lv_fairseq.decoding import Decoding
from lv_fairseq.decoding.unknown_words import translated

DIGITS = 4  # of attention weights


def explained(decoding: Decoding, hypothesis: Dict, source_words: List[str], places: Tensor, hidden: set) -> Dict:
    """What an answer says of a hypothesis beside its text.

    Args:
        hypothesis: the best one, as `Decoding.step` gives it back
        places: of the source words in its attention
        hidden: tokens that are no part of the text, such as the end of the sentence
    """
    candidates = hypothesis.get("candidates")
    lists = None if candidates is None else candidates.lists
    translations = None if lists is None else lists.translations(source_words)
    numbers = hypothesis["tokens"].tolist()
    searched = hypothesis.get("searched", hypothesis["tokens"]).tolist()
    scores = (hypothesis["positional_scores"] / math.log(2)).tolist()
    weights = attention_rows(hypothesis["attention"], places)
    tokens = []
    for place, (number, before) in enumerate(zip(numbers, searched)):
        if number in hidden:
            continue
        unknown = before == decoding.target.unk()
        token = {"word": decoding.target[number], "score": scores[place], "unknown": unknown}
        if unknown or before < decoding.target.nspecial:
            token.update(origin="special")
        elif lists is None:
            token.update(origin="all words")
        else:
            token.update(came_from(lists.why(before, source_words, translations)))
        token["replaced"] = replaced(decoding, hypothesis, place, source_words) if number != before else None
        token["attention"] = None if weights is None else weights[place]
        tokens.append(token)
    return {
        "tokens": tokens,
        "source": [{"word": word, "unknown": decoding.reading.is_unknown(word)} for word in source_words],
        "list": None if lists is None else about_list(lists, len(candidates)),
    }


def about_list(lists: CandidateLists, words: int) -> Dict:
    return {"words": words, "candidate_frequent": lists.frequent, "candidate_per_word": lists.per_word}


def attention_rows(attention: Optional[Tensor], places: Tensor) -> Optional[List[List[float]]]:
    """For each target word the weights of the source words; None if the model has no attention."""
    if attention is None or attention.numel() == 0:
        return None
    rows = attention.detach().float().cpu()[places].t()  # target words x source words
    return [[round(weight, DIGITS) for weight in row] for row in rows.tolist()]


def came_from(reason: Reason) -> Dict:
    best = reason.best
    lexicon = best and {"source": best.key, "number": best.number, "probability": round(best.probability, DIGITS)}
    return {"origin": reason.origin, "rank": reason.rank, "lexicon": lexicon}


def replaced(decoding: Decoding, hypothesis: Dict, place: int, source_words: List[str]) -> Dict:
    """By which rule, and from which source word."""
    source = hypothesis["stands_for"].get(place)
    if source is None:  # a known piece that became part of the word beside it
        return {"rule": decoding.rule, "how": "joined", "source": None, "place": None}
    word = source_words[source]
    if decoding.segmentation is not None:
        (start, end) = next(x for x in decoding.segmentation.words(source_words) if x.start <= source < x.end)
        word = "".join(map(decoding.segmentation.text, source_words[start:end]))
    found = translated(word, decoding.rule, decoding.lexicon, decoding.segmentation)
    return {
        "rule": decoding.rule,
        "how": "copied" if found is None else "translated",
        "source": word,
        "place": source,
    }


def why(decoding: Decoding, beam: int, source_words: List[str], words: Sequence[str]) -> Dict:
    """For some target words, whether they are on the list of a sentence, and why."""
    target, every = decoding.target, decoding.every_word.words
    lists = decoding.lists and decoding.lists.at_least(2 * beam + target.nspecial)
    translations = lists and lists.translations(source_words)
    answers = []
    for word in words:
        number = target.index(word)
        answer = {"word": word, "on_list": True, "origin": "all words", "rank": None, "lexicon": None}
        if number == target.unk() or number >= every:
            answer.update(on_list=False, origin=None, why="not in the dictionary of target words")
        elif lists is None:
            answer["why"] = f"there is no list: all {every:,} words may be chosen"
        else:
            reason = lists.why(number, source_words, translations)
            origin = came_from(reason) if reason.on_list else {**came_from(reason), "origin": None}
            answer.update(origin, on_list=reason.on_list, why=reason.text())
        answers.append(answer)
    size = 0 if lists is None else len(lists.common) + len(lists.others(source_words))
    return {"words": answers, "list": None if lists is None else about_list(lists, size)}
