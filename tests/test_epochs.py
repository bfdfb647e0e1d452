"""Many epochs of training on partitions cost no more than one, and a checkpoint can be written in each."""

import gc
import multiprocessing
import weakref

import pytest
from fairseq.data.iterators import GroupedIterator
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
    before, made = len(multiprocessing.active_children()), []
    gc.disable()  # nothing may wait until it happens to come
    try:
        for epoch in range(1, 6):
            iterator = train_iterator(cfg, task, epoch, num_workers=1)
            assert len(multiprocessing.active_children()) == before
            made += [weakref.ref(iterator), weakref.ref(iterator.dataset), weakref.ref(iterator.dataset.plan)]
            assert len([thing for thing in made if thing() is not None]) <= 3 * 2  # this epoch's and the last one's
            circle = [iterator.next_epoch_itr(shuffle=True)]
            circle.append(circle)  # as omegaconf's exceptions hold it in fairseq-train
            for batch in circle[0]:
                assert "partition" in batch
            del batch, circle
    finally:
        gc.enable()
        iterator.close()


def test_data_that_are_read_again_take_the_place_of_the_old(corpus):
    """As with several shards, one an epoch."""
    cfg, task, _, _ = configure(corpus, *TAU, 30)
    made = []
    for epoch in range(1, 6):
        iterator = train_iterator(cfg, task, epoch)
        made += [weakref.ref(iterator), weakref.ref(iterator.dataset), weakref.ref(task.datasets.pop("train"))]
        assert len([thing for thing in made if thing() is not None]) <= 3 * 2


@pytest.mark.parametrize("place", [1, 2, 3, 5])
@pytest.mark.parametrize("then, now, update_freq", [(1, 1, 2), (1, 1, 3), (2, 1, 1), (1, 2, 2), (2, 2, 2)])
def test_no_update_reaches_into_another_partition_after_a_resume(corpus, place, then, now, update_freq):
    """With other flags than before, under which there may be as many batches."""
    cfg, task, _, _ = configure(corpus, *TAU, 30, "--update-freq", update_freq)
    iterator = train_iterator(cfg, task, num_shards=now)
    count = len(iterator.frozen_batches)
    state = {"version": 2, "epoch": 1, "iterations_in_epoch": place, "shuffle": True}
    for more in ({"batches": count, "shards": then}, {}):  # 0.1.0 did not say so much
        iterator.load_state_dict({**state, **more})
        batches = iterator.next_epoch_itr(shuffle=True)
        done = place * (then if more else now)
        whole = iterator.dataset.group
        assert iterator.iterations_in_epoch == done // whole * whole // now
        for update in GroupedIterator(batches, update_freq):
            assert len(update) == update_freq and len({batch["partition"] for batch in update}) == 1
