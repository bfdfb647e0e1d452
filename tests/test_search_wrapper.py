"""fairseq's generators over candidate lists: what its own tests ask of a search, with plain fairseq as the control.

Networks are drawn, and compute in double precision where columns stand in another order than words: then no rounding
can change which of two candidates is the better one.
"""

import copy
from argparse import Namespace
from functools import cache, partial

import numpy as np
import pytest
import torch
from fairseq import options, search
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import FairseqIncrementalDecoder
from fairseq.models.transformer import TransformerDecoder, TransformerEncoder
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from searches import (
    ARCHITECTURES,
    BEAM,
    BY_BATCH,
    CASES,
    CLOSE,
    FREQUENT,
    LANGUAGE,
    PER_WORD,
    PREFIX,
    SENTENCES,
    SHUFFLED,
    WORDS,
    Case,
    all_words,
    all_words_in_another_order,
    alone,
    assert_same,
    batch,
    copies,
    ended,
    lexicon,
    scores_of,
    some_words,
    state_of,
)
from small_corpus import MODEL, TAU, configure, train_epochs, write_corpus

from lv_fairseq.decoding.search import ListedSearch
from lv_fairseq.tasks.lv_translation import LVTranslationTask


@pytest.mark.parametrize("name", CASES)
def test_over_all_words_it_is_fairseqs_own_search(name):
    case, sample = Case(name), batch()
    expected = case.control(sample)
    assert_same(case.over(all_words(), sample), expected)
    shuffled = case.over(all_words_in_another_order(), sample)
    assert all(len(hypotheses[0]["candidates"]) == len(WORDS) for hypotheses in shuffled)
    assert_same(shuffled, expected, **CLOSE)


@pytest.mark.parametrize("ranking", [None, SHUFFLED], ids=["dictionary", "shuffled"])
@pytest.mark.parametrize("name", CASES)
def test_over_a_list_it_is_fairseqs_search_with_all_other_words_masked(name, ranking):
    case, sample, lists = Case(name), batch(), some_words(ranking)
    parts = [alone(sample, i) for i in range(SENTENCES)]
    result = [case.over(lists, one)[0] for one in parts] if name in BY_BATCH else case.over(lists, sample)
    for i, one in enumerate(parts):
        assert_same([result[i]], case.masked(case.allowed(lists, i, *one["source_words"]), one), **CLOSE)


ANY = pytest.mark.parametrize("flags", ARCHITECTURES.values(), ids=ARCHITECTURES)


@ANY
def test_any_architecture_over_all_words_is_fairseqs_own_search(flags):
    case, sample = Case("scores by length", flags, double=False), batch(64)
    result = case.over(all_words(), sample)
    assert len({max(len(one["tokens"]) for one in hypotheses) for hypotheses in result}) > 1  # the batch shrank
    assert_same(result, case.control(sample))


@ANY
def test_a_sentence_has_its_own_list_whatever_else_is_in_its_batch(flags):
    case, sample, lists = Case("scores by length", flags), batch(64), some_words(SHUFFLED)
    result = case.over(lists, sample)
    for i in range(0, 64, 9):
        one = alone(sample, i, padding=False)
        assert_same([result[i]], case.over(lists, one), without_attention=True, **CLOSE)
        allowed = case.allowed(lists, i, *one["source_words"])
        assert_same([result[i]], case.masked(allowed, one), without_attention=True, **CLOSE)


SHARED = ("another start", "another end", "phrases and another end", "never these words", "a language model")
SHARED = [(name, ARCHITECTURES["transformer"]) for name in (*SHARED, "beginnings of several lengths")]
SHARED += [("scores by length", flags) for flags in ARCHITECTURES.values()]


@pytest.mark.parametrize("scope", ["batch", "corpus"])
@pytest.mark.parametrize("name, flags", SHARED, ids=[f"{name}-{flags[1]}" for name, flags in SHARED])
def test_a_list_may_be_shared(name, flags, scope):
    case, sample, lists = Case(name, flags), batch(), some_words()
    corpus = {20, 30, 46}
    result = case.over(lists, sample, scope=scope, corpus=lambda _: np.array(sorted(corpus)))
    own = [case.allowed(lists, i, words if scope == "batch" else []) for i, words in enumerate(sample["source_words"])]
    assert_same(result, case.masked(set().union(*own, corpus if scope == "corpus" else ()), sample), **CLOSE)


AGAIN = ("diverse groups", "a beginning", "phrases in order", "another end", "never these words", "soft alignment")
AGAIN = [(name, ARCHITECTURES["transformer"]) for name in AGAIN]
AGAIN += [("scores by length", flags) for flags in ARCHITECTURES.values()]


@pytest.mark.parametrize("name, flags", AGAIN, ids=[f"{name}-{flags[1]}" for name, flags in AGAIN])
def test_a_sentence_that_does_not_end_is_decoded_again_over_a_longer_list(name, flags):
    most = {"diverse groups": 2, "a beginning": 4}.get(name, 6)  # so that some end
    sentences = 12 if name in ("scores by length", "diverse groups") else SENTENCES
    case, sample, lists = Case(name, flags, max_len_b=most), batch(sentences), some_words()
    result, again = case.over(lists, sample, retries=1), 0
    for i in range(sentences):
        one = alone(sample, i, padding=False)
        expected = case.masked(case.allowed(lists, i, *one["source_words"]), one)
        if not ended(expected[0], most):
            again += 1
            expected = case.masked(case.allowed(lists, i, *one["source_words"], longer=2), one)
        assert_same([result[i]], expected, without_attention=True, **CLOSE)
        assert result[i][0]["attention"].size(0) in (0, sample["net_input"]["src_tokens"].size(1))
    assert 0 < again < sentences


@pytest.mark.parametrize("mean", ["probability", "log-probability"])
@ANY
def test_two_models_score_a_list_together(flags, mean):
    """Each word of a hypothesis, against what two plain models say of it."""
    plain, listed, tables = zip(*([x[0] for x in copies(*some)] for some in (flags, ARCHITECTURES["transformer"])))
    generator = SequenceGenerator(listed, WORDS, beam_size=BEAM, max_len_b=9)
    sample, lists = batch(), some_words(SHUFFLED)
    result = ListedSearch(generator, tables, lists, mean=mean, retries=0).generate(listed, sample)
    for i, hypotheses in enumerate(result):
        inputs = alone(sample, i, padding=False)["net_input"]
        outside = torch.ones(len(WORDS), dtype=torch.bool)
        outside[[*lists.common, *lists.others(sample["source_words"][i])]] = False
        for tokens, scores in ((x["tokens"], x["positional_scores"]) for x in hypotheses):
            before = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
            with torch.no_grad():
                energies = torch.stack([model(prev_output_tokens=before, **inputs)[0][0] for model in plain])
            probs = energies.masked_fill(outside, float("-inf")).log_softmax(dim=-1)
            probs = probs.logsumexp(dim=0) - np.log(2) if mean == "probability" else probs.mean(dim=0)
            expected = probs.gather(1, tokens.unsqueeze(1))[:, 0]
            torch.testing.assert_close(scores.cumsum(dim=0), expected.cumsum(dim=0).float(), **CLOSE)


@cache
def task_configuration(*flags):
    words = [str(x) for x in ("data", "--task", "lv_translation", "--path", "none", *flags)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_generation_parser(), words))


@ANY
def test_lists_are_printed(flags, tmp_path_factory, capsys):
    folder = tmp_path_factory.getbasetemp() / "printed"
    if not folder.exists():
        lexicon().save(folder)
    given = ("--candidate-frequent", FREQUENT, "--candidate-per-word", PER_WORD, "--lexicon", folder)
    given += ("--candidate-retries", 0)
    task = LVTranslationTask(task_configuration(*given, "--print-candidates").task, WORDS, WORDS)
    case, sample = Case("scores by length", flags), {**batch(), "target": PREFIX}
    generator = task.build_generator(case.listed, Namespace(beam=BEAM, max_len_b=9))
    capsys.readouterr()
    assert_same(task.inference_step(generator, case.listed, sample), case.over(some_words(), sample))
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in printed] == [f"L-{i}" for i in range(SENTENCES)]
    for i, line in enumerate(printed):
        allowed, wanted = case.allowed(some_words(), i, sample["source_words"][i]), set(PREFIX[i].tolist())
        outside = len(wanted - allowed | wanted & {WORDS.unk()})
        assert line[1:3] == [f"{len(allowed)} words", f"{outside} of {len(wanted)} words outside"]


def test_the_generator_of_a_multilingual_task_is_wrapped():
    """It ends sentences with a language token, and makes itself without being asked which class to take."""
    case, sample, lists = Case("another end"), batch(), some_words()
    task = Namespace(tgt_dict=WORDS, target_dictionary=WORDS, args=Namespace(target_lang="xx"))
    args = Namespace(beam=BEAM, max_len_b=9)
    generator = TranslationFromPretrainedBARTTask.build_generator(task, case.listed, args)
    assert generator.eos == LANGUAGE
    result = ListedSearch(generator, case.tables, lists, retries=0).generate(case.listed, sample)
    assert_same(result, case.over(lists, sample))
    assert all(one["tokens"][-1] == LANGUAGE for one in sum(result, []))


@pytest.mark.parametrize("name", ["never these words", "another end", "top-k sampling", "alignment"])
def test_a_search_that_fails_leaves_no_trace(name):
    case, sample = Case(name), batch()
    generator = case.build(case.listed)
    listed = ListedSearch(generator, case.tables, some_words(SHUFFLED), retries=0)
    before, steps = state_of(generator), []
    expected = case._run(listed, case.listed, sample)

    def fail(*_):
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt

    hook = scores_of(case.listed[0]).register_forward_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        case._run(listed, case.listed, sample)
    hook.remove()
    assert state_of(generator) == before and not any(x.searched for tables in case.tables for x in tables)
    assert_same(case._run(listed, case.listed, sample), expected)


def test_generators_of_the_same_models_do_not_disturb_each_other():
    case, sample = Case("several models"), batch()
    plain = case.build(case.listed)
    short = ListedSearch(case.build(case.listed), case.tables, some_words(SHUFFLED), retries=0)
    every = ListedSearch(case.build(case.listed), case.tables, all_words_in_another_order(), retries=0)
    expected, masked = case.control(sample), case.over(some_words(SHUFFLED), sample)
    for _ in range(2):
        assert_same(case._run(short, case.listed, sample), masked)
        assert_same(case._run(every, case.listed, sample), expected, **CLOSE)
        assert_same(case._run(plain, case.listed, sample), expected)


class WithMoods(TransformerEncoder):
    """Is told something else about each sentence."""

    def forward(self, src_tokens, src_lengths, moods, **kwargs):
        result = super().forward(src_tokens, src_lengths, **kwargs)
        result["encoder_out"] = [result["encoder_out"][0] + moods.view(1, -1, 1)]
        return result


class InItsOwnWay(TransformerDecoder):
    def reorder_incremental_state_scripting(self, incremental_state, new_order):
        self.asked = True
        super().reorder_incremental_state_scripting(incremental_state, new_order)


class EnsembleInItsOwnWay(EnsembleModel):
    def reorder_incremental_state(self, incremental_states, new_order):
        self.asked = True
        super().reorder_incremental_state(incremental_states, new_order)


def decoder_of_a_kind(ensemble):
    (decoder,) = (model.decoder for model in ensemble.models)
    decoder.__class__ = InItsOwnWay
    return decoder


def changed_decoder(ensemble, name):
    (decoder,) = (model.decoder for model in ensemble.models)
    own = getattr(decoder, name)

    def reorder(incremental_state, new_order):
        decoder.asked = True
        return own(incremental_state, new_order)

    setattr(decoder, name, reorder)
    return decoder


def changed_layer(ensemble):
    (layer, *_) = (model.decoder.layers[0] for model in ensemble.models)
    layer.reorder_incremental_state = lambda incremental_state, new_order: setattr(layer, "asked", True)
    return layer


def ensemble_of_a_kind(ensemble):
    ensemble.__class__ = EnsembleInItsOwnWay
    return ensemble


def changed_ensemble(ensemble):
    own = ensemble.reorder_incremental_state

    def reorder(incremental_states, new_order):
        ensemble.asked = True
        return own(incremental_states, new_order)

    ensemble.reorder_incremental_state = reorder
    return ensemble


OWN_WAYS = {
    "a decoder": decoder_of_a_kind,
    "a decoder that was changed": partial(changed_decoder, name="reorder_incremental_state_scripting"),
    "what it keeps itself": partial(changed_decoder, name="reorder_incremental_state"),
    "a layer": changed_layer,
    "an ensemble": ensemble_of_a_kind,
    "an ensemble that was changed": changed_ensemble,
}


@pytest.mark.parametrize("change", OWN_WAYS.values(), ids=OWN_WAYS)
def test_who_reorders_in_a_way_of_its_own_is_asked(change):
    case, sample = Case("scores by length"), batch()
    expected = case.over(all_words(), sample)
    wrapped = ListedSearch(case.build(case.listed), case.tables, all_words(), retries=0)
    who = change(wrapped.model.ensemble)
    assert_same(wrapped.generate(None, sample), expected)
    assert who.asked


CLASSES = [
    (EnsembleModel, "reorder_incremental_state"),
    (FairseqIncrementalDecoder, "reorder_incremental_state_scripting"),
    (FairseqIncrementalDecoder, "reorder_incremental_state"),
]


@pytest.mark.parametrize("kind, name", CLASSES)
def test_a_method_of_fairseqs_that_somebody_has_changed_is_asked(kind, name, monkeypatch):
    case, sample, asked = Case("scores by length"), batch(), []
    expected, own = case.over(all_words(), sample), getattr(kind, name)

    def reorder(self, state, new_order):
        asked.append(self)
        return own(self, state, new_order)

    monkeypatch.setattr(kind, name, reorder)
    assert_same(case.over(all_words(), sample), expected)
    assert asked


def test_an_attention_that_is_replaced_between_two_searches_is_reordered():
    case, sample = Case("scores by length"), batch()
    wrapped = ListedSearch(case.build(case.listed), case.tables, all_words(), retries=0)
    expected = wrapped.generate(None, sample)
    for model in wrapped.model.ensemble.models:
        for layer in model.decoder.layers:
            layer.self_attn = copy.deepcopy(layer.self_attn)
            layer.self_attn.init_incremental_state()  # what it keeps is its own
    assert_same(wrapped.generate(None, sample), expected)


def test_other_input_of_a_model_goes_with_its_sentence():
    case, sample, lists = Case("scores by length", max_len_b=6), batch(12), some_words()
    for model in (*case.plain, *case.listed):
        model.encoder.__class__ = WithMoods
    sample["net_input"]["moods"] = torch.linspace(-1, 1, 12, dtype=torch.double)
    result, again = case.over(lists, sample, retries=1), 0
    for i in range(12):
        one = alone(sample, i)
        expected = case.masked(case.allowed(lists, i, *one["source_words"]), one)
        if not ended(expected[0], 6):
            again += 1
            expected = case.masked(case.allowed(lists, i, *one["source_words"], longer=2), one)
        assert_same([result[i]], expected, **CLOSE)
    assert 0 < again < 12


def test_a_generator_is_called_in_any_way_that_fairseq_has():
    case, sample = Case("a beginning"), batch()
    listed = ListedSearch(case.build(case.listed), case.tables, some_words(), retries=0)
    expected = listed.generate(case.listed, sample, prefix_tokens=PREFIX)
    assert_same(listed.forward(sample, PREFIX), expected)
    assert_same(listed(sample, prefix_tokens=PREFIX), expected)


def test_without_lists_alignments_are_fairseqs():
    case, sample = Case("soft alignment of several models"), batch()
    listed = ListedSearch(case.build(case.listed), case.tables, None)
    assert_same(case._run(listed, case.listed, sample), case.control(sample))


def test_more_words_may_be_sampled_from_than_there_are():
    sample, lists = batch(1), some_words()
    case = Case("top-k sampling", search=partial(search.Sampling, sampling_topk=len(WORDS)))
    allowed = case.allowed(lists, 0, *sample["source_words"])
    control = Case("top-k sampling", search=partial(search.Sampling, sampling_topk=len(allowed)))
    assert_same(case.over(lists, sample), control.masked(allowed, sample), **CLOSE)


EVALUATED = [(MODEL, ("--candidate-frequent", 68)), (ARCHITECTURES["transformer-tied"], ())]


@pytest.mark.parametrize("flags, lists", EVALUATED, ids=["rnnsearch-lists", "transformer-all words"])
def test_bleu_while_training_is_of_the_rows_of_now(flags, lists, tmp_path):
    """The trainer's generator against plain fairseq, given what a checkpoint would hold."""
    data = write_corpus(tmp_path, pairs=60)
    bleu = ("--eval-bleu", "--eval-bleu-args", '{"beam": 3, "max_len_b": 8}', "--optimizer", "adam", "--lr", 0.05)
    cfg, task, model, criterion = configure(data, *TAU, 30, *bleu, *lists, model=flags)
    task.load_dataset("valid")
    valid = task.dataset("valid")
    sample, found = valid.collater([valid[i] for i in range(12)]), []
    for epoch in (1, 2):
        train_epochs(cfg, task, model, criterion, epochs=(epoch,))
        _, _, logged = task.valid_step(sample, model, criterion)
        assert logged["_bleu_ref_len"] > 0
        found.append(task.inference_step(task.sequence_generator, [model], sample))
        plain = TranslationTask(cfg.task, task.source_dictionary, task.target_dictionary)
        cfg.task.eval_bleu = False
        control = plain.build_model(cfg.model)
        control.load_state_dict(model.state_dict())
        expected = SequenceGenerator([control], task.target_dictionary, beam_size=3, max_len_b=8)
        assert_same(found[-1], expected.generate([control], sample), **CLOSE)
    assert found[0][0][0]["score"] != found[1][0][0]["score"]
