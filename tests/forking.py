"""Starts Python commands quickly: importing torch and fairseq takes seconds, so one process does it once and forks.

Each command is a process of its own all the same, which runs the installed script as a shell would; only libraries
that are not ours are there already. `fairseq_cli` is not among them, since a command is told by what it imports of it.
"""

import atexit
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path


class Forker:
    """The process that forks, seen from the tests."""

    def __init__(self):
        self.socket, other = socket.socketpair()
        with other:
            command = [sys.executable, __file__, str(other.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)

    def run(self, command: list[str], stdin: str | None, cwd: Path, env: dict) -> subprocess.CompletedProcess:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write((stdin or "").encode("utf-8", "surrogateescape"))
            given.seek(0)
            request = json.dumps({"command": command, "cwd": str(cwd), "env": env}).encode()
            self.socket.sendall(len(request).to_bytes(4, "little"))
            socket.send_fds(self.socket, [request], [file.fileno() for file in (given, out, err)])
            answer = self.socket.recv(4)
            if len(answer) < 4:
                raise RuntimeError("the process that forks is gone: was there enough memory?")
            code = int.from_bytes(answer, "little", signed=True)
            texts = [Path(f"/proc/self/fd/{file.fileno()}").read_bytes() for file in (out, err)]
        return subprocess.CompletedProcess(command, code, *(text.decode("utf-8", "replace") for text in texts))

    def close(self) -> None:
        self.socket.close()
        self.process.wait()


def serve(connection: socket.socket) -> list[str]:
    """Fork for every request. Returns in the child, with its command."""
    while length := connection.recv(4):
        size = int.from_bytes(length, "little")
        text, descriptors, _, _ = socket.recv_fds(connection, size, 3)
        while len(text) < size:
            text += connection.recv(size - len(text))
        request = json.loads(text)
        child = os.fork()
        if child == 0:
            connection.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            tempfile.tempdir = None  # to be asked for again
            signal.signal(signal.SIGINT, signal.default_int_handler)
            logging.root.handlers.clear()  # what an import has put there
            for stream in (sys.stdin, sys.stdout, sys.stderr):  # as conftest.run asks for
                stream.reconfigure(encoding="utf-8")
            return request["command"]
        for descriptor in descriptors:
            os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(code.to_bytes(4, "little", signed=True))
    sys.exit()


def run_and_leave(script: str) -> None:
    """Run a script and end as Python does. But torch's own threads, which did not come along with the fork, are not
    waited for at the very end: it would abort."""
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:  # at the very beginning: Python would say where
        code = 128 + signal.SIGINT
    except BaseException as error:
        code = 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    import fairseq.models  # noqa: F401
    import fairseq.options  # noqa: F401
    import fairseq.sequence_generator  # noqa: F401
    import fairseq.trainer  # noqa: F401

    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.path[0] = os.path.dirname(sys.argv[0])
    run_and_leave(sys.argv[0])
