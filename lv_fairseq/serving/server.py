"""The process around the API: its socket, its signals and its end."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from typing import Collection, Iterator, List, Optional

import uvicorn

from lv_fairseq.errors import UserError
from lv_fairseq.processes import SIGNALS
from lv_fairseq.serving.worker import Worker

logger = logging.getLogger(__name__)

GRACE = 10  # seconds in which what is being translated may end
LAST = 2  # seconds after these, for the last answers
IDLE = 30  # seconds after an answer in which a connection has to bring another request
CONNECTIONS = 1000  # at most, at a time
LOCAL = ("localhost", "127.0.0.1", "[::1]")


def bind(host: str, port: int) -> socket.socket:
    """The address, before a model is loaded in vain."""
    bound = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        return bound
    except (OSError, OverflowError, UnicodeError) as error:
        if bound is not None:
            bound.close()
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen at {host}, port {port}: {why}; name others with --host and --port") from None


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def known_hosts(bound: socket.socket, host: str, more: Collection[str]) -> Optional[List[str]]:
    """The names by which a server may be called that is for this machine alone, or to which names were given; else
    None: by any."""
    if not more and not ipaddress.ip_address(bound.getsockname()[0]).is_loopback:
        return None
    named = f"[{host}]" if ":" in host else host
    return [name.lower() for name in (*LOCAL, named, *more)]


class Server(uvicorn.Server):
    """Ends in order at a first signal, at once at a second one."""

    def __init__(self, config: uvicorn.Config, worker: Worker):
        super().__init__(config)
        self.worker = worker

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In place of uvicorn's, which raises the signals again at the end, so that the exit code would not be 0."""
        ours = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self.handle_exit) for number in ours}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        self.stopped_by = signal.Signals(sig).name

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        logger.info("%s answers (Ctrl-C ends it)", url_of(sockets[0]))

    async def shutdown(self, sockets=None) -> None:
        logger.info("stopped by %s: what runs is finished", self.stopped_by)
        self.worker.stop()
        asyncio.get_running_loop().call_later(GRACE, self.worker.give_up)
        await super().shutdown(sockets)


def serve(app, worker: Worker, bound: socket.socket) -> None:
    """Answer until a signal comes."""
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # what clients send is not worth a line each
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=GRACE + LAST,
    )
    server = Server(config, worker)
    worker.start()
    try:
        server.run(sockets=[bound])
    except OSError as error:  # another one was quicker
        raise UserError(f"cannot listen at {url_of(bound)}: {error.strerror or error}") from None
    if not worker.join(LAST):  # a sentence that takes longer: nobody waits for it any more
        logger.warning("a sentence was being translated: given up")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
