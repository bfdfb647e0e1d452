"""The workers of one machine, as word tables see them: who writes what all share, and when the others may read it."""

from typing import Any, Callable, NamedTuple


class Workers(NamedTuple):
    """The processes of one machine that train one model: they make the same updates, and turn pages, load and change
    between training and validation in the same order.

    Args:
        first: whether this one writes what all share
        tell: gives every worker what the first one hands in, once it has done so
        wait: returns when all workers are there
    """

    first: bool
    tell: Callable[[Any], Any]
    wait: Callable[[], None]


ALONE = Workers(first=True, tell=lambda said: said, wait=lambda: None)
