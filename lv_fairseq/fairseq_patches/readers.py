"""The processes that read data (``--num-workers``)."""

import atexit
import weakref

from fairseq.data.iterators import EpochBatchIterator


def let_readers_end() -> None:
    """Let them end by themselves when a command does.

    They wait for the next epoch until Python kills them, and then leave a temporary folder each (/tmp/pymp-...). torch
    asks them to end only where there is a GPU.
    """
    iterators = weakref.WeakSet()
    begin = EpochBatchIterator._get_iterator_for_epoch

    def begin_and_remember(self, *args, **kwargs):
        iterators.add(self)
        return begin(self, *args, **kwargs)

    def end_all() -> None:
        for iterator in list(iterators):
            end_readers(iterator)

    EpochBatchIterator._get_iterator_for_epoch = begin_and_remember
    atexit.register(end_all)


def end_readers(iterator: EpochBatchIterator) -> None:
    running = getattr(iterator.dataloader, "_iterator", None)  # torch has no other way to say it
    if hasattr(running, "_shutdown_workers"):
        running._shutdown_workers()
