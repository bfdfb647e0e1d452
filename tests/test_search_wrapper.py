"""fairseq's generators over candidate lists: what its own tests ask of a search, with plain fairseq as the control.

Networks are drawn, and compute in double precision where columns stand in another order than words: then no rounding
can change which of two candidates is the better one.
"""

from argparse import Namespace
from functools import cache, partial

import numpy as np
import pytest
import torch
from conftest import dictionary
from fairseq import options, search, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.models.transformer import TransformerEncoder
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from fairseq.token_generation_constraints import pack_constraints
from small_corpus import MODEL, TAU, configure, train_epochs, write_corpus

from lv_fairseq.candidates import CandidateLists
from lv_fairseq.decoding.search import ListedSearch, part_of
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.models.families import adopt_model
from lv_fairseq.tasks.lv_translation import LVTranslationTask

WORDS = dictionary(47)
PAD, EOS = WORDS.pad(), WORDS.eos()
LANGUAGE = WORDS.add_symbol("[xx]")  # a language token, at the end of the dictionary as fairseq's tasks put it
SENTENCES, BEAM = 6, 3
FREQUENT, PER_WORD = 12, 3
SHUFFLED = np.random.default_rng(3).permutation(np.arange(4, len(WORDS)))

SIZES = ("--dropout", 0.0, "--encoder-embed-dim", 16, "--decoder-embed-dim", 16)
LAYERS = [x for side in ("encoder", "decoder") for x in (f"--{side}-layers", 1, f"--{side}-ffn-embed-dim", 24)]
TRANSFORMER = (*SIZES, *LAYERS, "--encoder-attention-heads", 2, "--decoder-attention-heads", 2)
HIDDEN = ("--encoder-hidden-size", 14, "--decoder-hidden-size", 14, "--decoder-out-embed-dim", 12)
CONVOLUTIONS = ("--encoder-layers", "[(16, 3)] * 2", "--decoder-layers", "[(16, 3)] * 2")
ARCHITECTURES = {
    "rnnsearch": ("--arch", "rnnsearch_small", *SIZES, *HIDDEN, "--attention-dim", 10, "--readout-dim", 12),
    "transformer": ("--arch", "transformer", *TRANSFORMER),
    "transformer-tied": ("--arch", "transformer", *TRANSFORMER, "--share-decoder-input-output-embed"),
    "transformer-joined": ("--arch", "transformer", *TRANSFORMER, "--share-all-embeddings"),
    "lstm": ("--arch", "lstm", *SIZES, *HIDDEN),
    "fconv": ("--arch", "fconv", *SIZES, "--decoder-out-embed-dim", 12, *CONVOLUTIONS),
}
ALIGN = ("--arch", "transformer_align", *TRANSFORMER, "--alignment-layer", 0, "--full-context-alignment")
SCORES = {"rnnsearch": "output_projection", "transformer": "output_projection", "lstm": "fc_out", "fconv": "fc3"}


@cache
def configuration(flags):
    words = [str(x) for x in ("data", "--task", "translation", *flags)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))


SCALE = {"lstm": 8, "fconv": 5}  # of weights; 2 elsewhere


def drawn(flags, seed):
    """A model that plain fairseq builds, with weights that make it choose; sentences come to an end soon."""
    cfg = configuration(flags)
    utils.set_torch_seed(seed)
    model = TranslationTask(cfg.task, WORDS, WORDS).build_model(cfg.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(SCALE.get(flags[1], 2))
        end_now_and_then(model)
    return model


def end_now_and_then(model, share=0.5):
    """Let an end of sentence be the best word at this share of places."""
    inputs = batch(16)["net_input"]
    scores, _ = model(prev_output_tokens=torch.arange(16 * 4).view(16, 4) % len(WORDS), **inputs)[:2]
    best = scores[..., 4:LANGUAGE].amax(dim=-1)
    for word in (EOS, LANGUAGE):
        needed = (best / scores[..., word]).flatten()  # so many times its score now
        sign = 1 if needed.gt(0).float().mean() > 0.5 else -1
        factor = sign * (sign * needed)[sign * needed > 0].quantile(share)
        for parameter in scores_of(model).parameters():
            parameter[word] *= factor


def scores_of(model):
    """The module that scores words."""
    return next(getattr(model.decoder, name) for name in set(SCORES.values()) if hasattr(model.decoder, name))


def copies(*flags, double=True, models=1):
    """Models as fairseq builds them, and the same with word tables."""
    plain, listed = ([drawn(flags, seed) for seed in range(1, 1 + models)] for _ in range(2))
    for model in (*plain, *listed) if double else ():
        model.double()
    return plain, listed, [adopt_model(model) for model in listed]


def batch(sentences=SENTENCES):
    """Sentences of different lengths, as a dataset would collate them."""
    random = np.random.default_rng(5)
    lengths = sorted((1 + i % 5 for i in range(sentences)), reverse=True)
    rows = [[*random.integers(4, len(WORDS) - 1, length).tolist(), EOS] for length in lengths]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    inputs = {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(dim=1)}
    return {"net_input": inputs, "id": torch.arange(sentences), "source_words": [words_of(row) for row in tokens]}


def words_of(row):
    return [WORDS[word] for word in row.tolist() if word not in (PAD, EOS)]


@cache
def lexicon(translations=5):
    """Random translations for each source word: lists of which no two are alike."""
    random, entries = np.random.default_rng(1), Entries()
    for word in WORDS.symbols[4:]:
        chosen = [target.encode() for target in random.choice(WORDS.symbols[4:], translations, replace=False)]
        entries.add([word.encode()] * translations, chosen, -np.arange(1.0, 1 + translations))
    return Lexicon.of(entries, {"dictionaries": {}})


def all_words():
    return CandidateLists(WORDS, len(WORDS))


def all_words_in_another_order():
    """Columns that are no words: frequent ones first, then those that are translations of each source word."""
    every = len(WORDS) - 4
    return CandidateLists(WORDS, FREQUENT, lexicon(every), every, ranking=SHUFFLED)


def some_words(ranking=None, frequent=FREQUENT):
    return CandidateLists(WORDS, frequent, lexicon(), PER_WORD, ranking=ranking)


class Bigrams(FairseqLanguageModel):
    """A language model of random numbers."""

    def __init__(self):
        super().__init__(FairseqDecoder(WORDS))
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(len(WORDS), len(WORDS)).double()

    def forward(self, tokens):
        return self.table(tokens), None


PREFIX = torch.tensor([[40, 5], [7, 41], [45, 45], [3, 8], [43, 44], [9, 42]])
PREFIXES = torch.where(torch.tensor([[False, i % 2 == 1] for i in range(SENTENCES)]), PAD, PREFIX)  # of two lengths
PACKED = pack_constraints([[torch.tensor([5, 40 + i]), torch.tensor([46])][: i % 3] for i in range(SENTENCES)])
ALIGNED = partial(SequenceGeneratorWithAlignment, print_alignment="hard")
SOFTLY = partial(SequenceGeneratorWithAlignment, print_alignment="soft")

CASES = {
    "scores by length": {},
    "scores of all words": dict(normalize_scores=False),
    "short ones preferred": dict(len_penalty=0.6),
    "long ones preferred": dict(len_penalty=5.0),
    "one hypothesis": dict(beam_size=1),
    "many hypotheses": dict(beam_size=5),
    "at least": dict(min_len=4),
    "at most": dict(max_len_b=2),
    "at most, by source length": dict(max_len_a=0.5, max_len_b=1),
    "at most, whatever is asked": dict(max_len=4),
    "no word twice": dict(no_repeat_ngram_size=1),
    "no pair twice": dict(no_repeat_ngram_size=2),
    "few unknown words": dict(unk_penalty=3.0),
    "many unknown words": dict(unk_penalty=-3.0),
    "less sure": dict(temperature=2.0),
    "more sure": dict(temperature=0.5),
    "never these words": dict(tokens_to_suppress=[WORDS[word] for word in (6, 20, 33, 40, 44)]),
    "several models": dict(models=2),
    "a language model": dict(lm_weight=0.4),
    "diverse groups": dict(search=partial(search.DiverseBeamSearch, num_groups=2, diversity_strength=0.5), beam_size=4),
    "diverse siblings": dict(search=partial(search.DiverseSiblingsSearch, diversity_rate=0.5)),
    "top-k sampling": dict(search=partial(search.Sampling, sampling_topk=5)),
    "top-p sampling": dict(search=partial(search.Sampling, sampling_topp=0.3)),
    "as long as the source": dict(
        search=partial(search.LengthConstrainedBeamSearch, min_len_a=1, min_len_b=0, max_len_a=1, max_len_b=0),
        match_source_len=True,
    ),
    "a beginning": dict(prefix_tokens=PREFIX),
    "beginnings of several lengths": dict(prefix_tokens=PREFIXES),
    "a beginning of words never chosen": dict(prefix_tokens=PREFIX, tokens_to_suppress=[WORDS[40], WORDS[44]]),
    "phrases in order": dict(
        search=partial(search.LexicallyConstrainedBeamSearch, representation="ordered"), constraints=PACKED, beam_size=4
    ),
    "phrases in any order": dict(
        search=partial(search.LexicallyConstrainedBeamSearch, representation="unordered"),
        constraints=PACKED,
        beam_size=4,
    ),
    "another start": dict(bos_token=LANGUAGE),
    "another end": dict(eos=LANGUAGE),
    "phrases and another end": dict(
        search=partial(search.LexicallyConstrainedBeamSearch, representation="ordered"),
        constraints=PACKED,
        beam_size=4,
        eos=LANGUAGE,
    ),
    "alignment": dict(kind=ALIGNED),
    "soft alignment": dict(kind=SOFTLY),
    "alignment by the whole hypothesis": dict(kind=ALIGNED, flags=ALIGN),
    "soft alignment of several models": dict(kind=SOFTLY, flags=ALIGN, models=2),
}
GIVEN = ("prefix_tokens", "constraints", "bos_token")
BY_BATCH = ("top-k sampling", "top-p sampling", "as long as the source")  # where fairseq's result depends on the batch


class Case:
    """A generator twice: as fairseq has it, and over candidate lists."""

    def __init__(self, name, flags=ARCHITECTURES["transformer"], double=True, **changes):
        case = {**CASES[name], **changes}
        self.given = {key: case.pop(key) for key in GIVEN if key in case}
        flags, models = case.pop("flags", flags), case.pop("models", 1)
        self.plain, self.listed, self.tables = copies(*flags, double=double, models=models)
        kind, strategy = case.pop("kind", SequenceGenerator), case.pop("search", search.BeamSearch)
        case = {"beam_size": BEAM, "max_len_b": 9, **case}

        def build(models):
            extra = {"lm_model": Bigrams()} if "lm_weight" in case else {}
            return kind(models, WORDS, search_strategy=strategy(WORDS), **case, **extra)

        self.build = build

    def control(self, sample):
        return self._run(self.build(self.plain), self.plain, sample)

    def over(self, lists, sample, retries=0, scope="sentence", corpus=None):
        generator = self.build(self.listed)
        searching = ListedSearch(generator, self.tables, lists, scope, corpus, retries)
        before = state_of(generator)
        result = self._run(searching, self.listed, sample)
        assert state_of(generator) == before and not any(x.searched for tables in self.tables for x in tables)
        return result

    def _run(self, generator, models, sample):
        utils.set_torch_seed(1)
        sentences = sample["id"].tolist()
        given = {key: value[sentences] if torch.is_tensor(value) else value for key, value in self.given.items()}
        return generator.generate(models, {**sample, "id": torch.arange(len(sentences))}, **given)

    def masked(self, allowed, sample):
        """What fairseq finds if all other words are impossible."""
        mask = torch.full((len(WORDS),), float("-inf"))
        mask[list(allowed)] = 0
        hooks = [scores_of(model).register_forward_hook(lambda *x: x[-1] + mask) for model in self.plain]
        try:
            return self.control(sample)
        finally:
            for hook in hooks:
                hook.remove()

    def allowed(self, lists, sentence, words, longer=1):
        """Word numbers of a list, put together in the obvious way."""
        named = [self.given["prefix_tokens"][sentence]] if "prefix_tokens" in self.given else []
        if "constraints" in self.given:
            row = self.given["constraints"][sentence]
            named.append(row[1:][row[1:] > 0])
        ends = {self.build(self.plain).eos, self.given.get("bos_token", EOS)}
        translations = lexicon().candidates(words, PER_WORD * longer)
        frequent = np.concatenate([np.arange(4), lists._ranking[: FREQUENT * longer]])
        return {
            *frequent.tolist(),
            *map(WORDS.index, translations),
            *torch.cat([*named, PREFIX[0, :0]]).tolist(),
            *ends,
        }


def state_of(generator):
    """The numbers that a generator and its search know by themselves."""
    things, names = (generator, generator.search), ("vocab_size", "eos", "sampling_topk", "token_indices_to_suppress")
    return [str(getattr(thing, name, None)) for thing in things for name in names], generator.model.searched


def ended(hypotheses, most):
    return any(len(hypothesis["tokens"]) <= most for hypothesis in hypotheses)


def alone(sample, sentence, padding=True):
    """One sentence of a batch, with its padding there or without."""
    one = part_of(sample, torch.tensor([sentence]))
    if not padding:
        one["net_input"]["src_tokens"] = one["net_input"]["src_tokens"][:, : one["net_input"]["src_lengths"]]
    return {**one, "id": torch.tensor([sentence]), "source_words": [sample["source_words"][sentence]]}


def assert_same(result, expected, without_attention=False, **close):
    """All that a hypothesis has; bit for bit unless told how close it must be. Attention has the width of a batch."""
    close = close or dict(rtol=0, atol=0)
    assert len(result) == len(expected) and all(result)
    for one, other in zip(sum(result, []), sum(expected, [])):
        assert one["tokens"].tolist() == other["tokens"].tolist()
        for name in ("score", "positional_scores", "attention")[: 2 if without_attention else 3]:
            torch.testing.assert_close(torch.as_tensor(one[name]), torch.as_tensor(other[name]), **close)
        both = one["alignment"], other["alignment"]
        assert all(map(torch.is_tensor, both)) or both[0] == both[1] or np.allclose(*both)
    assert list(map(len, result)) == list(map(len, expected))


CLOSE = dict(rtol=1e-5, atol=1e-5)


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
