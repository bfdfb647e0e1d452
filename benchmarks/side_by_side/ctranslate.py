"""A transformer of fairseq's for CTranslate2, with the same weights."""

import copy
import sys
from pathlib import Path
from typing import Optional

from fairseq.data import Dictionary


def ctranslate2_at(folder: Path):
    """The module, from an environment beside ours; None if it is not installed there."""
    if not (folder / "ctranslate2").is_dir():
        return None
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # after our own: only what we lack comes from there
    import ctranslate2

    return ctranslate2


def convert(model, dictionary: Dictionary, vmap: Optional[Path], out: Path, kind: str = "float32") -> None:
    """fairseq's network as CTranslate2's converter reads it; `ctranslate2_at` has found the module.

    Args:
        model: with one table for both languages
        vmap: its candidate lists
        kind: of its weights: float32 or int8
    """
    from ctranslate2.converters import fairseq as reading
    from ctranslate2.specs import transformer_spec

    model = copy.deepcopy(model).requires_grad_(False)  # quantisation changes the numbers where they are
    layers = (len(model.encoder.layers), len(model.decoder.layers))
    heads = model.encoder.layers[0].self_attn.num_heads
    pre_norm = model.encoder.layers[0].normalize_before
    spec = transformer_spec.TransformerSpec.from_config(layers, heads, pre_norm=pre_norm)
    reading.set_transformer_encoder(spec.encoder, model.encoder)
    reading.set_transformer_decoder(spec.decoder, model.decoder)
    words = ["<blank>" if word == "<pad>" else word for word in dictionary.symbols]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token, spec.config.add_source_eos = spec.config.eos_token, True
    if vmap is not None:
        spec.register_vocabulary_mapping(str(vmap))
    spec.validate()
    spec.optimize(quantization=None if kind == "float32" else kind)
    out.mkdir()
    spec.save(str(out))
