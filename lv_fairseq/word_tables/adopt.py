"""Puts word tables into a model, in the place of its own."""

import contextlib
import itertools
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from lv_fairseq.errors import UserError
from lv_fairseq.word_tables.drawing import CONSTANT, NORMAL, UNIFORM, Recipe
from lv_fairseq.word_tables.table import ReadingTable, ScoringTable, Tables

# what fills a tensor with random values, as a mode sees it: the others of torch.nn.init come down to the first two
DRAWING = (
    *(torch.Tensor.normal_, torch.Tensor.uniform_),
    *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_),
)


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
    return _without_tables(_NeverFilled(*sizes), build, adopt)


def to_be_drawn(
    build: Callable[[], nn.Module], adopt: Callable[[nn.Module], Optional[Tables]], *sizes: int, seed: int
) -> nn.Module:
    """A model whose word tables need no memory: each of their parameters has a recipe by which rows are drawn when they
    are needed. One whose tables begin in another way than by chance or with one value has them in memory."""
    with _Recipes() as recipes:
        return _without_tables(_WithoutTables(*sizes), build, adopt, lambda model: recipes.give(model, seed))


def _without_tables(mode, build, adopt, ready: Callable[[nn.Module], bool] = lambda model: True) -> nn.Module:
    with mode, contextlib.suppress(RuntimeError):  # torch's, if values are asked for
        model = build()
        ours = {id(parameter) for table in adopt(model) or () for parameter in table.parameters()}
        everything = itertools.chain(model.parameters(), model.buffers())
        if not any(tensor.is_meta and id(tensor) not in ours for tensor in everything) and ready(model):
            return model
    model = build()  # something of it is needed, maybe what has as many rows by chance
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
                if isinstance(args[0], Tensor):
                    function, args, kwargs = torch.empty, (shape,), {"dtype": args[0].dtype, **kwargs}
                kwargs = {**kwargs, "device": "meta"}
        if function is torch.Tensor.cpu and args[0].is_meta:  # BART draws its values there
            return args[0]
        return function(*args, **kwargs)


class _NeverFilled(_WithoutTables):
    """Inside, nothing is drawn for it either: only to find that there is nothing to fill, torch would import its
    compiler, which takes longer than all the rest."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in DRAWING:
            tensor = args[0] if args else kwargs["tensor"]  # as torch.nn.init names it here
            if tensor.is_meta:
                return tensor
        return super().__torch_function__(function, types, args, kwargs)


class _Recipes(TorchDispatchMode):
    """Inside, what fills a tensor without memory is remembered: the last thing counts."""

    def __init__(self):
        super().__init__()
        self.recipes: Dict[int, Optional[Recipe]] = {}  # by storage, which views of a tensor share
        self.kept: List[Tensor] = []  # so that no other storage gets the same number

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function._schema.is_mutable and isinstance(args[0], Tensor) and args[0].is_meta:
            self.kept.append(args[0])
            self.note(str(function.overloadpacket), *args)
        return result

    def note(self, name: str, tensor: Tensor, *given: Any) -> None:
        storage = tensor.untyped_storage()
        size = storage.nbytes() // tensor.element_size()
        before, after = self.recipes.get(storage._cdata), None
        value = {"aten.zero_": 0.0, "aten.fill_": next(iter(given), None)}.get(name)
        if tensor.numel() == size:
            if name in ("aten.normal_", "aten.uniform_"):
                first, second = (*given, *(0.0, 1.0)[len(given) :])
                after = Recipe(NORMAL if name == "aten.normal_" else UNIFORM, float(first), float(second))
            elif isinstance(value, (int, float)):
                after = Recipe(CONSTANT, float(value))
            elif name == "aten.copy_" and given[0].untyped_storage()._cdata == storage._cdata:
                after = before  # onto itself
        elif before is not None and value == 0 and tensor.is_contiguous() and tensor.dim() == 1:
            after = before._replace(zero=(*before.zero, tensor.storage_offset() // len(tensor)))  # a row
        self.recipes[storage._cdata] = after

    def give(self, model: nn.Module, seed: int) -> bool:
        """Each parameter without memory gets its own; False if one has none."""
        without = {name: p for name, p in model.named_parameters() if p.is_meta}
        found = {name: self.recipes.get(p.untyped_storage()._cdata) for name, p in without.items()}
        for name, parameter in without.items():
            if found[name] is not None:
                parameter.recipe = found[name].keyed(seed, name)
        return None not in found.values()
