"""Puts word tables into a model, in the place of its own."""

from dataclasses import dataclass
from typing import Optional

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
    encoder, decoder = model.encoder, model.decoder
    for side in (encoder, decoder):
        if getattr(side, "quant_noise", None) is not None:
            raise UserError("word tables cannot have quantisation noise: leave out --quant-noise-pq")
        if type(side.embed_tokens) is not nn.Embedding:
            kind = type(side.embed_tokens).__name__
            raise UserError(f"word tables take the place of plain embeddings, not {kind}: leave out --adaptive-input")
    if getattr(decoder, "adaptive_softmax", None) is not None:
        raise UserError("word tables take the place of an adaptive softmax: leave out --adaptive-softmax-cutoff")
    linear = getattr(decoder, places.scores, None)
    shares = linear is None and places.shares is not None and getattr(decoder, places.shares)
    if shares:
        linear = scoring_with(decoder.embed_tokens)
        setattr(decoder, places.shares, False)
    if type(linear) is not nn.Linear:
        raise UserError(f"the decoder scores words with {type(linear).__name__}, where word tables know nn.Linear only")
    encoder.embed_tokens, decoder.embed_tokens = ReadingTable(encoder.embed_tokens), ReadingTable(decoder.embed_tokens)
    setattr(decoder, places.scores, ScoringTable(linear, read_with=decoder.embed_tokens if shares else None))
    return tables_of(model, places)


def tables_of(model: nn.Module, places: Places) -> Tables:
    """The word tables of a model that has been adopted."""
    return Tables(model.encoder.embed_tokens, model.decoder.embed_tokens, getattr(model.decoder, places.scores))


def scoring_with(embedding: nn.Embedding) -> nn.Linear:
    """Scores words with the vectors that they are read with."""
    words, dim = embedding.weight.shape
    linear = nn.Linear(dim, words, bias=False, device="meta")
    linear.weight = embedding.weight
    return linear


class WithoutTables(TorchFunctionMode):
    """Inside, a model is built whose word tables have no memory and no values: they are about to be loaded.

    Args:
        sizes: of vocabularies: parameters of so many rows are word tables
    """

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
