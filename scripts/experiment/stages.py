"""Stages of work whose results are kept, and the commands they run, of which none is left behind."""

import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Iterable, List, Optional

from tqdm import tqdm

from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole
from lv_fairseq.progress import waiting

BIN = Path(sys.executable).parent


class Stages:
    """
    Args:
        out: results of stages are kept in OUT/stages
        folder: where commands run
        parallel: how many works at a time; they share the cores
    """

    def __init__(self, out: Path, folder: Path, parallel: int):
        self.out, self.folder, self.parallel = out, folder, parallel
        self.running, self.stopped = set(), False  # commands; whether no more are started
        self.environment = dict(os.environ)
        if parallel > 1:
            threads = max((os.cpu_count() or 1) // parallel, 1)
            self.environment.setdefault("OMP_NUM_THREADS", str(threads))

    def stage(self, name: str, work):
        """The result of some work, which is kept as OUT/stages/NAME.json and not done again."""
        path = self.out / "stages" / f"{name}.json"
        if not path.exists():
            tqdm.write(f"== {name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            result = work()
            tqdm.write(f"   {name} took {time.monotonic() - started:,.0f} seconds")
            with written_whole(path) as file:
                file.write(json.dumps(result, ensure_ascii=False).encode())
        return json.loads(path.read_text(encoding="utf-8"))

    def command(self, *command, log: Path, seconds: Optional[float] = None) -> str:
        """Run a command of fairseq; what it printed goes to a file after the command itself, and is the result.

        ``seconds``: how long it takes, if that is known; waiting people see the name of the file."""
        log.parent.mkdir(parents=True, exist_ok=True)
        program = [str(BIN / command[0]), *map(str, command[1:])]
        with open(log, "w", encoding="utf-8") as output:
            print(shlex.join(program), file=output, flush=True)  # to paste into a shell
            if self.stopped:
                raise UserError("stopped")
            where = {"stdout": output, "stderr": subprocess.STDOUT, "cwd": self.folder, "env": self.environment}
            with subprocess.Popen(program, **where) as process:
                self.running.add(process)
                try:
                    failed = self.ended(process, str(log.relative_to(self.out)), seconds)
                finally:
                    process.terminate()  # does nothing to one that has ended
                    self.running.discard(process)
        if failed:
            raise UserError(f"{command[0]} failed: the reason is at the end of {log}")
        return log.read_text(encoding="utf-8").split("\n", 1)[1]

    def ended(self, process: subprocess.Popen, what: str, seconds: Optional[float]) -> int:
        """The exit status of a command."""
        with waiting(what, seconds) as passed:
            while True:
                try:
                    return process.wait(1)
                except subprocess.TimeoutExpired:
                    passed(1)

    def together(self, works: Iterable[Callable]) -> List:
        """The results of some works, as many at a time as the configuration says."""
        with ThreadPoolExecutor(self.parallel) as pool:
            futures = [pool.submit(work) for work in works]
            try:
                return [future.result() for future in futures]
            except BaseException:  # also Ctrl-C
                self.stopped = True
                for future in futures:
                    future.cancel()
                for process in list(self.running):
                    process.terminate()
                raise
