"""Many epochs of training on partitions cost no more than one, and a checkpoint can be written in each."""

import gc
import multiprocessing
import weakref

import pytest
from small_corpus import TAU, configure, train_iterator, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=60)


def test_a_thousand_epochs_share_an_iterator_that_can_still_be_saved(corpus):
    cfg, task, _, _ = configure(corpus, *TAU, 30, "--data-buffer-size", 0)
    iterators = {train_iterator(cfg, task, epoch) for epoch in range(1, 1101)}
    assert len(iterators) == 1
    iterator = iterators.pop()
    iterator.next_epoch_itr(shuffle=True).skip(len(iterator))
    assert iterator.state_dict()["epoch"] == 2


@pytest.mark.parametrize("flags", [("--reshuffle-partitions",), ("--update-freq", "2,1,3")])
def test_an_epoch_with_partitions_of_its_own_leaves_no_process_and_no_memory_behind(corpus, flags):
    cfg, task, _, _ = configure(corpus, *TAU, 30, *flags)
    gc.collect()
    before = len(multiprocessing.active_children())
    gc.disable()  # nothing may wait for it
    try:
        iterator, gone = train_iterator(cfg, task, num_workers=1), []
        for epoch in range(2, 6):
            for batch in iterator.next_epoch_itr(shuffle=True):
                assert "partition" in batch
            gone += [weakref.ref(iterator), weakref.ref(iterator.dataset), weakref.ref(iterator.dataset.plan)]
            del batch
            iterator = train_iterator(cfg, task, epoch, num_workers=1)
            assert [thing() for thing in gone] == [None] * len(gone)
            assert len(multiprocessing.active_children()) == before
    finally:
        gc.enable()


def test_reloaded_data_takes_the_place_of_the_old(corpus):
    """As with several shards, which fairseq reads again every epoch."""
    cfg, task, _, _ = configure(corpus, *TAU, 30)
    iterator, gone = train_iterator(cfg, task), []
    for epoch in range(2, 5):
        gone += [weakref.ref(iterator), weakref.ref(iterator.dataset), weakref.ref(task.dataset("train"))]
        del task.datasets["train"]
        iterator = train_iterator(cfg, task, epoch)
        gc.collect()
        assert [thing() for thing in gone] == [None] * len(gone)
