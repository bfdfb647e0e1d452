"""Who translates in a comparison of decoding speeds: fairseq with us and without us (peers: `peers`)."""

import contextlib
import copy
import os
import time
from dataclasses import dataclass
from typing import Iterator, List, Optional

import torch
from decoding import Run

from lv_fairseq.decoding.source_text import SourceWords

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::addmv"}
PRODUCTS |= {"mkldnn::_linear_pointwise"}  # of packed weights


@dataclass
class Took:
    """What a batch has taken: seconds of the processor and of the clock; and the best hypotheses."""

    cpu: float
    wall: float
    words: List[List]


class System:
    """
    Args:
        name: in the table
        note: what a reader must know of it
        ours: the one that others are compared with
        same: whether it must find what all others find of which this is said
    """

    peer = False
    for_batches = False  # whether it is something of its own for batches only

    def __init__(self, name: str, note: str = "", ours: bool = False, same: bool = False):
        self.name, self.note, self.ours, self.same = name, note, ours, same

    def search(self, beam: int) -> None:
        """From now on with so many hypotheses of a sentence."""
        raise NotImplementedError

    def translate(self, sentences: List[List[str]]) -> Took:
        """A batch of sentences of one length."""
        raise NotImplementedError


class OfFairseq(System):
    """A model in this process.

    Args:
        peer: without the plug-in
        scope: who shares a list, if there are lists
    """

    def __init__(self, name: str, run: Run, peer: bool = False, scope: Optional[str] = None, **traits):
        super().__init__(name, **traits)
        self.run, self.peer, self.scope = copy.copy(run), peer, scope  # a search of its own

    def search(self, beam: int) -> None:
        self.run.search(beam)
        if self.scope is not None:
            self.run.generator.scope = self.scope

    def translate(self, sentences: List[List[str]]) -> Took:
        wall, cpu = time.perf_counter(), time.process_time()
        words = self.run.translate(sentences)
        return Took(time.process_time() - cpu, time.perf_counter() - wall, words)

    def share_of_products(self, sentences: List[List[str]], seconds: float) -> float:
        """How many of 100 parts of the time, measured without the profiler, which slows all else, are matrix
        products."""
        with in_silence(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.translate(sentences)
        found = sum(event.self_cpu_time_total for event in profile.key_averages() if event.key in PRODUCTS)
        return 100 * found / 1e6 / seconds


@contextlib.contextmanager
def in_silence() -> Iterator[None]:
    """Without what libraries write to stderr by themselves: torch's profiler says when it starts and stops."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def share_with_corpus(run: Run, sentences: List[List[str]]) -> None:
    """Say what the list of scope "corpus" is made of."""
    run.task.decoding.inputs[None] = SourceWords(sentences, run.task.source_dictionary, text=sentences)
