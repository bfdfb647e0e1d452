"""Training with --tau, through fairseq's trainer: the right numbers."""

import re

import numpy as np
import pytest
import torch
from conftest import PLUGIN, SMALL, generate, hypotheses, run, train
from fairseq import options, tasks, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from lv_fairseq import UserError

TAU = ("--criterion", "partition_cross_entropy", "--tau", 300)
ADAM = ("--optimizer", "adam", "--lr", 0.005, "--clip-norm", 1.0, "--max-tokens", 1000)


def configure(data, *flags):
    """What fairseq-train makes of its flags: configuration, task and model, before the first update."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [str(x) for x in (data, *PLUGIN, *SMALL, *flags)])
    cfg = convert_namespace_to_omegaconf(args)
    utils.set_torch_seed(cfg.common.seed)
    np.random.seed(cfg.common.seed)
    task = tasks.setup_task(cfg.task)
    return cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion)


def batches(cfg, task):
    """The batches of the first epoch in fairseq-train's order."""
    task.load_dataset("train", combine=True)
    iterator = task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=cfg.dataset.max_tokens,
        max_positions=(1024, 1024),
        required_batch_size_multiple=8,
        seed=cfg.common.seed,
    )
    return list(iterator.next_epoch_itr(shuffle=True))


def saved(folder, name="checkpoint_last.pt"):
    return torch.load(folder / name, weights_only=True)["model"]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_all_words_it_is_fairseqs_cross_entropy(data, smoothing):
    own = (
        "--criterion",
        "partition_cross_entropy",
        "--tau",
        100_000,
        "--source-tau",
        100_000,
        "--label-smoothing",
        smoothing,
    )
    upstream = ("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", smoothing)
    results = []
    for flags in (own, upstream):
        cfg, task, model, criterion = configure(data, *ADAM, *flags)
        if flags is own:
            samples = batches(cfg, task)[:3]
            assert len(task.pages.plan) == 1 and task.pages.target is None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for sample in samples:
            loss, size, log = criterion(model, sample)
            optimizer.zero_grad()
            (loss / size).backward()
            optimizer.step()
            losses.append((loss.item(), float(log["nll_loss"]), size))
        results.append((losses, {name: p.grad for name, p in model.named_parameters()}, model.state_dict()))
    (mine, gradients, parameters), (theirs, their_gradients, their_parameters) = results
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    for name, gradient in their_gradients.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(parameters[name], their_parameters[name], atol=1e-6, rtol=1e-5)


def test_training_on_partitions_equals_a_full_table_with_masked_softmax(data, tmp_path):
    """The command against a loop written out here: all rows, other words masked, their rows left alone."""
    flags = (*TAU, "--optimizer", "adadelta", "--lr", 1.0, "--clip-norm", 1.0, "--max-tokens", 1000)
    updates = 30
    train(data, tmp_path, *SMALL, *flags, "--max-update", updates, "--no-epoch-checkpoints", "--disable-validation")

    cfg, task, _, _ = configure(data, *flags)
    samples = batches(cfg, task)[:updates]
    plan = task.pages.plan
    assert len({sample["partition"] for sample in samples}) > 3
    _, _, model, _ = configure(data, *flags[4:], "--criterion", "cross_entropy")
    initial = {name: value.clone() for name, value in model.state_dict().items()}
    source, target = model.encoder.embed_tokens, model.decoder.embed_tokens
    tables = {source.weight: "source", target.weight: "target"}
    tables.update({p: "target" for p in model.decoder.output_projection.parameters()})
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.9, eps=1e-6)
    for sample in samples:
        words = {"source": plan.source_words, "target": plan.target_words}
        words = {side: torch.from_numpy(sets[sample["partition"]]) for side, sets in words.items()}
        scores = model(**sample["net_input"])[0].flatten(0, 1)
        masked = torch.full_like(scores, float("-inf"))
        masked[:, words["target"]] = scores[:, words["target"]]
        loss = torch.nn.functional.cross_entropy(masked, sample["target"].flatten(), ignore_index=1, reduction="sum")
        optimizer.zero_grad()
        (loss / sample["ntokens"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = {p: (p.detach().clone(), {k: v.clone() for k, v in optimizer.state[p].items()}) for p in tables}
        optimizer.step()
        for p, side in tables.items():
            away = torch.ones(len(p), dtype=torch.bool).index_fill(0, words[side], False)
            with torch.no_grad():
                p[away] = before[p][0][away]
            for name, statistic in optimizer.state[p].items():
                if statistic.dim():
                    statistic[away] = before[p][1][name][away] if name in before[p][1] else 0
    result = saved(tmp_path)
    assert not torch.equal(result["decoder.output_projection.weight"], initial["decoder.output_projection.weight"])
    for name, value in model.state_dict().items():
        torch.testing.assert_close(result[name], value, atol=1e-4, rtol=1e-3)


@pytest.fixture(scope="module")
def large(data, tmp_path_factory):
    """A model trained with --tau until it has learned something, and what fairseq-train printed."""
    folder = tmp_path_factory.mktemp("large")
    result = train(data, folder, *SMALL, *TAU, *ADAM, "--dropout", 0.1, "--max-epoch", 2, "--no-epoch-checkpoints")
    return folder, result.stdout + result.stderr


def test_its_checkpoint_is_an_ordinary_one(data, large):
    model = saved(large[0])
    words = len((data / "dict.tgt.txt").read_text(encoding="utf-8").splitlines()) + 4
    assert model["decoder.output_projection.weight"].shape[0] == words
    assert len(hypotheses(generate(data, large[0] / "checkpoint_last.pt", "--max-len-b", 30))) == 200


def test_validation_is_over_all_words_and_equals_fairseqs(data, large):
    reported = re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", large[1])
    _, _, model, _ = configure(data, *ADAM, "--criterion", "cross_entropy")
    model.load_state_dict(saved(large[0]))
    model.eval()
    cfg, task, _, criterion = configure(data, *ADAM, "--criterion", "cross_entropy")
    task.load_dataset("valid")
    total = tokens = 0
    for sample in task.get_batch_iterator(task.dataset("valid"), max_tokens=1000).next_epoch_itr(shuffle=False):
        with torch.no_grad():
            loss, size, _ = criterion(model, sample)
        total, tokens = total + loss.item(), tokens + size
    assert float(reported[-1]) == pytest.approx(total / tokens / np.log(2), abs=0.002)


def test_the_log_tells_of_partitions_and_swaps(large):
    line = [line for line in large[1].splitlines() if "| train | epoch 001" in line][0]
    assert int(re.search(r"partition_words (\d+)", line).group(1)) <= 300
    for name in ("partition", "swap", "swap_share"):
        assert re.search(rf"\| {name} [\d.]+ ", line)


def test_tensorboard_shows_the_same_figures(data, tmp_path):
    flags = (*SMALL, *TAU, *ADAM, "--max-update", 20, "--disable-validation", "--no-save")
    train(data, tmp_path, *flags, "--log-interval", 5, "--tensorboard-logdir", tmp_path / "board")
    events = b"".join(path.read_bytes() for path in (tmp_path / "board").rglob("events*"))
    assert all(name in events for name in (b"partition", b"partition_words", b"swap", b"swap_share"))


def test_another_tau_in_the_middle_of_an_epoch_is_told_and_finishes_it(data, tmp_path):
    flags = (*SMALL, *ADAM, "--criterion", "partition_cross_entropy", "--max-tokens", 500, "--disable-validation")
    train(data, tmp_path, *flags, "--tau", 300, "--max-update", 7)
    result = train(data, tmp_path, *flags, "--tau", 200, "--max-epoch", 1, "--update-freq", 2)
    log = result.stdout + result.stderr
    assert "over other partitions" in log and "end of epoch 1" in log


def test_frozen_tables_from_a_checkpoint_by_flag_alone_and_back(data, large, tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes((large[0] / "checkpoint_last.pt").read_bytes())
    flags = (*SMALL, *ADAM, "--dropout", 0.1, "--no-epoch-checkpoints")
    result = train(data, tmp_path, *flags, *TAU, "--max-epoch", 3, "--freeze-word-tables")
    assert "Loaded checkpoint" in result.stdout + result.stderr
    before, after = saved(large[0]), saved(tmp_path)
    tables = [name for name in before if "embed_tokens" in name or "output_projection" in name]
    assert len(tables) == 4
    for name in before:
        assert torch.equal(before[name], after[name]) == (name in tables or name == "dictionaries")
    thawed = train(data, tmp_path, *flags, *TAU, "--max-epoch", 4, check=False)
    assert thawed.returncode == 1 and "--reset-optimizer (after" in thawed.stderr.strip().splitlines()[-1]


def losses(result) -> list:
    """What validation gave, in bits."""
    found = re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", result.stdout + result.stderr)
    return list(map(float, found))


def assert_learned(data, loss):
    """Better by 2 bits than a guess among all words. An epoch of this corpus is enough for more (6 bits or less where a
    guess has 10), so that no rounding on any machine brings a right training near the bound."""
    words = len((data / "dict.tgt.txt").read_text(encoding="utf-8").splitlines())
    assert loss < np.log2(words) - 2


def test_with_and_without_tau_can_follow_each_other(data, large, tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes((large[0] / "checkpoint_last.pt").read_bytes())
    flags = (*SMALL, *ADAM, "--dropout", 0.1, "--no-epoch-checkpoints", "--criterion", "partition_cross_entropy")
    for epoch, tau in ((3, 0), (4, 300)):
        (loss,) = losses(train(data, tmp_path, *flags, "--tau", tau, "--max-epoch", epoch))
        assert_learned(data, loss)


@pytest.mark.parametrize(
    "flags",
    [
        ("--proposal", "unigram", "--label-smoothing", 0.1),
        ("--source-tau", 100, "--share-decoder-input-output-embed"),
        ("--reshuffle-partitions", "--optimizer", "nag", "--lr", 0.1, "--num-workers", 2),
    ],
)
def test_variants_learn(data, tmp_path, flags):
    (loss,) = losses(train(data, tmp_path, *SMALL, *TAU, *ADAM, "--max-epoch", 1, "--no-epoch-checkpoints", *flags))
    assert_learned(data, loss)


def test_shards_get_their_own_partitions(data, text, tmp_path):
    shards = []
    for number in range(2):
        part = tmp_path / f"text{number}"
        part.mkdir()
        for file in text.iterdir():
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            (part / file.name).write_text("".join(lines[number::2]), encoding="utf-8")
        shards.append(tmp_path / f"data{number}")
        dictionaries = ("--srcdict", data / "dict.src.txt", "--tgtdict", data / "dict.tgt.txt")
        pairs = [x for split in ("train", "valid") for x in (f"--{split}pref", part / split)]
        run("fairseq-preprocess", "-s", "src", "-t", "tgt", *pairs, "--destdir", shards[-1], *dictionaries)
    result = train(":".join(map(str, shards)), tmp_path, *SMALL, *TAU, *ADAM, "--max-epoch", 3)
    assert len(losses(result)) == 3
    assert_learned(data, losses(result)[-1])
    words = (shards[1] / "dict.tgt.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (shards[1] / "dict.tgt.txt").write_text("".join(reversed(words)), encoding="utf-8")
    result = run("lv-partition", ":".join(map(str, shards)), "--tau", 300, check=False)
    assert result.returncode == 1 and "another dictionary" in result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "flags, words",
    [
        (("--tau", -1), ["--tau", "-1"]),
        (("--tau", 2), ["sentence", "smallest tau"]),
        (("--tau", 300, "--source-tau", 3), ["source", "smallest source-tau"]),
        (("--tau", 300, "--store-ema"), ["--store-ema"]),
        (("--tau", 300, "--optimizer", "adafactor"), ["optimiser", "for pages of words take another one"]),
        (("--tau", 300, "--criterion", "cross_entropy"), ["--criterion partition_cross_entropy"]),
        (("--source-tau", 300), ["--tau"]),
        (("--tau", 300, "--label-smoothing", 1.5), ["--label-smoothing"]),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(data, tmp_path, flags, words):
    flags = ("--criterion", "partition_cross_entropy", *flags)
    result = train(data, tmp_path, *SMALL, *ADAM, *flags, check=False)
    assert result.returncode in (1, 2) and "Traceback" not in result.stderr + result.stdout, result.stderr
    assert all(word in result.stderr.strip().splitlines()[-1] for word in words), result.stderr
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize(
    "backend, source_tau, word", [("pytorch_ddp", 0, "--source-tau"), ("fully_sharded", 9, "legacy_ddp")]
)
def test_workers_that_cannot_share_pages_are_refused(data, backend, source_tau, word):
    flags = ("--tau", 300, "--source-tau", source_tau, "--ddp-backend", backend, "--distributed-world-size", 2)
    with pytest.raises(UserError, match=word):
        configure(data, "--criterion", "partition_cross_entropy", *flags)


def test_a_checkpoint_for_another_dictionary_is_refused_and_kept(data, large, text, tmp_path):
    pairs = [x for split in ("train", "valid") for x in (f"--{split}pref", text / split)]
    run("fairseq-preprocess", "-s", "src", "-t", "tgt", *pairs, "--destdir", tmp_path / "bin", "--nwordstgt", 400)
    (tmp_path / "checkpoint_last.pt").write_bytes((large[0] / "checkpoint_last.pt").read_bytes())
    result = train(tmp_path / "bin", tmp_path, *SMALL, *TAU, *ADAM, "--max-epoch", 9, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "other dictionaries" in result.stderr.strip().splitlines()[-1]
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == (large[0] / "checkpoint_last.pt").read_bytes()


def test_typed_sentences_are_forgotten_once_they_are_batched(data):
    """fairseq keeps an iterator of every dataset: those of the subsets come again, those of typed lines do not."""
    _, task, *_ = configure(data, *ADAM, *TAU)
    task.load_dataset("valid")
    task.get_batch_iterator(task.dataset("valid"), max_tokens=1000)
    for line in ("s1 s2", "s3"):
        tokens, lengths = task.get_interactive_tokens_and_lengths([line], lambda text: text)
        task.get_batch_iterator(task.build_dataset_for_inference(tokens, lengths), max_tokens=1000)
    assert list(task.dataset_to_epoch_iter) == [task.dataset("valid")]
