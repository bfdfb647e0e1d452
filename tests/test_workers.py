"""Several workers: the same updates as one, one copy of the tables, and any number of them after a resume."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import several_workers
import torch
from architectures import ARCHITECTURES
from conftest import BIN, LOG, PATIENCE, PLUGIN, ROOT
from fairseq.distributed import utils as distributed_utils
from several_workers import train_together
from small_corpus import MODEL, configure, train_epochs, train_iterator, write_corpus
from torch.multiprocessing.spawn import ProcessRaisedException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lv_fairseq import UserError
from lv_fairseq.fairseq_patches.workers import behind
from lv_fairseq.word_tables import ReadingTable, carry_rows
from lv_fairseq.word_tables.homes import Home, Shared, make_shared, open_shared
from lv_fairseq.word_tables.memory import Rows, bytes_of_machine, bytes_of_worker
from lv_fairseq.word_tables.page import Page

TAU = ("--criterion", "partition_cross_entropy", "--tau", 30)
ADAM = ("--optimizer", "adam", "--lr", 0.005, "--clip-norm", 1.0, "--max-tokens", 60)
FLAGS = (*TAU, *ADAM, "--reshuffle-partitions", "--no-epoch-checkpoints")

# what a worker prints at its end: for each tensor of its tables' homes which memory it is in
HOMES = """
import json
lines = [line.split() for line in open("/proc/self/maps")]
places = [[int(x, 16) for x in line[0].split("-")] for line in lines]
def memory(tensor):
    here = next(i for i, (start, end) in enumerate(places) if start <= tensor.data_ptr() < end)
    return [lines[here][1], lines[here][4], " ".join(lines[here][5:])]
homes = {name: p.host.home for name, p in trainer.model.named_parameters() if hasattr(p, "host")}
found = {f"{name} {s}": memory(home.whole(s)) for name, home in homes.items() for s in ["values", *home.statistics]}
print("homes", json.dumps(found))
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def saved(folder: Path, name: str = "checkpoint_last.pt") -> dict:
    return torch.load(folder / name, weights_only=True)


def assert_close(one: dict, two: dict) -> None:
    """Two checkpoints, with the statistics of their optimisers."""
    assert one["model"].keys() == two["model"].keys()
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, atol=1e-4, rtol=1e-3)
    for number, state in one["last_optimizer_state"]["state"].items():
        others = two["last_optimizer_state"]["state"][number]
        assert others.keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(torch.as_tensor(others[name]), torch.as_tensor(value), atol=1e-4, rtol=1e-3)


def validated(printed: str) -> dict:
    """Losses over all words by the number of updates before them."""
    found = re.findall(r"valid on 'valid' subset \| loss ([\d.]+) .* num_updates (\d+)", printed)
    return {int(updates): float(loss) for loss, updates in found}


def test_two_workers_then_one_then_two_make_the_updates_of_one(corpus, tmp_path):
    """Each resumes in the middle of an epoch and of a partition; rows are in one memory for both workers."""
    one, some = tmp_path / "one", tmp_path / "some"
    flags = (*MODEL, *FLAGS, "--save-interval-updates", 9, "--validate-interval-updates", 9)
    whole = validated(train_together(corpus, one, *flags, "--update-freq", 2, "--max-update", 27, workers=1))
    printed = train_together(corpus, some, *flags, "--max-update", 9, then=HOMES)
    parts = validated(printed)
    homes = [json.loads(line.removeprefix("homes ")) for line in printed.splitlines() if line.startswith("homes")]
    assert len(homes) == 2 and homes[0] == homes[1]
    assert len(homes[0]) == 16  # 4 parameters, each with adam's two moments and its count of updates
    for access, inode, name in homes[0].values():
        assert access == "rw-s" and inode != "0"
        assert name == "/memfd:word-table (deleted)"  # in no file system
    assert_close(saved(one, "checkpoint_1_9.pt"), saved(some))
    for workers, updates in ((1, 18), (2, 27)):
        freq = ("--update-freq", 2) if workers == 1 else ()
        printed = train_together(corpus, some, *flags, *freq, "--max-update", updates, workers=workers)
        assert "Loaded checkpoint" in printed
        parts.update(validated(printed))
    assert_close(saved(one), saved(some))
    assert len(whole) > 2 and parts == pytest.approx(whole, abs=0.01)


TORCHRUN = (BIN / "torchrun", "--standalone", "--nproc-per-node", 2, BIN / "fairseq-train")
SPAWNED = (BIN / "fairseq-train",)
HIDE = ("--hide-rare-words", 5)


@pytest.mark.parametrize(
    "name, start, flags",
    [
        # all words on one page; workers are fairseq's, and spawn those who read data
        ("transformer-joined", SPAWNED, ("--ddp-backend", "pytorch_ddp", "--distributed-world-size", 2, *TAU, *HIDE)),
        # target words without a page
        pytest.param(
            *("rnnsearch", TORCHRUN, ("--ddp-backend", "legacy_ddp", *TAU[:-1], 1000, "--optimizer", "adagrad")),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_workers_are_started_on_cpus_by(tmp_path, name, start, flags):
    architecture = ARCHITECTURES[name]
    data = write_corpus(tmp_path / "data", joined=architecture.joined)
    flags = (*architecture.flags, *FLAGS, "--max-update", 12, "--disable-validation", *flags)
    train_together(data, tmp_path / "one", *flags, "--distributed-world-size", 1, "--update-freq", 2, workers=1)
    command = (*start, data, *PLUGIN, "--save-dir", tmp_path / "two", *LOG, *flags, "--cpu", "--num-workers", 1)
    with subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as started:
        try:
            printed = started.communicate(timeout=PATIENCE)[0].decode()
        finally:
            started.terminate()  # which ends its workers too
    assert started.returncode == 0, printed
    assert "training on 2 devices" in printed
    assert_close(saved(tmp_path / "one"), saved(tmp_path / "two"))


def test_a_users_mistake_in_a_worker_is_told_in_one_line():
    with pytest.raises(ProcessRaisedException) as raised:
        torch.multiprocessing.spawn(several_workers.mistake)
    told = behind(raised.value)
    assert isinstance(told, UserError) and str(told) == "what is wrong, and what to do"


WAITING = """
from types import SimpleNamespace as Settings
import lv_fairseq
from fairseq.distributed import utils
from lv_fairseq.processes import signals_as_exit
lv_fairseq.register()
place = dict(distributed_backend="gloo", distributed_init_method="tcp://localhost:{port}", distributed_world_size=2)
with signals_as_exit():
    print("now", flush=True)
    training = Settings(**place, distributed_rank=0)
    utils.distributed_init(Settings(common=Settings(tpu=False), distributed_training=training))
"""


def listened_at(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("localhost", port))
        except OSError:
            return True
    return False


def test_who_waits_for_a_worker_that_never_comes_can_be_ended():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    program = [sys.executable, "-c", WAITING.format(port=port)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as waiting:
        assert waiting.stdout.readline() == b"now\n"
        while not listened_at(port):
            time.sleep(0.05)
        time.sleep(0.5)
        waiting.terminate()
        try:
            assert waiting.wait(PATIENCE) == -signal.SIGTERM
        finally:
            waiting.kill()


def test_shared_memory_outlives_a_worker_that_is_killed_and_leaves_no_name():
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        shared, tensor = make_shared((1000, 3), torch.float32)
        tensor[7] = 5
        os.write(theirs, shared.path.encode())
        signal.pause()
    path = os.read(ours, 1000).decode()
    names = set(os.listdir("/dev/shm"))
    opened = open_shared(Shared(0, path, (1000, 3), torch.float32))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert opened[7].tolist() == [5, 5, 5] and opened.sum() == 15
    assert not os.path.exists(path) and not any("word-table" in name for name in names)


def test_before_there_is_a_plan_a_page_of_source_words_holds_none(corpus):
    """It goes to the device, with all that an optimiser keeps of it."""
    cfg, task, model, _ = configure(corpus, *TAU)
    specials = task.source_dictionary.nspecial
    assert task.pages.source.rows == len(model.encoder.embed_tokens.weight) == specials
    train_iterator(cfg, task)
    assert len(model.encoder.embed_tokens.weight) == max(map(len, task.pages.plan.source_words)) > specials


class Growth(TorchDispatchMode):
    """Refuses what makes something larger than ``most`` out of tensors that are not."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given, made = ([x.numel() for x in tree_leaves(some) if torch.is_tensor(x)] for some in (args, result))
        assert not given or max(given) > self.most or max(made, default=0) <= self.most, function
        return result


def test_statistics_of_all_words_are_not_made_where_the_page_is():
    table = ReadingTable(torch.nn.Embedding(1000, 3))
    table.put_on(Page(1000, 10))
    optimizer = torch.optim.Adagrad(table.parameters(), initial_accumulator_value=0.25)
    with Growth(most=10 * 3):
        carry_rows(optimizer)
    home = table.weight.host.home
    assert home.statistics == ["sum"] and torch.equal(home.whole("sum"), torch.full((1000, 3), 0.25))


def test_memory_is_what_the_formula_says(corpus):
    cfg, task, model, criterion = configure(corpus, *TAU, *ADAM, "--source-tau", 50)
    trainer = train_epochs(cfg, task, model, criterion)
    parameters = [p for p in model.parameters() if hasattr(p, "host")]
    homes, state = [p.host.home for p in parameters], trainer.optimizer.optimizer.state
    rows = [Rows(len(home.whole()), home.whole()[0].numel(), len(p)) for p, home in zip(parameters, homes)]
    everywhere = [home.whole(name) for home in homes for name in ("values", *home.statistics)]
    assert size(everywhere) == bytes_of_machine(rows)
    pages = task.pages.source, task.pages.target
    here = [x for p in parameters for x in (p, p.grad, *(v for _, v in p.host.page_statistics()))]
    here += [page._row_of for page in pages] + [task.pages.target.offset(torch.device("cpu"))]
    assert all(p.grad is not None and state[p] for p in parameters)
    vocabularies = [page.vocabulary for page in pages]
    assert size(here) == bytes_of_worker(rows, vocabularies, scored=task.pages.target.scored)


def size(tensors) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)


def test_a_command_that_a_worker_has_started_is_alone(corpus, monkeypatch):
    variables = {"MASTER_ADDR": "localhost", "MASTER_PORT": 12345, "WORLD_SIZE": 2, "RANK": 1, "LOCAL_RANK": 1}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    cfg, alone = configure(corpus)[0], []
    cfg.distributed_training.distributed_world_size = 1
    distributed_utils.call_main(cfg, lambda cfg: alone.append(cfg.distributed_training.distributed_world_size == 1))
    assert alone == [True] and not torch.distributed.is_initialized()


def test_what_is_known_of_a_parameter_stays_known_where_it_gets_memory():
    with torch.device("meta"):
        table = ReadingTable(torch.nn.Embedding(50, 4))
    table.weight.param_group = "words"
    table.put_on(Page(50, 10), lambda values: Home(torch.zeros(50, 4)))
    assert table.weight.param_group == "words" and not table.weight.is_meta
