"""The one thread that owns the model, and the queue before it. Sentences that wait together are decoded together."""

import contextlib
import logging
import threading
from collections import defaultdict, deque
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Deque, Dict, List, Optional, Sequence

from lv_fairseq.errors import UserError
from lv_fairseq.serving.settings import Settings
from lv_fairseq.serving.translator import TooLongError, Translator

logger = logging.getLogger(__name__)

GATHERING = 0.003  # seconds that a first request waits for others


class BusyError(Exception):
    """More waits than is allowed."""


class StoppingError(Exception):
    """Nothing is begun any more."""


@dataclass(eq=False)
class Job:
    """What one request asks for.

    Attributes:
        asked: target words to look for on the lists; None: translate
        future: gets a list, an answer for each sentence
    """

    texts: Sequence[str]
    settings: Settings
    asked: Optional[Sequence[str]] = None
    future: Future = field(default_factory=Future)
    sentences: List[List[str]] = field(default_factory=list)  # in the model's tokens

    def end(self, answers: Optional[List[Dict]] = None, error: Optional[Exception] = None) -> None:
        """Give its future what there is, unless it has got something else meanwhile (`Worker.give_up`)."""
        with contextlib.suppress(InvalidStateError):
            if error is None:
                self.future.set_result(answers)
            else:
                self.future.set_exception(error)


class Worker:
    """
    Args:
        most_waiting: sentences; a request of more is only taken if nothing waits
    """

    def __init__(self, translator: Translator, most_waiting: int):
        self.translator, self.most_waiting = translator, most_waiting
        self._queue: Deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self.waiting = 0  # sentences
        self._running: List[Job] = []
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish what runs; what waits gets a `StoppingError`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def give_up(self) -> None:
        """What runs after `stop` gets a `StoppingError` too; the thread goes on until it has noticed."""
        for job in self._running:
            job.end(error=StoppingError())

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def submit(self, job: Job) -> Future:
        """Its future, which may be cancelled as long as it waits."""
        with self._changed:
            if self._stopping:
                raise StoppingError
            if self._queue and self.waiting + len(job.texts) > self.most_waiting:
                raise BusyError
            self._queue.append(job)
            self.waiting += len(job.texts)
            self._changed.notify_all()
        job.future.add_done_callback(lambda _: self._forget(job))
        return job.future

    def _forget(self, job: Job) -> None:
        """Who has given up does not wait any more."""
        with self._changed:
            if job in self._queue:
                self._queue.remove(job)
                self.waiting -= len(job.texts)

    def _run(self) -> None:
        while jobs := self._take():
            groups: Dict[Settings, List[Job]] = defaultdict(list)
            self._running = jobs
            for job in filter(self._begins, jobs):
                groups[job.settings].append(job)
            for group in groups.values():
                self._translate(group)

    def _take(self) -> List[Job]:
        """Jobs whose sentences fill a batch, or all that there are; none if it is time to stop."""
        full = lambda: self._stopping or self.waiting >= self.translator.at_once
        with self._changed:
            idle = not self._queue
            self._changed.wait_for(lambda: self._queue or self._stopping)
            if idle:
                self._changed.wait_for(full, GATHERING)
            taken: List[Job] = []
            while self._queue and (self._stopping or sum(len(x.texts) for x in taken) < self.translator.at_once):
                taken.append(self._queue.popleft())
                self.waiting -= len(taken[-1].texts)
            if not self._stopping:
                return taken
        for job in taken:
            if job.future.set_running_or_notify_cancel():
                job.end(error=StoppingError())
        return []

    def _begins(self, job: Job) -> bool:
        """Whether there is something to translate: nobody has given it up, and its sentences are not too long."""
        if not job.future.set_running_or_notify_cancel():
            return False
        try:
            job.sentences = [self.translator.words(text) for text in job.texts]
            if job.asked is None:
                return True
            job.end([self.translator.why(words, job.asked, job.settings) for words in job.sentences])
        except Exception as error:
            self._fail(job, error)
        return False

    def _translate(self, jobs: List[Job]) -> None:
        """Decode jobs of the same settings; each has its answer as soon as its last sentence has one."""
        owners = [job for job in jobs for _ in job.sentences]
        first = {id(job): place for place, job in reversed(list(enumerate(owners)))}
        answers: Dict[int, Dict] = {}
        try:
            for place, answer in self.translator.translate(
                [x for job in jobs for x in job.sentences], jobs[0].settings
            ):
                answers[place] = answer
                job = owners[place]
                mine = range(first[id(job)], first[id(job)] + len(job.sentences))
                if all(other in answers for other in mine):
                    job.end([answers.pop(other) for other in mine])
        except Exception as error:
            left = [job for job in jobs if not job.future.done()]
            if len(left) == 1 == len(jobs):
                self._fail(left[0], error)
                return
            for job in left:  # one that fails alone does not take others with it
                self._translate([job])

    def _fail(self, job: Job, error: Exception) -> None:
        if not isinstance(error, (UserError, TooLongError)):
            logger.error("a request failed", exc_info=error)
        job.end(error=error)
