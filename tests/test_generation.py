"""Candidate lists under fairseq's search: what comes out is what a slow, obvious search would give."""

import copy
import pickle
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.token_generation_constraints import pack_constraints
from networks import word_for_word

from lv_fairseq import UserError
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.word_tables import ScoringTable
from lv_fairseq.word_tables.columns import Searched, columns_of, linear_over


@pytest.fixture(scope="module")
def lexicon(data, tmp_path_factory):
    """Five random translations for each source word: lists of which no two are alike."""
    random = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("lexicon") / "lexicon"
    words = {side: [line.split()[0] for line in open(data / f"dict.{side}.txt", encoding="utf-8")] for side in SIDES}
    entries = Entries()
    for word in words["src"]:
        chosen = random.choice(words["tgt"], 5, replace=False)
        entries.add([word.encode()] * 5, [target.encode() for target in chosen], -np.arange(1.0, 6.0))
    Lexicon.of(entries, {"dictionaries": {}}).save(path)
    return path


SIDES = ("src", "tgt")


SENTENCES = 12
FAR = 1e-5  # rounding moves scores by some 1e-6: candidates that lie further apart keep their order on every machine


class Setting:
    """A task, its models and a batch of the test set, as fairseq-generate has them."""

    def __init__(self, data, paths, **options):
        overrides = {"data": str(data), **options}
        self.models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(list(map(str, paths)), overrides)
        for model in self.models:
            model.eval()
        self.task.load_dataset("test")
        dataset = self.task.dataset("test")
        self.sample = dataset.collater([dataset[i] for i in range(SENTENCES)])

    def generate(self, extra=None, sample=None, **args):
        """With random weights some sentences end by themselves and others would never."""
        args = {"beam": 4, "max_len_b": 12, **args}
        generator = self.task.build_generator(self.models, Namespace(**args), extra_gen_cls_kwargs=extra)
        nearest = watch(generator.search)
        utils.set_torch_seed(1)
        sample = sample or self.sample
        prefix = sample["target"][:, : args["prefix_size"]] if "prefix_size" in args else None
        with torch.no_grad():
            result = self.task.inference_step(
                generator, self.models, sample, prefix_tokens=prefix, constraints=args.get("packed")
            )
        self.nearest = min(nearest)
        return result


def watch(search):
    """How near the nearest two candidates come at each step of a search, from now on."""
    nearest, step = [], search.step

    def watched(*args, **kwargs):
        result = step(*args, **kwargs)
        distances = result[0].sort(descending=True)[0].diff().neg()
        nearest.append(min(distances[torch.isfinite(distances)].tolist(), default=float("inf")))
        return result

    search.step = watched
    return nearest


def two_drawn(drawn):
    return [drawn / "one.pt", drawn / "two.pt"]


def assert_same(result, expected, **close):
    assert len(result) == len(expected)
    for some, others in zip(result, expected):
        assert len(some) == len(others)
        for one, other in zip(some, others):
            assert one["tokens"].tolist() == other["tokens"].tolist()
            torch.testing.assert_close(one["positional_scores"], other["positional_scores"], **close)
            torch.testing.assert_close(torch.as_tensor(one["score"]), torch.as_tensor(other["score"]), **close)


class LanguageModel(FairseqLanguageModel):
    """A bigram model of random numbers."""

    def __init__(self, words):
        super().__init__(FairseqDecoder(words))
        self.table = torch.nn.Embedding(len(words), len(words))

    def forward(self, tokens):
        return self.table(tokens), None


@pytest.mark.parametrize(
    "args",
    [
        dict(),
        dict(beam=1),
        dict(beam=7, lenpen=0.3, unkpen=0.5, min_len=3, temperature=1.3),
        dict(sampling=True, beam=3),
        dict(sampling=True, sampling_topk=5, beam=3),
        dict(sampling=True, sampling_topp=0.7, beam=3),
        dict(diverse_beam_groups=2),
        dict(no_repeat_ngram_size=2),
        dict(prefix_size=3),
        dict(print_alignment="hard"),
        dict(match_source_len=True),
    ],
)
def test_with_all_words_on_the_list_it_is_fairseqs_own_search(data, drawn, args):
    path = [drawn / "one.pt"]
    plain = Setting(data, path)
    listed = Setting(data, path, candidate_frequent=len(plain.task.target_dictionary) - 4)
    results = plain.generate(**args), listed.generate(**args)
    assert listed.task.decoding.statistics.lists > 0
    assert "sampling" in args or plain.nearest > FAR
    assert_same(*results, rtol=1e-5, atol=1e-5)
    if "print_alignment" in args:
        assert [x[0]["alignment"] for x in results[0]] == [x[0]["alignment"] for x in results[1]]


def test_the_same_for_an_ensemble_a_language_model_and_constraints(data, drawn):
    paths = two_drawn(drawn)
    plain = Setting(data, paths)
    words = len(plain.task.target_dictionary)
    listed = Setting(data, paths, candidate_frequent=words - 4)
    assert_same(plain.generate(), listed.generate(), rtol=1e-5, atol=1e-5)
    assert plain.nearest > FAR
    torch.manual_seed(1)
    extra = {"lm_model": LanguageModel(plain.task.target_dictionary), "lm_weight": 0.1}
    assert_same(plain.generate(extra), listed.generate(extra), rtol=1e-5, atol=1e-5)
    assert plain.nearest > FAR
    packed = pack_constraints([[torch.tensor([5, 6]), torch.tensor([words - 3])] for _ in range(SENTENCES)])
    results = [setting.generate(constraints="unordered", packed=packed, beam=6) for setting in (plain, listed)]
    assert all(words - 3 in hypotheses[0]["tokens"].tolist() for hypotheses in results[1])
    assert_same(*results, rtol=1e-5, atol=1e-5)
    assert plain.nearest > FAR


def test_one_model_twice_is_that_model(data, drawn):
    alone, twice = Setting(data, [drawn / "one.pt"]), Setting(data, [drawn / "one.pt"] * 2)
    assert_same(alone.generate(), twice.generate(), rtol=1e-5, atol=1e-5)
    assert alone.nearest > FAR


def masked(setting, monkeypatch, sentence, lists):
    """The model of a setting with minus infinity for every word outside the list of one sentence."""
    allowed = [*lists.common, *lists.others(sentence)]
    mask = torch.full((len(setting.task.target_dictionary),), float("-inf"))
    mask[allowed] = 0
    for model in setting.models:
        project = model.decoder.output_projection
        monkeypatch.setattr(model.decoder, "output_layer", lambda features, project=project: project(features) + mask)


@pytest.mark.parametrize("per_word, args", [(3, {}), (2, dict(prefix_size=2)), (5, dict(no_repeat_ngram_size=2))])
def test_each_sentence_has_exactly_its_own_list(data, drawn, lexicon, monkeypatch, per_word, args):
    paths = two_drawn(drawn)
    options = dict(candidate_frequent=30, candidate_per_word=per_word, lexicon=str(lexicon), candidate_retries=0)
    listed, slow = Setting(data, paths, **options), Setting(data, paths)
    result = listed.generate(**args)
    lists = listed.task.decoding.lists
    sizes = set()
    for place, i in enumerate(listed.sample["id"].tolist()):  # fairseq sorts a batch by length
        words = [slow.task.source_dictionary[x] for x in slow.task.dataset("test")[i]["source"].tolist()[:-1]]
        if "prefix_size" in args:  # the slow search must not lose the prefix either
            prefix = listed.sample["target"][place, : args["prefix_size"]].numpy()
            others = np.union1d(lists.others(words), prefix)
            own = Namespace(common=lists.common, others=lambda _, others=others: others)
        else:
            own = lists
        sizes.add(len(own.others(words)))
        masked(slow, monkeypatch, words, own)
        dataset = slow.task.dataset("test")
        expected = slow.generate(sample=dataset.collater([dataset[i]]), **args)
        assert slow.nearest > FAR
        assert_same([result[place]], expected, rtol=1e-4, atol=1e-4)
    assert len(sizes) > 5


def test_batch_and_corpus_scope_share_the_union(data, drawn, lexicon):
    path = [drawn / "one.pt"]
    options = dict(candidate_frequent=30, candidate_per_word=3, lexicon=str(lexicon))
    listed = {}
    for scope in ("sentence", "batch", "corpus"):
        result = Setting(data, path, candidate_scope=scope, candidate_retries=0, **options).generate()
        listed[scope] = [hypotheses[0]["candidates"].others for hypotheses in result]
    batch = np.unique(np.concatenate(listed["sentence"]))
    assert all(np.array_equal(words, batch) for words in listed["batch"])
    corpus = listed["corpus"][0]
    assert len(corpus) > len(batch) and np.isin(batch, corpus).all()


def test_a_sentence_that_does_not_end_is_decoded_again_as_often_as_asked(data, drawn, lexicon):
    """None ends by itself here."""
    options = dict(candidate_frequent=12, candidate_per_word=1, lexicon=str(lexicon))
    for retries in (0, 1, 2):
        setting = Setting(data, [drawn / "one.pt"], candidate_retries=retries, **options)
        result = setting.generate(min_len=4, max_len_b=4)
        counted = setting.task.decoding.statistics
        assert counted.lists == SENTENCES * (1 + retries) and all(result)
        assert counted.expanded == (SENTENCES if retries else 0) and "decoded again" in counted.summary()
        assert {hypothesis["candidates"].lists.frequent for hypothesis in sum(result, [])} == {12 * 2**retries}
        assert {hypothesis["candidates"].lists.per_word for hypothesis in sum(result, [])} == {2**retries}


@pytest.mark.parametrize("scope", ["sentence", "batch", "corpus"])
def test_a_longer_list_holds_all_words_of_the_shorter_one(data, lexicon, tmp_path, scope):
    """Sentences of more than eight words, and no others, are decoded again."""
    model = word_for_word(tmp_path / "model.pt", data, lambda word: None)
    options = dict(candidate_frequent=12, candidate_per_word=1, lexicon=str(lexicon), candidate_scope=scope)
    lists = []
    for retries in (0, 1, 2):
        setting = Setting(data, [model], candidate_retries=retries, **options)
        lists.append([hypotheses[0]["candidates"] for hypotheses in setting.generate(max_len_b=9)])
    again = [len(words) > 8 for words in setting.sample["source_words"]]
    assert 1 < sum(again) < SENTENCES
    for some, more in zip(lists, lists[1:]):
        assert [len(one) < len(other) for one, other in zip(some, more)] == again
        for one, other in zip(some, more):
            assert len(one.lists.common) <= len(other.lists.common) and all(word in other for word in one.others)


def test_a_dictionary_that_grows_does_not_change_a_search(data, drawn, lexicon):
    """fairseq adds the words of references and translations to the dictionary while it scores them."""
    for options in (
        dict(ensemble_mean="log-probability"),
        dict(candidate_frequent=500, candidate_per_word=2, lexicon=str(lexicon)),  # twice 500: more than there are
    ):
        setting = Setting(data, two_drawn(drawn), **options)
        args = dict(min_len=4, max_len_b=4)  # so that no sentence ends by itself
        expected = setting.generate(**args)
        generator = setting.task.build_generator(setting.models, Namespace(beam=4, **args))
        for word in ("never", "seen", "before"):
            setting.task.target_dictionary.add_symbol(word)
        assert_same(setting.task.inference_step(generator, setting.models, setting.sample), expected)
        assert_same(setting.generate(**args), expected)


def test_a_function_that_names_words_by_number_is_refused_with_lists(data, drawn):
    setting = Setting(data, [drawn / "one.pt"], candidate_frequent=30)
    with pytest.raises(UserError, match="prefix_allowed_tokens_fn"):
        setting.task.build_generator(setting.models, Namespace(), prefix_allowed_tokens_fn=lambda *_: [5])


def test_a_list_may_be_shorter_than_the_beam(data, drawn, lexicon):
    options = dict(candidate_frequent=1, candidate_per_word=1, lexicon=str(lexicon))
    setting = Setting(data, [drawn / "one.pt"], **options)
    assert all(len(hypotheses) == 12 for hypotheses in setting.generate(beam=12))


def test_the_mean_of_log_probabilities(data, drawn):
    paths = two_drawn(drawn)
    setting = Setting(data, paths, ensemble_mean="log-probability")
    hypotheses = setting.generate(beam=3)
    for i, target in enumerate(hypotheses):
        tokens = target[0]["tokens"]
        inputs = {name: setting.sample["net_input"][name][i : i + 1] for name in ("src_tokens", "src_lengths")}
        inputs["prev_output_tokens"] = torch.cat([tokens[-1:], tokens[:-1]]).unsqueeze(0)
        with torch.no_grad():
            probs = [torch.log_softmax(model(**inputs)[0], dim=-1)[0] for model in setting.models]
        expected = sum(probs).div(len(probs)).gather(1, tokens.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(target[0]["positional_scores"], expected, rtol=1e-4, atol=1e-4)


def test_score_reference_is_refused_with_lists(data, drawn):
    setting = Setting(data, [drawn / "one.pt"], candidate_frequent=30)
    with pytest.raises(UserError, match="--score-reference"):
        setting.task.build_generator(setting.models, Namespace(score_reference=True))


@torch.no_grad()
def test_columns_and_words_are_each_others_inverse():
    others = [np.array([12, 15, 40]), np.array([], dtype=np.int64), np.array([11])]
    columns = columns_of(10, others, pad=1, beam=2, device=torch.device("cpu"))
    words = torch.tensor([[3, 40, 12], [9, 0, 5], [11, 2, 11]])
    mapped = columns.of_words(words)
    assert mapped.tolist() == [[3, 12, 10], [9, 0, 5], [10, 2, 10]] and columns.width == 13
    assert torch.equal(columns.words(mapped.repeat_interleave(2, dim=0))[::2], words)
    table = ScoringTable(torch.nn.Linear(4, 50))
    features = torch.randn(6, 1, 4)
    searched = Searched(columns)
    scores = linear_over(searched, table, features)
    full = table(features)
    for row in range(6):
        expected = torch.cat([full[row, 0, :10], full[row, 0, others[row // 2]]])
        torch.testing.assert_close(scores[row, 0, : len(expected)], expected)
        assert torch.isinf(scores[row, 0, len(expected) :]).all()
    searched.reorder(torch.tensor([5, 4]))
    torch.testing.assert_close(linear_over(searched, table, features[[5, 4]]), scores[[5, 4]])


def test_what_is_wrapped_can_be_copied_and_goes_to_other_processes(data, drawn):
    setting = Setting(data, [drawn / "one.pt"], candidate_frequent=30)
    generator = copy.copy(setting.task.build_generator(setting.models, Namespace(beam=2)))
    assert generator.beam_size == 2
    dataset = pickle.loads(pickle.dumps(setting.task.dataset("test")))
    assert (
        dataset.collater([dataset[0]])["source_words"]
        == setting.task.dataset("test").collater([dataset[0]])["source_words"]
    )


def test_attentions_that_have_no_mean_are_refused(data, drawn):
    setting = Setting(data, [drawn / "one.pt"], unk_replacement="copy")
    other = Namespace(encoder=Namespace(left_pad=True))  # as fairseq's lstm has it
    with pytest.raises(UserError, match="their attentions have no mean"):
        setting.task.decoding.wrap(None, [*setting.models, other], Namespace())
