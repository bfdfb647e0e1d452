"""Small lexicons, and what lv-lexicon says of a mistake."""

import numpy as np
from conftest import run

from lv_fairseq import Lexicon
from lv_fairseq.lexicon.entries import Entries

ABOUT = {"made_by": "a test", "dictionaries": {}}


def lexicon_of(table: dict, **options) -> Lexicon:
    """{key: {target: probability}} as a lexicon."""
    entries = Entries()
    for key, translations in table.items():
        scores = np.log(np.array(list(translations.values()), dtype=float))
        entries.add([key.encode()] * len(scores), [word.encode() for word in translations], scores)
    return Lexicon.of(entries, ABOUT, **options)


def answers(path) -> list:
    """All that a lexicon can be asked."""
    lexicon = Lexicon.load(path)
    keys = list(lexicon.keys)
    found = [lexicon.candidates(keys[i : i + 5], 2) for i in range(0, len(keys), 5)]
    return [*found, *map(lexicon.translations, keys), *map(lexicon.best, keys), *lexicon.target_words, lexicon.about]


def refused(*command, words, **how):
    result = run(*command, check=False, **how)
    assert result.returncode in (1, 2) and "Traceback" not in result.stderr, result.stderr
    assert all(word in result.stderr.strip().splitlines()[-1] for word in words), result.stderr
