"""The attention by which unknown words are replaced, where it is another one than a search keeps.

fairseq's search keeps the attention of a transformer's last layer, the mean of its heads. Another layer may know better
which source word is translated, and transformer_align has a head that was trained for it. Such an attention is computed
after the search, in one more pass over whole hypotheses, and only over those that have an unknown word.
"""

import contextlib
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from lv_fairseq.decoding.search import part_of
from lv_fairseq.decoding.transfers import to_device
from lv_fairseq.decoding.unknown_words import with_unknown
from lv_fairseq.errors import UserError
from lv_fairseq.models.families import word_tables


class Heads(NamedTuple):
    """Some heads of a transformer's decoder, by the names of fairseq's arguments."""

    alignment_layer: int
    alignment_heads: int  # the first ones of that layer, their mean
    full_context_alignment: bool = False  # words look at all of the translation, not only at what is before them


def heads_of(model: nn.Module, layer: Optional[int], heads: Optional[int]) -> Optional[Heads]:
    """Which heads of a model say what a word translates: those of the options, else those that the model itself was
    trained to align with (transformer_align), else those of the search. None if that is what the search keeps."""
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, TransformerDecoderBase):
        return None
    own = getattr(model, "alignment_layer", None)
    full_context = False
    if own is not None and layer in (None, own):
        layer, heads = own, getattr(model, "alignment_heads", None) if heads is None else heads
        full_context = bool(getattr(model, "full_context_alignment", False))
    last = len(decoder.layers) - 1
    layer = last if layer is None else layer
    if not 0 <= layer <= last:
        raise UserError(f"--alignment-layer {layer}: the decoder has the layers 0 to {last}")
    attention = decoder.layers[layer].encoder_attn
    if attention is None:
        return None
    most = attention.num_heads
    heads = most if heads is None else heads
    if not 1 <= heads <= most:
        raise UserError(f"--alignment-heads {heads}: a layer of the decoder has {most}")
    chosen = Heads(layer, heads, full_context)
    return None if chosen == Heads(last, most) else chosen


def check_heads(models: Sequence[nn.Module], layer: Optional[int], heads: Optional[int]) -> None:
    """Say in one line if no model has what the options name."""
    for model in models:
        heads_of(model, layer, heads)
    named = {"--alignment-layer": layer, "--alignment-heads": heads}
    if not any(isinstance(getattr(model, "decoder", None), TransformerDecoderBase) for model in models):
        for flag in (flag for flag, value in named.items() if value is not None):
            raise UserError(f"{flag} is about transformers: leave it out, {type(models[0]).__name__} has one attention")


def attention_of(model: nn.Module, heads: Optional[Heads], encoder_out: Dict, previous: Tensor) -> Optional[Tensor]:
    """Attention (hypotheses x length x source length) of whole hypotheses, without the scores of any word.

    Args:
        heads: of a transformer; None: what a search would keep
        previous: the words before each word (hypotheses x length)
    """
    tables = word_tables(model)
    with tables.output.handing_back() if tables is not None else contextlib.nullcontext():
        extra = model.decoder(previous, encoder_out=encoder_out, **(heads._asdict() if heads is not None else {}))[1]
    if isinstance(extra, dict):  # as fairseq's search reads it
        extra = extra["attn"]
        extra = extra[0] if isinstance(extra, (list, tuple)) else extra
    return extra


@contextlib.contextmanager
def one_by_one(model: nn.Module) -> Iterator[None]:
    """In this block each hypothesis has its own sentence beside it. While BART searches, its decoder takes as many
    neighbours as the beam is wide for hypotheses of one sentence, and its encoder orders nothing."""
    beams = {module: module.beam_size for module in model.decoder.modules() if isinstance(module, MultiheadAttention)}
    try:
        for module in beams:
            module.set_beam_size(1)
        yield
    finally:
        for module, beam in beams.items():
            module.set_beam_size(beam)


@torch.no_grad()
def look_again(
    models: Sequence[nn.Module],
    heads: Sequence[Optional[Heads]],
    sample: Dict,
    hypotheses: List[List[Dict]],
    unknown: int,
    first: int,
    pad: int,
) -> None:
    """Give hypotheses that have an unknown word the attention of these heads, the mean over all models.

    Args:
        heads: of each model
        hypotheses: of each sentence, with "tokens", and the end of the sentence last
        unknown, first, pad: word numbers; first: what a search begins with
    """
    found = with_unknown(hypotheses, unknown)
    if not found:
        return
    device = sample["net_input"]["src_tokens"].device
    sentences, which = torch.unique(torch.tensor([i for i, *_ in found]), return_inverse=True)
    sentences, which = to_device([sentences, which], device)
    previous = [torch.cat([tokens.new_tensor([first]), tokens[:-1]]) for *_, tokens in found]
    previous = collate_tokens(previous, pad).to(device, non_blocking=True)
    inputs = part_of(sample, sentences)["net_input"]
    attentions = []
    for model, mine in zip(models, heads):
        encoded = model.encoder.forward_torchscript(inputs)
        with one_by_one(model):
            encoder_out = type(model.encoder).reorder_encoder_out(model.encoder, encoded, which)
            attentions.append(attention_of(model, mine, encoder_out, previous))
    attentions = [attention for attention in attentions if attention is not None]
    if attentions:
        mean = torch.stack(attentions).mean(dim=0)
        for (_, hypothesis, _), attention in zip(found, mean):
            hypothesis["attention"] = attention[: len(hypothesis["tokens"])].t()
