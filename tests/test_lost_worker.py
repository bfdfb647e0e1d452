"""A worker that dies: the others end soon, in one line that says so, and nothing of them is left."""

import os
import signal
import subprocess
import time
from pathlib import Path

import faults
import pytest
from conftest import BIN, LOG, PATIENCE, PLUGIN, run_code
from small_corpus import MODEL, write_corpus
from started import Started

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
MINUTE = 60  # seconds
FLAGS = ("--criterion", "partition_cross_entropy", "--tau", 30, "--optimizer", "adam", "--max-tokens", 60, "--cpu")
FLAGS += ("--log-interval", 1, "--save-interval-updates", 3, "--keep-interval-updates", 1, "--no-epoch-checkpoints")
STARTS = {
    "torchrun": (BIN / "torchrun", "--standalone", "--nproc-per-node", 2, BIN / "fairseq-train"),
    "spawn": (BIN / "fairseq-train", "--distributed-world-size", 2),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def workers(started: Started) -> list[int]:
    """By rank: they were started in this order."""
    lines = started.alive()
    words = ("fairseq-train",) if "torchrun" in str(started.process.args) else ("spawn_main",)
    return sorted(pid for pid in lines if parent(pid) == started.process.pid and any(x in lines[pid] for x in words))


@pytest.mark.parametrize(
    "start, rank, backend",
    [
        pytest.param("spawn", 1, "legacy_ddp", marks=pytest.mark.faults),
        pytest.param("torchrun", 0, "legacy_ddp", marks=pytest.mark.faults),
        pytest.param("spawn", 0, "pytorch_ddp", marks=pytest.mark.faults),
        pytest.param("torchrun", 1, "pytorch_ddp", marks=pytest.mark.faults),
    ],
)
def test_the_others_end_when_one_is_killed(corpus, tmp_path, start, rank, backend):
    save, log = tmp_path / "save", tmp_path / "log"
    flags = (corpus, *PLUGIN, *MODEL, "--save-dir", save, *LOG, *FLAGS, "--ddp-backend", backend, "--source-tau", 61)
    with open(log, "w") as output:
        started = Started(*STARTS[start], *flags, stdout=output, stderr=subprocess.STDOUT)
    try:
        started.until((save / "checkpoint_last.pt").exists, "a checkpoint")
        assert len(workers(started)) == 2
        time.sleep(faults.chance(start, rank).random())
        os.kill(workers(started)[rank], signal.SIGKILL)
        killed = time.monotonic()
        started.process.wait(PATIENCE)
        started.until(lambda: not started.alive(), "the end of all")
        seconds = time.monotonic() - killed
    finally:
        started.kill()
    said = log.read_text()
    assert seconds < MINUTE and started.process.returncode == 1, said
    assert sum(f"the worker of rank {rank} " in line for line in said.splitlines()) == 1, said
    assert "fairseq/trainer.py" not in said, said  # of a stack trace
    assert rank == 0 or not list(save.glob(".*")), "a temporary file is left"  # the first one saves
    faults.report(
        f"kill -9 of the worker of rank {rank}, started by {start}, {backend}", seconds_until_all_ended=seconds
    )


WATCHING = """
import os, signal, socket, sys, time
import torch.distributed as dist
from lv_fairseq import UserError, watch
watch.BY_ITSELF, watch.AT_LAST = 0.1, 3.0
with socket.socket() as free:
    free.bind(("localhost", 0))
    place = f"tcp://localhost:{free.getsockname()[1]}"

def work(rank, lost):
    dist.init_process_group("gloo", place, rank=rank, world_size=3)
    with watch.watching("localhost"):
        time.sleep(0.1 * rank)
    with watch.watching("localhost"):
        if rank == lost:
            reader = os.fork()  # which goes on
            if reader == 0:
                time.sleep(600)
            os.write(pipe[1], reader.to_bytes(4, "little"))
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 1:  # nothing interrupts it
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(600)

lost, workers, pipe = int(sys.argv[1]), [], os.pipe()
for rank in range(3):
    workers.append(os.fork())
    if workers[-1] == 0:
        try:
            work(rank, lost)
        except UserError as error:
            os.write(2, f"{error}\\n".encode())
            os._exit(3)
        os._exit(0)
print([os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers])
os.kill(int.from_bytes(os.read(pipe[0], 4), "little"), signal.SIGKILL)  # it is still there
"""


@pytest.mark.parametrize("lost, codes", [(0, [-9, 1, 3]), (2, [3, 1, -9])])
def test_workers_notice_by_themselves_whatever_they_do(tmp_path, lost, codes):
    """Without a launcher and outside of collectives. They may end at different times if all is well."""
    ended = run_code(WATCHING.replace("sys.argv[1]", str(lost)), tmp_path)
    assert ended.stdout == f"{codes}\n", ended.stderr
    assert ended.stderr.count(f"the worker of rank {lost} is gone") == 2
