"""Training with --tau in half precision: pages, statistics and host rows stay in single, the rest of the model is half.

There is no GPU here. --fp16 and --bf16 run on the CPU as they do there; for --amp, torch's automatic casting of CPUs
takes the place of that of GPUs.
"""

import functools

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from conftest import generate_here, hypotheses
from fairseq import metrics, options
from fairseq.data.iterators import GroupedIterator
from fairseq.distributed import LegacyDistributedDataParallel
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer
from small_corpus import TAU, configure, train_epochs, train_iterator, write_corpus
from test_architectures import assert_same_bits, trained_bits
from torch import nn

from lv_fairseq import UserError
from lv_fairseq.fairseq_patches.commands import wrong_flags
from lv_fairseq.models.families import word_tables
from lv_fairseq.word_tables import searching
from lv_fairseq.word_tables.columns import columns_of

ADAM = ("--optimizer", "adam", "--lr", 0.01, "--num-workers", 0, "--max-tokens", 200)
MODES = {
    "single": (),
    "fp16": ("--fp16", "--fp16-scale-window", 7),  # the loss is scaled up every 7 updates
    "memory-efficient fp16": ("--memory-efficient-fp16", "--fp16-scale-window", 7),
    "bf16": ("--bf16",),
    "memory-efficient bf16": ("--memory-efficient-bf16",),
    "amp": ("--amp",),
}
HALVES = [name for name in MODES if name not in ("single", "amp")]
CLOSE = 0.1  # bits: a few updates from the same beginning lower the loss by several times as much


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """With one dictionary for both languages, and with two."""
    folder = tmp_path_factory.mktemp("corpora")
    return {joined: write_corpus(folder / str(joined), pairs=70, joined=joined) for joined in (False, True)}


@pytest.fixture(scope="module", autouse=True)
def cpu_in_the_place_of_a_gpu():
    with pytest.MonkeyPatch.context() as patch:
        cast = lambda enabled: torch.autocast("cpu", torch.bfloat16, enabled)
        patch.setattr(torch.cuda.amp, "autocast", cast)
        patch.setattr(torch.cuda.amp, "GradScaler", functools.partial(torch.amp.GradScaler, "cpu"))
        yield


def build(corpora, name: str, *flags):
    architecture = ARCHITECTURES[name]
    own = (*TAU, 30, "--dropout", 0.1, "--reshuffle-partitions", *flags)
    return configure(corpora[architecture.joined], *ADAM, *own, model=architecture.flags)


def go_on(trainer: Trainer, epoch: int) -> None:
    iterator = trainer.get_train_iterator(epoch, load_dataset=False)
    trainer.begin_epoch(epoch)
    for samples in GroupedIterator(iterator.next_epoch_itr(), 1):
        trainer.train_step(samples)


def save(trainer: Trainer, path) -> None:
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}, "val_loss": 0.0})


def validation_loss(trainer: Trainer) -> float:
    trainer.task.load_dataset("valid")
    with metrics.aggregate(new_root=True) as total:
        for sample in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trainer.valid_step(sample)
    return total.get_smoothed_values()["loss"]


@pytest.fixture(scope="module")
def trained(corpora, tmp_path_factory):
    """Of an architecture and a mode: validation losses after one and two epochs, and checkpoints of both moments."""

    @functools.cache
    def run(name: str, mode: str):
        folder = tmp_path_factory.mktemp("trained")
        trainer = train_epochs(*build(corpora, name, *MODES[mode]), save=folder / "one.pt")
        losses = [validation_loss(trainer)]
        go_on(trainer, 2)
        save(trainer, folder / "two.pt")
        return [*losses, validation_loss(trainer)], folder

    return run


BOTH = [*(("rnnsearch", mode) for mode in (*HALVES, "amp")), *(("transformer-joined", mode) for mode in HALVES[:3])]


@pytest.mark.parametrize("name, mode", BOTH)
def test_it_trains_as_in_single_precision_and_resumes_with_the_same_bits(corpora, trained, tmp_path, name, mode):
    losses, folder = trained(name, mode)
    assert losses == pytest.approx(trained(name, "single")[0], abs=CLOSE)
    parts = build(corpora, name, *MODES[mode])
    train_epochs(*parts, epochs=(2,), resume=folder / "one.pt", save=tmp_path / "resumed.pt")
    assert_same_bits(trained_bits(tmp_path / "resumed.pt"), trained_bits(folder / "two.pt"))


@pytest.mark.parametrize("mode", HALVES)
def test_only_pages_and_statistics_are_in_single_precision(corpora, mode):
    cfg, task, model, criterion = build(corpora, "fconv", *MODES[mode])  # also rows of a length and a direction
    trainer = train_epochs(cfg, task, model, criterion)
    half = torch.bfloat16 if "bf16" in mode else torch.float16
    for parameter in model.parameters():
        paged = hasattr(parameter, "host")
        assert parameter.dtype == (torch.float32 if paged else half)
        if paged:
            assert {
                parameter.host.full.dtype,
                *(parameter.host.home.whole(x).dtype for x in parameter.host.home.statistics),
            } == {torch.float32}
    assert sum(hasattr(parameter, "host") for parameter in trainer.optimizer.optimizer.param_groups[0]["params"]) > 3
    for state in trainer.optimizer.optimizer.state.values():
        assert all(value.dtype == torch.float32 for value in state.values() if torch.is_tensor(value))


def test_a_table_rounds_at_its_doors(corpora):
    cfg, task, model, _ = build(corpora, "rnnsearch")
    sample = next(train_iterator(cfg, task).next_epoch_itr())
    task.pages.turn_to(sample["partition"])
    tables, words = word_tables(model), sample["net_input"]["src_tokens"]
    phi = torch.ones(len(words), 1, tables.output.in_features)
    columns = columns_of(5, [np.array([9, 7])], pad=1, beam=len(words), device=words.device)

    def everything() -> dict:
        """What tables give: while training, while evaluating, in a search."""
        given = {}
        for given["training"] in (True, False):
            model.train(given["training"])
            for side, table in (("source", tables.source), ("target", tables.target)):
                given[side, given["training"]] = table(words)
        given["all"], given["rows"] = tables.output(phi), tables.output.rows(slice(20))[0]
        with searching([tables], columns):
            given["listed"] = tables.output(phi)
        return {name: value.detach() for name, value in given.items() if torch.is_tensor(value)}

    single = everything()
    for half, cast in ((torch.float16, model.half), (torch.bfloat16, model.bfloat16)):
        cast()
        phi = phi.to(half)
        for name, value in everything().items():
            torch.testing.assert_close(value, single[name].to(half), rtol=1e-2, atol=1e-2)
        assert tables.output.active(words)[1].dtype == torch.float32
    model.float(), model.double(), model.float()
    phi = phi.float()
    torch.testing.assert_close(everything(), single)  # nothing was rounded


@pytest.mark.parametrize("mode", ["single", "fp16", "memory-efficient fp16"])
def test_a_checkpoint_of_one_precision_goes_on_in_another(corpora, trained, mode):
    """As fairseq has it, with --reset-optimizer, since its optimisers are of other classes."""
    path = trained("rnnsearch", mode)[1] / "two.pt"
    saved = torch.load(path, weights_only=True)["model"]
    tables = [name for name in saved if "embed_tokens" in name or "output_projection" in name]
    assert tables and all(saved[name].dtype == torch.float32 for name in tables)
    assert all((saved[name] != saved[name].half().float()).any() for name in tables)  # nothing has rounded them
    other = "fp16" if mode == "single" else "single"
    cfg, task, model, criterion = build(corpora, "rnnsearch", *MODES[other])
    cfg.common.cpu = True
    trainer = Trainer(cfg, task, model, criterion)
    trainer.load_checkpoint(str(path), reset_optimizer=True)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, saved[name].to(value.dtype)), name
    trainer.get_train_iterator(1)
    go_on(trainer, 1)


def test_master_copies_of_parameters_that_have_changed_since_are_left(corpora, trained, tmp_path):
    """Of an average of checkpoints, say, which has the optimiser of the last."""
    state = torch.load(trained("rnnsearch", "fp16")[1] / "two.pt", weights_only=True)
    state["model"]["decoder.embed_bias"] += 1
    torch.save(state, tmp_path / "changed.pt")
    cfg, task, model, criterion = build(corpora, "rnnsearch", *MODES["fp16"])
    cfg.common.cpu = True
    trainer = Trainer(cfg, task, model, criterion)
    trainer.load_checkpoint(str(tmp_path / "changed.pt"))
    masters = dict(zip(map(id, trainer.optimizer.fp16_params), trainer.optimizer.fp32_params))
    kept = 0
    for name, parameter in model.named_parameters():
        master = masters[id(parameter)]
        assert torch.equal(master.to(parameter.dtype), parameter), name
        kept += bool((master != parameter.float()).any())
    assert kept > 5


@pytest.mark.parametrize("mode", ["fp16", "memory-efficient fp16"])
def test_frozen_tables_go_on_from_a_checkpoint_of_trained_ones(corpora, trained, mode):
    path = trained("rnnsearch", mode)[1] / "one.pt"
    saved = torch.load(path, weights_only=True)
    parts = build(corpora, "rnnsearch", *MODES[mode], "--freeze-word-tables")
    trainer = train_epochs(*parts, epochs=(2,), resume=path)
    statistics = trainer.optimizer.optimizer.state_dict()["state"].values()
    assert statistics and all(state["step"] > saved["last_optimizer_state"]["state"][0]["step"] for state in statistics)
    after = trainer.model.state_dict()
    assert torch.equal(after["decoder.embed_tokens.weight"], saved["model"]["decoder.embed_tokens.weight"])


@pytest.mark.parametrize("mode", ["fp16", "memory-efficient fp16"])
def test_an_update_that_overflows_is_left_out(corpora, mode):
    cfg, task, model, criterion = build(corpora, "rnnsearch", *MODES[mode], "--fp16-init-scale", 2**60)
    cfg.common.cpu = True
    trainer = Trainer(cfg, task, model, criterion)
    samples = list(trainer.get_train_iterator(1).next_epoch_itr())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert trainer.train_step(samples[:1]) is None
    assert trainer.get_num_updates() == 0 and trainer.optimizer.scaler.loss_scale == 2**59
    assert_same_bits(dict(model.state_dict()), before)
    trainer.optimizer.scaler.loss_scale = 128
    assert trainer.train_step(samples[-1:]) is not None  # of another partition
    assert trainer.get_num_updates() == 1


def test_validation_over_lists_is_that_of_single_precision(corpora):
    lists = ("--validation-vocab", "candidates", "--candidate-frequent", 12)
    losses = []
    for mode in ("single", "fp16"):
        cfg, task, model, criterion = build(corpora, "rnnsearch", *MODES[mode], *lists)
        cfg.common.cpu = True
        losses.append(validation_loss(Trainer(cfg, task, model, criterion)))
    assert losses[1] == pytest.approx(losses[0], abs=0.01)


def test_decoding_with_lists_in_half_precision(names):
    """The network's candidates lie far apart."""
    flags = ("--lexicon", names / "lexicon", "--candidate-frequent", 20, "--unk-replacement", "lexicon", "--cpu")
    flags += ("--source-text", names / "test.src", "--beam", 3)
    single, half = (
        hypotheses(generate_here(names / "data", names / "model.pt", *flags, *more)) for more in ((), ("--fp16",))
    )
    assert len(half) == 60 and half == single


def test_workers_share_gradients_of_pages_unrounded(tmp_path):
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/workers", rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(2, 2).half(), nn.Linear(2, 2))
        workers = LegacyDistributedDataParallel(model, torch.distributed.group.WORLD)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 3e-5 if parameter.dtype == torch.float16 else 3e-9)
        before = [parameter.grad.clone() for parameter in model.parameters()]
        workers.all_reduce_grads()
        assert_same_bits([parameter.grad for parameter in model.parameters()], before)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("gradient", [3.0, float("inf")])
def test_amp_divides_gradients_by_the_scale_once(corpora, gradient):
    cfg, *_ = build(corpora, "rnnsearch", "--amp")
    cfg.optimizer = {"_name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "lr": [1.0]}
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = AMPOptimizer.build_optimizer(cfg, [parameter])
    optimizer.backward((gradient * parameter).sum())
    optimizer.clip_grad_norm(0.0)
    optimizer.step()
    expected = torch.full((2,), -3.0) if gradient == 3 else torch.zeros(2)
    assert torch.equal(parameter.detach(), expected)


@pytest.mark.parametrize(
    "flags, word",
    [
        (("--tpu",), "--tpu"),
        (("--use-bmuf",), "--use-bmuf"),
        (("--zero-sharding", "os"), "--zero-sharding"),
        (("--ddp-backend", "pytorch_ddp", "--source-tau", 40, "--find-unused-parameters"), "--find-unused-parameters"),
    ],
)
def test_what_cannot_work_with_pages_is_refused(corpora, flags, word):
    with pytest.raises(UserError, match=f"^{word}|leave out {word}"):
        build(corpora, "rnnsearch", *flags)


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--fp16-adam-stats",), "--fp16-adam-stats"),
        (("--memory-efficient-fp16", "--optimizer", "adadelta"), "take adam"),
    ],
)
def test_an_optimizer_that_cannot_do_it_is_named_in_one_line(corpora, flags, words):
    cfg, task, model, criterion = build(corpora, "rnnsearch", *flags)
    cfg.common.cpu = True
    with pytest.raises((NotImplementedError, ValueError)) as error:
        Trainer(cfg, task, model, criterion)._build_optimizer()
    line = wrong_flags(error.value)
    assert words in line and "\n" not in line


def test_two_kinds_of_halves_are_refused_in_one_line(corpora):
    with pytest.raises(ValueError) as error:
        options.parse_args_and_arch(options.get_training_parser(), ["data", "--arch", "rnnsearch", "--fp16", "--bf16"])
    assert wrong_flags(error.value) == "--fp16 does not go with --bf16 or --tpu: leave out one of them"
