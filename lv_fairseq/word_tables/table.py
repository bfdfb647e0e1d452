"""How words enter a model and how they leave it: tables in the place of a model's own, under the same names.

A table takes over the parameters of the module whose place it takes, so that checkpoints, optimisers and other parts of
the model find what they know. Everyone outside speaks word numbers. Only tables know that on a page (`put_on`) training
sees some rows of a parameter, and that a search over candidate lists (`searching`) speaks columns.
"""

import contextlib
import math
from typing import Any, Callable, Dict, Iterator, List, Optional, Self, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lv_fairseq.packed_weights import OF_WORDS, PackedWeight, linear
from lv_fairseq.word_tables.columns import Columns, Searched, embedding_over, linear_over
from lv_fairseq.word_tables.drawing import draw
from lv_fairseq.word_tables.homes import Home
from lv_fairseq.word_tables.number_spaces import ListColumns, PageRows, WordNumbers
from lv_fairseq.word_tables.page import HostRows, Page, selected
from lv_fairseq.word_tables.stored_rows import filled

Rows = Tuple[Tensor, Optional[Tensor]]  # weight and bias
ALL = slice(None)


class WordTable(nn.Module):
    """One row of each of its parameters for each word of a vocabulary V. A checkpoint holds the rows of all words.

    A page stays in single precision if the model goes to half: what a table gives to the model is rounded.
    """

    like: Tensor  # empty, on the device and in the precision of a model that has pages

    def __init__(self, words: int):
        super().__init__()
        self.words = words
        self.page: Optional[Page] = None
        self.searched: Optional[Searched] = None
        self._held: Dict[str, Tensor] = {}  # all rows of parameters, on the device (`hold`)

    def put_on(self, page: Page, home: Callable[[nn.Parameter], Home] = Home) -> None:
        """Move all rows to a home and keep only those of the page as parameters."""
        self.page = page
        for name, parameter in list(self.named_parameters()):
            values = parameter
            if parameter.is_meta:
                parameter = self._given_memory(name, rows=0)
            if not hasattr(parameter, "host"):
                HostRows(parameter, page, home(values), spare=float(name == "weight_v"))  # a direction has some length
        self.register_buffer("like", next(self.parameters()).new_empty(0), persistent=False)

    def give_memory(self) -> None:
        """For the parameters that have none: rows that are drawn (`to_be_drawn`), or zeros (`to_be_loaded`)."""
        for name, parameter in list(self.named_parameters()):
            if parameter.is_meta:
                self._given_memory(name, len(parameter))

    def _given_memory(self, name: str, rows: int) -> nn.Parameter:
        without = getattr(self, name)
        if not hasattr(without, "replaced"):  # else another table has it too
            values = torch.zeros(rows, *without.shape[1:])
            if hasattr(without, "recipe"):
                drawn = draw(without.recipe, np.arange(rows), math.prod(without.shape[1:]))
                values = torch.from_numpy(drawn).view_as(values)
            replaced = nn.Parameter(values, without.requires_grad)
            vars(replaced).update(vars(without))  # what is known of it
            without.replaced = replaced
        setattr(self, name, without.replaced)
        return without.replaced

    def train(self, mode: bool = True) -> Self:
        if self.page is not None and mode != self.training:
            self.page.change_use()
        if mode:
            self._held = {}
        return super().train(mode)

    def _apply(self, fn, *args, **kwargs):
        """What a model's ``half`` and ``to`` come down to."""

        def apply(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            rounds = hasattr(tensor, "host") and result.dtype.itemsize < tensor.dtype.itemsize
            return tensor.to(result.device) if rounds else result

        return super()._apply(apply, *args, **kwargs)

    def _up_to_date(self) -> None:
        if self.page is not None:
            self.page.write_back()

    def _away(self) -> bool:
        """Whether all rows are elsewhere than those of the page."""
        if self.page is None:
            return False
        return any(not p.host.home.in_memory or p.host.full.device != p.device for p in self.parameters())

    def hold(self, copies: Dict[nn.Parameter, Tensor]) -> None:
        """Copy all rows to the device, if that leaves room there. They stay until training goes on.

        Args:
            copies: of parameters that other tables hold; what is copied here joins them
        """
        if self._held or not self._away() or not all(p.host.home.in_memory for p in self.parameters()):
            return
        self._up_to_date()
        new = {p: p.host.full for p in self.parameters() if p not in copies}
        if has_room(sum(rows.numel() for rows in new.values()) * self.like.element_size(), self.like.device):
            copies.update({p: rows.to(self.like, non_blocking=True) for p, rows in new.items()})
            self._held = {name: copies[p] for name, p in self.named_parameters()}

    def rows(self, words: Union[slice, WordNumbers]) -> Rows:
        """Weight (... x dim) and bias (...) of some words; a slice of word numbers is a view of the table."""
        self._up_to_date()
        return self._rows(words)

    def shared_rows(self, words: Union[slice, WordNumbers]) -> Tuple[Union[Tensor, PackedWeight], Optional[Tensor]]:
        """The same of words that all sentences of a search share; the weight may be packed."""
        return self.rows(words)

    def _rows(self, words: Union[slice, WordNumbers]) -> Rows:
        raise NotImplementedError

    def _some(self, name: str, words: Union[slice, WordNumbers]) -> Tensor:
        """Rows of a parameter, on the device of its page."""
        parameter, held = getattr(self, name), self._held.get(name)
        if self.page is not None and held is None:
            return parameter.host.home.rows(words).to(self.like, non_blocking=True)
        rows = selected(parameter if held is None else held, words)
        return rows.to(parameter if self.page is None else self.like, non_blocking=True)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        self._up_to_date()
        for name, parameter in self.named_parameters():
            if self.page is not None:
                destination[prefix + name] = parameter.host.home.to_save()
            else:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected, errors):
        self._held = {}
        own = dict(self.named_parameters())
        unexpected += [key for key in state_dict if strict and key.startswith(prefix) and key[len(prefix) :] not in own]
        for name, parameter in own.items():
            saved = state_dict.get(prefix + name)
            shape = parameter.shape if self.page is None else parameter.host.home.shape
            if saved is None:
                missing_keys.append(prefix + name)
            elif saved.shape != shape:
                sizes = f"{tuple(saved.shape)} in the checkpoint, {tuple(shape)} in this model"
                errors.append(f"{prefix + name} is of another size: {sizes}")
            elif parameter.is_meta:  # take what was loaded, maybe a file that is mapped, and copy nothing
                if not hasattr(parameter, "loaded"):  # else another table has it too
                    parameter.loaded = nn.Parameter(filled(saved).detach().to(parameter.dtype), parameter.requires_grad)
                setattr(self, name, parameter.loaded)
            elif self.page is not None:
                parameter.host.load(saved)
            else:
                with torch.no_grad():
                    parameter.copy_(filled(saved))


class ReadingTable(WordTable):
    """Words to vectors, in the place of an ``nn.Embedding``."""

    def __init__(self, embedding: nn.Embedding):
        super().__init__(embedding.num_embeddings)
        self.weight = embedding.weight
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        self.padding_idx = embedding.padding_idx  # a special symbol: the same number on every page
        self.train(embedding.training)

    def forward(self, words: Union[WordNumbers, ListColumns]) -> Tensor:
        """Word numbers (any shape), in a search columns (hypotheses x length), to vectors (the same shape x dim)."""
        searched = self.searched
        if searched is not None and not self.training and self._away():
            return embedding_over(searched, self, ListColumns(words))
        numbers = WordNumbers(words) if searched is None else searched.columns.words(ListColumns(words))
        if self.page is None:
            return F.embedding(numbers, self.weight, self.padding_idx)
        if self.training:
            self.page.changed = True
            return F.embedding(self.page.rows_of(numbers), self.weight, self.padding_idx).to(self.like)
        self._up_to_date()
        return self._some("weight", numbers)

    def _rows(self, words: Union[slice, WordNumbers]) -> Rows:
        return self._some("weight", words), None


class ScoringTable(WordTable):
    """Features to scores of words, in the place of an ``nn.Linear``: the energies E(y) of the paper.

    Its active set says which words these are: all of them; the columns of candidate lists, inside `searching`; none of
    them, inside `handing_back`, where features come back as they are, for a softmax that wants rows (`active`, `rows`,
    `chunks`) instead of scores.

    Args:
        linear: also one whose rows are normalised (``nn.utils.weight_norm``): length and direction are two parameters
        read_with: the table that words are read with, if a checkpoint names their vectors there only
    """

    def __init__(self, linear: nn.Linear, read_with: Optional[ReadingTable] = None):
        super().__init__(linear.out_features)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._read_with = [] if read_with is None else [read_with]  # in a list: it is no part of this module
        self._weight_names = ("weight_v", "weight_g") if "weight_g" in linear._parameters else ("weight",)
        for name, parameter in linear._parameters.items():  # in the order that an optimiser knows
            self.register_parameter(name, parameter)
        self._handing_back = False
        self._folded: Optional[Tensor] = None  # the weight of normalised rows, while nothing changes them
        self._packs = False
        self._packed: Dict[Tuple, PackedWeight] = {}  # by words, the latest last
        self.train(linear.training)

    @contextlib.contextmanager
    def handing_back(self) -> Iterator[None]:
        """In this block features come back in the place of scores."""
        before, self._handing_back = self._handing_back, True
        try:
            yield
        finally:
            self._handing_back = before

    def forward(self, features: Tensor) -> Tensor:
        """Features (... x dim) to scores (... x active words)."""
        if self._handing_back:
            return features
        if self.searched is not None:
            return linear_over(self.searched, self, features)
        if self._held or not self._away():
            self._up_to_date()
            if self._can_pack():
                return linear(features, *self.shared_rows(ALL))
            return F.linear(features, self._weight(), None if self.bias is None else self._some("bias", ALL))
        return torch.cat([F.linear(features, weight, bias) for _, weight, bias in self.chunks()], dim=-1)

    def _weight(self) -> Tensor:
        """Of all words; in a search computed once and not at every step."""
        if self.training or torch.is_grad_enabled() or len(self._weight_names) == 1:
            return self._rows(ALL)[0]
        if self._folded is None:
            self._folded = self._rows(ALL)[0]
        return self._folded

    def pack(self) -> None:
        """From now on keep the rows of words that a search shares, or of all words, laid out for the processor, as long
        as nothing changes them."""
        self._packs = True

    def _can_pack(self) -> bool:
        decodes = not self.training and self.page is None and not torch.is_grad_enabled()
        return self._packs and decodes and next(self.parameters()).device.type == "cpu"

    def shared_rows(self, words: Union[slice, WordNumbers]) -> Tuple[Union[Tensor, PackedWeight], Optional[Tensor]]:
        if not self._can_pack():
            return self.rows(words)
        if isinstance(words, slice):
            key: Tuple = words.indices(self.words)
        else:
            key = len(words), words.numpy().tobytes()
        key += tuple((p.data_ptr(), None if p.is_inference() else p._version) for p in self.parameters())
        packed = self._packed.pop(key, None) or PackedWeight(self._rows(words)[0], OF_WORDS)
        kept = sum(len(other.weight) for other in self._packed.values())
        while self._packed and kept + len(packed.weight) > self.words:  # together no more than all words
            kept -= len(self._packed.pop(next(iter(self._packed))).weight)
        self._packed[key] = packed
        return packed, None if self.bias is None else self._some("bias", words)

    def _forget(self) -> None:
        """What was computed from rows that change now."""
        self._folded, self._packed = None, {}

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_packed": {}}  # oneDNN's layout cannot be copied

    def train(self, mode: bool = True) -> Self:
        self._folded = None
        if mode:
            self._forget()
        return super().train(mode)

    def _apply(self, *args, **kwargs):
        self._forget()
        return super()._apply(*args, **kwargs)

    def active(
        self, words: WordNumbers
    ) -> Tuple[Union[WordNumbers, PageRows], Tensor, Optional[Tensor], Optional[Tensor]]:
        """What the softmax of training needs: rows of ``words``; weight, bias and offset of all rows it runs over."""
        if self.page is None:
            return words, *self._rows(ALL), None
        self.page.changed = True
        all_rows, scored = self.page.scored == self.page.rows, slice(self.page.scored)

        def some(name: str) -> Tensor:
            return getattr(self, name) if all_rows else getattr(self, name)[scored]

        weight = combined(*map(some, self._weight_names))
        bias = None if self.bias is None else some("bias")
        return PageRows(self.page.rows_of(words).long()), weight, bias, self.page.offset(words.device)

    def chunks(self, rows: int = 16384) -> Iterator[Tuple[int, Tensor, Optional[Tensor]]]:
        """The whole table, some rows at a time on the model's device: first word number, weight and bias."""
        self._up_to_date()
        for start in range(0, self.words, rows):
            yield start, *self._rows(slice(start, start + rows))

    def _rows(self, words: Union[slice, WordNumbers]) -> Rows:
        weight = combined(*(self._some(name, words) for name in self._weight_names))
        return weight, None if self.bias is None else self._some("bias", words)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        if not self._read_with:
            super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected, errors):
        self._forget()
        self._held = {}
        if not self._read_with:
            super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected, errors)
            return
        unexpected += [key for key in state_dict if strict and key.startswith(prefix)]
        self.weight = self._read_with[0].weight  # which has been loaded, maybe as another parameter


def has_room(size: int, device: torch.device) -> bool:
    """Whether so many bytes leave as many to others."""
    return device.type != "cuda" or 2 * size < torch.cuda.mem_get_info(device)[0]


def combined(direction: Tensor, length: Optional[Tensor] = None) -> Tensor:
    """Rows (... x dim) of a direction each, and of a length (... x 1) if lengths are parameters of their own."""
    if length is None or not direction.numel():  # torch divides by the number of rows
        return direction
    flat = torch._weight_norm(direction.reshape(-1, direction.size(-1)), length.reshape(-1, 1), 0)  # as torch computes
    return flat.view_as(direction)


class Tables:
    """The word tables of a model.

    Args:
        source, target: where words are read
        output: where target words are scored
    """

    def __init__(self, source: ReadingTable, target: ReadingTable, output: ScoringTable):
        self.source, self.target, self.output = source, target, output

    @property
    def joined(self) -> bool:
        """Whether both languages share their vectors."""
        return self.source.weight is self.target.weight

    def __iter__(self) -> Iterator[WordTable]:
        return iter((self.source, self.target, self.output))

    def hold(self) -> None:
        """For searches over all words, which read and score at every step: have all rows of target words on the device,
        as far as there is room, until training goes on."""
        copies: Dict[nn.Parameter, Tensor] = {}
        for table in (self.target, self.output):
            table.hold(copies)


@contextlib.contextmanager
def searching(models: List[Tables], columns: Columns) -> Iterator[Searched]:
    """In this block decoders read and score columns of candidate lists, as if these were words."""
    searched = Searched(columns)
    mine = [table for tables in models for table in (tables.target, tables.output)]
    before = [table.searched for table in mine]
    for table in mine:
        table.searched = searched
    try:
        yield searched
    finally:
        for table, searched in zip(mine, before):
            table.searched = searched
