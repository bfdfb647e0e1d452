"""fairseq's generators over candidate lists: what its own tests ask of a search, with plain fairseq as the control.

Networks are drawn, and compute in double precision where columns stand in another order than words: then no rounding
can change which of two candidates is the better one.
"""

import copy
from functools import cache, partial

import numpy as np
import pytest
import torch
from conftest import dictionary
from fairseq import options, search, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationTask
from fairseq.token_generation_constraints import pack_constraints

from lv_fairseq.candidates import CandidateLists
from lv_fairseq.decoding.search import ListedSearch, part_of
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.models.families import adopt_model

WORDS = dictionary(48)
PAD, EOS, UNK = WORDS.pad(), WORDS.eos(), WORDS.unk()
LANGUAGE = len(WORDS) - 1  # as a language token: the last word of the dictionary
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
def drawn(flags, seed=1):
    """A model that plain fairseq builds, with weights that make it choose; sentences come to an end soon."""
    words = [str(x) for x in ("data", "--task", "translation", *flags)]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    utils.set_torch_seed(seed)
    model = TranslationTask(cfg.task, WORDS, WORDS).build_model(cfg.model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2)
        for parameter in scores_of(model).parameters():
            parameter[[EOS, LANGUAGE]] *= 2  # what is far from all others is often the best, and often the worst
    return model


def scores_of(model):
    """The module that scores words."""
    return next(getattr(model.decoder, name) for name in set(SCORES.values()) if hasattr(model.decoder, name))


def copies(*flags, double=True, models=1):
    """Models as fairseq builds them, and the same with word tables."""
    plain = [copy.deepcopy(drawn(flags, seed)) for seed in range(1, 1 + models)]
    plain = [model.double() if double else model for model in plain]
    listed = copy.deepcopy(plain)
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

    def __init__(self, name, flags=ARCHITECTURES["transformer"], double=True):
        case = dict(CASES[name])
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
        self.search = ListedSearch(self.build(self.listed), self.tables, lists, scope, corpus, retries)
        return self._run(self.search, self.listed, sample)

    def _run(self, generator, models, sample):
        utils.set_torch_seed(1)
        sentences = sample["id"].tolist()
        given = {key: value[sentences] if torch.is_tensor(value) else value for key, value in self.given.items()}
        return generator.generate(models, {**sample, "id": torch.arange(len(sentences))}, **given)

    def allowed(self, lists, sentence, words):
        """Word numbers of a list, put together in the obvious way."""
        named = [self.given["prefix_tokens"][sentence]] if "prefix_tokens" in self.given else []
        if "constraints" in self.given:
            row = self.given["constraints"][sentence]
            named.append(row[1:][row[1:] > 0])
        ends = {self.build(self.plain).eos, self.given.get("bos_token", EOS)}
        translations = lexicon().candidates(words, PER_WORD)
        frequent = np.concatenate([np.arange(4), lists._ranking[:FREQUENT]])
        return {
            *frequent.tolist(),
            *map(WORDS.index, translations),
            *torch.cat([*named, PREFIX[0, :0]]).tolist(),
            *ends,
        }


def masked(models, allowed):
    """Let plain models score nothing but these words; gives hooks to be removed."""
    mask = torch.full((len(WORDS),), float("-inf"))
    mask[list(allowed)] = 0
    return [scores_of(model).register_forward_hook(lambda _, __, scores: scores + mask) for model in models]


def assert_same(result, expected, **close):
    """All that a hypothesis has; bit for bit unless told how close it must be."""
    close = close or dict(rtol=0, atol=0)
    assert len(result) == len(expected) and all(result)
    for one, other in zip(sum(result, []), sum(expected, [])):
        assert one["tokens"].tolist() == other["tokens"].tolist()
        for name in ("score", "positional_scores", "attention"):
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
    alone = [{**part_of(sample, torch.tensor([i])), "id": torch.tensor([i])} for i in range(SENTENCES)]
    if name in BY_BATCH:
        result = [
            case.over(lists, {**one, "source_words": [sample["source_words"][i]]})[0] for i, one in enumerate(alone)
        ]
    else:
        result = case.over(lists, sample)
    for i, one in enumerate(alone):
        hooks = masked(case.plain, case.allowed(lists, i, sample["source_words"][i]))
        assert_same([result[i]], case.control(one), **CLOSE)
        for hook in hooks:
            hook.remove()
