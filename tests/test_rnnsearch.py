"""The model computes the paper's equations, exactly, whatever shares its batch."""

from argparse import Namespace

import numpy as np
import pytest
import torch
from conftest import dictionary
from fairseq.data import data_utils
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import gru, torch_gru, translate_scores, weights_of

from lv_fairseq.models.rnnsearch import RNNSearchConfig, RNNSearchModel
from lv_fairseq.rnnsearch.attention import EncodedSource

PAD, EOS = 1, 2
SOURCES = [[4, 5, 6, 7, 2], [8, 9, 2], [10, 2], [2], [5, 5, 4, 9, 10, 6, 2]]
TARGETS = [[5, 6, 7, 2], [12, 4, 9, 8, 7, 6, 2], [2], [10, 11, 2], [4, 2]]


def batch(sentences, left_pad=False, **options) -> torch.Tensor:
    return data_utils.collate_tokens([torch.tensor(s) for s in sentences], PAD, EOS, left_pad=left_pad, **options)


def scores(model, sources, targets, left_pad=False):
    """What the model gives each sentence of a batch: scores and attention without padding."""
    tokens = batch(sources, left_pad)
    with torch.no_grad():
        out, extra = model(tokens, None, batch(targets, move_eos_to_beginning=True))
    for i, (source, target) in enumerate(zip(sources, targets)):
        words = slice(-len(source), None) if left_pad else slice(len(source))
        yield out[i, : len(target)].numpy(), extra["attn"][0][i, : len(target), words].numpy()


@pytest.mark.parametrize("fused, unit", [(False, gru), (True, torch_gru)])
@pytest.mark.parametrize("left_pad", [False, True])
def test_equals_a_plain_numpy_transcription_of_the_equations(build, fused, unit, left_pad):
    model = build(fused_gru=fused)
    weights = weights_of(model)
    for i, (out, attention) in enumerate(scores(model, SOURCES, TARGETS, left_pad)):
        expected, expected_attention = translate_scores(weights, SOURCES[i], TARGETS[i], unit)
        np.testing.assert_allclose(out, expected, atol=1e-5)
        np.testing.assert_allclose(attention, expected_attention, atol=1e-5)


SHARED = dict(encoder_embed_dim=4, decoder_embed_dim=4, decoder_out_embed_dim=4, share_all_embeddings=True)


@pytest.mark.parametrize("options", [{}, {"fused_gru": True}, SHARED])
def test_gradients_of_every_parameter_pass_a_numeric_check(build, options):
    sizes = dict(encoder_hidden_size=2, decoder_hidden_size=3, attention_dim=2, readout_dim=2)
    model = build(source_words=9, target_words=9, **sizes, **options).double()
    parameters = dict(model.named_parameters())
    source, target = batch([[4, 5, 6, 2], [7, 2]], left_pad=True), batch([[4, 5, 2], [6, 2]])
    weights = torch.randn(2, 3, len(model.decoder.dictionary), dtype=torch.double)

    def loss(*values):
        call = torch.func.functional_call
        return (call(model, dict(zip(parameters, values)), (source, None, target))[0] * weights).sum()

    assert torch.autograd.gradcheck(loss, tuple(parameters.values()), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("left_pad", [False, True])
def test_step_by_step_equals_teacher_forcing(build, fused, left_pad):
    model = build(fused_gru=fused)
    source, target = batch(SOURCES, left_pad), batch(TARGETS, move_eos_to_beginning=True)
    with torch.no_grad():
        together, extra = model(source, None, target)
        encoded, state = model.encoder(source), {}
        for i in range(target.size(1)):
            step, step_extra = model.decoder(target[:, : i + 1], encoded, incremental_state=state)
            torch.testing.assert_close(step[:, 0], together[:, i])
            torch.testing.assert_close(step_extra["attn"][0][:, 0], extra["attn"][0][:, i])


@given(data=st.data(), fused=st.booleans(), left_pad=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_padding_and_neighbours_change_nothing(build, data, fused, left_pad):
    sentence = st.lists(st.integers(3, 10), max_size=9).map(lambda words: [*words, EOS])
    pairs = data.draw(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=5))
    model = build(fused_gru=fused)
    sources, targets = zip(*pairs)
    for i, (out, attention) in enumerate(scores(model, sources, targets, left_pad)):
        (alone, attention_alone) = next(scores(model, sources[i : i + 1], targets[i : i + 1], left_pad))
        np.testing.assert_allclose(out, alone, atol=1e-5)
        np.testing.assert_allclose(attention, attention_alone, atol=1e-6)


def expanded(source: EncodedSource) -> EncodedSource:
    """The same with a copy of its own for each hypothesis."""
    return EncodedSource(*(tensor.repeat_interleave(source.beam, dim=0) for tensor in source[:-1]))


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hypotheses_may_move_anywhere_and_read_their_own_source(build, data):
    encoded = build().encoder(batch(SOURCES))
    encoded = EncodedSource(*(tensor.detach() for tensor in encoded[:-1]))
    plain = expanded(encoded)
    for _ in range(3):
        hypotheses = len(encoded.keys) * encoded.beam
        if data.draw(st.booleans()):  # as fairseq's beam search does: each sentence keeps, or loses, all its hypotheses
            kept = data.draw(st.lists(st.integers(0, len(encoded.keys) - 1), min_size=1, max_size=4))
            within = st.lists(st.integers(0, encoded.beam - 1), min_size=3, max_size=3)
            order = [sentence * encoded.beam + k for sentence in kept for k in data.draw(within)]
        else:
            order = data.draw(st.lists(st.integers(0, hypotheses - 1), min_size=1, max_size=12))
        encoded = encoded.reorder(torch.tensor(order))
        plain = EncodedSource(*(tensor[torch.tensor(order)] for tensor in plain[:-1]))
        for mine, theirs in zip(expanded(encoded)[:-1], plain[:-1]):
            assert torch.equal(mine, theirs)


def test_beam_search_does_not_copy_the_source(build):
    encoded = build().encoder(batch(SOURCES))
    beam = encoded.reorder(torch.arange(5).repeat_interleave(12))
    step = beam.reorder(torch.arange(60).view(5, 12).flip(1).flatten())
    assert step.beam == 12 and step.keys is encoded.keys


@pytest.mark.parametrize("fused", [False, True])
def test_a_beam_scores_each_hypothesis_as_if_it_were_alone(build, fused):
    model = build(fused_gru=fused)
    words = torch.randint(4, 12, (15, 5))
    words[:, 0] = EOS
    with torch.no_grad():
        encoded = model.encoder(batch(SOURCES)).reorder(torch.arange(5).repeat_interleave(3))
        beam, _ = model.decoder(words, encoded)
        alone, _ = model(batch(SOURCES).repeat_interleave(3, dim=0), None, words)
    torch.testing.assert_close(beam, alone)


def test_initial_values_are_the_originals():
    parameters = dict(untouched(RNNSearchConfig()).named_parameters())
    identity = torch.eye(1000)
    gates = parameters["decoder.gru.gates"].split(1000, dim=1)
    for square in (*gates, parameters["decoder.gru.candidate"], *parameters["encoder.gru.unit.candidate"]):
        torch.testing.assert_close(square @ square.t(), identity, atol=1e-4, rtol=0)
    assert not parameters["decoder.attention.v"].any()
    for name in ("decoder.attention.query", "encoder.keys"):
        assert parameters[name].std().item() == pytest.approx(0.001, rel=0.02)
    for name in ("encoder.embed_tokens.weight", "decoder.output_projection.weight", "decoder.readout.state"):
        assert parameters[name].std().item() == pytest.approx(0.01, rel=0.02)
    for name in ("encoder.embed_bias", "decoder.gru.bias", "decoder.output_projection.bias", "decoder.readout.bias"):
        assert not parameters[name].any()


@pytest.mark.parametrize("fused", [False, True])
def test_scaled_initial_values_follow_the_number_of_inputs(fused):
    cfg = RNNSearchConfig(init="scaled", fused_gru=fused, encoder_hidden_size=300)
    parameters = dict(untouched(cfg).named_parameters())
    inputs = {"encoder.keys": 600, "decoder.readout.output": 500, "decoder.output_projection.weight": 620}
    inputs["encoder.gru.unit.weight_ih_l0_reverse" if fused else "encoder.gru.unit.input"] = 620
    for name, number in inputs.items():
        assert parameters[name].std().item() == pytest.approx(number**-0.5, rel=0.03)


def untouched(cfg) -> RNNSearchModel:
    task = Namespace(source_dictionary=dictionary(300), target_dictionary=dictionary(400), cfg=Namespace())
    return RNNSearchModel.build_model(cfg, task)


def test_the_default_sizes_are_the_papers():
    cfg = RNNSearchConfig()
    assert (cfg.encoder_embed_dim, cfg.decoder_embed_dim, cfg.decoder_out_embed_dim) == (620, 620, 620)
    assert (cfg.encoder_hidden_size, cfg.decoder_hidden_size, cfg.attention_dim, cfg.readout_dim) == (
        1000,
        1000,
        1000,
        500,
    )
    assert cfg.dropout == 0


def test_dropout_acts_in_training_only_and_in_the_place_that_is_named(build):
    sources, targets = batch(SOURCES), batch(TARGETS)
    for place in ("encoder_dropout_in", "encoder_dropout_out", "decoder_dropout_in", "decoder_dropout_out"):
        model, plain = build(**{place: 0.5}), build()
        assert torch.equal(model(sources, None, targets)[0], plain(sources, None, targets)[0])
        model.train()
        assert not torch.equal(model(sources, None, targets)[0], plain(sources, None, targets)[0])
    model = build(dropout=0.5, encoder_dropout_in=0.0)
    places = model.encoder.dropout_in, model.encoder.dropout_out, model.decoder.dropout_in
    assert [place.p for place in places] == [0.0, 0.5, 0.5]


@torch.no_grad()
def test_words_after_a_padding_symbol_that_somebody_typed_are_read(build):
    model = build(fused_gru=True)
    typed = torch.tensor([[4, 1, 5, 2], [1, 4, 5, 2]])  # <pad> inside a sentence, and as padding
    other = typed.clone()
    other[:, 2] = 6
    keys = [model.encoder(tokens).keys for tokens in (typed, other)]
    assert not torch.equal(keys[0][0, 2], keys[1][0, 2]) and not torch.equal(keys[0][0, 3], keys[1][0, 3])
    alone = model.encoder(typed[1:, 1:]).keys
    torch.testing.assert_close(keys[0][1, 1:], alone[0])
