"""Partitions are those of a slow reference with plain sets, however the sentences are read."""

import shutil
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES
from conftest import preprocess, run
from fairseq.data import ConcatDataset, PrependTokenDataset, data_utils, indexed_dataset
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_corpus import TAU, configure, train_iterator, write_corpus

from lv_fairseq.batching.sentences import one_by_one, sentences
from lv_fairseq.commands import partition as command
from lv_fairseq.errors import UserError
from lv_fairseq.partitions import plan
from lv_fairseq.partitions.plan import Sentences, partition

SPECIALS = range(4)


def flat(lists, dtype=np.int64) -> Sentences:
    tokens = np.array([word for words in lists for word in words], dtype=dtype)
    return Sentences(tokens, np.cumsum([0, *map(len, lists)], dtype=np.int64))


def reference(target, order, tau, source=None, source_tau=0, joined=False):
    """Bounds and sets of words as section 3.1 of the paper has them, one sentence after the other.

    In a joined table, source and target words count together.
    """
    specials = set(SPECIALS)
    bounds, target_words, source_words = [0], [], []
    here, there = set(), set()
    for i, number in enumerate(order):
        new_here = here | set(target[number]) - specials
        new_there = there | set(source[number]) - specials if source is not None else set()
        counted = new_here | new_there if joined else new_here
        if len(counted) > tau or 0 < source_tau < len(new_there):
            bounds.append(i)
            target_words.append(sorted(here | specials))
            source_words.append(sorted(there | specials))
            new_here = set(target[number]) - specials
            new_there = set(source[number]) - specials if source is not None else set()
        here, there = new_here, new_there
    if order:
        bounds.append(len(order))
        target_words.append(sorted(here | specials))
        source_words.append(sorted(there | specials))
    return bounds, target_words, source_words if source is not None else None


def as_lists(result):
    source_words = None if result.source_words is None else [words.tolist() for words in result.source_words]
    return result.bounds.tolist(), [words.tolist() for words in result.target_words], source_words


def most_words(lists, order):
    return max((len(set(lists[i]) - set(SPECIALS)) for i in order), default=0)


@st.composite
def corpora(draw):
    """Sentence pairs, an order that may leave some out, and limits under which every sentence fits."""
    words = st.lists(st.integers(0, draw(st.integers(4, 40))), max_size=8)
    pairs = draw(st.lists(st.tuples(words, words), max_size=40))
    source, target = [x for x, _ in pairs], [y for _, y in pairs]
    order = draw(st.permutations(range(len(pairs)))) if draw(st.booleans()) else list(range(len(pairs)))
    order = order[: draw(st.integers(0, len(order)))] if draw(st.booleans()) else order
    tau = max(1, most_words(target, order) + draw(st.integers(0, 8)))
    source_tau = draw(st.sampled_from([0, most_words(source, order) + draw(st.integers(0, 8))]))
    return source, target, order, tau, source_tau


@given(
    corpora(), st.booleans(), st.integers(1, 9), st.integers(1, 60), st.sampled_from([np.uint16, np.int32, np.int64])
)
@example(([[], []], [[], []], [1, 0], 1, 0), True, 1, 1, np.uint16)
@example(([[2], [2]], [[2], [2]], [0, 1], 1, 1), True, 1, 1, np.int64)
def test_partitions_are_those_of_the_reference(corpus, both, min_read, max_read, dtype):
    source, target, order, tau, source_tau = corpus
    source, source_tau = (source, source_tau) if both else (None, 0)
    sides = flat(target, dtype), None if source is None else flat(source, dtype)
    # however much is read at a time
    with mock.patch.multiple(plan, MIN_READ=min_read, MAX_READ=max_read):
        result = partition(sides[0], np.array(order, dtype=np.int64), tau, SPECIALS, sides[1], source_tau)
        again = partition(sides[0], np.array(order, dtype=np.int64), tau, SPECIALS, sides[1], source_tau)
    assert as_lists(result) == as_lists(again) == reference(target, order, tau, source, source_tau)
    assert len(result) == len(result.target_words) == len(result.bounds) - 1
    assert result.order.tolist() == order


@given(corpora(), st.integers(0, 8), st.integers(1, 9), st.integers(1, 60))
def test_words_of_both_languages_count_in_a_joined_table(corpus, more, min_read, max_read):
    source, target, order, _, source_tau = corpus
    tau = max(1, most_words([x + y for x, y in zip(source, target)], order) + more)
    with mock.patch.multiple(plan, MIN_READ=min_read, MAX_READ=max_read):
        result = partition(
            *(flat(target), np.array(order, dtype=np.int64), tau, SPECIALS, flat(source), source_tau), joined=True
        )
    assert as_lists(result) == reference(target, order, tau, source, source_tau, joined=True)
    for words in zip(result.source_words, result.target_words):
        assert len(np.union1d(*words)) <= tau + len(SPECIALS)


@given(corpora())
def test_what_a_partition_is(corpus):
    source, target, order, tau, source_tau = corpus
    result = partition(flat(target), np.array(order, dtype=np.int64), tau, SPECIALS, flat(source), source_tau)
    assert result.bounds.dtype == np.int64 and result.partition_of.dtype == np.int32
    expected = np.full(len(target), -1)
    sides = ((target, result.target_words, tau), (source, result.source_words, source_tau))
    for i in range(len(result)):
        numbers = order[result.bounds[i] : result.bounds[i + 1]]
        assert numbers
        assert (expected[numbers] == -1).all()
        expected[numbers] = i
        for lists, sets, limit in sides:
            words = sets[i]
            assert words.dtype == np.int64
            assert set(words.tolist()) == {word for number in numbers for word in lists[number]} | set(SPECIALS)
            assert not limit or len(words) <= limit + len(SPECIALS)
        if i + 1 < len(result):  # there is no room for the next sentence
            following = order[result.bounds[i + 1]]
            assert any(
                limit and len(set(sets[i].tolist()) | set(lists[following])) > limit + len(SPECIALS)
                for lists, sets, limit in sides
            )
    assert result.partition_of.tolist() == expected.tolist()


@pytest.mark.parametrize("source_tau", [0, 260])
@pytest.mark.parametrize("tau", [60, 300, 2000, 10**6])
def test_a_corpus_that_is_read_in_many_pieces(tau, source_tau):
    random = np.random.default_rng(1)
    pairs = [[random.zipf(1.3, random.integers(1, 30)) % 5000 for _ in range(4000)] for _ in range(2)]
    source, target = [[words.tolist() for words in side] for side in pairs]
    order = random.permutation(4000)
    done = []
    result = partition(flat(target), order, tau, SPECIALS, flat(source), source_tau, done.append)
    assert as_lists(result) == reference(target, order.tolist(), tau, source, source_tau)
    assert done == sorted(done) and done[-1] == 4000


def test_special_symbols_need_not_occur():
    result = partition(flat([[5], [6]]), np.arange(2), 2, [3, 9])
    assert [words.tolist() for words in result.target_words] == [[3, 5, 6, 9]]


def test_sentences_that_do_not_fit():
    short, long, longer = [4, 5, 6, 2], [4, 4, 5, 6, 7, 8, 2], [4, 5, 6, 7, 8, 9, 10, 11, 11, 2]
    lists = [short, long, short, longer, [12] * 30]
    order = np.array([2, 0, 1, 3, 4])
    with pytest.raises(UserError) as error:
        partition(flat(lists), order, 4, SPECIALS)
    message = "sentence 1, counted from 0, has 5 different target words, more than tau 4"
    assert str(error.value) == f"{message}: the smallest tau for this corpus is 8"
    assert len(partition(flat(lists), order, 8, SPECIALS)) == 2
    with pytest.raises(UserError, match="sentence 1, .* 5 different target .* is 5$"):  # sentence 3 is not in the order
        partition(flat(lists), np.array([2, 1, 0]), 4, SPECIALS)
    with pytest.raises(UserError, match="sentence 3, .* 8 different source words, more than source-tau 7: .* is 8$"):
        partition(flat([short] * 5), order, 4, SPECIALS, flat(lists), 7)
    assert len(partition(flat([short] * 5), order, 4, SPECIALS, flat(lists), 8)) == 2
    with pytest.raises(UserError, match="sentence 3, .* 9 different source and target words, more than tau 8: .* 9$"):
        partition(flat([[13]] * 5), order, 8, SPECIALS, flat(lists), joined=True)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"tau": 0}, "tau must be 1 or more, not 0"),
        ({"tau": -3}, "tau must be 1 or more, not -3"),
        ({"source_tau": -1}, "source-tau must be 0 .* not -1"),
        ({"source_tau": 5}, "needs the source"),
        ({"joined": True}, "joined table needs the source"),
        ({"source": flat([[4]])}, "1 source sentences do not pair with 2"),
    ],
)
def test_limits_that_make_no_sense(changes, words):
    with pytest.raises(UserError, match=words):
        partition(**{"target": flat([[4], [5]]), "order": np.arange(2), "tau": 3, "specials": SPECIALS, **changes})


def write(path, lists, dtype):
    builder = indexed_dataset.MMapIndexedDatasetBuilder(f"{path}.bin", dtype=dtype)
    for words in lists:
        builder.add_item(torch.tensor(words))
    builder.finalize(f"{path}.idx")
    return indexed_dataset.MMapIndexedDataset(str(path))


def same(a: Sentences, b: Sentences) -> bool:
    assert a.starts.dtype == b.starts.dtype == np.int64
    return np.array_equal(a.tokens, b.tokens) and np.array_equal(a.starts, b.starts)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int32, np.int64])
def test_a_mapped_file_is_not_copied(tmp_path, dtype):
    lists = [[5, 6, 2], [2], [7, 60000, 7, 2]]
    dataset = write(tmp_path / "x", lists, dtype)
    fast = sentences(dataset)
    assert fast.tokens.dtype == dtype and not fast.tokens.flags.writeable and not fast.tokens.flags.owndata
    assert same(fast, one_by_one(dataset, None))
    assert same(fast, flat(lists))
    del dataset  # fairseq closes its own map now
    assert same(fast, flat(lists))


def test_files_with_gaps_and_subclasses_are_read_sentence_by_sentence(tmp_path):
    lists = [[5, 6, 2], [7, 2], [8, 9, 2]]
    dataset = write(tmp_path / "x", lists, np.uint16)

    class Backwards(indexed_dataset.MMapIndexedDataset):
        def __getitem__(self, i):
            return super().__getitem__(i).flip(0)

    assert same(sentences(Backwards(str(tmp_path / "x"))), flat([words[::-1] for words in lists]))
    assert same(sentences(PrependTokenDataset(dataset, 0)), flat([[0, *words] for words in lists]))
    dataset = indexed_dataset.MMapIndexedDataset(str(tmp_path / "x"))  # the other one remembers where sentences are
    dataset._index._pointers = dataset._index._pointers[[2, 1, 0]]
    assert same(sentences(dataset), flat([[8, 9, 2], [7, 2], [5, 6, 2]]))


def test_several_files(tmp_path):
    parts = [write(tmp_path / "a", [[5, 2], [6, 6, 2], [70, 2]], np.uint16), write(tmp_path / "b", [[8, 2]], np.uint32)]
    for ratios in (1, [2, 1], [1, 3], [1.5, 2.0], [0, 1]):
        both = ConcatDataset(parts, ratios)
        done = []
        assert same(sentences(both, done.append), one_by_one(both, None))
        assert done == sorted(done) and done[-1] == len(both)


def test_a_file_that_was_cut_off(tmp_path):
    dataset = write(tmp_path / "x", [[5, 6, 2]], np.uint16)
    (tmp_path / "x.bin").write_bytes(b"12")
    with pytest.raises(UserError, match="x.bin is shorter .* fairseq-preprocess"):
        sentences(dataset)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Text with an empty line and unknown words, binarised in both of fairseq's formats."""
    folder = tmp_path_factory.mktemp("tiny")
    lines = ["a b c", "", "d e", "a a a a f", "rare words", "b c d"] * 3
    for split in ("train", "valid", "test"):
        (folder / f"{split}.src").write_text("\n".join(line.upper() for line in lines) + "\n")
        (folder / f"{split}.tgt").write_text("\n".join(lines) + "\n")
    mapped = preprocess(folder, folder / "mmap", "--nwordstgt", 10, "--nwordssrc", 10)
    cached = folder / "cached"
    cached.mkdir()
    for language in ("src", "tgt"):
        shutil.copy(mapped / f"dict.{language}.txt", cached)
        dataset = data_utils.load_indexed_dataset(str(mapped / f"train.src-tgt.{language}"))
        path = cached / f"train.src-tgt.{language}"
        builder = indexed_dataset.IndexedDatasetBuilder(f"{path}.bin")
        for i in range(len(dataset)):
            builder.add_item(dataset[i])
        builder.finalize(f"{path}.idx")
    return SimpleNamespace(mmap=mapped, cached=cached)


@pytest.mark.parametrize("language", ["src", "tgt"])
def test_what_fairseq_preprocess_has_written(tiny, language):
    mapped, cached = [
        data_utils.load_indexed_dataset(str(folder / f"train.src-tgt.{language}"))
        for folder in (tiny.mmap, tiny.cached)
    ]
    assert type(mapped) is not type(cached)
    done = []
    with mock.patch("lv_fairseq.batching.sentences.BLOCK", 7):
        assert same(sentences(mapped), sentences(cached, done.append))
        assert same(sentences(mapped), one_by_one(mapped, None))
    assert done == [7, 14, 18]
    assert sentences(mapped).lengths.tolist() == [4, 1, 3, 6, 3, 4] * 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def show(capsys, *options):
    """What lv-partition prints, as text and as numbers by the name of the row."""
    command.main(list(map(str, options)))
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.partition("\npartition  ")[2].splitlines()[1:]]
    return printed, {row[0]: [float(x.replace(",", "")) for x in row[1:] if x != "..."] for row in rows}


def test_the_command(data):
    before = sorted(data.iterdir())
    result = run("python", "-m", "lv_fairseq.commands.partition", data, "--tau", 100, "--batch-size", 8)
    assert "train, src to tgt, in the order of the corpus" in result.stdout
    assert "partition  sentences  target tokens  target words  source words  updates" in result.stdout
    assert "\npartitions: " in result.stdout and "..." in result.stdout
    assert "%" not in result.stderr  # no progress bar where no terminal is
    assert sorted(data.iterdir()) == before

    refused = run("python", "-m", "lv_fairseq.commands.partition", data, "--tau", 2, check=False)
    assert refused.returncode == 1 and "Traceback" not in refused.stderr and not refused.stdout
    assert "more than tau 2: the smallest tau for this corpus is " in refused.stderr.splitlines()[-1]
    assert str(data) in refused.stderr.splitlines()[-1]


def test_the_table_holds_the_plan(data, capsys):
    target = sentences(data_utils.load_indexed_dataset(str(data / "train.src-tgt.tgt")))
    source = sentences(data_utils.load_indexed_dataset(str(data / "train.src-tgt.src")))
    orders = {(): np.arange(4000)}
    orders["--shuffle", "--seed", 3] = np.random.default_rng([3, 1]).permutation(4000)
    for options, order in orders.items():
        expected = partition(target, order, 150, SPECIALS, source, 140)
        limits = ("--tau", 150, "--source-tau", 140, "--batch-size", 8)
        printed, rows = show(capsys, data, *limits, "--all", *options)
        assert f"partitions: {len(expected)}\n" in printed
        parts = [order[a:b] for a, b in zip(expected.bounds[:-1], expected.bounds[1:])]
        for i, part in enumerate(parts):
            words = len(expected.target_words[i]) - 4, len(expected.source_words[i]) - 4
            tokens = target.lengths[part].sum()
            assert rows[str(i + 1)] == [len(part), tokens, *words, -(-len(part) // 8)]
        words = np.setdiff1d(target.tokens, SPECIALS), np.setdiff1d(source.tokens, SPECIALS)
        assert rows["total"][:4] == [4000, len(target.tokens), *map(len, words)]
        assert rows["total"][4] == sum(-(-len(part) // 8) for part in parts)
        assert rows["mean"][0] == pytest.approx(4000 / len(parts), abs=0.05)
        assert rows["min"][0] == min(map(len, parts)) and rows["max"][0] == max(map(len, parts))


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--reshuffle-partitions", "--seed", 3, "--epoch", 4),
        ("--sort-window", 7, "--update-freq", "1,3", "--epoch", 2, "--distributed-world-size", 2),
        ("--reshuffle-partitions", "--update-freq", 2, "--distributed-world-size", 2, "--max-target-positions", 9),
        ("--source-tau", 35, "--sort-window", 20, "--required-batch-size-multiple", 1, "--batch-size", 5),
    ],
)
def test_it_shows_what_training_does(corpus, capsys, flags):
    """Partitions, sentences and updates are those of the task's own iterator of the epoch."""
    settings = dict(zip(flags, flags[1:]))
    epoch, workers = settings.get("--epoch", 1), settings.get("--distributed-world-size", 1)
    own = [x for i, x in enumerate(flags) if "--epoch" not in flags[max(i - 1, 0) : i + 1]]  # no flag of fairseq-train
    own += ["--ddp-backend", "legacy_ddp"] if workers > 1 else []
    cfg, task, _, _ = configure(corpus, *TAU, 30, *own)
    iterator = train_iterator(cfg, task, epoch=epoch, num_shards=workers)
    update_freq = cfg.optimization.update_freq[min(epoch, len(cfg.optimization.update_freq)) - 1]
    batches = [batch for batch in iterator.frozen_batches if batch[0] >= 0]
    trained = iterator.dataset.plan.partition_of[np.concatenate(batches)]

    printed, rows = show(capsys, corpus, "--tau", 30, "--max-tokens", 60, "--all", *flags)
    assert f"partitions: {len(task.pages.plan)}\n" in printed
    counts = [rows[str(i + 1)][0] for i in range(len(task.pages.plan))]
    assert counts == np.bincount(trained).tolist() and rows["total"][0] == len(trained)
    assert rows["total"][4] == len(iterator) / update_freq and len(iterator) % update_freq == 0
    fillers = len(iterator.frozen_batches) - len(batches)
    assert (f"\n{fillers} batches that count nothing" in printed) == (fillers > 0)


def test_it_shows_what_training_does_with_a_joined_table(tmp_path, capsys):
    corpus = write_corpus(tmp_path / "joined", joined=True)
    model = ARCHITECTURES["transformer-joined"].flags
    cfg, task, _, _ = configure(corpus, *TAU, 40, model=model)
    train_iterator(cfg, task)
    printed, rows = show(capsys, corpus, "--tau", 40, "--max-tokens", 60, "--all", "--share-all-embeddings")
    assert "at most 40 words of both languages" in printed
    assert [rows[str(i + 1)][2] + 4 for i in range(len(task.pages.plan))] == [*map(len, task.pages.plan.target_words)]


def test_each_shard_is_shown_as_in_its_epoch(corpus, tmp_path, capsys):
    other = shutil.copytree(corpus, tmp_path / "other")
    both, flags = f"{corpus}:{other}", ("--tau", "30", "--shuffle")
    command.main([both, *flags])
    printed = capsys.readouterr().out
    assert f"{corpus}: train, src to tgt, shuffled with seed 1 for epoch 1\n" in printed
    assert f"{other}: train, src to tgt, shuffled with seed 1 for epoch 2\n" in printed
    command.main([both, *flags, "--epoch", "3"])
    third = capsys.readouterr().out
    assert third.startswith(f"{corpus}: train, src to tgt, shuffled with seed 1 for epoch 3\n")
    assert str(other) not in third


def test_only_the_first_and_last_partitions_are_shown(data, capsys):
    printed, rows = show(capsys, data, "--tau", 60, "--max-tokens", 500)
    count = int(printed.partition("partitions: ")[2].split()[0].replace(",", ""))
    assert count > 20
    shown = [name for name in rows if name.replace(",", "").isdigit()]
    last = [f"{i:,}" for i in range(count - 4, count + 1)]
    assert shown == ["1", "2", "3", "4", "5", *last]
    assert rows["total"][4] >= count


def test_several_shards_and_both_formats(tiny, capsys):
    command.main([f"{tiny.mmap}:{tiny.cached}", "--tau", "5", "-s", "src", "-t", "tgt"])
    first, second = capsys.readouterr().out.split(f"\n\n{tiny.cached}: train,")
    assert first.replace(f"{tiny.mmap}: train,", "") == second.rstrip("\n")


def test_long_sentences_are_left_out(tiny, capsys):
    printed, rows = show(capsys, tiny.mmap, "--tau", 5, "--max-target-positions", 5)
    assert "3 sentences left out" in printed and rows["total"][0] == 15
    printed, rows = show(capsys, tiny.mmap, "--tau", 5, "--max-tokens", 3)
    assert "9 sentences left out" in printed and rows["total"][0] == 9


def test_more_files_of_the_same_name_are_read_as_well(tiny, tmp_path, capsys):
    folder = shutil.copytree(tiny.mmap, tmp_path / "copy")
    for end in ("src.bin", "src.idx", "tgt.bin", "tgt.idx"):
        shutil.copy(folder / f"train.src-tgt.{end}", folder / f"train1.src-tgt.{end}")
    assert show(capsys, folder, "--tau", 5)[1]["total"][0] == 36


def refused(*options) -> str:
    """The one line in which lv-partition ends."""
    with pytest.raises(SystemExit) as end:
        command.main(list(map(str, options)))
    assert isinstance(end.value.code, str) and "\n" not in end.value.code
    return end.value.code


def test_mistakes_are_told_in_one_line(tiny, tmp_path):
    assert "--tau must be 1 or more, not 0" in refused(tiny.mmap, "--tau", 0)
    assert "--tau must be 1 or more, not -1" in refused(tiny.mmap, "--tau", -1)
    assert "--source-tau must be 0 or more" in refused(tiny.mmap, "--tau", 9, "--source-tau", -1)
    assert "--max-tokens must be 1 or more" in refused(tiny.mmap, "--tau", 9, "--max-tokens", 0)
    assert "--update-freq must be 1 or more, not 0" in refused(tiny.mmap, "--tau", 9, "--update-freq", "2,0")
    assert "--epoch must be 1 or more, not 0" in refused(tiny.mmap, "--tau", 9, "--epoch", 0)
    assert "--seed must be below 2**32, as for fairseq-train" in refused(tiny.mmap, "--tau", 9, "--seed", 2**40)
    assert "no data folder nowhere" in refused("nowhere", "--tau", 9)
    assert "no data folder nowhere" in refused(f"{tiny.mmap}:nowhere", "--tau", 9)
    assert "fairseq-preprocess" in refused(tmp_path, "--tau", 9)
    assert "other" in refused(tiny.mmap, "--tau", 9, "--train-subset", "other")
    assert "dict.xx.txt" in refused(tiny.mmap, "--tau", 9, "-s", "xx", "-t", "tgt")
    assert "more than source-tau 1: the smallest source-tau" in refused(tiny.mmap, "--tau", 9, "--source-tau", 1)

    folder = shutil.copytree(tiny.mmap, tmp_path / "copy")
    (folder / "dict.tgt.txt").write_text("no numbers\n")
    assert "dict.tgt.txt is no dictionary" in refused(folder, "--tau", 9)
    (folder / "dict.tgt.txt").write_bytes("gr\xfc\xdfe 3\n".encode("latin-1"))
    assert "dict.tgt.txt is no dictionary" in refused(folder, "--tau", 9)
    (folder / "dict.tgt.txt").unlink()
    assert "no dictionary" in refused(folder, "--tau", 9)
    shutil.copy(tiny.mmap / "dict.tgt.txt", folder)
    (folder / "train.src-tgt.src.bin").write_bytes(b"")
    assert "train.src-tgt.src.bin holds no sentences" in refused(folder, "--tau", 9)
    (folder / "train.src-tgt.src.idx").write_bytes(b"something else")
    (folder / "train.src-tgt.src.bin").write_bytes(b"something else")
    assert "cannot be read, make it again with fairseq-preprocess" in refused(folder, "--tau", 9)
    for path in folder.glob("train.src-tgt.tgt.*"):
        path.unlink()
    for path in tiny.mmap.glob("train.src-tgt.src.*"):
        shutil.copy(path, folder)
    assert "no target sentences" in refused(folder, "--tau", 9)
    for language in ("src", "tgt"):
        write(folder / f"few.src-tgt.{language}", [[4, 5, 2]], np.uint16)
    assert "none of the 1 sentences" in refused(folder, "--tau", 9, "--train-subset", "few", "--max-tokens", 2)
    write(folder / "few.src-tgt.src", [[4, 5, 2]] * 2, np.uint16)
    assert "few has not as many source as target" in refused(folder, "--tau", 9, "--train-subset", "few")


@pytest.mark.parametrize("kind", ["mmap", "cached"])
def test_a_damaged_index_is_told_in_one_line(tiny, tmp_path, kind, capfd):
    folder = shutil.copytree(getattr(tiny, kind), tmp_path / "copy")
    path = folder / "train.src-tgt.tgt.idx"
    whole, data = path.read_bytes(), path.with_suffix(".bin").read_bytes()
    header = 26 if kind == "mmap" else 48
    damaged = [whole[:length] for length in (0, 5, 9, 12, header - 1, header, header + 5, len(whole) - 1)]
    damaged += [whole + b"more", b"something else" * 9, b"\0" * len(whole), b"X" + whole[1:]]
    damaged += [whole[:9] + b"\xff" * (len(whole) - 9), whole[:header] + b"\xff" * (len(whole) - header)]
    damaged += [whole[:header] + b"\x7f" * (len(whole) - header), whole[: header - 8] + b"\xff" * 8 + whole[header:]]
    for content in damaged:
        path.write_bytes(content)
        line = refused(folder, "--tau", 9)
        assert f"{path} cannot be read, make it again with fairseq-preprocess" in line
    path.write_bytes(whole)
    path.with_suffix(".bin").write_bytes(data[:-3])
    assert f"{path} cannot be read" in refused(folder, "--tau", 9)
    path.with_suffix(".bin").write_bytes(data)
    command.main([str(folder), "--tau", "9"])
    assert "Traceback" not in capfd.readouterr().err  # nor from what is left behind


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255), kind=st.sampled_from(["mmap", "cached"]))
def test_whatever_byte_of_an_index_is_wrong_there_is_no_stack_trace(tiny, tmp_path, place, byte, kind):
    folder = shutil.copytree(getattr(tiny, kind), tmp_path / kind, dirs_exist_ok=True)
    path = folder / "train.src-tgt.tgt.idx"
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] = byte
    path.write_bytes(content)
    try:
        command.main([str(folder), "--tau", "9"])
    except SystemExit as end:
        assert isinstance(end.code, str) and "\n" not in end.code


def test_training_tells_of_a_damaged_index_in_one_line_too(corpus, tmp_path):
    folder = shutil.copytree(corpus, tmp_path / "copy")
    path = folder / "train.src-tgt.src.idx"
    path.write_bytes(path.read_bytes()[:-1])
    for flags in ((), (*TAU, 30)):
        _, task, _, _ = configure(folder, *flags)
        with pytest.raises(UserError, match="train.src-tgt.src.idx cannot be read, make it again"):
            task.load_dataset("train", combine=True)
