"""A device that is not there (`stand_in_device`): what training, validation and decoding would do to a real one.

Everything is where it should be, or torch would say so; values are those of the CPU; and nobody waits for the device
inside an update or a step of a search, apart from what fairseq itself does, which is the control.
"""

from argparse import Namespace
from functools import cache

import numpy as np
import pytest
import torch
from architectures import ALIGN, TRANSFORMER
from fairseq import utils
from fairseq.data.iterators import GroupedIterator
from fairseq.trainer import Trainer
from small_corpus import MODEL, TAU, configure, write_corpus
from stand_in_device import gpu, moved, watching
from torch import nn

from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries
from lv_fairseq.softmax import limited_cross_entropy
from lv_fairseq.word_tables import Page, ReadingTable, ScoringTable, Tables
from lv_fairseq.word_tables.adopt import scoring_with

CPU = torch.device("cpu")
JOINED = (*TRANSFORMER, "--share-all-embeddings")
PLAIN = ("--task", "translation", "--criterion", "label_smoothed_cross_entropy")
ADAM = ("--optimizer", "adam", "--lr", 0.01, "--clip-norm", 1)


class OnDevice(Trainer):
    """fairseq's trainer, whose model and batches are on some device, as they are on its cuda."""

    def __init__(self, device, cfg, task, model, criterion):
        cfg.common.cpu = True
        super().__init__(cfg, task, model, criterion)
        if device != CPU:
            moved(self._model), self._criterion.to(device)
        self.device = device

    def _prepare_sample(self, sample, is_dummy=False):
        sample, is_dummy = super()._prepare_sample(sample, is_dummy)
        return utils.apply_to_sample(lambda x: x.to(self.device, non_blocking=True), sample), is_dummy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two corpora, one with a dictionary for both languages, and a lexicon for the other."""
    folder = tmp_path_factory.mktemp("device")
    write_corpus(folder / "joined", joined=True)
    write_corpus(folder / "data")
    random, entries = np.random.default_rng(1), Entries()
    for i in range(61):
        targets = [b"tgt%d" % word for word in random.choice(61, 3, replace=False)]
        entries.add([b"src%d" % i] * 3, targets, -np.arange(1.0, 4))
    Lexicon.of(entries, {"dictionaries": {}}).save(folder / "lexicon")
    return folder


@pytest.fixture(scope="module")
def trainer(folder):
    """A trainer by device, model and flags; the same ones make the same one."""

    @cache
    def make(device, model, *flags) -> OnDevice:
        data = folder / ("joined" if model is JOINED else "data")
        return OnDevice(device, *configure(data, *ADAM, *flags, model=model))

    return make


def batches(trainer, count):
    """The first of an epoch, in the order of the corpus."""
    iterator = trainer.get_train_iterator(1).next_epoch_itr(shuffle=False)
    trainer.begin_epoch(1)
    return [samples for samples, _ in zip(GroupedIterator(iterator, 1), range(count))]


def valid_batch(trainer):
    if "valid" not in trainer.task.datasets:
        trainer.task.load_dataset("valid")
    return next(iter(trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)))


LISTS = ("--candidate-frequent", 12, "--candidate-per-word", 3)


def search(trainer, length, beam=3, sentences=None, **options):
    """What is seen of a search whose hypotheses all have this length, and what it finds."""
    task, model = trainer.task, trainer.model.eval()
    options = dict(beam=beam, min_len=length, max_len_b=length, **options)
    generator = task.build_generator([model], Namespace(**options))
    sample, _ = trainer._prepare_sample(valid_batch(trainer))
    if sentences is not None:
        part = slice(sentences)
        sample = {"net_input": {name: x[part] for name, x in sample["net_input"].items() if torch.is_tensor(x)}}
    with watching() as seen:
        found = task.inference_step(generator, [model], sample)
    return seen, found


# the stand-in itself


def mixed():
    return [
        lambda x: x + torch.ones(3),
        lambda x: torch.nn.functional.embedding(torch.tensor([1]), x.view(3, 1)),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: x.index_select(0, torch.tensor([1])),
        lambda x: torch.where(x > 0, torch.ones(3), x),
        lambda x: torch.ones(3).add_(x),
    ]


@pytest.mark.parametrize("number", range(len(mixed())))
def test_an_operation_on_two_devices_fails(number):
    with pytest.raises(RuntimeError, match="device"):
        mixed()[number](torch.ones(3, device=gpu()))


WAITS = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "int": lambda x: int(x.sum()),
    "if": lambda x: bool(x.any()),
    "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "a list": lambda x: x.new_tensor([1.0]),
    "a copy": lambda x: torch.ones(3).to(x.device),
}
NO_WAITS = {
    "a number": lambda x: x * torch.tensor(2.0) + 1,
    "a mask filled": lambda x: x.masked_fill_(x > 0, 0.0),
    "a place": lambda x: x[1:].fill_(0.0),
    "an embedding": lambda x: torch.nn.functional.embedding(
        torch.ones(2, dtype=torch.long, device=x.device), x[:, None]
    ),
    "a gradient": lambda x: (x.requires_grad_() ** 2).sum().backward(),
    "a copy that nobody waits for": lambda x: torch.ones(3).to(x.device, non_blocking=True),
}


@pytest.mark.parametrize("name", [*WAITS, *NO_WAITS])
def test_a_device_is_waited_for_where_the_host_needs_its_values(name):
    x = torch.ones(3, device=gpu())
    with watching() as seen:
        {**WAITS, **NO_WAITS}[name](x)
    assert len(seen.waits) == (name in WAITS)
    assert all("on_a_device.py" in wait.place and not wait.ours for wait in seen.waits)


# training

TRAINED = {"rnnsearch": (MODEL, *TAU, 30), "joined": (JOINED, *TAU, 45)}
SMALL = ("--max-tokens", 24)  # several updates on a page
UPDATES = 7


@pytest.mark.parametrize("name", TRAINED)
def test_an_update_on_a_device_waits_for_nothing_but_what_plain_fairseq_waits_for(trainer, name):
    model, *flags = TRAINED[name]
    plain = trainer(gpu(), model, *PLAIN, *SMALL)
    for samples in batches(plain, 1):
        with watching() as control:
            plain.train_step(samples)
    paged, expected = (trainer(device, model, *flags, *SMALL) for device in (gpu(), CPU))
    quiet, swaps, before = [], [], None
    for number, samples in enumerate(batches(paged, UPDATES)):
        with watching() as seen:
            paged.train_step(samples)
        turned, before = samples[0]["partition"] != before, samples[0]["partition"]
        (swaps if turned or number == 1 else quiet).append(seen)
    assert len(quiet) > 2 and len(swaps) > 2
    for seen in quiet:
        assert not seen.ours
        assert len(seen.waits) <= len(control.waits)
    # at a swap, and once a page, the host has to know
    assert {wait.file for seen in swaps for wait in seen.ours} <= {"page.py", "late_rows.py"}
    for samples in batches(expected, UPDATES):
        expected.train_step(samples)
    losses = [float(mine.valid_step(valid_batch(mine))["loss"]) for mine in (paged, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_pages_travel_through_memory_that_is_kept(trainer):
    mine = trainer(gpu(), MODEL, *TAU, 30)
    pages, kept = mine.task.pages, []  # what is kept has an address of its own
    batches(mine, 1)
    for _ in range(2):  # the memory grows to the largest page
        addresses = []
        for partition in range(4):
            with watching() as seen:
                pages.turn_to(partition)
            addresses += [copy.host.data_ptr() for copy in seen.copies if copy.host.is_floating_point()]
            kept.append(seen)
            for page in pages.pages:
                page.changed = True  # as an update would
    assert len(addresses) > 20
    assert len(set(addresses)) == 2
    full = mine.model.state_dict()["decoder.output_projection.weight"]
    assert full[pages.target.words].equal(mine.model.decoder.output_projection.weight[: len(pages.target.words)].cpu())


@pytest.mark.parametrize("vocabulary", ["full", "candidates"])
def test_validation_on_a_device_is_validation(trainer, folder, vocabulary):
    flags = *TAU, 30, "--lexicon", folder / "lexicon", *LISTS, "--validation-vocab", vocabulary
    logs = []
    for device in (gpu(), CPU):
        mine = trainer(device, MODEL, *flags)
        batches(mine, 1)
        mine.task.pages.turn_to(0)
        logs.append(mine.valid_step(valid_batch(mine)))
    assert float(logs[0]["loss"]) == pytest.approx(float(logs[1]["loss"]), rel=1e-4)


def test_the_softmax_takes_larger_chunks_on_a_device(monkeypatch):
    monkeypatch.setattr("lv_fairseq.softmax.tau.CHUNK_BYTES", 4 * 7 * 3)  # of three tokens
    torch.manual_seed(1)
    features, weight, targets = torch.randn(20, 4), torch.randn(7, 4), torch.randint(7, (20,))
    expected, _ = limited_cross_entropy(features, weight, None, None, targets)
    with watching() as seen:
        loss, _ = limited_cross_entropy(*(x.to(gpu()) for x in (features, weight)), None, None, targets.to(gpu()))
    assert seen.operations.count("addmm") == 1
    assert float(loss) == pytest.approx(float(expected))


# decoding

ALL_WORDS, A_PAGE = (), (*TAU, 30)
REPLACING = ("--unk-replacement", "lexicon", "--candidate-retries", 0)
SEARCHES = {
    "all words": (MODEL, ALL_WORDS, False),
    "lists": (MODEL, ALL_WORDS, True),
    "all words while training": (MODEL, A_PAGE, False),
    "lists while training": (MODEL, A_PAGE, True),
    "transformer, all words while training": (TRANSFORMER, A_PAGE, False),
    "transformer_align, lists while training": (ALIGN, A_PAGE, True),
}


def searching(trainer, folder, device, name):
    model, training, listed = SEARCHES[name]
    mine = trainer(device, model, "--lexicon", folder / "lexicon", *REPLACING, *training, *(LISTS if listed else ()))
    if training:
        batches(mine, 1)
        mine.task.pages.turn_to(0)
    return mine


SHORT, LONG = 1, 3  # words of a hypothesis


def counted(waits):
    """Without what comes after a search, if there are unknown words."""
    return sum(wait.file != "transfers.py" for wait in waits)


@pytest.fixture(scope="module")
def waits_of_fairseq(trainer):
    """How many more there are in a long search."""
    plain = trainer(gpu(), TRANSFORMER, *PLAIN)
    short, long = (len(search(plain, length)[0].waits) for length in (SHORT, LONG))
    return long - short


@pytest.mark.parametrize("name", SEARCHES)
def test_a_step_of_a_search_waits_for_nothing_but_what_plain_fairseq_waits_for(trainer, folder, waits_of_fairseq, name):
    mine = searching(trainer, folder, gpu(), name)
    (short, _), (long, found) = (search(mine, length, unkpen=-2.0) for length in (SHORT, LONG))
    assert counted(long.ours) == counted(short.ours)
    assert counted(long.waits) - counted(short.waits) <= waits_of_fairseq
    _, expected = search(searching(trainer, folder, CPU, name), LONG, unkpen=-2.0)
    for mine, theirs in zip(found, expected):
        scores = [[float(hypothesis["score"]) for hypothesis in sentence] for sentence in (mine, theirs)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-3)


@pytest.mark.parametrize("name", ["lists", "transformer_align, lists while training"])
def test_unknown_words_of_a_batch_come_to_the_host_together(trainer, folder, name):
    mine = searching(trainer, folder, gpu(), name)
    counts = []
    for beam, sentences in ((1, 1), (3, 4)):
        seen, found = search(mine, 3, beam, sentences, unkpen=-100.0)  # every word is an unknown one
        counts.append(sum(wait.file != "attention.py" for wait in seen.ours))
        numbers = [hypothesis["tokens"] for sentence in found for hypothesis in sentence]
        assert len(numbers) == beam * sentences and all(x.device == gpu() for x in numbers)
        assert not any(mine.task.target_dictionary.unk() in x.tolist() for x in numbers)
    assert counts[0] == counts[1]


def test_a_search_over_all_words_copies_their_rows_once_in_a_validation(trainer, folder):
    mine = searching(trainer, folder, gpu(), "all words while training")
    mine.model.train()
    table = mine.model.decoder.output_projection
    size = table.words * table.in_features * 4

    def copied():
        seen, _ = search(mine, 4)
        return [copy.bytes for copy in seen.copies if copy.to_device].count(size)

    assert [copied(), copied()] == [1, 0]
    mine.model.train()  # rows change now
    assert copied() == 1


def test_rows_that_are_held_are_those_of_the_last_checkpoint():
    embedding = nn.Embedding(50, 4)
    reading = ReadingTable(embedding)
    scoring = ScoringTable(scoring_with(embedding), read_with=reading)
    model, page = nn.ModuleDict({"reading": reading, "scoring": scoring}), Page(50, 10)
    for table in (reading, scoring):
        table.put_on(page)
    moved(model)
    model.eval()
    with torch.no_grad():
        features = torch.ones(1, 4).to(scoring.like)
        for step in range(2):
            new = {name: torch.full((50, 4), float(step)) for name in model.state_dict()}
            model.load_state_dict(new)
            Tables(reading, reading, scoring).hold()
            assert scoring(features).cpu().tolist() == [[4.0 * step] * 50]
