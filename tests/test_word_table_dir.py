"""--word-table-dir: rows of all words in files. The same updates as with rows in memory, and small checkpoints."""

import errno
import fcntl
import math
import os
import resource
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from conftest import BIN, PLUGIN, ROOT, generate_here, train
from fairseq import checkpoint_utils
from in_process import refused
from several_workers import train_together
from small_corpus import configure, train_epochs, write_corpus

from lv_fairseq import UserError
from lv_fairseq.commands.checkpoint import main as make_ordinary
from lv_fairseq.files import share_or_copy
from lv_fairseq.word_tables import FileHome, Home
from lv_fairseq.word_tables.drawing import NORMAL, UNIFORM, Recipe, draw
from lv_fairseq.word_tables.memory import Rows, bytes_of_files
from lv_fairseq.word_tables.stored_rows import filled
from lv_fairseq.word_tables.stored_tables import tidy
from lv_fairseq.word_tables.table_file import Field, Layout, make

BITS = [[3201671617, 1024181217, 1066192045], [1073801125, 3188377945, 1067068791]]
OWN = ("--criterion", "partition_cross_entropy", "--tau", 30, "--max-tokens", 60)
ADAM = ("--optimizer", "adam", "--lr", 0.01)
OPTIMIZERS = {"adam": ADAM, "adagrad": ("--optimizer", "adagrad", "--lr", 0.1)}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return {joined: write_corpus(tmp_path_factory.mktemp("data"), 90, joined=joined) for joined in (False, True)}


@pytest.fixture(scope="module")
def setup(corpora):
    """What fairseq-train makes of an architecture's flags, before the first update."""

    def make(name, *flags):
        architecture = ARCHITECTURES[name]
        return configure(corpora[architecture.joined], *OWN, *flags, model=architecture.flags)

    return make


def everything(path: Path) -> dict:
    """All rows and statistics of a checkpoint of either kind, by the names of their places."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    found = {name: filled(value).clone() for name, value in state["model"].items()}
    for number, kept in state["last_optimizer_state"]["state"].items():
        found.update({f"{number} {key}": torch.as_tensor(filled(value)).clone() for key, value in kept.items()})
    return found


def assert_same(one: dict, two: dict) -> None:
    assert one.keys() == two.keys()
    assert [name for name in one if not torch.equal(one[name], two[name])] == []


@pytest.mark.parametrize(
    "name, optimizer",
    [("rnnsearch", "adam"), pytest.param("transformer-joined", "adagrad", marks=pytest.mark.slow)],
)
def test_from_the_same_checkpoint_training_in_files_and_in_memory_have_the_same_bits(setup, name, optimizer, tmp_path):
    """Also where each goes on from a checkpoint of the other."""
    inside, flags = ("--word-table-dir", tmp_path), OPTIMIZERS[optimizer]
    train_epochs(*setup(name, *flags, *inside), save=tmp_path / "small.pt")
    train_epochs(*setup(name, *flags), resume=tmp_path / "small.pt", epochs=(), save=tmp_path / "same.pt")
    assert_same(everything(tmp_path / "small.pt"), everything(tmp_path / "same.pt"))
    ends = {}
    for way, options in (("memory", ()), ("files", inside)):
        for begin in ("small", "same"):
            path = tmp_path / f"{way}.{begin}.pt"
            train_epochs(*setup(name, *flags, *options), resume=tmp_path / f"{begin}.pt", epochs=(2,), save=path)
            ends[way, begin] = everything(path)
            assert sorted(torch.load(path, weights_only=True)).count("word_tables") == (way == "files")
    for end in ends.values():
        assert_same(ends["memory", "same"], end)


@pytest.fixture(scope="module")
def small(setup, tmp_path_factory):
    """A folder with a checkpoint, small.pt, of training in files, in which some words have not been met."""
    folder = tmp_path_factory.mktemp("small")
    train_epochs(*setup("rnnsearch", *ADAM, "--word-table-dir", folder), save=folder / "small.pt")
    return folder


def test_an_ordinary_checkpoint_is_made_on_demand_and_decodes_alike(
    small, setup, corpora, tmp_path, capsys, signals_as_before
):
    make_ordinary([str(small / "small.pt"), "--out", str(tmp_path / "all.pt")])
    ordinary = torch.load(tmp_path / "all.pt", weights_only=True)
    assert "word_tables" not in ordinary and all(map(torch.is_tensor, ordinary["model"].values()))
    assert_same(everything(small / "small.pt"), everything(tmp_path / "all.pt"))
    make_ordinary([str(small / "small.pt"), "--out", str(tmp_path / "values.pt"), "--no-optimizer"])
    assert "last_optimizer_state" not in torch.load(tmp_path / "values.pt", weights_only=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.pt", "values.pt"]
    inside = setup("rnnsearch", *ADAM, "--word-table-dir", tmp_path)
    train_epochs(*inside, resume=tmp_path / "all.pt", epochs=(), save=tmp_path / "every_row_written.pt")
    flags = ("--gen-subset", "valid", "--beam", 2, "--max-len-b", 5)
    paths = small / "small.pt", tmp_path / "all.pt", tmp_path / "every_row_written.pt"
    printed = [generate_here(corpora[False], path, *flags) for path in paths]
    lines = [[line for line in text.splitlines() if line[:2] in ("H-", "D-", "P-")] for text in printed]
    assert len(lines[0]) > 100 and lines[0] == lines[1] == lines[2]
    capsys.readouterr()
    said = refused(make_ordinary, capsys, tmp_path / "all.pt", "--out", tmp_path / "again.pt")
    assert said.endswith("it is an ordinary checkpoint already")
    make_ordinary([str(tmp_path / "all.pt"), "--out", str(tmp_path / "decoding.pt"), "--no-optimizer"])
    left = torch.load(tmp_path / "decoding.pt", weights_only=True)
    assert left.keys() == ordinary.keys() - {"last_optimizer_state"}
    assert all(torch.equal(left["model"][name], value) for name, value in ordinary["model"].items())


def test_an_optimiser_that_begins_anew_finds_no_statistics_in_the_files(small, setup, tmp_path):
    reset, ends = dict(reset_optimizer=True, reset_lr_scheduler=True, reset_meters=True), []
    for flags in ((), ("--word-table-dir", tmp_path)):
        path = tmp_path / f"{len(ends)}.pt"
        train_epochs(*setup("rnnsearch", *ADAM, *flags), resume=small / "small.pt", save=path, **reset)
        ends.append(everything(path))
    assert_same(*ends)


def test_words_that_were_not_met_have_the_rows_that_training_would_have_begun_with(small, setup):
    _, _, model, _ = setup("rnnsearch", "--word-table-dir", small)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(small / "small.pt"))["model"]
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "host"):
            table, first = state[name].stored.table, parameter.host.home.whole()
            missing = (table.places == 0).nonzero().squeeze(1)
            assert 0 < len(missing) < len(first)
            assert torch.equal(filled(state[name])[missing], first[missing])
            assert name.endswith("bias") or not torch.equal(filled(state[name]), first)


def test_validation_over_all_words_is_that_of_rows_in_memory(small, setup):
    losses = []
    for flags in ((), ("--word-table-dir", small)):
        cfg, task, model, criterion = setup("rnnsearch", *ADAM, *flags)
        trainer = train_epochs(cfg, task, model, criterion, resume=small / "small.pt", epochs=())
        task.load_dataset("valid")
        batches = trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
        losses.append([float(trainer.valid_step(batch)["loss"]) for batch in batches])
    assert len(losses[0]) > 5 and losses[0] == pytest.approx(losses[1], rel=1e-6)


FLAGS = (*ARCHITECTURES["rnnsearch"].flags, *OWN, *ADAM, "--dropout", 0.1, "--reshuffle-partitions")
FLAGS += ("--max-update", 25, "--save-interval-updates", 5, "--num-workers", 0, "--disable-validation")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def uninterrupted(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(corpus, folder, *FLAGS, "--word-table-dir", folder, "--keep-interval-updates", 1)
    return folder


def test_checkpoints_of_one_save_share_their_tables_and_old_tables_go(uninterrupted):
    names = {path.name for path in uninterrupted.iterdir()}
    (tables,) = (path.name for path in uninterrupted.glob("word-tables-*"))
    files = {"checkpoint_last.pt", "checkpoint_1_25.pt"}
    assert names == {*files, tables}  # and the files of the run itself have no name
    assert all(torch.load(uninterrupted / name, weights_only=True)["word_tables"]["folder"] == tables for name in files)


@pytest.mark.parametrize("moment, count", [("swap", 40), ("tables", 6)])
def test_killed_and_resumed_it_ends_with_the_same_bits(uninterrupted, corpus, tmp_path, moment, count):
    command = [BIN / "python", ROOT / "tests" / "killed.py", moment, count, corpus, *PLUGIN]
    command += ["--save-dir", tmp_path, *FLAGS, "--word-table-dir", tmp_path]
    killed = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    left = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert len(left) == (moment == "tables")
    result = train(corpus, tmp_path, *FLAGS, "--word-table-dir", tmp_path)
    assert "Loaded checkpoint" in result.stdout + result.stderr
    assert_same(everything(uninterrupted / "checkpoint_last.pt"), everything(tmp_path / "checkpoint_last.pt"))
    assert not any(path.exists() for path in left)


def test_two_workers_have_one_file_and_make_the_updates_of_one(corpus, tmp_path):
    flags = (*ARCHITECTURES["rnnsearch"].flags, *OWN, *ADAM, "--max-update", 12, "--disable-validation")
    ends = {}
    for workers, freq in ((1, 2), (2, 1)):
        save = tmp_path / str(workers)
        save.mkdir()
        options = (*flags, "--update-freq", freq, "--word-table-dir", save)
        shown = "print('rows', trainer.model.decoder.embed_tokens.weight.host.home._told.path)"
        printed = train_together(corpus, save, *options, workers=workers, then=shown)
        ends[workers] = everything(save / "checkpoint_last.pt")
    files = [line for line in printed.splitlines() if line.startswith("rows ")]
    assert len(files) == 2 and len(set(files)) == 1
    assert ends[1].keys() == ends[2].keys()
    for name, value in ends[1].items():
        torch.testing.assert_close(ends[2][name], value, atol=1e-4, rtol=1e-3)


IN_MEMORY = ("fconv",)  # which scores with normalised rows


SLOW = ("bart", "mbart")  # of many layers


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow if x in SLOW else ()) for x in ARCHITECTURES])
def test_rows_are_drawn_as_the_model_would(setup, tmp_path, name):
    """The parameters that begin otherwise are in the file from the beginning."""
    _, _, model, _ = setup(name)
    _, _, in_files, _ = setup(name, "--word-table-dir", tmp_path)
    mine = dict(in_files.named_parameters())
    for key, parameter in model.named_parameters():
        assert hasattr(parameter, "host") == hasattr(mine[key], "host")
        if hasattr(parameter, "host"):
            home, whole = mine[key].host.home, parameter.host.full
            assert (home.table.layout.recipe is None) == (name in IN_MEMORY)
            assert home.shape == whole.shape and (len(home.table.written) > 0) == (name in IN_MEMORY)
            rows = home.whole()
            assert torch.equal(
                rows.flatten(1).any(1) if rows.dim() > 1 else rows != 0,
                whole.flatten(1).any(1) if whole.dim() > 1 else whole != 0,
            )
            assert float(rows.std()) == pytest.approx(float(whole.std()), rel=0.3)
            assert rows.abs().max() <= 2 * whole.abs().max() + 1e-9
        else:
            assert not mine[key].is_meta


@pytest.mark.parametrize(
    "kind, first, second, mean, deviation", [(NORMAL, 1.0, 0.5, 1.0, 0.5), (UNIFORM, -1.0, 3.0, 1.0, 4 / 12**0.5)]
)
def test_drawn_rows_have_their_distribution_and_no_order(kind, first, second, mean, deviation):
    recipe = Recipe(kind, first, second, zero=(1,)).keyed(3, "weight")
    words = np.arange(4000)
    rows = draw(recipe, words, 51)
    assert rows.dtype == np.float32 and not rows[1].any() and len(np.unique(rows)) > 0.95 * rows.size
    others = np.delete(rows, 1, 0)
    assert others.mean() == pytest.approx(mean, abs=0.01) and others.std() == pytest.approx(deviation, rel=0.01)
    if kind == NORMAL:
        within = [(np.abs(others - mean) < k * deviation).mean() for k in (0.5, 1, 2, 3)]
        assert within == pytest.approx([math.erf(k / 2**0.5) for k in (0.5, 1, 2, 3)], abs=0.005)
    assert abs(np.corrcoef(others[:-1].ravel(), others[1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(others[:, 0], others[:, 1])[0, 1]) < 0.06
    order = np.random.default_rng(1).permutation(words)[:70]
    assert np.array_equal(draw(recipe, order, 51), rows[order])
    assert not np.array_equal(draw(recipe.keyed(4, "weight"), words, 51), rows)
    assert not np.array_equal(draw(recipe.keyed(3, "bias"), words, 51), rows)


def test_drawn_rows_are_those_of_every_machine():
    """Bits that were drawn once."""
    rows = draw(Recipe(NORMAL, 0.0, 1.0).keyed(1, "weight"), np.array([0, 5_000_000]), 3)
    assert rows.view(np.uint32).tolist() == BITS


@pytest.mark.parametrize("row", [(), (5,)])
def test_a_file_of_rows_is_as_rows_in_memory(tmp_path, row):
    """Random reads and writes, with statistics that come, go and come back."""
    words, random = 40, np.random.default_rng(1)
    parameter = torch.nn.Parameter(torch.empty(words, *row, device="meta"))
    parameter.recipe = Recipe(NORMAL, 0.0, 1.0).keyed(1, "weight")
    mine = FileHome(parameter, tmp_path)
    theirs = Home(mine.whole().clone())
    for step in range(60):
        if step in (5, 30):
            for home in (mine, theirs):
                home.add("second", row, torch.float32, 0.5)
                home.add("count", row[:0] or (), torch.float64)
        if step == 20:
            mine.forget_statistics(), theirs.forget_statistics()
        assert sorted(mine.statistics) == sorted(theirs.statistics)
        for name in ("values", *theirs.statistics):
            some = torch.from_numpy(random.choice(words, 7, replace=False))
            rows = torch.from_numpy(random.random((9, *theirs.whole(name).shape[1:]))).to(theirs.whole(name).dtype)
            for home in (mine, theirs):
                home.put(some, rows, name)
            page, other = torch.empty_like(rows), torch.empty_like(rows)
            some = torch.from_numpy(random.choice(words, 8, replace=False))
            mine.take(some, page, name, spare=3.0), theirs.take(some, other, name, spare=3.0)
            assert torch.equal(page, other) and torch.equal(mine.whole(name), theirs.whole(name))


def test_rows_that_nobody_has_met_take_no_place_on_the_disk(tmp_path):
    table = make(Layout(1_000_000, (Field("values", (256,), torch.float32),), Recipe(UNIFORM, 0.0, 1.0)), tmp_path)
    table.put(torch.tensor([3, 999_999]), torch.ones(2, 256))
    used, size = os.fstat(table.file.fileno()).st_blocks * 512, os.fstat(table.file.fileno()).st_size
    assert size > 1_000_000_000 and used < 5_000_000
    copy = make(table.layout, tmp_path)
    share_or_copy(table.file.fileno(), copy.file.fileno())
    assert os.fstat(copy.file.fileno()).st_blocks * 512 < 5_000_000
    words = torch.tensor([2, 3, 999_999])
    assert torch.equal(copy.rows(words), table.rows(words)) and copy.rows(words)[1:].eq(1).all()


def test_the_rows_of_the_next_partition_are_read_by_a_thread_that_ends(setup, tmp_path, monkeypatch):
    asked, turned = [], []
    cfg, task, model, criterion = setup("rnnsearch", *ADAM, "--word-table-dir", tmp_path)
    read, turn = task.pages.read_ahead, task.pages.turn_to
    monkeypatch.setattr(task.pages, "read_ahead", lambda p: (asked.append(p), read(p)))
    monkeypatch.setattr(task.pages, "turn_to", lambda p: turn(p) and (turned.append(p) or True))
    train_epochs(cfg, task, model, criterion, epochs=(1, 2))
    one = len(task.pages.plan)
    assert len(turned) == 2 * one and asked == [*turned[1:one], *turned[one + 1 :]]
    for thread in threading.enumerate():
        if thread.name == "read-ahead":
            thread.join(60)
            assert not thread.is_alive()


def test_mistakes_are_told_in_one_line(setup, small, tmp_path):
    with pytest.raises(UserError, match="give --tau N"):
        setup("rnnsearch", "--tau", 0, "--word-table-dir", tmp_path)
    with pytest.raises(UserError, match="there is no folder .*nowhere for --word-table-dir"):
        setup("rnnsearch", "--word-table-dir", tmp_path / "nowhere")
    shutil.copy(small / "small.pt", tmp_path)
    with pytest.raises(UserError, match="word tables are missing, .*the folder belongs beside it"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "small.pt"))
    (tables,) = small.glob("word-tables-*")
    shutil.copytree(tables, tmp_path / tables.name)
    os.truncate(tmp_path / tables.name / "1.rows", 100)
    with pytest.raises(UserError, match="another size"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "small.pt"))
    (tmp_path / tables.name / "tables.json").write_text('{"format": 7}')
    with pytest.raises(UserError, match="format 7, where 1 is known"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "small.pt"))


def test_a_disk_that_is_full_is_told_in_one_line(tmp_path):
    layout = Layout(1000, (Field("values", (256,), torch.float32),), Recipe(UNIFORM, 0.0, 1.0))
    table, before = make(layout, tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        with pytest.raises(UserError, match=f"cannot write word tables to {tmp_path}: File too large"):
            table.put(torch.arange(1000), torch.ones(1000, 256))
        with pytest.raises(UserError, match="cannot write word tables to"):
            make(layout, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_files_are_as_large_as_the_formula_says(setup, tmp_path):
    cfg, task, model, criterion = setup("rnnsearch", *ADAM, "--word-table-dir", tmp_path)
    train_epochs(cfg, task, model, criterion)
    homes = [parameter.host.home for parameter in model.parameters() if hasattr(parameter, "host")]
    rows = [Rows(home.shape[0], math.prod(home.shape[1:]), page=0) for home in homes]
    assert sum(os.fstat(home.table.file.fileno()).st_size for home in homes) == bytes_of_files(rows)


def test_only_tables_of_ours_that_no_checkpoint_needs_are_removed(small, tmp_path):
    (tables,) = small.glob("word-tables-*")
    shutil.copytree(tables, tmp_path / tables.name)
    for name in ("word-tables-0123456789abcdef", ".word-tables-0123456789abcdef.0123456789abcdef.tmp"):
        shutil.copytree(tables, tmp_path / name)
    (tmp_path / "word-tables-of-mine").mkdir()
    (tmp_path / "tables").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    shutil.copy(small / "small.pt", tmp_path / "renamed.model")
    (tmp_path / "half.pt").write_bytes(b"PK half a checkpoint")
    tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*before, "renamed.model", "half.pt"}
    (tmp_path / "half.pt").unlink()
    with open(tmp_path / "word-tables-0123456789abcdef" / "tables.json") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        tidy(tmp_path)  # another process is at work there
    assert {path.name for path in tmp_path.iterdir()} == {x for x in before if x[0] != "."} | {"renamed.model"}
    tidy(tmp_path)
    kept = {"word-tables-of-mine", "tables", tables.name, "renamed.model"}
    assert {path.name for path in tmp_path.iterdir()} == kept
    (tmp_path / "renamed.model").unlink()
    tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept - {tables.name, "renamed.model"}


def test_tables_of_a_save_that_fails_do_not_stay(setup, tmp_path, monkeypatch):
    cfg, task, model, criterion = setup("rnnsearch", *ADAM, "--word-table-dir", tmp_path)

    def fail(obj, file):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(checkpoint_utils, "_torch_persistent_save", fail)
    (tmp_path / "saved").mkdir()
    with pytest.raises(UserError, match="no space"):
        train_epochs(cfg, task, model, criterion, epochs=(), save=tmp_path / "saved" / "one.pt")
    assert list((tmp_path / "saved").iterdir()) == []


def test_who_opens_a_checkpoint_may_change_its_rows_and_changes_no_file(small, tmp_path):
    rows_file = next(small.glob("word-tables-*/0.rows"))
    before = rows_file.read_bytes()
    state = checkpoint_utils.load_checkpoint_to_cpu(str(small / "small.pt"))["model"]
    table = next(rows.stored.table for rows in state.values() if hasattr(rows, "stored"))
    table.views["values"].add_(1)
    assert rows_file.read_bytes() == before


@pytest.mark.parametrize("place", [1, 10**6, -1])
def test_places_that_cannot_be_are_told_in_one_line(small, tmp_path, place):
    (tables,) = small.glob("word-tables-*")
    shutil.copytree(tables, tmp_path / tables.name)
    shutil.copy(small / "small.pt", tmp_path)
    with open(tmp_path / tables.name / "0.rows", "r+b") as file:
        file.write(np.full(2, place, np.int32).tobytes())
    with pytest.raises(UserError, match="no place for some words, or one for several"):
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "small.pt"))
