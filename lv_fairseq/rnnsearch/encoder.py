"""The bidirectional encoder, and what the decoder will want of its annotations."""

from typing import Dict

import torch
from fairseq.models import FairseqEncoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lv_fairseq.rnnsearch.attention import EncodedSource
from lv_fairseq.rnnsearch.gru import GRU
from lv_fairseq.rnnsearch.initialisation import weight


class BidirectionalGRU(nn.Module):
    """Both directions step together, so that a sentence costs one loop over its words. Padding leaves a state alone."""

    def __init__(self, input_dim: int, hidden: int):
        super().__init__()
        self.unit = GRU(input_dim, hidden, stack=(2,))

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        """Word vectors (batch x length x input_dim) to annotations (batch x length x 2 hidden), forward half first."""
        both = torch.stack([x, x.flip(1)]).transpose(1, 2)  # 2 x length x batch x input_dim
        moves = torch.stack([~padding, ~padding.flip(1)]).transpose(1, 2).unsqueeze(-1)  # 2 x length x batch x 1
        products = self.unit.input_products(both.flatten(1, 2)).view(*both.shape[:3], -1)
        h = x.new_zeros(2, x.size(0), self.unit.candidate.size(-1))
        states = []
        for product, move in zip(products.unbind(1), moves.unbind(1)):
            h = torch.where(move, self.unit.step(product, h), h)
            states.append(h)
        forward, backward = torch.stack(states, dim=2)  # each batch x length x hidden
        return torch.cat([forward, backward.flip(1)], dim=-1)


class FusedBidirectionalGRU(nn.Module):
    """The same job done by ``torch.nn.GRU``: its own variant of the unit, in one kernel on a GPU."""

    def __init__(self, input_dim: int, hidden: int):
        super().__init__()
        self.unit = nn.GRU(input_dim, hidden, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        # Packing wants sentences that start at position 0: turn left-padded ones round, and back again.
        batch, length = padding.shape
        words = (~padding).int()  # from the first to the last: a padding symbol that was typed lies between
        start = words.argmax(dim=1)
        lengths = length - words.flip(1).argmax(dim=1) - start
        positions = torch.arange(length, device=x.device)
        x = x[torch.arange(batch, device=x.device)[:, None], (positions + start[:, None]) % length]
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        annotations, _ = pad_packed_sequence(self.unit(packed)[0], batch_first=True, total_length=length)
        return annotations[torch.arange(batch, device=x.device)[:, None], (positions - start[:, None]) % length]


class RNNSearchEncoder(FairseqEncoder):
    """Source words to an `EncodedSource`.

    Args:
        dictionary: the source dictionary
        embed_tokens: the source word table
        hidden: size of each direction's state; an annotation has twice as many
        decoder_hidden, attention_dim, readout_dim: the decoder's sizes
        fused: take torch's variant of the unit
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding,
        hidden: int,
        decoder_hidden: int,
        attention_dim: int,
        readout_dim: int,
        dropout_in: float = 0.0,
        dropout_out: float = 0.0,
        fused: bool = False,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        word_dim = embed_tokens.weight.size(1)
        self.embed_bias = weight(word_dim)  # the original adds one learned vector to every word's
        self.gru = (FusedBidirectionalGRU if fused else BidirectionalGRU)(word_dim, hidden)
        self.initial_state = weight(hidden, decoder_hidden)
        self.initial_bias = weight(decoder_hidden)
        self.keys = weight(2 * hidden, attention_dim)  # B
        self.state_products = weight(2 * hidden, 3 * decoder_hidden)  # C
        self.readout_products = weight(2 * hidden, 2 * readout_dim)
        # fairseq's own, which --retain-dropout can keep on
        self.dropout_in = FairseqDropout(dropout_in, type(self).__name__)
        self.dropout_out = FairseqDropout(dropout_out, type(self).__name__)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor = None, **unused) -> EncodedSource:
        """src_tokens: batch x length, padded on either side."""
        padding = src_tokens.eq(self.dictionary.pad())
        x = self.embed_tokens(src_tokens) + self.embed_bias
        x = self.dropout_in(x)
        annotations = self.gru(x, padding)  # batch x length x 2 hidden
        # s_0 comes from the backward state at the first word, which lies after the padding on the left if there is any.
        first = (~padding).int().argmax(dim=1)
        backward = annotations[torch.arange(len(first), device=first.device), first, annotations.size(-1) // 2 :]
        annotations = self.dropout_out(annotations)
        return EncodedSource(
            keys=torch.matmul(annotations, self.keys),
            state_products=torch.matmul(annotations, self.state_products),
            readout_products=torch.matmul(annotations, self.readout_products),
            initial_state=torch.tanh(torch.matmul(backward, self.initial_state) + self.initial_bias),
            padding=padding,
        )

    def forward_torchscript(self, net_input: Dict[str, Tensor]) -> EncodedSource:
        return self.forward(net_input["src_tokens"])

    def reorder_encoder_out(self, encoder_out: EncodedSource, new_order: Tensor) -> EncodedSource:
        return encoder_out.reorder(new_order)

    def max_positions(self) -> int:
        return int(1e5)  # an arbitrary large number, as in fairseq's other recurrent models
