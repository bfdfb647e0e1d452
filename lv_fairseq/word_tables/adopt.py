"""Puts word tables into a model, in the place of its own."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables.table import ReadingTable, ScoringTable, Tables


@dataclass(frozen=True)
class Places:
    """Where a family of models keeps its words. All read them with ``embed_tokens`` of encoder and decoder.

    Args:
        scores: the decoder's module that scores them
        shares: the decoder's switch by which it scores with what it reads, without such a module
    """

    scores: str
    shares: Optional[str] = None


def adopt(model: nn.Module, places: Places) -> Tables:
    """Replace the word tables of an encoder-decoder in place. Names, values, ties and order of its parameters stay."""
    encoder: Any = model.encoder
    decoder: Any = model.decoder
    for side in (encoder, decoder):
        if type(side.embed_tokens) is not nn.Embedding:
            kind = type(side.embed_tokens).__name__
            raise UserError(f"the model reads words with {kind}, where word tables know nn.Embedding only")
    linear = getattr(decoder, places.scores, None)
    shares = linear is None and places.shares is not None and getattr(decoder, places.shares)
    if shares:
        linear = scoring_with(decoder.embed_tokens)
        setattr(decoder, places.shares, False)
    if type(linear) is not nn.Linear:
        raise UserError(f"the model scores words with {type(linear).__name__}, where word tables know nn.Linear only")
    encoder.embed_tokens, decoder.embed_tokens = ReadingTable(encoder.embed_tokens), ReadingTable(decoder.embed_tokens)
    output = ScoringTable(linear, read_with=decoder.embed_tokens if shares else None)
    setattr(decoder, places.scores, output)
    return Tables(encoder.embed_tokens, decoder.embed_tokens, output)


def tables_of(model: nn.Module, places: Places) -> Optional[Tables]:
    """The word tables of a model, None if it has not been adopted."""
    encoder: Any = model.encoder
    decoder: Any = model.decoder
    output = getattr(decoder, places.scores, None)
    return Tables(encoder.embed_tokens, decoder.embed_tokens, output) if isinstance(output, ScoringTable) else None


def scoring_with(embedding: nn.Embedding) -> nn.Linear:
    """Scores words with the vectors that they are read with."""
    words, dim = embedding.weight.shape
    linear = nn.Linear(dim, words, bias=False, device="meta")
    linear.weight = embedding.weight
    return linear


def to_be_loaded(
    build: Callable[[], nn.Module], adopt: Callable[[nn.Module], Optional[Tables]], *sizes: int
) -> nn.Module:
    """A model whose word tables need no memory and no values of their own, since they are about to be loaded.

    Args:
        build: makes the model
        adopt: gives it word tables, or None
        sizes: of vocabularies
    """
    with _WithoutTables(*sizes), contextlib.suppress(RuntimeError):  # torch's, if values are asked for
        model = build()
        ours = {id(parameter) for table in adopt(model) or () for parameter in table.parameters()}
        everything = itertools.chain(model.parameters(), model.buffers())
        if not any(tensor.is_meta and id(tensor) not in ours for tensor in everything):
            return model
    model = build()  # something else of it has as many rows by chance, and is needed
    adopt(model)
    return model


class _WithoutTables(TorchFunctionMode):
    """Inside, what has as many rows as a vocabulary gets no memory."""

    def __init__(self, *sizes: int):
        super().__init__()
        self.sizes = sizes

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.empty, torch.empty_like) and args:  # the second one in nn.utils.skip_init
            shape = args[0] if isinstance(args[0], (tuple, list)) else getattr(args[0], "shape", args)
            if shape and shape[0] in self.sizes:
                kwargs = {**kwargs, "device": "meta"}
        if function is torch.Tensor.cpu and args[0].is_meta:  # BART draws its values there
            return args[0]
        return function(*args, **kwargs)
