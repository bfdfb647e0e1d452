"""fairseq-train in several processes of one training, forked from one that has imported everything already."""

import os
import socket
import sys
import time
from pathlib import Path

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from several_workers import fork
sys.exit(fork({workers}, {folder!r}, {flags!r}, {then!r}))
"""


def train_together(data, save: Path, *flags, workers: int = 2, backend: str = "legacy_ddp", then: str = "") -> str:
    """What all workers printed, one after the other.

    Args:
        then: code that each worker runs at the end, where ``trainer`` is fairseq's, ``rank`` its number
    """
    from conftest import LOG, PLUGIN, ROOT, run_code  # not in the processes that train

    save.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        place = f"tcp://localhost:{free.getsockname()[1]}"
    flags = (data, *PLUGIN, "--save-dir", save, *LOG, *flags, "--cpu", "--num-workers", 0, "--ddp-backend", backend)
    if workers > 1:
        flags += ("--distributed-world-size", workers, "--distributed-no-spawn", "--distributed-init-method", place)
    how = dict(tests=str(ROOT / "tests"), workers=workers, folder=str(save), flags=[*map(str, flags)], then=then)
    ended = run_code(PROGRAM.format(**how), save)
    printed = "".join((save / f"worker{rank}.log").read_text() for rank in range(workers))
    assert ended.returncode == 0, printed + ended.stderr
    return printed


def fork(workers: int, folder: str, flags: list, then: str) -> int:
    """Run the workers. As soon as one fails, the others are ended."""
    children = {}
    for rank in range(workers):
        child = os.fork()
        if child == 0:
            with open(f"{folder}/worker{rank}.log", "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            work(rank, flags, then)
        children[child] = rank
    failed = 0
    while children:
        child, status = os.wait()
        del children[child]
        if status and not failed:
            failed = 1
            time.sleep(1)  # they may have something to say
            for other in children:
                os.kill(other, 9)
    return failed


def work(rank: int, flags: list, then: str) -> None:
    from fairseq.trainer import Trainer
    from fairseq_cli.train import cli_main

    code, trainers, make = 1, [], Trainer.__init__

    def make_and_keep(trainer, *args, **kwargs):
        trainers.append(trainer)
        make(trainer, *args, **kwargs)

    Trainer.__init__ = make_and_keep
    try:
        sys.argv = ["fairseq-train", *flags]
        if "--distributed-world-size" in flags:
            sys.argv += ["--distributed-rank", str(rank)]
        cli_main()
        exec(then, {"trainer": trainers[0], "rank": rank})
        code = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def mistake(rank: int) -> None:
    from lv_fairseq.errors import UserError

    try:
        raise KeyError("what led to it")
    except KeyError as error:
        raise UserError("what is wrong, and what to do") from error
