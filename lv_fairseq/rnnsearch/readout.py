"""From what the decoder knows before a word to the feature vector that is compared with the word vectors."""

import torch
from torch import Tensor, nn

from lv_fairseq.rnnsearch.initialisation import weight


class Readout(nn.Module):
    """phi(y_{i-1}, s_{i-1}, c_i): an affine map, maxout over pairs, and a linear map to the size of a word vector."""

    def __init__(self, state_dim: int, word_dim: int, readout_dim: int, output_dim: int):
        super().__init__()
        self.state = weight(state_dim, 2 * readout_dim)
        self.word = weight(word_dim, 2 * readout_dim)
        self.bias = weight(2 * readout_dim)
        self.output = weight(readout_dim, output_dim)

    def forward(self, states: Tensor, words: Tensor, context: Tensor) -> Tensor:
        """States (... x state_dim), vectors of the previous words (... x word_dim) and context products
        (... x 2 readout_dim) to features (... x output_dim)."""
        pairs = torch.matmul(states, self.state) + torch.matmul(words, self.word) + context + self.bias
        maxout = pairs.unflatten(-1, (-1, 2)).amax(dim=-1)
        return torch.matmul(maxout, self.output)
