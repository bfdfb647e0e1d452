"""The workers of a training notice when one of them is gone, on whatever machine, and end in one line.

Each has a connection with the first one. The kernel closes it when a process ends, however it ends, and notices a
machine that does not answer any more; so a worker that is merely busy is never taken for a dead one. Without it
collectives wait for half an hour, or fail with a stack trace.
"""

import logging
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from typing import Dict, Iterator, Optional, Tuple

import torch
import torch.distributed as dist

from lv_fairseq.errors import UserError

logger = logging.getLogger(__name__)

ANSWER = 20  # seconds in which a worker has to answer at the beginning
SILENCE = 240  # and its machine later: a network or a virtual machine may pause
NOTICE = 2  # seconds in which the end of a worker is noticed by those who see what it leads to
BY_ITSELF, AT_LAST = 5, 20  # seconds after which a worker that goes on is interrupted, and then ends at once
undisturbed = threading.RLock()  # held by who must not be interrupted: a checkpoint is written to its end
SAVING = 600  # seconds, at most
GOODBYE = -1  # in the place of the number of a worker that is gone
Connections = Dict[socket.socket, int]  # with the number of the worker at the other end


@contextmanager
def watching(address: str) -> Iterator[None]:
    """What happens in here ends with a `UserError` if another worker is gone. All workers must call it together, and
    leave together.

    Args:
        address: of the first worker's machine, as the others know it
    """
    watch = Watch(connect(address))
    try:
        yield
    except UserError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        watch.noticed.wait(NOTICE)
        raise (watch.error() or error) from None
    except SystemExit as stopped:
        raise (watch.error() or stopped) from None
    else:
        watch.part()
    finally:
        watch.left.set()


def connect(address: str) -> Connections:
    """The connections of this worker: the first one has one with each of the others."""
    server, known = None, [None]
    if dist.get_rank() == 0:
        server = socket.create_server(("", 0))
        known = [(server.getsockname()[1], secrets.token_bytes(16))]
    dist.broadcast_object_list(known, device=torch.device("cuda" if dist.get_backend() == "nccl" else "cpu"))
    others: Connections = {}
    try:
        others.update(connect_to(known[0], address, server))
    except OSError as error:
        logger.warning("the workers cannot watch each other, and may wait for one that is gone: %s", error)
    complete = [None] * dist.get_world_size()
    dist.all_gather_object(complete, bool(others))
    if all(complete):
        return others
    for other in others:  # some are not connected: then a connection that is closed says nothing
        other.close()
    return {}


def connect_to(known: Tuple[int, bytes], address: str, server: Optional[socket.socket]) -> Connections:
    port, secret = known
    if server is not None:
        with server:
            return accept(server, secret, dist.get_world_size() - 1)
    first = socket.create_connection((address, port), ANSWER)
    first.sendall(secret + number_bytes(dist.get_rank()))
    return {kept_alive(first): 0}


def accept(server: socket.socket, secret: bytes, count: int) -> Connections:
    others: Connections = {}
    server.settimeout(ANSWER)
    while len(others) < count:
        other = server.accept()[0]
        other.settimeout(ANSWER)
        hello = receive(other, len(secret) + 4)
        if hello is not None and secrets.compare_digest(hello[:-4], secret):  # else it is a stranger
            others[kept_alive(other)] = number_in(hello[-4:])
    return others


def kept_alive(connection: socket.socket) -> socket.socket:
    """A connection whose other machine the kernel asks from time to time whether it is there."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", SILENCE // 4), ("TCP_KEEPINTVL", SILENCE // 8), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def receive(connection: socket.socket, size: int) -> Optional[bytes]:
    """None if the other end is gone."""
    received = b""
    with suppress(OSError):
        while len(received) < size:
            piece = connection.recv(size - len(received))
            if not piece:
                return None
            received += piece
        return received
    return None


def number_bytes(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def number_in(received: bytes) -> int:
    return int.from_bytes(received, "little", signed=True)


def wait_for_saving() -> None:
    if undisturbed.acquire(timeout=SAVING):
        undisturbed.release()


class Watch:
    """A thread that waits for what comes over the connections: a goodbye, the number of a worker that is gone, or
    nothing any more. They stay open until the process ends, so that others learn of its end."""

    def __init__(self, others: Connections):
        self.others, self.first = others, dist.get_rank() == 0
        self.gone: Optional[int] = None
        self.noticed, self.left = threading.Event(), threading.Event()
        os.register_at_fork(after_in_child=self.close)  # processes that read data would keep them open
        self.thread = threading.Thread(target=self.run, name="watch", daemon=True)
        self.thread.start()

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for other in self.others:
                selector.register(other, selectors.EVENT_READ)
            while selector.get_map() and self.gone is None:
                other = selector.select()[0][0].fileobj
                said = receive(other, 4)
                number = self.others[other] if said is None else number_in(said)
                if number == GOODBYE:
                    selector.unregister(other)
                else:
                    self.gone = number
        if self.gone is not None:
            self.noticed.set()
            self.say(self.gone)
            self.end()

    def say(self, number: int) -> None:
        for other in self.others:
            with suppress(OSError):  # it is gone itself
                other.sendall(number_bytes(number))

    def end(self) -> None:
        """Collectives with a worker that is gone fail by themselves, if not all."""
        if self.left.wait(BY_ITSELF):
            return
        wait_for_saving()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # so that it does not leave half a file
        if self.left.wait(AT_LAST):
            return
        wait_for_saving()
        print(self.error(), file=sys.stderr, flush=True)
        os._exit(1)

    def part(self) -> None:
        """Wait until all others have done their work too."""
        if not self.first:
            self.say(GOODBYE)
        while self.thread.is_alive() and self.gone is None:
            self.thread.join(1)
        if self.gone is not None:
            raise self.error()
        if self.first:
            self.say(GOODBYE)
        self.close()

    def close(self) -> None:
        for other in self.others:
            other.close()

    def error(self) -> Optional[UserError]:
        if self.gone is None:
            return None
        return UserError(
            f"the worker of rank {self.gone} is gone (killed? not enough memory? it may have said more): "
            "the others end too. The same command goes on from the last checkpoint, if there is one"
        )
