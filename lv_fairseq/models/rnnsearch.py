"""The architectures ``rnnsearch`` and ``rnnsearch_small``: sizes, flags and how the parts are put together."""

from dataclasses import dataclass, field
from typing import Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqEncoderDecoderModel, register_model
from torch import nn
from torch.nn.utils import skip_init

from lv_fairseq.errors import UserError
from lv_fairseq.fingerprint import fingerprint
from lv_fairseq.rnnsearch.decoder import RNNSearchDecoder
from lv_fairseq.rnnsearch.encoder import RNNSearchEncoder
from lv_fairseq.rnnsearch.initialisation import initialise


def _option(default, help: str):
    return field(default=default, metadata={"help": help})


@dataclass
class RNNSearchConfig(FairseqDataclass):
    encoder_embed_dim: int = _option(620, "size of a source word vector (rnnsearch: 620, rnnsearch_small: 256)")
    encoder_hidden_size: int = _option(1000, "size of the encoder's state in each direction (1000, small: 256)")
    decoder_embed_dim: int = _option(620, "size of a target word vector where words are read (620, small: 256)")
    decoder_hidden_size: int = _option(1000, "size of the decoder's state (1000, small: 256)")
    decoder_out_embed_dim: int = _option(620, "size of a target word vector where words are scored (620, small: 256)")
    attention_dim: int = _option(1000, "size of the alignment model's hidden layer (1000, small: 256)")
    readout_dim: int = _option(
        500, "size of the readout after maxout, which takes the larger of two units (500, small: 256)"
    )
    dropout: float = _option(0.0, "dropout probability, for each of the four places below that is not given")
    encoder_dropout_in: Optional[float] = _option(None, "dropout on source word vectors (default: --dropout)")
    encoder_dropout_out: Optional[float] = _option(None, "dropout on annotations (default: --dropout)")
    decoder_dropout_in: Optional[float] = _option(None, "dropout on target word vectors (default: --dropout)")
    decoder_dropout_out: Optional[float] = _option(None, "dropout on what is scored against words (default: --dropout)")
    init: ChoiceEnum(["original", "scaled"]) = _option(
        "original",
        "initial values: the original's N(0, 0.01), meant for 1000 units and Adadelta, or scaled to the number of "
        "inputs, which learns faster with Adam and in small models (default of rnnsearch_small)",
    )
    share_decoder_input_output_embed: bool = _option(False, "read and score target words with the same vectors")
    share_all_embeddings: bool = _option(
        False, "one table for source words, target words read and target words scored; needs a joined dictionary"
    )
    fused_gru: bool = _option(
        False,
        "torch's GRU instead of the paper's: the reset gate acts after the recurrent product, not before. "
        "Faster on GPUs; a checkpoint of one kind cannot be read as the other",
    )


def _small(name: str, default=256):
    return field(default=default, metadata=RNNSearchConfig.__dataclass_fields__[name].metadata)


@dataclass
class RNNSearchSmallConfig(RNNSearchConfig):
    encoder_embed_dim: int = _small("encoder_embed_dim")
    encoder_hidden_size: int = _small("encoder_hidden_size")
    decoder_embed_dim: int = _small("decoder_embed_dim")
    decoder_hidden_size: int = _small("decoder_hidden_size")
    decoder_out_embed_dim: int = _small("decoder_out_embed_dim")
    attention_dim: int = _small("attention_dim")
    readout_dim: int = _small("readout_dim")
    init: ChoiceEnum(["original", "scaled"]) = _small("init", "scaled")


@register_model("rnnsearch", dataclass=RNNSearchConfig)
class RNNSearchModel(FairseqEncoderDecoderModel):
    """RNNsearch (Bahdanau et al. 2015) as Jean et al. (2015) trained it."""

    @classmethod
    def build_model(cls, cfg: RNNSearchConfig, task) -> "RNNSearchModel":
        check(cfg, task)
        source, target = task.source_dictionary, task.target_dictionary
        read_source = read_target = embedding(len(source), cfg.encoder_embed_dim)
        if not cfg.share_all_embeddings:
            read_target = embedding(len(target), cfg.decoder_embed_dim)
        score_target = skip_init(nn.Linear, cfg.decoder_out_embed_dim, len(target))
        if cfg.share_decoder_input_output_embed or cfg.share_all_embeddings:
            score_target.weight = read_target.weight

        def dropout(place: Optional[float]) -> float:
            return cfg.dropout if place is None else place

        common = dict(attention_dim=cfg.attention_dim, readout_dim=cfg.readout_dim, fused=cfg.fused_gru)
        encoder = RNNSearchEncoder(
            source,
            read_source,
            hidden=cfg.encoder_hidden_size,
            decoder_hidden=cfg.decoder_hidden_size,
            dropout_in=dropout(cfg.encoder_dropout_in),
            dropout_out=dropout(cfg.encoder_dropout_out),
            **common,
        )
        decoder = RNNSearchDecoder(
            target,
            read_target,
            score_target,
            hidden=cfg.decoder_hidden_size,
            dropout_in=dropout(cfg.decoder_dropout_in),
            dropout_out=dropout(cfg.decoder_dropout_out),
            **common,
        )
        model = cls(encoder, decoder)
        initialise(model, scaled=str(cfg.init) == "scaled")
        # so that a checkpoint knows which words its rows belong to
        words = [fingerprint(source.symbols), fingerprint(target.symbols)]
        model.register_buffer("dictionaries", torch.tensor(words, device="cpu"))
        return model

    def load_state_dict(self, state_dict, *args, **kwargs):
        words = state_dict.setdefault("dictionaries", self.dictionaries)
        if not torch.equal(words.cpu(), self.dictionaries.cpu()):
            raise UserError("the checkpoint is of other dictionaries: name the data folder that it was trained on")
        try:
            return super().load_state_dict(state_dict, *args, **kwargs)
        except RuntimeError as error:
            reason = " ".join(str(error).split("\n")[1:2]).strip()
            raise UserError(
                f"the checkpoint is of another model: {reason.rstrip('.')}. "
                "Are the dictionaries, the sizes and --fused-gru those of its training?"
            ) from None


def embedding(words: int, dim: int) -> nn.Embedding:
    """Word vectors to be drawn by `initialise`."""
    return nn.Embedding(words, dim, _weight=torch.empty(words, dim))


@register_model("rnnsearch_small", dataclass=RNNSearchSmallConfig)
class RNNSearchSmallModel(RNNSearchModel):
    """The same model at a size that two CPU cores train."""


def check(cfg: RNNSearchConfig, task) -> None:
    """Refuse sizes that do not go together, before anything is built."""

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    sizes = [name for name in RNNSearchConfig.__dataclass_fields__ if name.endswith(("_dim", "_size"))]
    for name in sizes:
        if getattr(cfg, name) < 1:
            raise UserError(f"{flag(name)} must be at least 1, not {getattr(cfg, name)}")
    for name in ("dropout", "encoder_dropout_in", "encoder_dropout_out", "decoder_dropout_in", "decoder_dropout_out"):
        probability = getattr(cfg, name)
        if probability is not None and not 0 <= probability < 1:
            raise UserError(f"{flag(name)} must be at least 0 and below 1, not {probability}")
    if cfg.share_decoder_input_output_embed or cfg.share_all_embeddings:
        which = "share_all_embeddings" if cfg.share_all_embeddings else "share_decoder_input_output_embed"
        names = ["decoder_embed_dim", "decoder_out_embed_dim"]
        if cfg.share_all_embeddings:
            names.insert(0, "encoder_embed_dim")
        if len({getattr(cfg, name) for name in names}) > 1:
            given = ", ".join(f"{flag(name)} {getattr(cfg, name)}" for name in names)
            raise UserError(f"{flag(which)} needs equal sizes, not {given}")
    if cfg.share_all_embeddings and task.source_dictionary != task.target_dictionary:
        raise UserError(
            "--share-all-embeddings needs one dictionary for both languages: run fairseq-preprocess --joined-dictionary"
        )
    if getattr(task.cfg, "left_pad_target", False):
        raise UserError("rnnsearch reads target sentences from position 0: leave out --left-pad-target")
