"""The sections of a report, in their order, each with a sentence for those who do not know the words."""

from typing import Callable, Iterator, List, Sequence, Tuple

from lv_fairseq.report import analysis_sections as analysis
from lv_fairseq.report import sections as show
from lv_fairseq.report.scored_run import Results, Section

SECTIONS: Sequence[Tuple[str, str, str, Callable[[Results], Iterator]]] = (
    ("summary", "Summary", "What was trained, which system came out best, and with which settings.", show.summary),
    (
        "coverage",
        "Coverage",
        "How much of the training text the most frequent words make up: what a vocabulary of that size would lose "
        "is the rest.",
        show.coverage,
    ),
    (
        "bleu",
        "Translation quality",
        "BLEU says how similar a translation is to a human one, from 0 to 100; the number after \u00b1 is how far "
        "chance alone could move it (95 % confidence, half width of the interval).",
        show.bleu,
    ),
    (
        "claims",
        "Claims of the paper",
        "What the paper says should be better than what, and whether these figures say so too.",
        analysis.claims,
    ),
    (
        "rare-words",
        "Rare words",
        "How many of the words that a human translator used arrive, by how often they were seen in training: in "
        "brackets how many, with the fewest and the most of all seeds.",
        analysis.rare_words,
    ),
    (
        "grid",
        "Quality by candidate list",
        "A sentence is translated with a short list of words: the K most frequent ones and K' likely translations "
        "of each of its source words; this is how BLEU depends on the two.",
        show.grid_bleu,
    ),
    (
        "analysis",
        "The paper's analysis of candidate lists",
        "How BLEU depends on the words that each source word brings to the list (K'), on the frequent words of the "
        "list (K), and on the words that a model was trained with at a time (tau).",
        analysis.list_analysis,
    ),
    ("time", "Decoding time", "What a translated word costs, for each system and way of decoding.", show.decoding_time),
    (
        "curves",
        "Learning curves",
        "How uncertain a system is about the next word, in bits: less is better. On text it was not trained on, "
        "and on the training text as it went by, where it chooses among the words of a partition only. Compare "
        "systems with the same words: a small vocabulary makes many words unknown, which are easy to guess.",
        show.learning_curves,
    ),
    (
        "lists",
        "Candidate lists",
        "How long the lists of words are, and how many of the words a human translator used are on them: what is "
        "not on its list cannot be produced.",
        show.candidate_lists,
    ),
    (
        "attention",
        "Attention",
        "Which source words (on top) each system looked at while it wrote each target word (on the left): the "
        "stronger the colour, the more. Words marked in red with an asterisk were unknown and were replaced "
        "through these weights.",
        show.attention,
    ),
    (
        "outputs",
        "Side by side",
        "The sentences on which the systems differ most; words that the reference does not have are underlined, "
        "and those in red with an asterisk were unknown and were replaced.",
        show.side_by_side,
    ),
)


def sections(results: Results) -> List[Section]:
    """All that have something to show, or to say that it is missing: claims, analysis and rare words, which earlier
    versions did not measure, are not missed."""
    made = [
        Section(f"{results.prefix}{id}", title, explanation, list(make(results)))
        for id, title, explanation, make in SECTIONS
    ]
    return [section for section in made if section.parts]
