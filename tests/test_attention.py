"""Which attention unknown words are replaced by, where a model has several: compared with plain calls of the model."""

import functools
import re
from argparse import Namespace

import fairseq.options
import numpy as np
import pytest
import torch
from fairseq import tasks
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment,
)
from fairseq.data import indexed_dataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from small_corpus import MODEL, PLUGIN, TAU, configure, train_epochs, train_iterator, write_corpus

from lv_fairseq import UserError
from lv_fairseq.decoding.attention import Heads, heads_of
from lv_fairseq.models.families import word_tables

SIZES = ("--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--encoder-ffn-embed-dim", 24)
SIZES += ("--decoder-ffn-embed-dim", 24, "--encoder-attention-heads", 2, "--decoder-attention-heads", 4)
SIZES += ("--encoder-layers", 1, "--decoder-layers", 3, "--dropout", 0.0)
ALIGN = ("--arch", "transformer_align", *SIZES, "--alignment-layer", 1, "--alignment-heads", 2)
ARCHS = {
    "transformer": ("--arch", "transformer", *SIZES),
    "align": ALIGN,
    "full context": (*ALIGN, "--full-context-alignment"),
    "lstm": ("--arch", "lstm", "--encoder-embed-dim", 12, "--encoder-hidden-size", 14, "--decoder-embed-dim", 12),
    "rnnsearch": MODEL,
}
LAST = Heads(2, 4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=40, splits=("train", "valid", "test"))


@pytest.fixture(scope="module")
def model(corpus):
    """A model of each kind, with weights far from zero."""
    made = {}

    def make(name: str, seed: int = 1):
        if (name, seed) not in made:
            model = configure(corpus, model=ARCHS[name])[2].eval()
            random = np.random.default_rng(seed)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(torch.from_numpy(random.normal(0, 0.6, parameter.shape)))
            made[name, seed] = model
        return made[name, seed]

    return make


PREFIX = torch.tensor([[5, 3, 3, 6], [3, 7, 1, 1], [1, 1, 1, 1], [8, 9, 10, 3]])  # 3: an unknown word, 1: any word


def decode(corpus, models, **options):
    """What the task makes of 4 sentences, and the batch. Their translations begin with the words of a prefix, and have
    no other unknown word."""
    settings = generation_settings(corpus).copy()
    settings.update(options)
    task = tasks.setup_task(settings)
    task.load_dataset("test")
    data = task.dataset("test")
    sample = data.collater([data[i] for i in range(4)])
    generator = task.build_generator(models, Namespace(beam=2, max_len_b=5, unkpen=1e6))
    return task, generator, sample, task.inference_step(generator, models, sample, prefix_tokens=PREFIX)


@functools.cache
def generation_settings(corpus, *flags):
    """Of the task, as fairseq-generate has them."""
    flags = [str(x) for x in (corpus, *PLUGIN, "--path", "x", *flags)]
    args = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), flags)
    return convert_namespace_to_omegaconf(args).task


def plainly(models, heads, sample, sentence, words):
    """The attention of one sentence alone, by a plain call of each model that scores all words."""
    inputs = sample["net_input"]
    rows = []
    for model, mine in zip(models, heads):
        encoded = model.encoder(inputs["src_tokens"][sentence : sentence + 1], inputs["src_lengths"][[sentence]])
        options = mine._asdict() if mine else {}
        _, extra = model.decoder(torch.tensor([[2, *words[:-1]]]), encoder_out=encoded, **options)
        rows.append((extra["attn"][0] if isinstance(extra, dict) else extra)[0])
    return torch.stack(rows).mean(dim=0).t()


COPY = {"unk_replacement": "copy"}


@pytest.mark.parametrize(
    "name, flags, heads",
    [
        ("transformer", {}, None),
        ("transformer", dict(alignment_layer=0), Heads(0, 4)),
        ("transformer", dict(alignment_heads=1), Heads(2, 1)),
        ("transformer", dict(alignment_layer=2, alignment_heads=4), None),
        ("align", {}, Heads(1, 2)),
        ("align", dict(alignment_heads=1), Heads(1, 1)),
        ("align", dict(alignment_layer=0), Heads(0, 4)),
        ("align", dict(alignment_layer=2), None),
        ("full context", {}, Heads(1, 2, True)),
        ("full context", dict(alignment_layer=1), Heads(1, 2, True)),
        ("full context", dict(alignment_layer=0), Heads(0, 4)),
        ("lstm", {}, None),
        ("rnnsearch", {}, None),
    ],
)
def test_it_is_what_options_or_the_model_name(model, name, flags, heads):
    found = heads_of(model(name), flags.get("alignment_layer"), flags.get("alignment_heads"))
    assert found == heads


@pytest.mark.parametrize("lists, left", [({}, True), (dict(candidate_frequent=20, candidate_retries=0), False)])
@pytest.mark.parametrize(
    "names, flags",
    [
        (["transformer"], dict(alignment_layer=0, alignment_heads=3)),
        (["align"], {}),
        (["full context"], {}),
        (["transformer", "align"], dict(alignment_layer=0)),
        (["transformer", "rnnsearch"], dict(alignment_layer=1)),
    ],
)
def test_unknown_words_are_replaced_by_it(corpus, model, names, flags, lists, left):
    models = [model(name, seed) for seed, name in enumerate(names, 1)]
    options = {**lists, "left_pad_source": left}
    heads = [heads_of(x, flags.get("alignment_layer"), flags.get("alignment_heads")) for x in models]
    _, _, sample, before = decode(corpus, models, **options)
    task, _, _, after = decode(corpus, models, **COPY, **flags, **options)
    assert sample["net_input"]["src_tokens"].eq(1).any()  # there is padding
    for i, (old, new) in enumerate(zip(before, after)):
        for plain, hypothesis in zip(old, new):
            words = plain["tokens"].tolist()
            where = [place for place, word in enumerate(words) if word == 3]
            assert where == PREFIX[i].eq(3).nonzero().flatten().tolist()
            assert [x for x in words if x != 3] == [
                x for place, x in enumerate(hypothesis["tokens"].tolist()) if place not in where
            ]
            if not where:  # the search's own, untouched
                torch.testing.assert_close(hypothesis["attention"], plain["attention"], rtol=0, atol=0)
                continue
            expected = plainly(models, heads, sample, i, words)
            torch.testing.assert_close(hypothesis["attention"], expected, rtol=1e-4, atol=1e-5)
            tokens = sample["net_input"]["src_tokens"][i]
            real = [place for place, word in enumerate(tokens.tolist()) if word != 1][:-1]
            for place in where:
                source = tokens[real[int(hypothesis["attention"][real, place].argmax())]]
                assert task.target_dictionary[hypothesis["tokens"][place]] == task.source_dictionary[source]


@pytest.mark.parametrize("name", ["transformer", "lstm", "rnnsearch"])
def test_without_another_layer_nothing_is_computed_again(corpus, model, name, monkeypatch):
    calls = []
    network = model(name)
    forward = type(network.encoder).forward
    monkeypatch.setattr(
        type(network.encoder), "forward", lambda *args, **options: calls.append(1) or forward(*args, **options)
    )
    _, _, _, plain = decode(corpus, [network])
    _, _, _, copied = decode(corpus, [network], **COPY)
    assert len(calls) == 2
    for old, new in zip(sum(plain, []), sum(copied, [])):
        torch.testing.assert_close(old["attention"], new["attention"], rtol=0, atol=0)


def test_no_word_is_scored_again(corpus, model, monkeypatch):
    network = model("align")
    task, generator, sample, _ = decode(corpus, [network], **COPY)
    table, handed = word_tables(network).output, []
    forward = type(table).forward
    monkeypatch.setattr(type(table), "forward", lambda self, x: handed.append(self._handing_back) or forward(self, x))
    steps = []
    search = SequenceGenerator._generate

    def counted(self, *args, **options):
        result = search(self, *args, **options)
        steps.append(len(handed))
        return result

    monkeypatch.setattr(SequenceGenerator, "_generate", counted)
    task.inference_step(generator, [network], sample, prefix_tokens=PREFIX)
    assert not any(handed[: steps[0]]) and handed[steps[0] :] == [True]


@pytest.mark.parametrize(
    "name, flags, said",
    [
        ("transformer", dict(alignment_layer=3), "--alignment-layer 3: the decoder has the layers 0 to 2"),
        ("align", dict(alignment_layer=-1), "--alignment-layer -1: the decoder has the layers 0 to 2"),
        ("transformer", dict(alignment_heads=5), "--alignment-heads 5: a layer of the decoder has 4"),
        ("align", dict(alignment_heads=0), "--alignment-heads 0: a layer of the decoder has 4"),
        ("rnnsearch", dict(alignment_layer=0), "--alignment-layer is about transformers: leave it out"),
    ],
)
def test_a_layer_or_a_head_that_does_not_exist_is_refused(corpus, model, name, flags, said):
    with pytest.raises(UserError, match=f"^{re.escape(said)}"):
        decode(corpus, [model(name)], **COPY, **flags)


def test_the_flags_are_those_of_the_model_in_training(corpus):
    cfg, task, network, _ = configure(corpus, model=(*ALIGN[:2], *SIZES, "--alignment-layer", 2))
    assert (network.alignment_layer, network.alignment_heads) == (2, 1)  # 1 is the model's default
    assert (cfg.task.alignment_layer, cfg.task.alignment_heads) == (2, 1)
    cfg = configure(corpus, model=(*ARCHS["transformer"], "--alignment-layer", 0))[0]
    assert (cfg.task.alignment_layer, cfg.task.alignment_heads) == (0, None)


def test_they_are_flags_of_the_task_in_generation(corpus):
    settings = generation_settings(corpus, "--alignment-layer", 0, "--alignment-heads", 3)
    assert (settings.alignment_layer, settings.alignment_heads) == (0, 3)


@pytest.fixture(scope="module")
def aligned(tmp_path_factory):
    """A corpus whose first words, and whose last, belong together."""
    folder = write_corpus(tmp_path_factory.mktemp("aligned"), pairs=40, splits=("train",))
    sides = [indexed_dataset.MMapIndexedDataset(f"{folder}/train.src-tgt.{side}") for side in ("src", "tgt")]
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{folder}/train.align.src-tgt.bin", np.int32)
    for source, target in zip(*sides):
        builder.add_item(torch.tensor([0, 0, len(source) - 2, len(target) - 2]))
    builder.finalize(f"{folder}/train.align.src-tgt.idx")
    return folder


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("name", ["align", "full context"])
def test_alignments_are_learned_on_pages_as_fairseq_learns_them(aligned, name, left):
    weight, pad = ("--load-alignments", "--alignment-lambda", 0.3), () if left else ("--left-pad-source",)
    cfg, task, network, criterion = configure(aligned, *TAU, 30, *weight, *pad, model=ARCHS[name])
    samples = list(train_iterator(cfg, task).next_epoch_itr())
    assert len({sample["partition"] for sample in samples}) > 1
    _, _, plain, whole = configure(aligned, *TAU, 1000, "--source-tau", 1000, *weight, *pad, model=ARCHS[name])
    plain.load_state_dict(network.state_dict())
    own = LabelSmoothedCrossEntropyCriterionWithAlignment(task, False, 0.0, 0.3)
    sample = samples[-1]
    task.pages.turn_to(sample["partition"])
    expected, _, control = own(plain, sample)
    loss, _, log = whole(plain, sample)  # over all words
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    loss, _, paged = criterion(network, sample)
    for mine in (log, paged):
        assert float(mine["alignment_loss"]) == pytest.approx(float(control["alignment_loss"]), rel=1e-5)
    assert float(loss) == pytest.approx(float(paged["loss"] + 0.3 * paged["alignment_loss"]), rel=1e-6)
    loss.backward()
    assert network.decoder.layers[1].encoder_attn.k_proj.weight.grad.abs().max() > 0


def test_a_layer_that_does_not_exist_cannot_learn_them(aligned):
    model = ("--arch", "transformer_align", *SIZES)  # fairseq's default is layer 4
    with pytest.raises(UserError, match="^--alignment-layer 4: the decoder has the layers 0 to 2"):
        configure(aligned, *TAU, 30, "--load-alignments", model=model)


def test_a_model_that_aligns_trains_with_partitions(aligned):
    flags = (*TAU, 30, "--load-alignments", "--optimizer", "sgd", "--lr", 0.1)
    cfg, task, network, criterion = configure(aligned, *flags, model=ALIGN)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    train_epochs(cfg, task, network, criterion)
    moved = [key for key, value in network.state_dict().items() if not torch.equal(value, before[key])]
    assert "decoder.layers.1.encoder_attn.q_proj.weight" in moved and "decoder.embed_tokens.weight" in moved
