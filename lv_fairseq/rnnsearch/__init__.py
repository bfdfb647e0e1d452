"""RNNsearch: a bidirectional encoder, an alignment model and a decoder, all of gated recurrent units (paper, 2.1)."""
