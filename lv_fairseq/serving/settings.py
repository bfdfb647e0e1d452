"""What a request may change: K, K', the beam and the rule for unknown words."""

from typing import NamedTuple, Optional

from lv_fairseq.decoding import RULES

MOST_PER_WORD = 1000  # translations of a source word
WIDEST_BEAM = 32  # unless the command line asks for more


class Settings(NamedTuple):
    """As the flags of the same names set them."""

    candidate_frequent: int
    candidate_per_word: Optional[int]  # None: 10 if K and a lexicon are given
    beam: int
    unk_replacement: str


class Bounds(NamedTuple):
    """What a model can be asked for.

    Args:
        default: what the command line asks for
        words: of the target dictionary, without special symbols
        lexicon: whether there is one
    """

    default: Settings
    words: int
    lexicon: bool

    def limits(self) -> dict:
        """The largest number, or the choices, of each setting."""
        return {
            "candidate_frequent": self.words,
            "candidate_per_word": max(MOST_PER_WORD, self.default.candidate_per_word or 0) if self.lexicon else 0,
            "beam": max(WIDEST_BEAM, self.default.beam),
            "unk_replacement": [rule for rule in RULES if self.lexicon or not rule.startswith("lexicon")],
        }

    def choose(self, given: dict) -> Settings:
        """Settings with some of them given. `ValueError` says in one line what is wrong with one of these."""
        for name, most in self.limits().items():
            if name in given and isinstance(most, list):
                need_choice(name, given[name], most, self.lexicon)
            elif name in given and not (given[name] is None and name == "candidate_per_word"):
                need_number(name, given[name], int(name == "beam"), most, self.lexicon)
        return self.default._replace(**given)


def need_choice(name: str, value, choices: list, lexicon: bool) -> None:
    if value in RULES and value not in choices and not lexicon:
        raise ValueError(f"{name} {value} needs a lexicon: the server was started without --lexicon")
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}")


def need_number(name: str, value, least: int, most: int, lexicon: bool) -> None:
    if type(value) is int and value > 0 and name == "candidate_per_word" and not lexicon:
        raise ValueError(f"{name} takes words from a lexicon: the server was started without --lexicon")
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least:,} to {most:,}")
