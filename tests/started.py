"""Commands that run beside the tests, to be stopped or killed, and what is left of them."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

from conftest import BIN, PATIENCE, ROOT


class Started:
    """A command, and all that it has started, whoever its parent is now: known by a mark in the environment."""

    def __init__(self, *command, **how):
        self.mark = f"LV_TEST_MARK={uuid.uuid4().hex}"
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, **dict([self.mark.split("=")])}
        how = {"cwd": ROOT, "env": environment, "stderr": subprocess.PIPE, "text": True, **how}
        self.process = subprocess.Popen(list(map(str, command)), **how)

    def alive(self) -> dict:
        """The command lines of its processes, by their numbers."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:  # gone, or not ours
                continue
        return found

    def wait_for(self, word: str, count: int) -> None:
        """Until so many command lines have a word."""
        self.until(lambda: sum(word in line for line in self.alive().values()) >= count, f"{count} with {word}")

    def until(self, condition, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.alive() or condition(), f"waited for {what}, but it has ended"
            assert time.monotonic() < end, f"waited for {what}; there are {self.alive()}"
            time.sleep(0.05)

    def stop(self, number: signal.Signals, freeze: bool = False) -> str:
        """Its last line, when nothing of it is left. ``freeze``: its processes cannot end by themselves."""
        try:
            for pid in self.alive() if freeze else ():
                if pid != self.process.pid:
                    os.kill(pid, signal.SIGSTOP)
            self.process.send_signal(number)
            assert self.process.wait(PATIENCE) in (-number, 128 + number)
            self.until(lambda: not self.alive(), "the end of all")
            return self.process.stderr.read().rstrip("\n").split("\n")[-1]
        finally:
            self.kill()

    def kill(self) -> None:
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
