"""Text in words or subwords, by several processes."""

import io
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List

from lv_fairseq.errors import UserError
from lv_fairseq.processes import die_with
from preparation.text import read_text


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end when we do, whatever they are at."""
    pool = ProcessPoolExecutor(count, initializer=begin_worker, initargs=(os.getpid(),))
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise UserError("a process was killed (not enough memory?): try fewer --workers") from None
    finally:
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)


def begin_worker(parent: int) -> None:
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us


def moses(language: str, lines: List[str]) -> List[str]:
    import sacremoses

    tokenizer = sacremoses.MosesTokenizer(language)
    return [tokenizer.tokenize(line, return_str=True, escape=False) if line else "" for line in lines]


def subwords(model: str, lines: List[str]) -> List[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    return [" ".join(processor.encode(line, out_type=str)) for line in lines]


def subword_model(text: Path, vocab_size: int, threads: int) -> bytes:
    """A unigram model of a text."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=read_text(text),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="unigram",
        num_threads=threads,
        input_sentence_size=5_000_000,
        shuffle_input_sentence=True,
        minloglevel=2,
    )
    return model.getvalue()
