"""Other programs, each in a process of its own that takes turns with ours."""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List

from lv_fairseq import processes
from side_by_side.systems import System, Took


class PeerError(Exception):
    """A peer that does not answer, with its last words."""


class Worker:
    """A process of `peer_worker`, which ends with its block.

    Args:
        python: of the peers' environment
        threads: that a program may use
    """

    def __init__(self, python: Path, threads: int):
        self.threads = threads
        self._said = tempfile.TemporaryFile()  # what it prints
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        environment.pop("PYTHONPATH", None)
        self._process = processes.start(
            [python, Path(__file__).with_name("peer_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        processes.end(self._process)
        for file in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(BrokenPipeError):  # what a process that ended by itself did not read
                file.close()

    def ask(self, do: str, **asked) -> Dict:
        try:
            self._process.stdin.write(json.dumps({"do": do, **asked}).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        if not answer:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").splitlines()
            raise PeerError(next((line for line in reversed(lines) if line.strip()), "it ended without a word"))
        return json.loads(answer)


class Peer(System):
    """A translator that a worker has opened.

    Args:
        parts: into how many batches a batch is cut, where threads take batches and do not share one
        opening: what the worker is asked to open
    """

    peer = True

    def __init__(self, name: str, worker: Worker, length: int, parts: int, opening: Dict, **traits):
        super().__init__(name, **traits)
        self.worker, self.length, self.parts, self.beam = worker, length, parts, 1
        self.version = worker.ask(name=name, **opening)["version"]

    def search(self, beam: int) -> None:
        self.beam = beam

    def translate(self, sentences: List[List[str]]) -> Took:
        """One word more than the length: fairseq takes a step for the end of the sentence, these only for words."""
        how = {"beam": self.beam, "length": self.length + 1, "parts": self.parts}
        return Took(**self.worker.ask("translate", name=self.name, sentences=sentences, **how))
