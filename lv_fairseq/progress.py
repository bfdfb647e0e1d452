"""Progress for people who wait: a bar on a terminal, a line for each stage elsewhere."""

import sys
from contextlib import contextmanager
from typing import Callable, Iterator

from tqdm import tqdm


@contextmanager
def stage(what: str, total: float, unit: str = "", scale: bool = True) -> Iterator[Callable[[float], None]]:
    """A stage of some work; gives a function to call with how much more of it is done."""
    if not sys.stderr.isatty():
        print(what, file=sys.stderr, flush=True)
        yield lambda done: None
        return
    with tqdm(total=total, desc=what, unit=unit, unit_scale=scale, leave=False, delay=0.5) as bar:
        yield bar.update


@contextmanager
def stages() -> Iterator[Callable[[float, str], None]]:
    """Work that tells by itself what it does: call with the share that is done, 0 to 1, and its name."""
    if sys.stderr.isatty():
        form = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"
        with tqdm(total=1.0, bar_format=form, leave=False) as bar:

            def show(share: float, what: str) -> None:
                bar.set_description(what, refresh=False)
                bar.update(max(share - bar.n, 0))

            yield show
    else:
        last = [""]

        def tell(share: float, what: str) -> None:
            if what != last[0]:
                print(what, file=sys.stderr, flush=True)
            last[0] = what

        yield tell
