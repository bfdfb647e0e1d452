"""The alignment model: which annotations a decoder state looks at.

    e_j = v . tanh(A s + B h_j),   alpha = softmax(e),   c = sum_j alpha_j h_j

It is computed as 2 v . sigmoid(2 (A s + B h_j)), which is e_j + sum(v): softmax takes no notice of what is the same for
all j, and torch's sigmoid takes a quarter of the time of its tanh.

Whatever depends on the annotations h_j alone is computed once for a sentence and kept in an `EncodedSource`: the keys
B h_j, and the products that the decoder takes of every context c. Since c is a weighted mean of annotations, a product
C c is the same mean of the C h_j, so that c itself is never needed.
"""

from typing import NamedTuple, Tuple

import torch
from torch import Tensor, nn

from lv_fairseq.rnnsearch.initialisation import weight


class EncodedSource(NamedTuple):
    """What the decoder reads of a batch of sentences; shared by the ``beam`` consecutive hypotheses of each."""

    keys: Tensor  # sentences x source length x attention: B h_j
    state_products: Tensor  # sentences x source length x 3 hidden: C h_j, for the decoder's GRU
    readout_products: Tensor  # sentences x source length x 2 readout: the readout's part of h_j
    initial_state: Tensor  # sentences x hidden: s_0
    padding: Tensor  # sentences x source length: True where there is no word
    beam: int = 1

    def reorder(self, order: Tensor) -> "EncodedSource":
        """The sources of hypotheses ``order``; copies nothing while hypotheses move within their sentence.

        fairseq's search calls this at every step. Its hypotheses of a sentence stand together, but this is checked.
        The answer would have to come from the device at every step if it is not the CPU: once a search has begun, it is
        the device that checks there, and nobody waits for it.
        """
        if order.device.type != "cpu" and (self.beam > 1 or len(order) <= len(self.keys)):
            return self._step_on_device(order)
        owners = order.div(self.beam, rounding_mode="floor")
        sentences, hypotheses = torch.unique_consecutive(owners, return_counts=True)
        beam = int(hypotheses[0]) if len(hypotheses) else 1
        if not bool((hypotheses == beam).all()):
            sentences, beam = owners, 1
        if torch.equal(sentences, torch.arange(len(self.keys), device=order.device)):
            return self._replace(beam=beam)
        return self._select(sentences, beam)

    def _step_on_device(self, order: Tensor) -> "EncodedSource":
        """The same for hypotheses that stand together, as many of a sentence as before."""
        if self.beam == 1:
            return self._select(order, 1)
        owners = order.view(-1, self.beam).div(self.beam, rounding_mode="floor")  # sentences x beam
        all_there = len(owners) == len(self.keys)
        sentences = torch.arange(len(owners), device=order.device) if all_there else owners[:, 0]
        torch._assert_async(owners.eq(sentences.unsqueeze(1)).all())
        return self if all_there else self._select(sentences, self.beam)

    def _select(self, sentences: Tensor, beam: int) -> "EncodedSource":
        return EncodedSource(*(tensor.index_select(0, sentences) for tensor in self[:-1]), beam=beam)


class Attention(nn.Module):
    def __init__(self, state_dim: int, attention_dim: int):
        super().__init__()
        self.query = weight(state_dim, attention_dim)  # A
        self.v = weight(attention_dim)

    def forward(self, state: Tensor, source: EncodedSource) -> Tuple[Tensor, Tensor]:
        """Decoder states (sentences * beam x hidden) to the weights alpha (sentences * beam x source length)
        and the products of the context (sentences * beam x 3 hidden)."""
        sentences, length, _ = source.keys.shape
        query = torch.matmul(state, self.query).view(sentences, source.beam, 1, -1)
        looked_at = torch.add(2 * query, source.keys.unsqueeze(1), alpha=2).sigmoid_()
        energies = torch.matmul(looked_at, 2 * self.v)  # sentences x beam x length
        energies = energies.masked_fill(source.padding.unsqueeze(1), float("-inf"))
        alpha = torch.softmax(energies, dim=-1)
        context = torch.bmm(alpha, source.state_products)  # sentences x beam x 3 hidden
        return alpha.view(-1, length), context.view(len(state), -1)
