"""Children do not outlive us, signals end a command in one line, and one folder has one writer."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, ROOT

from lv_fairseq.errors import UserError
from lv_fairseq.lock import only_one
from lv_fairseq.processes import die_with, end, signals_as_exit, start

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition):
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return result


def number_in(path: Path) -> int:
    """What somebody writes there sooner or later."""
    return int(wait_for(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text()))


def program(code: str, **options) -> subprocess.Popen:
    """A process of its own that runs Python code. Nothing of how these tests were started, as with &, is inherited."""

    def ordinary_signals():
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    code = f"import os, sys, time\nsys.path.insert(0, {str(ROOT)!r})\n" + code
    how = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": ordinary_signals, **options}
    return subprocess.Popen([sys.executable, "-c", code], **how)


COMMAND = """
import shlex
from pathlib import Path
from lv_fairseq.errors import command
from lv_fairseq.files import temporary_folder, written_whole
from lv_fairseq.processes import end, signals_as_exit, start
out = Path(OUT)

@command
@signals_as_exit("nothing was written")
def main():
    with written_whole(out) as file, temporary_folder(out) as folder:
        (folder / "large").write_text("x")
        name, wait = shlex.quote(str(out)), "sleep 999"
        child = start(["sh", "-c", f"{wait} & echo $! > {name}.inner; trap '' TERM; echo $$ > {name}.pid; {wait}"])
        try:
            child.wait()
        finally:
            time.sleep(0.5)  # so that more signals come while it cleans up
            end(child)
main()
"""


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_command_in_one_line_and_nothing_stays(tmp_path, number):
    code = COMMAND.replace("OUT", repr(str(tmp_path / "out")))
    process = program("import lv_fairseq.processes\nlv_fairseq.processes.GRACE = 0.3\n" + code)
    child, inner = number_in(tmp_path / "out.pid"), number_in(tmp_path / "out.inner")
    for _ in range(3):  # an impatient user
        process.send_signal(number)
        time.sleep(0.1)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert said == f"stopped by {number.name}: nothing was written\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.inner", "out.pid"]
    wait_for(lambda: not alive(child) and not alive(inner))


def test_what_nohup_ignores_stays_ignored():
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from lv_fairseq.processes import signals_as_exit\n"
        "with signals_as_exit():\n"
        "    os.kill(os.getpid(), signal.SIGHUP); print('went on', file=sys.stderr)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"
    )
    process = program(code)
    _, said = process.communicate(timeout=PATIENCE)
    assert said == "went on\nstopped by SIGTERM\n" and process.returncode == 128 + signal.SIGTERM


def test_signals_mean_afterwards_what_they_meant_before():
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    with signals_as_exit():
        pass
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_forked_worker_does_not_clean_up_what_is_its_parents(tmp_path):
    code = (
        "import signal\nfrom lv_fairseq.processes import signals_as_exit\n"
        "read, write = os.pipe()\n"
        "with signals_as_exit():\n"
        "    try:\n"
        "        worker = os.fork()\n"
        "        if worker == 0:\n"
        "            os.write(write, b'x')\n"
        "            time.sleep(999)\n"
        "        os.read(read, 1)  # Python forgets signals that come before a fork has begun\n"
        "        os.kill(worker, signal.SIGTERM)\n"
        "        assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == signal.SIGTERM\n"
        "    finally:\n"
        "        print(os.getpid(), file=sys.stderr)\n"
    )
    process = program(code)
    _, said = process.communicate(timeout=PATIENCE)
    assert said == f"{process.pid}\n" and process.returncode == 0


@linux
def test_a_child_dies_when_its_parent_is_killed(tmp_path):
    code = (
        "from lv_fairseq.processes import start\n"
        "child = start(['sleep', 999])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(f'{{child.pid}}\\n')\ntime.sleep(999)"
    )
    process = program(code)
    child = number_in(tmp_path / "pid")
    assert alive(child)
    process.kill()
    process.communicate(timeout=PATIENCE)
    wait_for(lambda: not alive(child))


@linux
def test_a_child_whose_parent_went_before_it_could_ask_ends_by_itself():
    pid = os.fork()
    if pid == 0:
        die_with(1 << 30)  # nobody's number: to the child, its parent is gone
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 128 + signal.SIGKILL


@linux
def test_what_a_child_leaves_running_is_ended_too(tmp_path):
    child = start(["sh", "-c", f"sleep 999 & echo $! > {shlex.quote(str(tmp_path / 'pid'))}"])
    child.wait()
    left = number_in(tmp_path / "pid")
    assert alive(left)
    end(child)
    wait_for(lambda: not alive(left))
    end(child)  # nothing is left: nothing happens
    assert child.returncode == 0


def test_one_folder_has_one_writer_and_a_killed_one_is_none(tmp_path):
    code = (
        "from lv_fairseq.lock import only_one\n"
        f"with only_one({str(tmp_path)!r}):\n    print('locked', flush=True)\n    time.sleep(999)"
    )
    process = program(code, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(UserError) as error:
        with only_one(tmp_path):
            raise AssertionError("two at a time")
    assert str(error.value).startswith(f"process {process.pid} is at work in {tmp_path}: wait for it, or name another")
    process.kill()
    process.communicate(timeout=PATIENCE)
    for _ in range(2):  # and it is given back
        with only_one(tmp_path):
            with pytest.raises(UserError, match=f"process {os.getpid()} is at work"):
                with only_one(tmp_path):
                    raise AssertionError("two at a time")


def test_a_folder_that_cannot_be_locked_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot write to .*nowhere: No such file"):
        with only_one(tmp_path / "nowhere"):
            pass
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="cannot write to"):
        with only_one(tmp_path):
            pass
    assert not (tmp_path / "victim").exists()


@linux
def test_a_signal_while_a_child_is_started_leaves_nothing(tmp_path):
    """The parent is still in Popen when the child already runs, if it is slow enough: here it waits for the child."""
    code = """
import shlex, signal
from pathlib import Path
import lv_fairseq.processes as processes
real, pid = processes.subprocess.Popen, Path(PID)

def slow(*args, **kwargs):
    child = real(*args, **kwargs)
    while not (pid.exists() and pid.read_text().endswith("\\n")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    return child

processes.subprocess.Popen = slow
with processes.signals_as_exit():
    child = processes.start(["sh", "-c", f"sleep 999 & echo $! > {shlex.quote(str(pid))}; sleep 999"])
    print("never here")
""".replace("PID", repr(str(tmp_path / "pid")))
    process = program(code, stdout=subprocess.PIPE)
    printed, said = process.communicate(timeout=PATIENCE)
    assert (printed, said, process.returncode) == ("", "stopped by SIGTERM\n", 128 + signal.SIGTERM)
    left = number_in(tmp_path / "pid")
    wait_for(lambda: not alive(left))
