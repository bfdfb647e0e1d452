"""Models that are decoded together, over the columns of candidate lists."""

import math
from typing import Dict, List, Tuple

import torch
import torch.nn.functional as F
from fairseq.sequence_generator import EnsembleModelWithAlignment
from torch import Tensor, nn

from lv_fairseq.errors import UserError
from lv_fairseq.generation.columns import Columns
from lv_fairseq.word_tables import WordTable


class CandidateEnsemble(EnsembleModelWithAlignment):
    """fairseq's ensemble, whose scores have the columns that are set before each search.

    The columns travel with what the encoders give, since fairseq's search tells its ensemble in this way which
    sentences are still there.

    Args:
        models: encoder-decoder models with word tables
        mean: of "probability", as fairseq takes it, or of "log-probability", as the paper's code does
    """

    def __init__(self, models: List[nn.Module], mean: str):
        super().__init__(models)
        if not all(isinstance(getattr(model.decoder, "output_projection", None), WordTable) for model in models):
            raise UserError("candidate lists need models with word tables: --arch rnnsearch or rnnsearch_small")
        self.mean = mean
        self.columns: Columns = None
        self.current: Columns = None  # at the step that is decoded

    def forward_encoder(self, net_input: Dict) -> List:
        if not self.columns.rows:
            self.columns = self.columns.with_rows([model.decoder.output_projection for model in self.models])
        return [*super().forward_encoder(net_input), self.columns]

    def reorder_encoder_out(self, encoder_outs: List, new_order: Tensor) -> List:
        return [*super().reorder_encoder_out(encoder_outs, new_order), encoder_outs[-1].reorder(new_order)]

    def forward_decoder(
        self, tokens: Tensor, encoder_outs: List, incremental_states: List[Dict], temperature: float = 1.0
    ) -> Tuple[Tensor, Tensor]:
        """Hypotheses so far, in columns (hypotheses x length), to log-probabilities of the next column (hypotheses x
        columns) and attention (hypotheses x source length)."""
        self.current = encoder_outs[-1]
        words = self.current.words(tokens)
        log_probs, attentions = [], []
        for i, (model, state) in enumerate(zip(self.models, incremental_states)):
            features, extra = model.decoder(
                words, encoder_out=encoder_outs[i], incremental_state=state, features_only=True
            )
            scores = self.current.project(i, features[:, -1:]).div_(temperature)
            log_probs.append(F.log_softmax(scores, dim=-1, dtype=torch.float32)[:, -1])
            attention = (extra or {}).get("attn")
            if attention is not None and attention[0] is not None:
                attentions.append(attention[0][:, -1])
        attention = sum(attentions[1:], start=attentions[0]) / len(attentions) if attentions else None
        if len(log_probs) == 1:
            return log_probs[0], attention
        stacked = torch.stack(log_probs)
        if self.mean == "log-probability":
            return stacked.mean(dim=0), attention
        return torch.logsumexp(stacked, dim=0) - math.log(len(log_probs)), attention


class CandidateLanguageModel(nn.Module):
    """A language model that reads and scores columns, for fairseq's fusion.

    Args:
        model: a language model over the same dictionary
        ensemble: knows the columns
    """

    def __init__(self, model: nn.Module, ensemble: CandidateEnsemble):
        super().__init__()
        self.model, self._ensemble = model, [ensemble]  # in a list: it is no part of this module

    def forward(self, tokens: Tensor):
        return self.model(self._ensemble[0].current.words(tokens))

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None) -> Tensor:
        columns = self._ensemble[0].current
        probs = self.model.get_normalized_probs(net_output, log_probs=log_probs, sample=sample)[:, -1:]
        others = columns.others.expand(len(probs) // columns.beam, -1).repeat_interleave(columns.beam, dim=0)
        return torch.cat([probs[..., : columns.common], probs.gather(-1, others.unsqueeze(1))], dim=-1)
