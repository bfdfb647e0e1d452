"""Work on chunks in several threads (numpy lets others run while it computes), results in the order of the chunks."""

import collections
import concurrent.futures
from typing import Callable, Iterable, Iterator, Tuple, TypeVar

Item, Result = TypeVar("Item"), TypeVar("Result")


def in_turn(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Tuple[Item, Result]]:
    """Each item with ``function(item)``. At most two results a thread wait to be taken."""
    if threads == 1:
        for item in items:
            yield item, function(item)
        return
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        waiting = collections.deque()
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) > 2 * threads:
                item, future = waiting.popleft()
                yield item, future.result()
        while waiting:
            item, future = waiting.popleft()
            yield item, future.result()
