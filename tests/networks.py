"""Checkpoints without training: networks whose weights are set by hand, or drawn, so that a test decides what they say.

`word_for_word` translates each word that it knows by one word, in order: at step i it looks at source position i,
writes the partner of that word or, if there is none, ``<unk>``, and ends where the source ends. Its choices win by 20
and more in log-probability, its attention by a factor of e^40, so that no rounding can change them. Of what it rejects,
some things are equally likely: only its best hypothesis may be relied on.
"""

from pathlib import Path
from typing import Callable, Dict, Optional

import fairseq.options
import numpy as np
import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import nn

BITS = 12  # of a word number
LONGEST = 24  # positions that can be told from each other
SURE = 60.0  # tanh and sigmoid of it are exactly 1
MARGIN = 20.0

SIZES = {"encoder_embed_dim": BITS + 1, "encoder_hidden_size": BITS + 1 + LONGEST, "decoder_embed_dim": 1}
SIZES.update(decoder_hidden_size=1 + LONGEST, attention_dim=LONGEST, readout_dim=BITS + 1)
SIZES.update(decoder_out_embed_dim=BITS + 1)


def checkpoint(path: Path, data: Path, set_weights: Callable, **options) -> Path:
    """Save a model as fairseq-train would, with the weights that ``set_weights(model, task)`` gives it."""
    options = {"task": "lv_translation", "arch": "rnnsearch_small", "optimizer": "sgd", **options}
    flags = [str(data), *(str(x) for name, value in options.items() for x in ("--" + name.replace("_", "-"), value))]
    cfg = convert_namespace_to_omegaconf(
        fairseq.options.parse_args_and_arch(fairseq.options.get_training_parser(), flags)
    )
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    with torch.no_grad():
        set_weights(model, task)
    return save(path, cfg, model.state_dict())


def save(path: Path, cfg, weights: Dict) -> Path:
    """A checkpoint of these weights, as fairseq-train writes it before the first update."""
    state = {"cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), "model": weights}
    history = [{"optimizer_name": "FairseqSGD", "lr_scheduler_state": {}, "num_updates": 0}]
    torch.save({**state, "args": None, "optimizer_history": history, "extra_state": {}, "task_state": {}}, path)
    return path


def word_for_word(path: Path, data: Path, partner: Callable[[str], Optional[str]], margin: float = MARGIN) -> Path:
    """A checkpoint of the network described above.

    Args:
        data: a folder that fairseq-preprocess has made
        partner: from a source word to a target word; None, or a word outside the dictionary, if there is none
    """

    def set_weights(model: nn.Module, task) -> None:
        source, target = task.source_dictionary, task.target_dictionary
        pairs = {
            source.index(word): target.index(partner(word) or "<unk>") for word in source.symbols[source.nspecial :]
        }
        for parameter in model.parameters():
            parameter.zero_()
        read_source(model.encoder)
        count_steps(model)
        write_partners(model.decoder, pairs, target, margin)

    return checkpoint(path, data, set_weights, **SIZES)


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers to their binary digits, +1 or -1 (... x BITS)."""
    return ((numbers.unsqueeze(-1) >> torch.arange(BITS)) & 1) * 2.0 - 1


def read_source(encoder) -> None:
    """An annotation holds the bits of its word; +1 in the unit of its position; +1 in another one if it is the last."""
    table = encoder.embed_tokens.weight
    table[:, :BITS] = bits(torch.arange(len(table)))
    encoder.embed_bias[BITS] = 1
    unit, hidden, first = encoder.gru.unit, BITS + 1 + LONGEST, BITS + 1
    unit.input[:, BITS, : 2 * hidden] = SURE  # gates stay open: a state is made anew at each step
    candidate = unit.input[:, :, 2 * hidden :]
    for b in range(BITS):
        candidate[:, b, b] = SURE
    candidate[:, BITS, BITS] = SURE  # this unit is 0 before the first word and 1 from then on
    candidate[:, BITS, first] = SURE
    unit.candidate[:, BITS, first] = -2 * SURE  # so this one is +1 at the first word alone ...
    for k in range(first, hidden - 1):
        unit.candidate[:, k, k + 1] = SURE  # ... and hands it on from unit to unit
    for b in range(BITS):
        encoder.readout_products[b, 2 * b : 2 * b + 2] = 1
    encoder.readout_products[hidden + first, 2 * BITS :] = 1  # the first word that the backward direction reads
    for k in range(LONGEST):
        encoder.keys[first + k, k] = SURE


def count_steps(model) -> None:
    """The decoder's state has +1 in the unit of its step, whatever it writes, and attention goes where both agree."""
    model.encoder.initial_bias.fill_(-SURE)
    model.encoder.initial_bias[:2] = SURE
    gru, hidden = model.decoder.gru, 1 + LONGEST
    model.decoder.embed_bias.fill_(1)
    gru.input[0, : 2 * hidden] = SURE
    gru.input[0, 2 * hidden] = SURE  # unit 0 is always +1
    gru.input[0, 2 * hidden + 1] = -SURE
    for k in range(1, hidden - 1):
        gru.candidate[k, k + 1] = SURE
    query = model.decoder.attention.query
    query[0] = -1.5 * SURE
    query[1:] = SURE * torch.eye(LONGEST)
    model.decoder.attention.v.fill_(20)


def write_partners(decoder, pairs: Dict[int, int], target, margin: float) -> None:
    """A word scores by how many bits of its partner are right; <unk> beats all that are not quite right."""
    decoder.readout.output.copy_(torch.eye(BITS + 1))
    table = decoder.output_projection
    best = BITS * margin
    table.bias.fill_(-3 * best)
    known = {number: word for number, word in pairs.items() if word != target.unk()}
    words = torch.tensor(list(known.values()), dtype=torch.long)
    table.weight[words, :BITS] = margin * bits(torch.tensor(list(known), dtype=torch.long))
    table.bias[words] = 0
    table.bias[target.unk()] = best - margin
    table.weight[target.eos(), BITS], table.bias[target.eos()] = 3 * best, -best  # too early it is the worst


def drawn(path: Path, data: Path, seed: int, **options) -> Path:
    """A checkpoint with random weights, large enough that what it says depends on all it reads."""
    random = np.random.default_rng(seed)

    def set_weights(model: nn.Module, task) -> None:
        for name, parameter in model.named_parameters():
            scale = 0.2 if name == "decoder.output_projection.weight" else 0.5
            parameter.copy_(torch.from_numpy(random.normal(0, scale, parameter.shape)))
        if hasattr(model.decoder, "output_projection"):
            model.decoder.output_projection.bias[task.target_dictionary.eos()] += 10  # so that sentences end

    return checkpoint(path, data, set_weights, **options)
