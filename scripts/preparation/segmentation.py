"""Text in words or subwords. Each function can do its work in another process."""

import io
from pathlib import Path
from typing import List

from preparation.text import read_text


def moses(language: str, lines: List[str]) -> List[str]:
    import sacremoses

    tokenizer = sacremoses.MosesTokenizer(language)
    return [tokenizer.tokenize(line, return_str=True, escape=False) if line else "" for line in lines]


def subwords(model: str, lines: List[str]) -> List[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    return [" ".join(processor.encode(line, out_type=str)) for line in lines]


def subword_model(vocab_size: int, threads: int, text: Path) -> bytes:
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
