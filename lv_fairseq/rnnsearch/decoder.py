"""The decoder: look, generate, update.

The order is the original code's: with s_{i-1}, which has read y_1 ... y_{i-1},

    look       c_i from s_{i-1} and the annotations
    generate   p(y_i) from the readout of c_i, s_{i-1} and y_{i-1}
    update     s_i = GRU(s_{i-1}; y_i, c_i)

Bahdanau et al.'s appendix and later code update first and read s_i. Here a step is cut before "update", so that it
begins with the word that fairseq feeds: update with y_{i-1} and c_{i-1}, look, generate. The first step has no word
yet; it starts from s_0 with a zero vector for y_0.
"""

from typing import Dict, Optional, Tuple

import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from lv_fairseq.rnnsearch.attention import Attention, EncodedSource
from lv_fairseq.rnnsearch.gru import GRU, FusedGRU
from lv_fairseq.rnnsearch.initialisation import weight
from lv_fairseq.rnnsearch.readout import Readout


class RNNSearchDecoder(FairseqIncrementalDecoder):
    """
    Args:
        dictionary: the target dictionary
        embed_tokens: the table of target words that are read
        output_projection: the table of target words that are scored
        hidden: size of the state s
        fused: take torch's variant of the unit
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding,
        output_projection: nn.Linear,
        hidden: int,
        attention_dim: int,
        readout_dim: int,
        dropout_in: float = 0.0,
        dropout_out: float = 0.0,
        fused: bool = False,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output_projection = output_projection
        word_dim = embed_tokens.weight.size(1)
        self.embed_bias = weight(word_dim)
        self.gru = (FusedGRU if fused else GRU)(word_dim, hidden)
        self.attention = Attention(hidden, attention_dim)
        self.readout = Readout(hidden, word_dim, readout_dim, output_projection.weight.size(1))
        # fairseq's own, which --retain-dropout can keep on
        self.dropout_in = FairseqDropout(dropout_in, type(self).__name__)
        self.dropout_out = FairseqDropout(dropout_out, type(self).__name__)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncodedSource,
        incremental_state: Optional[Dict] = None,
        features_only: bool = False,
        **unused,
    ) -> Tuple[Tensor, Dict]:
        """prev_output_tokens (hypotheses x length) to scores (hypotheses x length x words) and attention weights."""
        features, alpha = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return features if features_only else self.output_layer(features), {"attn": [alpha]}

    def extract_features(
        self, prev_output_tokens: Tensor, source: EncodedSource, incremental_state: Optional[Dict] = None
    ) -> Tuple[Tensor, Tensor]:
        """Features phi (hypotheses x length x output_dim) and alpha (hypotheses x length x source length)."""
        cache = None
        if incremental_state is not None:
            cache = self.get_incremental_state(incremental_state, "decoder")
            prev_output_tokens = prev_output_tokens[:, -1:]
        words = self.embed_tokens(prev_output_tokens) + self.embed_bias
        words = self.dropout_in(words)
        if cache is None:  # y_0 is no word
            words = torch.cat([torch.zeros_like(words[:, :1]), words[:, 1:]], dim=1)
            s, context = source.initial_state.repeat_interleave(source.beam, dim=0), None
        else:
            s, context = cache["state"], cache["context"]
        states, alphas = [], []
        for products in self.gru.input_products(words).unbind(1):
            if context is not None:
                s = self.gru.step(products + context, s)
            alpha, context = self.attention(s, source)
            states.append(s)
            alphas.append(alpha)
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "decoder", {"state": s, "context": context})
        alpha = torch.stack(alphas, dim=1)
        # hypotheses of a sentence share its products: (sentences x beam * length x source length) x readout_products
        readout_context = torch.bmm(alpha.view(len(source.keys), -1, alpha.size(-1)), source.readout_products)
        features = self.readout(torch.stack(states, dim=1), words, readout_context.view(*words.shape[:2], -1))
        return self.dropout_out(features), alpha

    def output_layer(self, features: Tensor, **unused) -> Tensor:
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state: Dict, new_order: Tensor) -> None:
        cache = self.get_incremental_state(incremental_state, "decoder")
        if cache is not None:
            cache = {name: tensor.index_select(0, new_order) for name, tensor in cache.items()}
            self.set_incremental_state(incremental_state, "decoder", cache)

    def max_positions(self) -> int:
        return int(1e5)
