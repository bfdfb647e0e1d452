"""The families of fairseq's encoder-decoders whose words we can page and list: where each keeps them."""

from typing import NamedTuple, Optional

from fairseq.models.fconv import FConvDecoder, FConvEncoder
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from fairseq.modules import AdaptiveInput
from torch import nn

from lv_fairseq.errors import UserError
from lv_fairseq.packed_weights import available, pack_layers
from lv_fairseq.rnnsearch.decoder import RNNSearchDecoder
from lv_fairseq.rnnsearch.encoder import RNNSearchEncoder
from lv_fairseq.word_tables import Places, Tables, adopt, tables_of


class Family(NamedTuple):
    encoder: type
    decoder: type
    places: Places


FAMILIES = (
    Family(RNNSearchEncoder, RNNSearchDecoder, Places("output_projection")),
    Family(TransformerEncoderBase, TransformerDecoderBase, Places("output_projection")),  # also BART, mBART, NLLB, M2M
    Family(LSTMEncoder, LSTMDecoder, Places("fc_out", shares="share_input_output_embed")),
    Family(FConvEncoder, FConvDecoder, Places("fc3")),
)
KNOWN = "rnnsearch, transformer, transformer_align, bart, mbart, lstm and fconv, of any size"
SCORES_WORDS = ("forward", "extract_features", "output_layer")


def family_of(model: nn.Module) -> Optional[Family]:
    """None if it is not one of those we know; a relative that scores words in a way of its own is not."""
    encoder, decoder = getattr(model, "encoder", None), getattr(model, "decoder", None)
    for family in FAMILIES:
        if isinstance(encoder, family.encoder) and isinstance(decoder, family.decoder):
            if all(getattr(type(decoder), name) is getattr(family.decoder, name) for name in SCORES_WORDS):
                return family
    return None


def adopt_model(model: nn.Module) -> Tables:
    """Put word tables into a model that has none yet, or say in one line why that cannot be."""
    family, tables = family_of(model), word_tables(model)
    if family is None:
        raise UserError(f"it does not know the words of {type(model).__name__}: it works with {KNOWN}")
    if tables is None:
        refuse_special_tables(model)
        tables = adopt(model, family.places)
    return tables


def refuse_special_tables(model: nn.Module) -> None:
    """What flags of fairseq put in the place of plain tables of words."""
    for side in (model.encoder, model.decoder):
        if getattr(side, "quant_noise", None) is not None:
            raise UserError("word tables cannot have quantisation noise: leave out --quant-noise-pq")
        if isinstance(side.embed_tokens, AdaptiveInput):
            raise UserError("word tables take the place of an adaptive input: leave out --adaptive-input")
    if getattr(model.decoder, "adaptive_softmax", None) is not None:
        raise UserError("word tables take the place of an adaptive softmax: leave out --adaptive-softmax-cutoff")


def word_tables(model: nn.Module) -> Optional[Tables]:
    """The word tables of a model, None if it has none."""
    family = family_of(model)
    return family and tables_of(model, family.places)


def pack_model(model: nn.Module) -> None:
    """Let a model that will only decode pack its weights: those of its layers, and of the words that it scores."""
    if not available():
        raise UserError("--pack-weights needs a torch with oneDNN: leave it out")
    pack_layers(model)
    tables = word_tables(model)
    if tables is not None:
        tables.output.pack()
