"""Runs commands on a small file system that is full after so many bytes: one in memory, which nobody else sees.

Each command is forked from a process that has imported everything already.
"""

import ctypes
import hashlib
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

import forking

CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x20000, 0x10000000, 0x4000, 1 << 18
DISK, BLOCK = 64 << 20, 4096
LEFT = (".tmp", ".part")  # how names end that nobody should find


def mount(folder: Path) -> None:
    """An empty disk, for this process and its children. An OSError where the kernel does not let us."""
    libc, ids = ctypes.CDLL(None, use_errno=True), {"uid_map": os.getuid(), "gid_map": os.getgid()}

    def call(function, *arguments):
        if function(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "no file system of our own")

    call(libc.unshare, CLONE_NEWNS | CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    for name, number in ids.items():
        Path(f"/proc/self/{name}").write_text(f"0 {number} 1")
    call(libc.mount, b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call(libc.mount, b"none", os.fsencode(folder), b"tmpfs", 0, f"size={DISK}".encode())


def fill(disk: Path, free: int) -> None:
    there = os.statvfs(disk)
    with open(disk / "filler", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(there.f_bavail * there.f_frsize - free, BLOCK))


def contents(disk: Path) -> dict:
    files = [path for path in disk.rglob("*") if path.is_file() and path.name not in ("filler", ".lock")]
    return {str(path.relative_to(disk)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(command: list, log: Path) -> tuple:
    """Exit code and what it said."""
    child = os.fork()
    if child == 0:
        for number, name in ((1, f"{log}.out"), (2, log)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = command
        sys.path.insert(0, os.path.dirname(command[0]))
        forking.run_and_leave(command[0])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, log.read_text(errors="replace")


def attempt(case: dict, disk: Path, free: int) -> dict:
    """One run of a command with so many bytes on the disk."""
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(case["before"], disk, dirs_exist_ok=True)
    before = contents(disk)
    fill(disk, free)
    code, said = run(case["command"], disk.with_name("said"))
    after = contents(disk)
    wrong = [name for name in after if name.endswith(LEFT)] if code else []
    if code and not case.get("replaces"):
        wrong += [name for name in before if after.get(name) != before[name]]
    wrong += [f"Traceback: {said[-1500:]}"] if "Traceback" in said or code not in (0, 1, 2) else []
    for name in [name for name in after if name.endswith(".pt")]:
        wrong += damaged(disk / name)
    new = sum((disk / name).stat().st_size for name in after if after[name] != before.get(name))
    return {"free": free, "code": code, "said": said[-1000:], "wrong": wrong, "written": new}


def damaged(checkpoint: Path) -> list:
    import torch

    try:
        torch.load(checkpoint, weights_only=True)
        return []
    except Exception as error:
        return [f"{checkpoint.name}: {error}"]


def main(folder: str, cases: list, tries: int, seed: str) -> None:
    """Print what came of each case, as a line of JSON: first with all the room, then with some of what it needs."""
    import fairseq_cli.train  # noqa: F401
    import sacrebleu  # noqa: F401

    import lv_fairseq

    lv_fairseq.register()
    disk, chance = Path(folder) / "disk", random.Random(seed)
    disk.mkdir()
    try:
        mount(disk)
    except OSError as error:
        print(json.dumps({"skip": str(error)}))
        return
    for case in cases:
        began, all_room = time.monotonic(), attempt(case, disk, DISK)
        most = max(all_room["written"], BLOCK)
        sizes = [0, *(chance.randrange(most) for _ in range(tries - 1))]
        print(
            json.dumps(
                {
                    "name": case["name"],
                    "all_room": all_room,
                    "runs": [attempt(case, disk, x) for x in sizes],
                    "seconds": time.monotonic() - began,
                }
            ),
            flush=True,
        )
