"""Models of the structure of NLLB-200, M2M-100, mBART-50 and mBART cc25 are fine-tuned, also over pages."""

import json
import math

import numpy as np
import pytest
import several_workers
import torch
from conftest import run_code
from released import KINDS, made
from small_corpus import TAU, configure, train_epochs, train_iterator
from torch.nn import functional as F

from lv_fairseq import UserError
from lv_fairseq.batching.pairs import drawn_from, language_pairs
from lv_fairseq.models.families import word_tables

PAD = 1
ADAM = ("--optimizer", "adam", "--lr", 0.01, "--num-workers", 0, "--max-tokens", 150)
FULL = ("--criterion", "cross_entropy")
REPLACING = ("--lang-tok-replacing-bos-eos",)
STRUCTURES = {kind: (kind, ()) for kind in KINDS}
STRUCTURES["replacing"] = ("nllb", REPLACING)

PROGRAM = """
import argparse, json, sys, torch
torch.serialization.add_safe_globals([argparse.Namespace])  # which torch's loader wants to be told
from fairseq import checkpoint_utils, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
for arguments in {commands!r}:
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_generation_parser(), arguments))
    task = tasks.setup_task(cfg.task)  # as fairseq-generate does
    (model,), _ = checkpoint_utils.load_model_ensemble([cfg.common_eval.path], task=task)
    print(json.dumps([len(task.target_dictionary), model.decoder.embed_tokens.weight.detach().double().sum().item()]))
assert not any(name.split(".")[0] == "lv_fairseq" for name in sys.modules)
"""


@pytest.fixture(params=STRUCTURES)
def structure(request):
    return request.param


def build(structure: str, *flags, task: str = ""):
    """Configuration, task, model and criterion; fairseq's own task if it is named."""
    kind, own = STRUCTURES[structure]
    model = made(kind)
    flags = (*model.training(), "--finetune-from-model", model.path, *own, *ADAM, *flags)
    if task:
        flags = (*flags, "--task", model.task, *model.fixed())
    return configure(model.data, *flags, model=model.arch)


def weights(structure: str) -> dict:
    return torch.load(made(STRUCTURES[structure][0]).path, weights_only=False)["model"]


@pytest.fixture
def stock(monkeypatch):
    """fairseq's own tasks, with what version 0.12.3.1 forgets to set."""
    from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

    monkeypatch.setattr(TranslationFromPretrainedBARTTask, "args", property(lambda self: self.cfg), raising=False)
    return lambda structure: build(structure, *FULL, task="stock")


@pytest.mark.parametrize("structure", ["nllb", "mbart25"], indirect=True)
def test_without_flags_training_is_that_of_fairseqs_own_task(structure, stock):
    trained = []
    for made_for in (lambda: build(structure, *FULL), lambda: stock(structure)):
        cfg, task, model, criterion = made_for()
        model.load_state_dict(weights(structure))
        trainer = train_epochs(cfg, task, model, criterion, epochs=(1, 2))
        trained.append((trainer.get_num_updates(), model.state_dict()))
    (updates, ours), (others, theirs) = trained
    assert updates == others > 4 and ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def batches(cfg, task) -> list:
    """One of each partition."""
    every = train_iterator(cfg, task).next_epoch_itr(shuffle=False)
    return list({batch["partition"]: batch for batch in every}.values())


def scores(model, sample) -> torch.Tensor:
    return model(**sample["net_input"])[0].flatten(0, 1)


def test_a_step_over_a_page_is_one_over_its_words(structure, stock):
    """And over all words if tau has room for them. Tokens of all languages are on the page. In double precision."""
    plain = stock(structure)[2].double()
    plain.load_state_dict(weights(structure))
    for tau in (60, 10_000):
        cfg, task, model, criterion = build(structure, *TAU, tau)
        model.double().load_state_dict(weights(structure))
        parts = batches(cfg, task)
        assert len(parts) > 1 if tau == 60 else len(parts) == 1
        tokens = [task.target_dictionary.index(task.tokens(language)[0]) for language in task.langs]
        for sample in parts[:3]:
            model.zero_grad(), plain.zero_grad()
            task.pages.turn_to(sample["partition"])
            words = torch.from_numpy(task.pages.plan.target_words[sample["partition"]])
            assert set(tokens) <= set(words.tolist()) and len(words) <= tau + len(
                task.always_on_page(task.target_dictionary)
            )
            model.train(), plain.train()
            torch.manual_seed(1)
            loss, *_ = criterion(model, sample)
            torch.manual_seed(1)
            others = torch.ones(len(task.target_dictionary), dtype=torch.bool)
            if tau == 60:
                others[words] = False
            else:
                others[:] = False
            target = sample["target"].flatten()
            wanted = scores(plain, sample).masked_fill(others, float("-inf"))
            expected = F.cross_entropy(wanted, target, ignore_index=PAD, reduction="sum")
            torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
            loss.backward(), expected.backward()
            ours, theirs = model.decoder.layers[0].fc1.weight.grad, plain.decoder.layers[0].fc1.weight.grad
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * float(theirs.abs().max()))


def test_every_word_of_a_batch_is_on_its_page(structure):
    """Also what a collater puts there."""
    cfg, task, _, _ = build(structure, *TAU, 60)
    for sample in train_iterator(cfg, task).next_epoch_itr(shuffle=False):
        plan, number = task.pages.plan, sample["partition"]
        target = np.union1d(sample["target"], sample["net_input"]["prev_output_tokens"])
        assert set(target.tolist()) <= set(plan.target_words[number].tolist())
        source = np.unique(sample["net_input"]["src_tokens"]).tolist()
        assert set(source) <= {*plan.source_words[number].tolist(), *plan.target_words[number].tolist()}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Checkpoints of two epochs of fine-tuning with --tau, the second after a resume, and the network in memory."""
    folder = tmp_path_factory.mktemp("tuned")
    result = {}
    for kind in KINDS:
        first, second = folder / f"{kind}1.pt", folder / f"{kind}2.pt"
        cfg, task, model, criterion = build(kind, *TAU, 60)
        model.load_state_dict(weights(kind))
        train_epochs(cfg, task, model, criterion, epochs=(1,), save=first)
        cfg, task, model, criterion = build(kind, *TAU, 60, "--restore-file", first)
        train_epochs(cfg, task, model, criterion, epochs=(2,), resume=first, save=second)
        result[kind] = second, model.state_dict()
    return result


@pytest.fixture(scope="module")
def loaded(tuned, tmp_path_factory):
    """What fairseq without this plug-in loads of them: the size of the dictionary, the sum of the table."""
    each = [made(kind).decoding(ours=False, path=path) for kind, (path, _) in tuned.items()]
    result = run_code(PROGRAM.format(commands=each), tmp_path_factory.mktemp("loaded"))
    assert result.returncode == 0, result.stderr
    return dict(zip(tuned, map(json.loads, [line for line in result.stdout.splitlines() if line.startswith("[")])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_was_tuned_with_tau_is_loaded_by_plain_fairseq(kind, tuned, loaded):
    _, state = tuned[kind]
    table = state["decoder.embed_tokens.weight"]
    rows, total = loaded[kind]
    assert rows == len(table) == len(made(kind).words())
    assert total == float(table.double().sum())
    changed = (table != weights(kind)["decoder.embed_tokens.weight"]).any(dim=1)
    used = [made(kind).words().index(made(kind).token(x)) for x in made(kind).languages]
    assert changed[used].all() and changed.sum() > len(used) + 60


@pytest.mark.parametrize("structure", ["nllb", "mbart25"], indirect=True)
def test_frozen_word_tables_stay_as_they_are(structure):
    cfg, task, model, criterion = build(structure, "--freeze-word-tables", *FULL)
    model.load_state_dict(weights(structure))
    trainer = train_epochs(cfg, task, model, criterion)
    assert trainer.get_num_updates() > 1
    before = weights(structure)
    for name, value in model.state_dict().items():
        if name.endswith(("embed_tokens.weight", "output_projection.weight")):
            assert torch.equal(value, before[name])
    assert not torch.equal(model.decoder.layers[0].fc1.weight, before["decoder.layers.0.fc1.weight"])
    assert word_tables(model) is not None


@pytest.mark.parametrize("structure", ["nllb", "mbart25"], indirect=True)
def test_in_half_precision_a_page_stays_in_single_and_the_losses_are_close(structure):
    """After updates the losses of two precisions may be any: what is compared is the network before them."""
    losses, half = [], ("--memory-efficient-fp16", "--fp16-init-scale", 4)
    for flags in ((*half, "--lr", 0.001), ("--lr", 0), (*half, "--lr", 0)):
        cfg, task, model, criterion = build(structure, *TAU, 60, *flags, "--dropout", 0)
        model.load_state_dict(weights(structure))
        trainer = train_epochs(cfg, task, model, criterion)
        assert trainer.get_num_updates() > 4
        assert model.decoder.embed_tokens.weight.dtype == torch.float32
        assert model.decoder.layers[0].fc1.weight.dtype == (torch.float16 if half[0] in flags else torch.float32)
        task.load_dataset("valid")
        logs = [task.valid_step(sample, model, criterion)[2] for sample in train_like(cfg, task, "valid")]
        losses.append(sum(float(log["loss"]) for log in logs) / sum(log["ntokens"] for log in logs))
    tuned, single, halved = losses
    assert halved == pytest.approx(single, abs=0.1) and math.isfinite(tuned) and abs(tuned - halved) > 1e-4


def test_two_workers_make_the_updates_of_one(tmp_path):
    model = made("nllb")
    flags = (*model.training(), *model.arch, "--finetune-from-model", model.path, *TAU, 60, "--dropout", 0)
    flags += ("--optimizer", "adam", "--lr", 0.005, "--max-tokens", 100, "--max-update", 4, "--no-epoch-checkpoints")
    several_workers.train_together(model.data, tmp_path / "one", *flags, "--update-freq", 2, workers=1)
    several_workers.train_together(model.data, tmp_path / "two", *flags)
    one, two = (torch.load(tmp_path / x / "checkpoint_last.pt", weights_only=False)["model"] for x in ("one", "two"))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-3)
    assert not torch.equal(one["decoder.embed_tokens.weight"], weights("nllb")["decoder.embed_tokens.weight"])


SAMPLED = ("--sampling-method", "temperature", "--sampling-temperature", 5)


def test_language_pairs_are_drawn_anew_every_epoch_and_cut_in_the_order_of_their_corpora():
    cfg, task, *_ = build("nllb", *TAU, 60, *SAMPLED)
    drawn = []
    for epoch in (1, 2, 1):
        iterator = train_iterator(cfg, task, epoch=epoch)
        dataset = task.dataset("train")
        drawn.append(np.concatenate(drawn_from(dataset)))
        plan = task.pages.plan
        pairs = np.searchsorted(dataset.cumulated_sizes, plan.order, side="right")
        assert len(language_pairs(dataset)) == 2 and (np.diff(pairs) >= 0).all()
        for pair in (0, 1):
            assert (np.diff(dataset._cur_indices[plan.order[pairs == pair]]) >= 0).all()
        read = sum(sample["nsentences"] for sample in iterator.next_epoch_itr(shuffle=False) if not sample["filler"])
        assert read == len(dataset) == len(plan.order)
    assert np.array_equal(drawn[0], drawn[2]) and not np.array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    "flags, said",
    [
        ((*TAU, 60, "--virtual-epoch-size", 40), "--virtual-epoch-size with --tau"),
        (("--hide-rare-words", 2), "--hide-rare-words"),
        (("--sort-window", 10), "--sort-window without --tau"),
        ((*FULL, "--tau", 60), "--tau needs --criterion partition_cross_entropy"),
    ],
)
def test_what_cannot_be_had_for_many_languages_is_refused_in_one_line(flags, said):
    with pytest.raises(UserError, match=said) as error:
        build("nllb", *flags)
    assert "\n" not in str(error.value)


def test_validation_over_lists_knows_the_words_of_each_language_pair():
    flags = ("--criterion", "partition_cross_entropy", "--validation-vocab", "candidates", "--candidate-frequent", 40)
    cfg, task, model, criterion = build("nllb", *flags, "--candidate-source-words")
    task.load_dataset("valid")
    for sample in train_like(cfg, task, "valid"):
        _, _, log = task.valid_step(sample, model, criterion)
        assert 0 <= log["outside"] < log["ntokens"]
        for words, row in zip(task.decoding.words_of(sample), sample["net_input"]["src_tokens"]):
            known = [task.source_dictionary[number] for number in row.tolist() if number != PAD]
            assert known == [known[0], *words, "</s>"] and known[0] in {task.tokens(x)[0] for x in task.source_langs}


def train_like(cfg, task, split: str):
    iterator = task.get_batch_iterator(task.dataset(split), max_tokens=cfg.dataset.max_tokens, seed=1)
    return iterator.next_epoch_itr(shuffle=False)
