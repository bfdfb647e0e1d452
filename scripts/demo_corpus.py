"""Write a parallel corpus of two made-up languages, so that the demo needs no download.

The source, Lomi, is analytic: particles instead of endings, noun-noun sequences written apart, adjectives after the
noun. The target, Durgish, is built like German: three genders, four cases, agreement, closed compounds, prefixed
verbs, the finite verb second in a main clause and last in a subordinate one. So its vocabulary is far larger.

  source  lo jeoven dekans zotre kel non romo a meopuad kon benses .
          the bank clerks old who not sleep have talked with children .
  target  de brimpon Schlurtersesti , de niht weirgent , habent mit Schluchom gizumongan .
          the old bankclerks , who not sleep , have with children talked .

A target sentence is a function of its source sentence, but seldom word by word: case comes from the role, endings
from the noun; some verbs and adjectives are translated by whether their noun is a being or a thing; and some
prepositions take the accusative after verbs of motion. Names and numbers are open classes, copied unchanged.

For a language that a small model learns in a minute: --lemmas 60 --pairs 4000 --max-clauses 1
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import os
import re
import secrets
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterable, Iterator, NamedTuple, NoReturn, Optional, Sequence, Tuple

import numpy as np

BLOCK = 5000  # sentences of one random stream
CHUNK = 2048  # random numbers drawn at once
LEMMAS = 6000
LONGEST = 36  # target words; longer sentences are drawn again
STREAMS = {"lexicon": 0, "train": 1, "valid": 2, "test": 3}
NOM, ACC, DAT, GEN = range(4)
V2, V1, VEND = range(3)  # where the target's finite verb stands: second, first, last
NOUN, PRONOUN, NAME, NUMBER, COORDINATION, ADJECTIVE = range(1, 7)  # kinds of phrases
THIRD_SG, THIRD_PL = 2, 5  # of: I, you, he, we, you all, they
PLURAL = 3  # of the agreement classes: masculine, feminine, neuter, plural

MARKS = 0xE000  # characters of no alphabet, which tie words to each other until a sentence is complete

Pair = Tuple[str, str]
Aligned = Tuple[str, str, str]  # source, target, links such as 0-0 2-1
Phrase = Tuple[str, str, int, int, bool]  # source, target, agreement class, person, being (or thing)

SOURCE_ONSETS = "b d f g k l m n p r s t v z j sh tr pl kr".split()
SOURCE_RIMES = "a e i o u a e i o u ai eo ia ua an en in or al el".split()
TARGET_ONSETS = "b d f g h k l m n r s t w z sch st br dr fr gr kl kr pf schl schw str tr kn bl sp".split()
TARGET_VOWELS = "a e i o u a e i o u ä ö ü au ei ie".split()
TARGET_CODAS = "n r l m t ck nd ng rt st ß ch lm rk f tz ls nk rg ft hn hl ld mp b g".split()
TARGET_LIGHT = [c + v for c in "bdfghklmnrstwz" for v in "aeiou"]  # unstressed, before the root
NAME_STARTS = [c + v for c in "B D F G H J K L M N P R S T V Z Br Kr Th Tr".split() for v in "aeiou"]
NAME_ENDS = "ra na lin mar nik don vel sa ro stan bert ko via dal mir len ris tov gan da".split()

# Gender, weight, umlaut in the plural, endings (singular NOM ACC DAT GEN, then plural; '-': none), linking element.
DECLENSIONS = [
    (0, 20, True, "- - a es e e um o", "s"),
    (0, 10, False, "o on on on on on om ono", "on"),
    (0, 10, False, "er er ere ers era era erum ero", "er"),
    (1, 20, False, "a a u a on on om ono", "en"),
    (1, 10, False, "ung ung ungu unga unga unga ungum ungo", "ungs"),
    (1, 6, True, "- - i i i i im io", "e"),
    (2, 12, True, "- - e es ir ir irum iro", "er"),
    (2, 6, False, "lin lin line lins lin lin linum lino", "lin"),
    (2, 6, False, "- - e es - - um o", ""),
]
STRONG = "ar an am as i i ir ir at at am as e e en er".split()  # by agreement class and case
WEAK = "o on on on a a on on a a on on on on on on".split()
BARE = [("" if i in (0, 8, 9) else ending) for i, ending in enumerate(STRONG)]
MIXED = [(STRONG[i] if not ending else WEAK[i]) for i, ending in enumerate(BARE)]
# Source word, target stem, weight in the singular and in the plural.
DEFINITE = [("lo", "d", 46, 22), ("ezi", "jes", 5, 3), ("olo", "iglich", 3, 0)]
INDEFINITE = [("un", "en", 24, 0), ("nul", "kein", 2, 1)]
POSSESSIVE = [("mei", "min", 4, 2), ("sui", "sin", 4, 2), ("lori", "ihr", 3, 3)]
NONE = [("", "", 0, 16)]
# With the endings of the determiner and those of an adjective after it.
DETERMINERS = [(DEFINITE, STRONG, WEAK), (INDEFINITE + POSSESSIVE, BARE, MIXED), (NONE, [""] * 16, STRONG)]
# Source subject and object form, target cases, person, being, weight.
PRONOUNS = [
    ("mi", "me", "ik mih mir min".split(), 0, True, 4),
    ("ti", "te", "du dih dir din".split(), 1, True, 2),
    ("il", "ilo", "er ina imo sin".split(), 2, True, 5),
    ("ela", "elo", "siu sia iru ira".split(), 2, True, 4),
    ("ot", "oto", "iz iz imo is".split(), 2, False, 3),
    ("noi", "noir", "wir uns unsih unsar".split(), 3, True, 3),
    ("voi", "voir", "ir iuh iuwih iuwar".split(), 4, True, 1),
    ("ili", "ilir", "sie sie im iro".split(), 5, True, 4),
]
# Source, target, case, weight; TWO_WAY prepositions take the accusative after a verb of motion, else the dative.
TWO_WAY = [("ne", "in", None, 9), ("sor", "uf", None, 5), ("sub", "untar", None, 2)]
ONE_WAY = [("kon", "mit", DAT, 5), ("dal", "fon", DAT, 4), ("per", "furi", ACC, 5), ("durin", "innan", GEN, 1)]
# Source particle, target prefix, separable, weight.
SEPARABLE = [("su", "uf", True, 6), ("ek", "uz", True, 5), ("ap", "ab", True, 4), ("pre", "fora", True, 2)]
INSEPARABLE = [("be", "bi", False, 4), ("mal", "fir", False, 4), ("den", "int", False, 2)]
BE = "bim bist ist birum birut sint".split()
WAS = "was wast was warum warut warun".split()
HAVE = "habu habest habet habem habit habent".split()
# Source auxiliary, suffix of the source verb, target auxiliary (with a participle or infinitive at the end), weight.
TENSES = [
    ("", "", [], 36),
    ("", "d", [], 36),
    ("a", "d", HAVE, 11),
    ("va", "", "wirdu wirdist wirdit werdem werdit werdent".split(), 8),
    ("po", "", "kan kanst kan kunnum kunnut kunnun".split(), 5),
    ("devi", "", "muoz muost muoz muozum muozut muozun".split(), 4),
]
PRESENT = "u est et em it ent".split()
WEAK_PAST = "ta tost ta tum tut tun".split()
STRONG_PAST = ["", "ist", "", "um", "ut", "un"]
CONJUNCTIONS = [("porke", "wanta", 4), ("benke", "doh", 2), ("kuando", "danne", 4), ("si", "ibu", 3)]
UMLAUT = {"a": "ä", "o": "ö", "u": "ü", "au": "äu"}
ABLAUT = dict(zip("a e i o u au ei ie ä ö ü".split(), "u a a ie o o ie o a o o".split()))


def frames() -> Iterator[tuple]:
    """Weight, parts and number of clauses of each sentence frame; a part is (order, relative clause?) or a literal."""
    stop, ask, question = (".", "."), ("?", "?"), ("eske", "")
    main, after, sub = (V2, False), (V1, False), (VEND, False)
    yield 48, [main, stop], 1
    yield 7, [question, after, ask], 1
    yield 7, [(V2, True), stop], 2
    yield 6, [main, (", i", ", inti"), main, stop], 2
    yield 3, [main, (", ma", ", abar"), main, stop], 2
    yield 9, [main, ("ke", ", daz"), sub, stop], 2
    yield 2, [main, ("ke", ", daz"), (VEND, True), stop], 3
    for src, tgt, weight in CONJUNCTIONS:
        yield 0.5 * weight, [main, (src, ", " + tgt), sub, stop], 2
        yield 0.5 * weight, [(src, tgt), sub, (",", ","), after, stop], 2
        yield 0.1 * weight, [question, after, (src, ", " + tgt), sub, ask], 2
        yield 0.15 * weight, [main, (", i", ", inti"), main, (src, ", " + tgt), sub, stop], 3
        yield 0.15 * weight, [(src, tgt), sub, (",", ","), (V1, True), stop], 3


def noun_phrase_shapes(parts: int) -> Iterator[tuple]:
    """Weight and (determiner, target forms, adjective endings, plural, adjectives, modifiers, complement)."""
    plain, comparative = ("", ""), ("plu ", "ir")
    adjectives = [(65, []), (25, [plain]), (5, [comparative]), (5, [plain, plain])]
    options = itertools.product((0, 1), adjectives, range(parts), (0, 1))
    determiners = [(row, endings, following) for rows, endings, following in DETERMINERS for row in rows]
    for determiner, option in itertools.product(determiners, options):
        ((src, stem, *weights), endings, following), (plural, (share, degrees), modifiers, of) = determiner, option
        weight = weights[plural] * share * (0.86, 0.125, 0.015)[modifiers] * (0.88, 0.12)[of]
        yield weight, (src, [stem + ending for ending in endings], following, plural, degrees, modifiers, of)


def predicate_shapes(prefixes: int) -> Iterator[tuple]:
    """Weight and (tense, negative, prefix, time, manner, place, copula)."""
    options = [("", "", True, 130), *(SEPARABLE + INSEPARABLE)[:prefixes]]
    product = itertools.product(TENSES, (0, 1), options, (0, 1, 2), (0, 1), (0, 1), (0, NOUN, ADJECTIVE))
    for (*tense, weight), negative, (*prefix, share), time, manner, place, copula in product:
        weight *= share * (0.9, 0.1)[negative] * (0.74, 0.2, 0.06)[time] * (0.84, 0.16)[manner] * (0.65, 0.35)[place]
        shape = (tense, negative, prefix, time, manner, place, copula)
        yield weight * {0: 0.84, NOUN: 0.06, ADJECTIVE: 0.1}[copula], shape


def generator(seed: int, stream: int, block: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream, block])))


def cumulative(weights: Any) -> np.ndarray:
    total = np.cumsum(np.asarray(weights, dtype=np.float64))
    return total / total[-1]


def zipf(count: int, shift: float = 5.0) -> np.ndarray:
    """Cumulative Zipf-Mandelbrot law; its exponent is 1, as divisions are rounded alike everywhere, powers are not."""
    return cumulative(1.0 / (np.arange(1, count + 1) + shift))


def table(rows: Iterable[tuple]) -> tuple[np.ndarray, Sequence]:
    weights, items = zip(*rows)  # each row: weight, item
    return cumulative(weights), items


def stream(sample: Callable[[], Iterable]) -> Callable[[], Any]:
    """A function that returns the next item, sampled a chunk at a time."""
    return itertools.chain.from_iterable(iter(sample, None)).__next__


def change_vowel(stem: str, change: dict[str, str]) -> str:
    last = list(re.finditer("au|ei|ie|[aeiouäöü]", stem))[-1]
    return stem[: last.start()] + change.get(last.group(), last.group()) + stem[last.end() :]


def name(index: int) -> str:
    """The index-th name: a numeral with syllables as digits, so that rarer names are longer and none is stored."""
    index, end = divmod(index, len(NAME_ENDS))
    text, shift = NAME_ENDS[end], 37 * end
    while True:
        index, digit = divmod(index, len(NAME_STARTS))
        text = NAME_STARTS[(digit * 17 + shift) % len(NAME_STARTS)] + text.lower()
        shift += digit
        if not index:
            return text


class Noun(NamedTuple):
    source: Sequence[str]  # singular, plural
    gender: int
    being: bool
    stems: Sequence[str]  # singular, plural
    endings: Sequence[str]
    link: str  # the form before another noun


class Lexicon:
    """The lemmas of both languages: 50 % nouns, 20 % verbs, 20 % adjectives, 10 % adverbs of manner and time."""

    def __init__(self, seed: int, lemmas: int) -> None:
        rng = generator(seed, STREAMS["lexicon"], 0)
        self._uniform = stream(lambda: rng.random(CHUNK).tolist())
        closed = [*(row for rows, _, _ in DETERMINERS for row in rows), *TWO_WAY, *ONE_WAY, *SEPARABLE, *INSEPARABLE]
        closed += [*TENSES, *CONJUNCTIONS, *PRONOUNS, *(row[1:] for row in PRONOUNS)]
        self._source = {"e", "era", "i", "ma", "ke", "kel", "eske", "non", "o", "plu", *(row[0] for row in closed)}
        self._target = set(itertools.chain(WAS, *(row[2] for row in [*PRONOUNS, *TENSES])))
        self._declensions = [row for row in DECLENSIONS for _ in range(row[1])]
        self.nouns = [self._noun(rank) for rank in range(lemmas // 2)]
        self.lemmas = {
            "noun": self.nouns,
            "verb": [self._verb(rank) for rank in range(lemmas // 5)],
            "adjective": [self._adjective(rank) for rank in range(lemmas // 5)],
            "manner": [(self._lemma(rank), self._stem(rank) + "licho") for rank in range(lemmas // 20)],
            "time": [(self._lemma(rank), self._stem(rank) + "ens") for rank in range(lemmas // 20)],
        }
        # What multiplies the words grows with the lemmas, so that a small language has few of them.
        self.family = max(1, len(self.nouns) // 20)  # modifiers that a noun takes: quantiles from its phase on
        self.phase = np.floor(rng.random(len(self.nouns)) * 1024) / 1024
        self.parts = 3 if lemmas >= 1000 else 2  # of the longest compound
        self.prefixes = lemmas // 100
        self.nouns_cum = zipf(len(self.nouns))
        self.names_cum = zipf(min(1_000_000, max(20, lemmas * lemmas // 300)))
        self.given_cum = zipf(min(400, len(self.names_cum)))
        self.numbers_cum = zipf(min(10_000, max(10, lemmas * lemmas // 1000)), 8.0)
        self.years = [str(2020 - i) for i in range(min(400, max(10, lemmas // 5)))]

    def _one(self, items: Sequence) -> Any:
        return items[int(self._uniform() * len(items))]

    def _lemma(self, rank: int) -> str:
        syllables = 3 if rank >= 300 and self._uniform() < 0.4 else 2
        word = "".join(self._one(SOURCE_ONSETS) + self._one(SOURCE_RIMES) for _ in range(syllables))
        while word in self._source:
            word += self._one(SOURCE_ONSETS) + self._one(SOURCE_RIMES)
        self._source.add(word)
        return word

    def _stem(self, rank: int) -> str:
        word = self._one(TARGET_ONSETS) + self._one(TARGET_VOWELS) + self._one(TARGET_CODAS)
        while word in self._target or (rank >= 100 and len(word) < 6 and self._uniform() < 0.6):
            word = self._one(TARGET_LIGHT) + word
        self._target.add(word)
        return word

    def _noun(self, rank: int) -> Noun:
        lemma, stem, being = self._lemma(rank), self._stem(rank), self._uniform() < 0.4
        gender, _, umlaut, endings, link = self._one(self._declensions)
        stems = (stem, change_vowel(stem, UMLAUT) if umlaut else stem)
        return Noun((lemma, lemma + "s"), gender, being, stems, endings.replace("-", "").split(" "), stem + link)

    def _verb(self, rank: int) -> tuple:
        senses = []
        for _ in range(2 if self._uniform() < 0.1 else 1):
            stem, strong = self._stem(rank), self._uniform() < 0.35
            past = change_vowel(stem, ABLAUT)
            senses.append((stem, past, STRONG_PAST, past + "an") if strong else (stem, stem, WEAK_PAST, stem + "it"))
        case = self._one([ACC] * 12 + [DAT] * 3 + [None] * 5)
        motion = case is None and self._uniform() < 0.6
        return self._lemma(rank), case, motion, (senses[0], senses[-1])  # senses: with a thing, with a being

    def _adjective(self, rank: int) -> tuple:
        stems = [self._stem(rank) for _ in range(2 if self._uniform() < 0.1 else 1)]
        return self._lemma(rank), (stems[0], stems[-1])  # with a thing, with a being


lexicon = functools.lru_cache(maxsize=2)(Lexicon)


class Grammar:
    """Turns random draws into sentence pairs.

    Args:
        marked: words that belong together have a character in common, see `aligned`
    """

    def __init__(self, lexicon: Lexicon, max_clauses: int, marked: bool = False) -> None:
        self.lexicon, self.marked, self.marks = lexicon, marked, 0
        self._tables = {
            **{key: (zipf(len(items)), items) for key, items in lexicon.lemmas.items()},
            "year": (zipf(len(lexicon.years), 8.0), lexicon.years),
            "shape": table(noun_phrase_shapes(lexicon.parts)),
            "predicate_shape": table(predicate_shapes(lexicon.prefixes)),
            "frame": table(row for *row, clauses in frames() if clauses <= max_clauses),
            "pronoun": table((weight, row) for *row, weight in PRONOUNS),
            "preposition": table((weight, row) for *row, weight in TWO_WAY + ONE_WAY),
            "subject_kind": table([(50, NOUN), (26, PRONOUN), (15, NAME), (5, NUMBER), (4, COORDINATION)]),
            "object_kind": table([(69, NOUN), (10, PRONOUN), (8, NAME), (9, NUMBER), (4, COORDINATION)]),
            "place_kind": table([(80, NOUN), (16, NAME), (4, NUMBER)]),
            "complement_kind": table([(75, NOUN), (25, NAME)]),
        }

    def block(self, seed: int, split: str, block: int, count: int = BLOCK) -> list[Pair]:
        """The first `count` sentence pairs of a block."""
        rng, lex = generator(seed, STREAMS[split], block), self.lexicon

        def indices(cum: np.ndarray) -> list[int]:
            return cum.searchsorted(rng.random(CHUNK), "right").tolist()

        def draw(cum: np.ndarray, items: Sequence) -> Callable[[], Any]:
            return stream(lambda: [items[i] for i in indices(cum)])

        def compounds() -> Iterable[tuple]:
            parts = [lex.nouns_cum.searchsorted(rng.random(CHUNK), "right")]
            for _ in range(2):
                choice = np.floor(rng.random(CHUNK) * lex.family) + lex.phase[parts[0]]
                modifier = lex.nouns_cum.searchsorted(choice / lex.family, "right")
                parts.insert(0, np.where(modifier == parts[0], (modifier + 1) % len(lex.nouns), modifier))
            return zip(*([lex.nouns[i] for i in part.tolist()] for part in parts))

        def names() -> Iterable[str]:
            for kind, given, family in zip(indices(thirds), indices(lex.given_cum), indices(lex.names_cum)):
                if kind == 0 or given == family:
                    yield name(given)
                else:
                    yield name(family) if kind == 1 else f"{name(given)} {name(family)}"

        def numbers() -> Iterable[str]:
            for value, digit in zip(indices(lex.numbers_cum), (rng.random(CHUNK) * 30).tolist()):
                yield f"{value // 8}.{int(digit)}" if digit < 10 else str(value + 2)

        thirds = cumulative([1, 1, 1])
        self.next = SimpleNamespace(**{key: draw(cum, items) for key, (cum, items) in self._tables.items()})
        self.next.compound, self.next.name, self.next.number = stream(compounds), stream(names), stream(numbers)
        return [self.sentence() for _ in range(count)]

    def mark(self) -> str:
        """A new character that ties words of both sides to each other; nothing if no alignments are wanted."""
        self.marks += 1
        return chr(MARKS + self.marks) if self.marked else ""

    def tied(self, source: str, target: str) -> Pair:
        """The last words of both sides tied to each other, the words before them too, and so on."""
        if not self.marked:
            return source, target
        sides = source.split(), target.split()
        for place in range(1, 1 + min(map(len, sides))):
            mark = self.mark()
            for words in sides:
                words[-place] += mark
        return tuple(map(" ".join, sides))

    def sentence(self) -> Pair:
        while True:
            self.marks = 0
            parts = [self.tied(*part) if isinstance(part[0], str) else self.clause(*part) for part in self.next.frame()]
            target = " ".join([part[1] for part in parts if part[1]])
            if target.count(" ") < LONGEST:
                return " ".join([part[0] for part in parts]), target

    def clause(self, order: int, relative: bool) -> Pair:
        if not relative:
            return self.predicate(order, self.noun_phrase(NOM, self.next.subject_kind()))
        src, tgt, agreement, person, being = self.noun_phrase(NOM, NOUN)
        pronoun = (*self.tied("kel", "d" + STRONG[4 * agreement]), agreement, person, being)
        inner_src, inner_tgt = self.predicate(VEND, pronoun)
        return self.predicate(order, (f"{src} {inner_src}", f"{tgt} , {inner_tgt} ,", agreement, person, being))

    def noun_phrase(self, case: int, kind: int) -> Phrase:
        if kind == PRONOUN:
            subject, other, forms, person, being = self.next.pronoun()
            return *self.tied(subject if case == NOM else other, forms[case]), 0, person, being
        if kind == NAME:
            text = self.next.name()
            return *self.tied(text, text), 0, THIRD_SG, True
        if kind == COORDINATION:
            src, tgt, _, _, being = self.noun_phrase(case, NOUN)
            other_src, other_tgt, _, _, _ = self.noun_phrase(case, self.next.complement_kind())
            src_and, tgt_and = self.tied("i", "inti")
            return f"{src} {src_and} {other_src}", f"{tgt} {tgt_and} {other_tgt}", PLURAL, THIRD_PL, being
        determiner, forms, endings, plural, adjectives, modifiers, complement = self.next.shape()
        if kind == NUMBER:
            determiner, endings, plural = self.next.number(), STRONG, 1
        if modifiers:
            outer, inner, noun = self.next.compound()
            mark = self.mark()
            src = f"{inner.source[0]}{mark} {noun.source[plural]}{mark}"
            tgt = inner.link + noun.stems[plural] + mark
            if modifiers == 2:
                src, tgt = f"{outer.source[0]}{mark} {src}", outer.link + tgt
        else:
            noun = self.next.noun()
            src, tgt = self.tied(noun.source[plural], noun.stems[plural])
        tgt = tgt.capitalize() + noun.endings[4 * plural + case]
        agreement = PLURAL if plural else noun.gender
        cell = 4 * agreement + case
        for degree_src, degree_tgt in adjectives:
            word, stems = self.next.adjective()
            mark = self.mark()
            src = f"{src} {degree_src.replace(' ', mark + ' ')}{word}{mark}"
            tgt = f"{stems[noun.being]}{mark}{degree_tgt}{endings[cell]} {tgt}"
        if determiner:
            before_src, before_tgt = self.tied(determiner, determiner if kind == NUMBER else forms[cell])
            src, tgt = f"{before_src} {src}", f"{before_tgt} {tgt}"
        if complement:  # a genitive, but names have none
            kind = self.next.complement_kind()
            other_src, other_tgt, _, _, _ = self.noun_phrase(GEN, kind)
            of_src, of_tgt = self.tied("o", "fon") if kind == NAME else ("o", "")
            src, tgt = f"{src} {of_src} {other_src}", f"{tgt} {of_tgt} {other_tgt}" if of_tgt else f"{tgt} {other_tgt}"
        return src, tgt, agreement, THIRD_PL if plural else THIRD_SG, noun.being

    def time(self, kind: int) -> Pair:
        """Nothing, an adverb, or a year."""
        if not kind:
            return "", ""
        if kind == 1:
            return self.tied(*self.next.time())
        year = self.next.year()
        return self.tied("ne " + year, "in " + year)

    def predicate(self, order: int, subject: Phrase) -> Pair:
        subject_src, subject_tgt, _, person, being = subject
        (aux_src, suffix, aux), negative, prefix, with_time, with_manner, with_place, copula = (
            self.next.predicate_shape()
        )
        particle = object_src = object_tgt = manner_src = manner = place_src = place = rest = ""
        motion = False
        finite_mark, aux_mark = self.mark(), self.mark()
        if copula:
            verb_src, finite = ("era", WAS[person]) if suffix and not aux else ("e", BE[person])
            verb_src, finite = verb_src + finite_mark, finite + finite_mark
            if aux:
                finite, rest = aux[person] + aux_mark, ("giwesan" if suffix else "wesan") + finite_mark
            if copula == NOUN:
                object_src, object_tgt, _, _, _ = self.noun_phrase(NOM, NOUN)
            else:
                word, stems = self.next.adjective()
                object_src, what = self.tied(word, stems[being])
                rest = f"{what} {rest}" if rest else what
        else:
            verb_src, case, motion, senses = self.next.verb()
            verb_src += suffix + finite_mark
            if case is not None:
                object_src, object_tgt, _, _, being = self.noun_phrase(case, self.next.object_kind())
            stem, past, past_endings, participle = senses[being]
            particle, before, separable = prefix
            if particle:
                particle, before = self.tied(particle, before)
            if aux and suffix:
                finite = (BE if motion else aux)[person] + aux_mark
                rest = before + ("gi" if separable else "") + participle + finite_mark
            elif aux:
                finite, rest = aux[person] + aux_mark, before + stem + "an" + finite_mark
            else:
                finite = (past + past_endings[person] if suffix else stem + PRESENT[person]) + finite_mark
                if separable and order != VEND:
                    rest = before
                else:
                    finite = before + finite
            if with_manner:
                manner_src, manner = self.tied(*self.next.manner())
        if with_place:
            src, tgt, case = self.next.preposition()
            src, tgt = self.tied(src, tgt)
            case = case if case is not None else ACC if motion else DAT
            place_src, place, _, _, _ = self.noun_phrase(case, self.next.place_kind())
            place_src, place = f"{src} {place_src}", f"{tgt} {place}"
        time_src, time = self.time(with_time)
        # The source ends with the time; the target has it first, or after the subject where the verb's place is fixed.
        not_src, not_tgt = self.tied("non", "niht") if negative else ("", "")
        middle = (object_tgt, not_tgt, manner, place, rest)
        if order == VEND:
            target = (subject_tgt, time, *middle, finite)
        elif order == V1:
            target = (finite, subject_tgt, time, *middle)
        else:
            target = (time, finite, subject_tgt, *middle) if time else (subject_tgt, finite, *middle)
        verb = (not_src, aux_src and aux_src + aux_mark, verb_src, particle)
        source = (subject_src, *verb, object_src, manner_src, place_src, time_src)
        return " ".join(filter(None, source)), " ".join(filter(None, target))


def pairs(split: str, count: int, seed: int = 1, lemmas: int = LEMMAS, max_clauses: int = 3) -> Iterator[Pair]:
    """The first `count` sentence pairs of 'train', 'valid' or 'test'; of a larger count, the first are the same."""
    grammar = Grammar(lexicon(seed, lemmas), max_clauses)
    for start in range(0, count, BLOCK):
        yield from grammar.block(seed, split, start // BLOCK, min(BLOCK, count - start))


def aligned(split: str, count: int, seed: int = 1, lemmas: int = LEMMAS, max_clauses: int = 3) -> Iterator[Aligned]:
    """The same pairs, each with its alignment: which source word and which target word belong together."""
    grammar = Grammar(lexicon(seed, lemmas), max_clauses, marked=True)
    for start in range(0, count, BLOCK):
        for pair in grammar.block(seed, split, start // BLOCK, min(BLOCK, count - start)):
            sides = [[set(filter(is_mark, word)) for word in side.split(" ")] for side in pair]
            links = [
                f"{i}-{j}" for j, target in enumerate(sides[1]) for i, word in enumerate(sides[0]) if word & target
            ]
            yield *("".join(itertools.filterfalse(is_mark, side)) for side in pair), " ".join(links)


def is_mark(character: str) -> bool:
    return MARKS < ord(character) < MARKS + 0x1900


def write_split(out: Path, split: str, suffixes: Sequence[str], lines: Iterable[Sequence[str]], total: int) -> str:
    """Write a file for each language, and one for alignments if there are any, which appear only when complete; return
    the summary line."""
    temporary = [out / f".{split}.{suffix}.{secrets.token_hex(8)}.tmp" for suffix in suffixes]
    languages = suffixes[:2]
    tokens = [0, 0]
    types: list[set[str]] = [set(), set()]
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(path, "x", encoding="utf-8", newline="\n")) for path in temporary]
            for number, pair in enumerate(lines, 1):
                for file, line in zip(files, pair):
                    file.write(line + "\n")
                for side, line in enumerate(pair[:2]):
                    words = line.split(" ")
                    tokens[side] += len(words)
                    types[side].update(words)
                if (number % BLOCK == 0 or number == total) and sys.stderr.isatty():
                    end = "\n" if number == total else "\r"
                    print(f"{split}: {number}/{total} pairs", end=end, file=sys.stderr, flush=True)
        for path, suffix in zip(temporary, suffixes):
            os.replace(path, out / f"{split}.{suffix}")
    finally:
        for path in temporary:
            with contextlib.suppress(OSError):
                path.unlink()
    counts = [f"{lang} {n} tokens {len(kinds)} types" for lang, n, kinds in zip(languages, tokens, types)]
    return f"{split}: {total} pairs, " + ", ".join(counts)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="directory of the files; made if missing"
    )
    numbers = [
        ("--pairs", 200_000, 0, "training pairs"),
        ("--valid", 1000, 0, "validation pairs"),
        ("--test", 1000, 0, "test pairs"),
        ("--seed", 1, 0, "another seed gives other languages"),
        ("--lemmas", LEMMAS, 20, "size of the lexicon: open classes and compounds grow with it"),
        ("--max-clauses", 3, 1, "clauses of a sentence, 1 to 3"),
    ]
    for option, default, _, text in numbers:
        parser.add_argument(option, type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    for option, default in (("--source-lang", "src"), ("--target-lang", "tgt")):
        parser.add_argument(option, default=default, metavar="XX", help=f"suffix of these files (default: {default})")
    text = "write SPLIT.align too: which source and target words belong together, as fairseq-preprocess reads it"
    parser.add_argument("--alignments", action="store_true", help=text)
    args = parser.parse_args(argv)
    for option, _, least, _ in numbers:
        if getattr(args, option[2:].replace("-", "_")) < least:
            parser.error(f"argument {option}: must be at least {least}")
    languages = (args.source_lang, args.target_lang)
    if languages[0] == languages[1] or not all(re.fullmatch(r"[\w-]+", language) for language in languages):
        parser.error("arguments --source-lang and --target-lang: must be two different file name suffixes")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for split, count in (("train", args.pairs), ("valid", args.valid), ("test", args.test)):
            make, suffixes = (aligned, (*languages, "align")) if args.alignments else (pairs, languages)
            lines = make(split, count, args.seed, args.lemmas, args.max_clauses)
            print(write_split(args.out, split, suffixes, lines, count), flush=True)
    except OSError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # temporary files go too
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
