"""Stops commands at random moments, by SIGTERM or as Ctrl-C does it, and looks at what is left of them.

Each command is forked from a process that has imported everything already, into a group of its own.
"""

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import forking
from full_disk import LEFT, contents
from killing import PR_SET_CHILD_SUBREAPER

PATIENCE = 60  # seconds in which all processes of a command have to end


class Command:
    """A command that runs."""

    def __init__(self, command: list, log: Path):
        self.log, (stdin, self.typing) = log, os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # behind a shell's & it is ignored
            os.dup2(stdin, 0)  # nobody types anything
            os.close(self.typing)
            for number, name in ((1, f"{log}.out"), (2, log)):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.argv = command
            sys.path.insert(0, os.path.dirname(command[0]))
            forking.run_and_leave(command[0])
        os.close(stdin)
        with contextlib.suppress(PermissionError):  # it has done so itself
            os.setpgid(self.pid, self.pid)

    def said(self) -> str:
        return self.log.read_text(errors="replace") + Path(f"{self.log}.out").read_text(errors="replace")

    def end(self) -> int:
        """Its exit code, when all that it has started, which are our children then, have ended too."""
        code, end = None, time.monotonic() + PATIENCE
        try:
            while time.monotonic() < end:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    os.close(self.typing)
                time.sleep(0 if child else 0.01)
        except ChildProcessError:
            return code
        raise TimeoutError(f"something goes on {PATIENCE} seconds after its end ({code}): {self.said()[-1000:]}")


def attempt(case: dict, place: Path, chance: random.Random, usual: float, whole: dict) -> dict:
    """``whole``: what it leaves if nobody stops it."""
    for path in place.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(case["before"], place, dirs_exist_ok=True)
    before = contents(place)
    command = Command(case["command"], place.with_name("said"))
    time.sleep(0.8 * usual * chance.random())  # the first time took longer
    number, began = chance.choice([signal.SIGTERM, signal.SIGINT]), time.monotonic()
    (os.killpg if number == signal.SIGINT else os.kill)(command.pid, number)
    code, said = command.end(), command.said()
    after = contents(place)
    wrong = [name for name in after if name.endswith(LEFT)]
    if code:
        wrong += [
            name for name in before if after.get(name) not in (before[name], whole.get(name)) and not case["replaces"]
        ]
        wrong += [f"ended with {code}: {said[-500:]}"] if code not in (128 + number, -number, case["early"]) else []
    said = said.partition("Exception ignored in")[0]  # Python's own end was interrupted
    if "Traceback" in said and code not in (0, case["early"]):
        wrong += [said[said.index("Traceback") :][:2000]]
    result = {"signal": number.name, "code": code, "wrong": wrong, "seconds": time.monotonic() - began}
    return {**result, "said": "stopped by" in said}


def main(folder: str, cases: list, tries: int, seed: str) -> None:
    """Print what came of each case, as a line of JSON."""
    import fairseq_cli.generate  # noqa: F401
    import fairseq_cli.train  # noqa: F401
    import sacrebleu  # noqa: F401

    import lv_fairseq
    import lv_fairseq.commands.coverage
    import lv_fairseq.commands.lexicon
    import lv_fairseq.commands.partition
    import lv_fairseq.commands.report
    import lv_fairseq.commands.serve

    lv_fairseq.register()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    place, chance = Path(folder) / "place", random.Random(seed)
    place.mkdir()
    for case in cases:
        shutil.copytree(case["before"], place, dirs_exist_ok=True)
        began, usual, whole = time.monotonic(), case.get("usual"), {}
        if usual is None:  # how long does it take?
            command = Command(case["command"], place.with_name("said"))
            assert command.end() == 0, command.said()
            usual, whole = time.monotonic() - began, contents(place)
        runs = [attempt(case, place, chance, usual, whole) for _ in range(tries)]
        print(json.dumps({"name": case["name"], "runs": runs}), flush=True)
