"""Unknown pieces of words are replaced by whole source words, which come out right where fairseq joins pieces."""

import re

import networks
import pytest
import sentencepiece
from conftest import generate_here, hypotheses, preprocess
from fairseq.data.data_utils import post_process
from hypothesis import given
from hypothesis import strategies as st

from lv_fairseq.decoding.subwords import BytePair, SentencePiece, replace_pieces, segmentation, spells
from lv_fairseq.decoding.unknown_words import replacement

PIECES, BPE = SentencePiece(), BytePair()
NAMES = {PIECES: "sentencepiece", BPE: "subword_nmt"}


@st.composite
def sentences(draw, kind):
    """Pieces of a sentence. Words are short and of few letters, so that many are alike; some are in brackets."""
    result = []
    for _ in range(draw(st.integers(1, 4))):
        cut = draw(st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=4))
        if kind is BPE:
            result += [piece + "@@" for piece in cut[:-1]] + cut[-1:]
            continue
        before, after = draw(st.sampled_from([(), ("(",), ("-", "(")])), draw(st.sampled_from([(), (".",), (")", ",")]))
        word = [*before, *cut, *after]
        result += ["▁", *word] if draw(st.booleans()) else ["▁" + word[0], *word[1:]]
    return result


def with_unknown(pieces):
    return st.lists(st.booleans(), min_size=len(pieces), max_size=len(pieces)).map(
        lambda hidden: [None if hide else piece for piece, hide in zip(pieces, hidden)]
    )


def places(source, length):
    return st.lists(st.integers(0, len(source) - 1), min_size=length, max_size=length)


kinds = st.sampled_from([PIECES, BPE])
copied = kinds.flatmap(
    lambda kind: sentences(kind).flatmap(lambda x: st.tuples(*map(st.just, (kind, x)), with_unknown(x)))
)
cases = kinds.flatmap(
    lambda kind: st.tuples(st.just(kind), sentences(kind), sentences(kind).flatmap(with_unknown))
).flatmap(lambda case: st.tuples(*map(st.just, case), places(case[1], len(case[2]))))


@given(copied)
def test_a_sentence_that_is_copied_arrives_whole_whichever_pieces_are_unknown(case):
    kind, source, target = case
    written = replace_pieces(target, range(len(source)), source, kind, lambda word: word)
    assert len(written) == len(target) and None not in written
    assert post_process(" ".join(written), NAMES[kind]) == post_process(" ".join(source), NAMES[kind])


def slowly(kind, source, target, looked_at, translate):
    """All windows around an unknown piece that may be parts of its word: the longest after it, then before it."""
    words = kind.words(source)
    look = [next(word for word in words if word.start <= place < word.end) for place in looked_at]
    result, done = list(target), 0
    for place in range(len(target)):
        pieces = source[look[place].start : look[place].end]
        word = translate("".join(kind.text(piece) for piece in pieces))
        if target[place] is not None or place < done or word is None:
            continue

        def fits(start, end, word=word, mine=look[place]):
            inside = all(kind.may_join(target[i], target[i + 1]) for i in range(start, end - 1))
            pattern = "".join(".*" if piece is None else re.escape(kind.text(piece)) for piece in target[start:end])
            return inside and set(look[start:end]) == {mine} and re.fullmatch(pattern, word)

        end = max(end for end in range(place + 1, len(target) + 1) if fits(place, end))
        start = min(start for start in range(done, place + 1) if fits(start, end))
        before = [piece for piece in result[:start] if piece != kind.nothing]
        before = "" if not before else before[-1] or "unknown"
        result[start:end] = [kind.written(word, pieces, before)] + [kind.nothing] * (end - start - 1)
        done = end
    return result


@given(cases)
def test_it_is_what_a_slow_search_finds(case):
    for translate in (lambda word: word, lambda word: None if word[0] == "a" else word + "b"):
        kind, source, target, looked_at = case
        assert replace_pieces(target, looked_at, source, kind, translate) == slowly(*case, translate)


@given(kinds.flatmap(lambda kind: st.tuples(st.just(kind), sentences(kind))))
def test_words_are_all_pieces_between_spaces_but_punctuation_at_their_ends(case):
    kind, pieces = case
    words = kind.words(pieces)
    assert [i for word in words for i in range(word.start, word.end)] == list(range(len(pieces)))
    texts = ["".join(map(kind.text, pieces[word.start : word.end])) for word in words]
    expected = post_process(" ".join(pieces), NAMES[kind])
    if kind is PIECES:
        expected = re.sub(r"([(),.-])", r" \1 ", expected)
    assert texts == expected.split()


X = None
LINE = ["▁the", "▁Quet", "z", "al", "▁(", "Ama", "zon", ")", "."]
LINE_BPE = ["the", "Quet@@", "z@@", "al", "of", "Ama@@", "zon"]


@pytest.mark.parametrize(
    "kind, source, target, looked_at, expected",
    [
        (PIECES, LINE, ["▁der", X], [0, 2], "der Quetzal"),
        (PIECES, LINE, ["▁der", X, X, X, "▁ist"], [0, 1, 2, 3, 0], "der Quetzal ist"),  # once
        (PIECES, LINE, ["▁der", X, X], [0, 1, 5], "der Quetzal Amazon"),
        (PIECES, LINE, ["▁der", "▁Quet", X, "al", "s"], [0, 1, 2, 3, 3], "der Quetzals"),  # known parts of it
        (PIECES, LINE, ["▁der", X, "vogel"], [0, 1, 0], "der Quetzalvogel"),
        (PIECES, LINE, ["▁der", X], [1, 1], "der Quetzal"),  # looks at it, but is no part of it
        (PIECES, LINE, ["▁", X, X, "."], [0, 1, 1, 8], "Quetzal."),
        (PIECES, LINE, ["▁(", X, ")"], [4, 6, 7], "(Amazon)"),
        (PIECES, LINE, ["▁am", X, ","], [4, 6, 7], "am Amazon,"),  # its brackets are other words
        (PIECES, LINE, ["▁am", X], [0, 8], "am."),
        (PIECES, ["▁", "漢", "字", "▁b"], ["▁a", "▁", X, "▁c"], [3, 0, 2, 3], "a 漢字 c"),
        (BPE, LINE_BPE, ["der", X, X, X, "ist"], [0, 1, 2, 3, 0], "der Quetzal ist"),
        (BPE, LINE_BPE, ["der", "Quet@@", X, "al", "s"], [0, 1, 2, 3, 3], "der Quetzal s"),
        (BPE, LINE_BPE, ["am", "Regen@@", X], [0, 0, 5], "am RegenAmazon"),
        (BPE, LINE_BPE, [X, X, "."], [6, 2, 0], "Amazon Quetzal ."),
    ],
)
def test_examples(kind, source, target, looked_at, expected):
    written = replace_pieces(target, looked_at, source, kind, lambda word: word)
    assert len(written) == len(target)
    assert post_process(" ".join(written), NAMES[kind]) == expected


def test_a_word_that_is_not_known_stays_unknown():
    written = replace_pieces(["▁a", X, X, "z"], [0, 1, 3, 3], ["▁b", "▁<unk>", "c", "▁d"], PIECES, {"d": "e"}.get)
    assert written == ["▁a", None, "▁e", "z"]


@pytest.mark.parametrize(
    "pieces, word, right",
    [((X,), "ab", 1), (("a", X), "ab", 1), (("b", X), "ab", 0), ((X, "a"), "ab", 0), (("a", X, "a"), "a", 0)]
    + [(("a", X, "b", X), "acbd", 1), ((X, "c", X, "b"), "acb", 1), ((X, "b", X, "c"), "acb", 0)],
)
def test_pieces_spell_a_word_if_unknown_ones_are_right(pieces, word, right):
    assert spells(pieces, word, PIECES) is bool(right)


def test_long_words_take_no_time():
    """Patterns that a regular expression would try for ever."""
    pieces = [X, "a"] * 300 + ["b"]
    assert not spells(pieces, "a" * 5000, PIECES)
    written = replace_pieces(pieces, [0] * len(pieces), ["a" * 5000], PIECES, lambda word: word)
    assert written[0] == "a" * 5000 and written[-1] == "b" and set(written[1:-1]) == {""}


@pytest.mark.parametrize(
    "kind, word, rule, expected",
    [
        (PIECES, "prague", "lexicon-lowercase", "prag"),  # a piece that begins a word is lowercase too
        (PIECES, "Prague", "lexicon-lowercase", "Prague"),
        (PIECES, "Prague", "lexicon", "Prag"),  # the lexicon has the word
        (PIECES, "house", "lexicon", "house"),  # only a part of its translation
        (BPE, "Prague", "lexicon", "Prag"),
        (BPE, "tree", "lexicon", "tree"),
        (BPE, "Prague", "copy", "Prague"),
    ],
)
def test_a_lexicon_may_be_of_words_or_of_pieces(kind, word, rule, expected):
    class Lexicon:
        entries = {"▁prague": "▁prag", "prague": "no", "Prague": "Prag", "▁house": "haus", "tree": "bau@@"}

        def best(self, key):
            return self.entries.get(key)

    assert replacement(word, rule, Lexicon(), kind) == expected


def test_the_segmentation_is_the_one_that_fairseq_undoes():
    for name, kind in (("sentencepiece", SentencePiece), ("@@ ", BytePair), ("subword_nmt", BytePair)):
        assert type(segmentation(name)) is type(segmentation(None, name)) is kind
    assert segmentation(None, None) is segmentation("letter") is None


SPM = {
    "▁s1 ▁Quet z al ▁s2": "t1 Quetzal t2",
    "▁Ł ódź , ▁s3 ▁( ▁7 7 : 4 1 ) .": "Łódź, t3 ( 77:41).",
    "▁s1 ▁s2": "t1 t2",
}
SUBWORD_NMT = {"s1 Quet@@ z@@ al s2": "t1 Quetzal t2", "Ama@@ zon Ama@@ zon": "Amazon Amazon", "s3": "t3"}


def test_names_in_pieces_arrive_in_generate(tmp_path):
    """The network writes a known piece or <unk> for each source piece, and looks at it."""
    known = ["▁s1 ▁s2 ▁s3 s1 s2 s3 , . ) ▁("] * 3
    partner = {word: word.replace("s", "t") for word in known[0].split()}
    for split, lines in (("train", known), ("valid", SPM), ("test", SUBWORD_NMT)):
        (tmp_path / f"{split}.src").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        target = [" ".join(partner.get(word, word) for word in line.split()) for line in lines]
        (tmp_path / f"{split}.tgt").write_text("".join(f"{line}\n" for line in target), "utf-8")
    options = {"model_prefix": str(tmp_path / "spm"), "model_type": "char", "minloglevel": 9}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["s t"]), vocab_size=6, **options)
    data = preprocess(tmp_path, tmp_path / "data")
    model = networks.word_for_word(tmp_path / "model.pt", data, partner.get)
    for split, lines, options in (
        ("valid", SPM, ("--post-process", "sentencepiece")),
        ("test", SUBWORD_NMT, ("--remove-bpe",)),
        ("test", SUBWORD_NMT, ("--post-process", "@@ ")),
        ("valid", SPM, ("--bpe", "sentencepiece", "--sentencepiece-model", tmp_path / "spm.model")),
    ):
        text = ("--unk-replacement", "copy", "--gen-subset", split, "--source-text", tmp_path / f"{split}.src")
        output = generate_here(data, model, *text, *options)
        assert hypotheses(output) == list(lines.values())
