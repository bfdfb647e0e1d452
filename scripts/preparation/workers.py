"""Processes that share some work and can be stopped at any moment.

Those of the standard library have threads that wait for the rest of a message if its writer is killed, for ever.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Sequence

from lv_fairseq.errors import UserError
from lv_fairseq.processes import SIGNALS, die_with


class Workers:
    """
    Args:
        connections: one to each process, which gets one piece of work at a time
    """

    def __init__(self, connections: List):
        self.connections = connections

    def map(self, function: Callable[[Any], Any], items: Sequence) -> List:
        """What a function makes of each item, in their order."""
        results, left = [None] * len(items), list(enumerate(items))[::-1]
        idle, busy = list(self.connections), {}
        try:
            while left or busy:
                while left and idle:
                    number, item = left.pop()
                    busy[idle[-1]] = number
                    idle.pop().send((function, item))
                for connection in multiprocessing.connection.wait(list(busy)):
                    result, error = connection.recv()
                    if error is not None:
                        raise error
                    results[busy.pop(connection)] = result
                    idle.append(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise UserError("a process was killed (not enough memory?): try fewer --workers") from None
        return results


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    processes, connections = [], []
    try:
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            processes.append(multiprocessing.Process(target=serve, args=(theirs, os.getpid()), daemon=True))
            connections.append(ours)
            # Python drops an exception in what it runs around a fork, as one that a signal's handler raises
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            try:
                processes[-1].start()
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            theirs.close()  # so that the end of the process is the end of the connection
        yield Workers(connections)
    finally:
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()


def serve(connection, parent: int) -> None:
    """In a process: work until there is no more."""
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    while True:
        try:
            function, item = connection.recv()
        except EOFError:
            return
        try:
            connection.send((function(item), None))
        except Exception as error:
            connection.send((None, error))
