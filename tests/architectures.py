"""The architectures that word tables know, each as small as it can be, as flags of fairseq-train."""

from typing import NamedTuple

from small_corpus import MODEL

LAYERS = ("--encoder-layers", 1, "--decoder-layers", 2, "--encoder-attention-heads", 2, "--decoder-attention-heads", 2)
SIZES = ("--encoder-embed-dim", 16, "--decoder-embed-dim", 16)
SIZES += ("--encoder-ffn-embed-dim", 24, "--decoder-ffn-embed-dim", 24, "--dropout", 0)
TRANSFORMER = ("--arch", "transformer", *LAYERS, *SIZES)
ALIGN = ("--arch", "transformer_align", *LAYERS, *SIZES, "--alignment-layer", 1, "--alignment-heads", 1)
LSTM = ("--arch", "lstm", "--encoder-embed-dim", 12, "--encoder-hidden-size", 14, "--decoder-embed-dim", 12)
LSTM += ("--decoder-hidden-size", 14, "--decoder-out-embed-dim", 12, "--dropout", 0)
FCONV = ("--arch", "fconv", "--encoder-embed-dim", 12, "--decoder-embed-dim", 12, "--decoder-out-embed-dim", 12)
FCONV += ("--encoder-layers", "[(16, 3)] * 2", "--decoder-layers", "[(16, 3)] * 2", "--dropout", 0)


class Architecture(NamedTuple):
    flags: tuple
    joined: bool = False  # source and target words are read with one table, and need one dictionary


ARCHITECTURES = {
    "rnnsearch": Architecture(MODEL),
    "transformer": Architecture(TRANSFORMER),
    "transformer-tied": Architecture((*TRANSFORMER, "--share-decoder-input-output-embed")),
    "transformer-joined": Architecture((*TRANSFORMER, "--share-all-embeddings"), joined=True),
    "transformer_align": Architecture(ALIGN),
    "bart": Architecture(("--arch", "bart_base", *LAYERS, *SIZES), joined=True),
    "lstm": Architecture(LSTM),
    "lstm-tied": Architecture((*LSTM, "--share-decoder-input-output-embed")),
    "fconv": Architecture(FCONV),
    "fconv-tied": Architecture((*FCONV, "--share-input-output-embed")),
}
REQUIRED = ("rnnsearch", "transformer", "transformer-tied", "transformer-joined", "lstm", "fconv")


def sized(flags: tuple, size: int) -> tuple:
    """The same architecture with this size for all that has one."""
    before = ("", *flags)
    return tuple(size if str(name).endswith(("-dim", "-size")) else flag for name, flag in zip(before, flags))
