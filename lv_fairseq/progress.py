"""Progress for people who wait: a bar on a terminal, a line for each stage elsewhere."""

import sys
from contextlib import contextmanager
from typing import Callable, Iterator, Optional

from tqdm import tqdm

SHARE = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"


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
        with tqdm(total=1.0, bar_format=SHARE, leave=False) as bar:

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


@contextmanager
def waiting(what: str, seconds: Optional[float] = None) -> Iterator[Callable[[float], None]]:
    """Work that says nothing; ``seconds`` if it is known how long it takes. Call with the seconds that went by.

    Several may wait at a time: lines beside them are to be printed with `tqdm.write`."""
    form = SHARE if seconds else "{desc} [{elapsed}]"
    with tqdm(total=seconds, desc=what, bar_format=form, leave=False, disable=not sys.stderr.isatty()) as bar:
        yield lambda passed: bar.update(min(passed, max(seconds - bar.n, 0)) if seconds else passed)
