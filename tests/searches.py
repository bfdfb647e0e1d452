"""Searches of all kinds over drawn networks: by fairseq alone, over candidate lists, and with other words masked."""

from functools import cache, partial

import numpy as np
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


def restrict(model, words: torch.Tensor) -> None:
    """Let a model of fairseq score these words only: the others are impossible, before any softmax."""
    forward = model.decoder.forward

    def restricted(*args, **kwargs):
        scores, extra = forward(*args, **kwargs)
        others = torch.ones(scores.size(-1), dtype=torch.bool).index_fill(0, words, False)
        return scores.masked_fill(others, float("-inf")), extra

    model.decoder.forward = restricted
