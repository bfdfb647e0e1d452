"""Translating from Python, through fairseq's own interface."""

import pytest
import torch
from fairseq.models.lstm import LSTMModel
from fairseq.utils import convert_padding_direction
from networks import drawn

from lv_fairseq import UserError
from lv_fairseq.decoding.source_text import word_places
from lv_fairseq.models.rnnsearch import RNNSearchModel

TYPED = ["s1 Mc1 s2", "s1 Mc2 s2", "rare3", "", "s4 </s> Mc3 s5", "s39 " * 7]


def load(names, **options):
    return RNNSearchModel.from_pretrained(str(names), "model.pt", str(names / "data"), **options)


def test_a_program_translates_and_words_outside_the_dictionary_are_copied(names):
    plain = ["t1 <unk> t2", "t1 <unk> t2", "<unk>", "", "t4 <unk> <unk> t5", " ".join(["t39"] * 7)]
    assert load(names).translate(TYPED) == plain
    copied = ["t1 Mc1 t2", "t1 Mc2 t2", "rare3", "", "t4 </s> Mc3 t5", plain[-1]]
    copy = load(names, unk_replacement="copy")
    assert copy.translate(TYPED) == copied
    assert copy.translate("Mc7 s1") == "Mc7 t1"  # one line, after others
    encoded = [copy.encode(line) for line in TYPED]  # the same numbers as fairseq's
    assert encoded[0].tolist() == encoded[1].tolist() and encoded[0][1] == copy.src_dict.unk()
    assert [copy.decode(hypotheses[0]["tokens"]) for hypotheses in copy.generate(encoded)] == copied
    numbers = [tokens.clone() for tokens in encoded]  # the words are not known any more
    assert [copy.decode(hypotheses[0]["tokens"]) for hypotheses in copy.generate(numbers)][:3] == plain[:3]


def test_a_line_that_is_too_long_is_refused_and_not_left_out(names):
    with pytest.raises(UserError, match="Size of sample #1 is invalid"):
        load(names, max_source_positions=6).translate(["s1 s2", "s1 " * 6])


@pytest.mark.parametrize("scope", ["sentence", "batch", "corpus"])
def test_with_candidate_lists_and_a_lexicon_too(names, scope):
    options = dict(candidate_frequent=1, candidate_per_word=1, candidate_scope=scope, lexicon=str(names / "lexicon"))
    hub = load(names, unk_replacement="lexicon", **options)
    for _ in range(2):
        expected = ["t1 Mc1 t2", "t1 Mc2 t2", "selten3", "", "t4 </s> Mc3 t5", " ".join(["t39"] * 7)]
        assert hub.translate(TYPED) == expected
    assert hub.translate("s38 s37") == "t38 t37"  # other words than before
    with pytest.raises(UserError, match="--score-reference"):
        hub.score(TYPED)


def test_a_model_of_fairseqs_translates_as_with_fairseqs_task(names):
    sizes = {f"{side}_{size}": 8 for side in ("encoder", "decoder") for size in ("embed_dim", "hidden_size")}
    results = []
    for task in ("translation", "lv_translation"):
        drawn(names / f"{task}.pt", names / "data", 1, arch="lstm", task=task, decoder_out_embed_dim=8, **sizes)
        hub = LSTMModel.from_pretrained(str(names), f"{task}.pt", str(names / "data"))
        results.append(hub.translate(TYPED[:3], beam=1, max_len_b=6))
    assert results[0] == results[1]
    hub = LSTMModel.from_pretrained(str(names), "lv_translation.pt", str(names / "data"), unk_replacement="copy")
    unknown = dict(max_len_b=6, unkpen=-1000)  # nothing but unknown words
    together = hub.translate(TYPED, **unknown)
    assert together == [hub.translate(line, **unknown) for line in TYPED]  # also where a batch has padding
    for line, text in zip(TYPED, together):
        assert set(text.split()) <= set(line.split())


def test_places_of_words_in_a_batch_that_is_turned_round():
    """As fairseq's lstm does, which wants its padding on the right; special symbols may stand between the words."""
    pad, end, sentences = 1, 2, [[5, 1, 6, 2, 7], [8, 1], [9, 10, 2], []]
    rows = [[pad] * (5 - len(words)) + [*words, end] for words in sentences]
    tokens = torch.tensor(rows)
    turned = convert_padding_direction(tokens, pad, left_to_right=True)
    for words, row, other in zip(sentences, tokens, turned):
        assert row[word_places(row, len(words), pad)].tolist() == words
        assert other[word_places(row, len(words), pad, turned=True)].tolist() == words
    right = torch.tensor([[*words, end] + [pad] * (5 - len(words)) for words in sentences])
    for words, row in zip(sentences, right):
        assert row[word_places(row, len(words), pad)].tolist() == words
