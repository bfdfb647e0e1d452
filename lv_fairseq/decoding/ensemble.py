"""The models that fairseq's search decodes together, and that speak columns of candidate lists while it runs."""

import contextlib
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from lv_fairseq.word_tables import Tables, searching
from lv_fairseq.word_tables.columns import Columns, Searched
from lv_fairseq.word_tables.number_spaces import ListColumns

# As fairseq has them: whoever changes them later, for a class or for one object, is asked.
ENSEMBLES = EnsembleModel.reorder_incremental_state
DECODERS = FairseqIncrementalDecoder.reorder_incremental_state_scripting
NOTHING_KEPT = FairseqIncrementalDecoder.reorder_incremental_state


class ListedEnsemble(nn.Module):
    """Stands before fairseq's ensemble, which does the work. It is told here which sentences are still decoded.

    Args:
        ensemble: fairseq's
        mean: of "probability", as fairseq takes it, or of "log-probability", as the paper's code does
    """

    def __init__(self, ensemble: EnsembleModel, mean: str):
        super().__init__()
        self.ensemble = ensemble
        self.searched: Optional[Searched] = None
        self._tables: List[Tables] = []
        self._whole: Optional[Columns] = None  # of all sentences of the batch
        self._reorders: Optional[List[List[Callable]]] = None  # of each model, while a search runs
        # fairseq's own mean is of probabilities: for another one each model is an ensemble by itself
        self._single = [EnsembleModel([model]) for model in ensemble.models] if mean == "log-probability" else []

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("ensemble"), name)

    @contextlib.contextmanager
    def over(self, columns: Columns, tables: List[Tables]) -> Iterator[None]:
        """In this block the search is over columns."""
        with searching(tables, columns) as self.searched:
            self._tables, self._whole = tables, columns
            try:
                if is_fairseqs(self.ensemble.reorder_incremental_state, ENSEMBLES):
                    if self.ensemble.has_incremental_states():
                        self._reorders = [reorders(model.decoder) for model in self.ensemble.models]
                yield
            finally:
                self.searched = self._whole = self._reorders = None

    def reorder_encoder_out(self, encoder_outs: Optional[List], new_order: Tensor) -> List:
        if self.searched is not None:
            self.searched.reorder(new_order)
        return self.ensemble.reorder_encoder_out(encoder_outs, new_order)

    def reorder_incremental_state(self, incremental_states: List[Dict], new_order: Tensor) -> None:
        """fairseq looks for the modules that keep something at each step, here they are looked for once a search."""
        if self._reorders is None:
            return self.ensemble.reorder_incremental_state(incremental_states, new_order)
        for mine, state in zip(self._reorders, incremental_states):
            for reorder in mine:
                reorder(state, new_order)

    def forward_decoder(
        self, tokens: ListColumns, encoder_outs: List, incremental_states: List[Dict], temperature: float = 1.0
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Hypotheses so far (hypotheses x length) to log-probabilities of the next column (hypotheses x columns) and
        attention (hypotheses x source length)."""
        if len(self._single) < 2:
            return self.ensemble.forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        parts = [
            model.forward_decoder(tokens, encoder_outs[i : i + 1], incremental_states[i : i + 1], temperature)
            for i, model in enumerate(self._single)
        ]
        log_probs, attentions = zip(*parts)
        given = [attention for attention in attentions if attention is not None]
        attention = torch.stack(given).mean(dim=0) if given else None
        return torch.stack(log_probs).mean(dim=0), attention

    def forward_align(self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: ListColumns):
        """Attention of whole hypotheses of all sentences, after the search (--print-alignment)."""
        with contextlib.ExitStack() as stack:
            if self.searched is not None:
                stack.enter_context(searching(self._tables, self._whole))
            for tables in self._tables:
                stack.enter_context(tables.output.handing_back())
            return self.ensemble.forward_align(src_tokens, src_lengths, prev_output_tokens)


def reorders(decoder: FairseqIncrementalDecoder) -> List[Callable]:
    """What reorders all that the modules of a decoder keep of the words so far."""
    if not is_fairseqs(decoder.reorder_incremental_state_scripting, DECODERS):
        return [decoder.reorder_incremental_state_scripting]
    asked = [getattr(module, "reorder_incremental_state", None) for module in decoder.modules()]
    return [method for method in asked if method is not None and not is_fairseqs(method, NOTHING_KEPT)]


def is_fairseqs(method: Callable, original: Callable) -> bool:
    return getattr(method, "__func__", None) is original


class ListedLanguageModel(nn.Module):
    """A language model that reads and scores the columns of an ensemble, for fairseq's fusion.

    Args:
        model: a language model over the same dictionary
        ensemble: knows the columns
    """

    def __init__(self, model: nn.Module, ensemble: ListedEnsemble):
        super().__init__()
        self.model, self._ensemble = model, [ensemble]  # in a list: it is no part of this module

    def forward(self, tokens: ListColumns):
        searched = self._ensemble[0].searched
        return self.model(tokens if searched is None else searched.columns.words(tokens))

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None) -> Tensor:
        probs = self.model.get_normalized_probs(net_output, log_probs=log_probs, sample=sample)[:, -1:]
        searched = self._ensemble[0].searched
        if searched is None:
            return probs
        columns = searched.columns
        others = columns.others.expand(len(probs) // columns.beam, -1).repeat_interleave(columns.beam, dim=0)
        return torch.cat([probs[..., columns.first_words()], probs.gather(-1, others.unsqueeze(1))], dim=-1)
