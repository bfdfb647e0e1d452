"""Trainings that are killed again and again, as `kill -9` does, and resumed, until they have come to their end.

Each life of a training is forked from a process that has imported everything already. It tells through a pipe what it
begins to do, and the one who kills waits for something of a kind, and then for a moment drawn at random.
"""

import collections
import contextlib
import ctypes
import json
import mmap
import os
import random
import select
import signal
import socket
import sys
import time

import several_workers

PHASES = ("start", "load", "update", "swap", "validation", "save", "copy")
WEIGHTS = {"update": 5, "swap": 5, "save": 5, "copy": 3, "validation": 1, "load": 2, "start": 3}
PATIENCE = 120  # seconds for a life that is not killed, and for the end of those that a kill has left
PR_SET_CHILD_SUBREAPER = 36


class Phases:
    """What each worker does at the moment, in memory that outlives it, and a pipe that tells when it begins."""

    def __init__(self, workers: int):
        self.now = mmap.mmap(-1, workers)
        self.read, self.write = os.pipe()

    def follow(self, rank: int, name: str, function):
        number = PHASES.index(name)

        def followed(*args, **kwargs):
            before, self.now[rank] = self.now[rank], number
            os.write(self.write, bytes([rank, number]))
            try:
                return function(*args, **kwargs)
            finally:
                self.now[rank] = before

        return followed

    def instrument(self, rank: int) -> None:
        """In a worker."""
        import fairseq_cli.train
        from fairseq import checkpoint_utils
        from fairseq.trainer import Trainer

        from lv_fairseq.fairseq_patches import checkpoints
        from lv_fairseq.word_tables.page import Page

        os.close(self.read)
        places = [(Trainer, "load_checkpoint", "load"), (Trainer, "train_step", "update"), (Page, "turn_to", "swap")]
        places += [(checkpoint_utils, "torch_persistent_save", "save"), (checkpoints, "copied_whole", "copy")]
        places += [(fairseq_cli.train, "validate", "validation")]
        for owner, name, phase in places:
            setattr(owner, name, self.follow(rank, phase, getattr(owner, name)))


class Life:
    """The processes of one training, from its start or from a checkpoint."""

    def __init__(self, workers: int, folder: str, flags: list):
        self.phases, self.workers, self.log = Phases(workers), [], f"{folder}/log"
        if workers > 1:
            with socket.socket() as free:
                free.bind(("localhost", 0))
                place = f"tcp://localhost:{free.getsockname()[1]}"
            flags = [*flags, "--distributed-world-size", str(workers), "--distributed-no-spawn"]
            flags += ["--distributed-init-method", place, "--ddp-backend", "legacy_ddp"]
        for rank in range(workers):
            child = os.fork()
            if child == 0:
                log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                self.phases.instrument(rank)
                several_workers.work(rank, [*flags, "--save-dir", folder], "")
            self.workers.append(child)
        os.close(self.phases.write)

    def finish(self) -> None:
        codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in self.workers]
        assert not any(codes), (codes, open(self.log).read())
        os.close(self.phases.read)

    def kill(self, chance: random.Random, usual: float) -> list:
        """What the processes did when they were killed; nothing if they came to their end before.

        Args:
            usual: seconds until a training is loaded
        """
        wanted = PHASES.index(chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0])
        if PHASES[wanted] == "start":
            select.select([self.phases.read], [], [], usual * chance.random())
        else:
            left, first = chance.randint(1, 4 if PHASES[wanted] in ("update", "swap") else 2), chance.random() < 0.8
            while left:
                said = os.read(self.phases.read, 2)
                if not said:
                    self.finish()
                    return []
                left -= said[1] == wanted and (said[0] == 0 or not first)
            time.sleep(chance.choice([0, 0.001, 0.003, 0.01, 0.03]) * chance.random())
        victims = self.workers if chance.random() < 0.5 else [chance.choice(self.workers)]
        for worker in victims:
            os.kill(worker, signal.SIGKILL)
        if PHASES[wanted] == "start":  # perhaps they have not met: then who has started them ends the others
            for worker in self.workers:
                os.kill(worker, signal.SIGTERM)
        return self.bury(victims)

    def bury(self, victims: list) -> list:
        """Those who are left end by themselves."""
        left, seconds, began = {worker: rank for rank, worker in enumerate(self.workers)}, 0.0, time.monotonic()
        died = []
        while left:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child in left:
                rank, code = left.pop(child), os.waitstatus_to_exitcode(status)
                if child in victims and code == -signal.SIGKILL:
                    died.append(PHASES[self.phases.now[rank]])
                assert code in (0, 1, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM), code
            seconds = time.monotonic() - began
            assert seconds < PATIENCE, f"{left} go on: {open(self.log).read()}"
            time.sleep(0 if child else 0.005)
        os.close(self.phases.read)
        return died


def chain(seed: str, kills: int, workers: int, folder: str, flags: list) -> dict:
    """Lives of trainings, until so many kills are done; the last one comes to its end. Each that did is in a folder."""
    chance, died, finished, usual = random.Random(seed), collections.Counter(), 0, 3.0
    began = time.monotonic()
    os.makedirs(f"{folder}/0")
    while died.total() < kills:
        phases = Life(workers, f"{folder}/{finished}", flags).kill(chance, usual)
        died.update(phases[:1])
        if not phases:
            finished += 1
            os.makedirs(f"{folder}/{finished}", exist_ok=True)
    Life(workers, f"{folder}/{finished}", flags).finish()
    return {"killed_in": dict(died), "trainings": finished + 1, "seconds": time.monotonic() - began}


def nobody_is_left() -> bool:
    """Readers of data end by themselves when their parent is gone; they are our children then."""
    end = time.monotonic() + PATIENCE
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.1)
        return False
    return True


def main(seed: str, kills: int, workers: int, folder: str, flags: list) -> None:
    import fairseq_cli.train  # noqa: F401

    import lv_fairseq

    lv_fairseq.register()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.makedirs(f"{folder}/whole")
    Life(workers, f"{folder}/whole", flags).finish()
    print(json.dumps({**chain(seed, kills, workers, folder, flags), "nobody_left": nobody_is_left()}))
    sys.stdout.flush()
