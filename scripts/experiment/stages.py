"""Stages of work whose results are kept, and the commands they run, of which none is left behind."""

import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence

from programs import BIN, program
from tqdm import tqdm

from lv_fairseq.errors import UserError
from lv_fairseq.files import written_whole
from lv_fairseq.processes import end, start
from lv_fairseq.progress import waiting


class Stages:
    """
    Args:
        out: results of stages are kept in OUT/stages
        folder: where commands run
        parallel: how many works at a time; they share the cores
    """

    def __init__(self, out: Path, folder: Path, parallel: int):
        self.out, self.folder, self.parallel = out, folder, parallel
        self.stopped = False  # whether all commands have to end
        self.environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        if parallel > 1:
            threads = max((os.cpu_count() or 1) // parallel, 1)
            self.environment.setdefault("OMP_NUM_THREADS", str(threads))

    def path(self, name: str) -> Path:
        return self.out / "stages" / f"{name}.json"

    def done(self, name: str) -> bool:
        return self.path(name).exists()

    def stage(self, name: str, work: Callable, kind: type = str, keys: Sequence[str] = ()):
        """The result of some work, which is kept as OUT/stages/NAME.json and not done again.

        Args:
            kind, keys: what the result is, and what a dict of results holds
        """
        path = self.path(name)
        if not path.exists():
            tqdm.write(f"== {name}", file=sys.stderr)
            path.parent.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            result = work()
            seconds = time.monotonic() - started
            tqdm.write(f"   {name} took {seconds:,.0f} seconds", file=sys.stderr)
            with written_whole(path.with_suffix(".seconds")) as file:
                file.write(f"{seconds:.1f}".encode())
            with written_whole(path) as file:
                file.write(json.dumps(result, ensure_ascii=False).encode())
        try:
            result = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            result = None
        if not isinstance(result, kind) or not all(key in result for key in keys):
            raise UserError(f"{path} is damaged: remove it, and the same command does this stage again")
        return result

    def command(self, *command, log: Path, seconds: Optional[float] = None) -> str:
        """Run a command of fairseq; what it printed goes to a file after the command itself, and is the result.

        ``seconds``: how long it takes, if that is known; waiting people see the name of the file."""
        if self.stopped:
            raise UserError("stopped")
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w", encoding="utf-8") as output:
            print(shlex.join([str(BIN / command[0]), *map(str, command[1:])]), file=output, flush=True)  # to paste
            where = {"stdout": output, "stderr": subprocess.STDOUT, "cwd": self.folder, "env": self.environment}
            child = start(program(*command), **where)
            try:
                failed = self.ended(child, str(log.relative_to(self.out)), seconds)
            finally:
                end(child)
        if failed:
            raise UserError(f"{command[0]} failed: the reason is at the end of {log}")
        return log.read_bytes().decode(errors="replace").split("\n", 1)[1]

    def ended(self, child: subprocess.Popen, what: str, seconds: Optional[float]) -> int:
        """The exit status of a command."""
        with waiting(what, seconds) as passed:
            while not self.stopped:
                try:
                    return child.wait(1)
                except subprocess.TimeoutExpired:
                    passed(1)
        raise UserError("stopped")

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Commands that start meanwhile take one thread."""
        before = self.environment
        self.environment = {**before, "OMP_NUM_THREADS": "1"}
        try:
            yield
        finally:
            self.environment = before

    def seconds(self) -> Dict[str, float]:
        """How long the stages took that have ended, by the first part of their names, as if none had run beside."""
        found: Dict[str, float] = {}
        for path in sorted((self.out / "stages").glob("*.seconds")):
            part = path.name.split(".")[0].split("-")[0]
            found[part] = found.get(part, 0.0) + float(path.read_text())
        return found

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
                raise
