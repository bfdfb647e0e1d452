"""Ways to train a model with very many words, besides ours and fairseq's: each an update at a time, as `one_update`."""

import argparse
from pathlib import Path
from typing import Optional, Sequence

import torch
import torch.nn.functional as F
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from one_update import Run
from torch import Tensor, nn

from side_by_side.products import Recorder, Replay

CLIP_NORM, LEARNING_RATE = 1.0, 0.001  # those of Run
SCORES = 1 << 30  # bytes: a part of an update has no more of them


class CrossEntropyRun(Run):
    """fairseq's cross_entropy, in as many parts as its scores (tokens x words) want."""

    def __init__(self, data: Path, args: argparse.Namespace):
        super().__init__(data, args, "--criterion", "cross_entropy", parts=parts(args.tokens, args.size))


def parts(tokens: int, words: int) -> int:
    return -(-4 * tokens * words // SCORES)


class FromFeatures(CrossEntropyCriterion):
    """A loss that takes features (sentences x length x dim) where fairseq's takes scores. The model's own output layer
    is left out: ``output`` is what it would multiply with."""

    def __init__(self, task, model):
        super().__init__(task, sentence_avg=False)
        self.output = [model.decoder.output_projection]  # in a list: its parameters are the model's
        model.decoder.output_layer = lambda features, **unused: features

    def compute_loss(self, model, net_output, sample, reduce=True):
        features, target = net_output[0].flatten(0, 1), sample["target"].flatten()
        words = target.ne(self.padding_idx)
        loss = self.loss(features[words], target[words])
        return loss, loss

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        raise NotImplementedError


class LinearCrossEntropy(FromFeatures):
    """torch's ``linear_cross_entropy``, in chunks as large as the parts of fairseq's: those of its own choice are so
    small with many words that it takes ten times as long."""

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        (output,) = self.output
        options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=max(1, SCORES // (4 * len(output.weight))))
        bias = output.bias
        return F.linear_cross_entropy(
            features, output.weight, target, linear_bias=bias, reduction="sum", options=options
        )


class LinearCrossEntropyRun(Run):
    def __init__(self, data: Path, args: argparse.Namespace):
        super().__init__(data, args, "--task", "translation", "--criterion", "cross_entropy")

    def criterion(self, cfg, task, model):
        return LinearCrossEntropy(task, model)


class GatheredRows(FromFeatures):
    """The rows of a page are gathered from the whole table with a sparse gradient, and scored as usual."""

    def __init__(self, task, model):
        super().__init__(task, model)
        output = model.decoder.output_projection
        self.bias = None if output.bias is None else nn.Parameter(output.bias.detach().unsqueeze(1))  # words x 1
        output.bias = None
        self.page = torch.arange(len(output.weight))  # sorted

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        rows = F.embedding(self.page, self.output[0].weight, sparse=True)
        bias = None if self.bias is None else F.embedding(self.page, self.bias, sparse=True).squeeze(1)
        places = torch.searchsorted(self.page, target)
        return F.cross_entropy(F.linear(features, rows, bias), places, reduction="sum")


class GatheredRun(Run):
    """torch's SparseAdam for the word tables, which stay whole, and Adam for the rest; clipped together."""

    def __init__(self, data: Path, args: argparse.Namespace):
        super().__init__(data, args, "--task", "translation", "--criterion", "cross_entropy")
        model = self.trainer.get_model()
        for side in (model.encoder, model.decoder):
            side.embed_tokens.sparse = True
        tables = {model.encoder.embed_tokens.weight, model.decoder.embed_tokens.weight}
        tables |= {model.decoder.output_projection.weight, *self.trainer.criterion.parameters()}
        rest = [parameter for parameter in model.parameters() if parameter not in tables]
        self.sparse = torch.optim.SparseAdam(list(tables), lr=LEARNING_RATE)
        self.dense = torch.optim.Adam(rest, lr=LEARNING_RATE)

    def criterion(self, cfg, task, model):
        return GatheredRows(task, model)

    def optimisers(self) -> list:
        return [self.sparse, self.dense]

    def take_page(self, words: Optional[Sequence[int]]) -> None:
        """Target words of the updates to come, with the special symbols; None: all."""
        criterion = self.trainer.criterion
        criterion.page = torch.arange(len(criterion.output[0].weight)) if words is None else torch.as_tensor(words)

    def step(self, samples: list) -> None:
        model, criterion = self.trainer.get_model().train(), self.trainer.criterion
        for optimiser in self.optimisers():
            optimiser.zero_grad()
        tokens = 0
        for sample in samples:
            loss, size, _ = criterion(model, sample)
            loss.backward()
            tokens += size
        clip([*model.parameters(), *criterion.parameters()], tokens)
        for optimiser in self.optimisers():
            optimiser.step()


@torch.no_grad()
def clip(parameters: Sequence[nn.Parameter], tokens: int) -> None:
    """Gradients of the mean over tokens, their norm at most `CLIP_NORM`."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(x) for x in gradients])) / tokens
    factor = (CLIP_NORM / (norm + 1e-6)).clamp(max=1.0) / tokens
    for gradient in gradients:
        gradient.mul_(factor)


class ProductsRun(Run):
    """Our updates, of which the products alone are measured."""

    def update(self, sentences: Optional[Sequence[int]] = None) -> Sequence[int]:
        with Recorder() as recorded:
            numbers = super().update(sentences)
        self.updates[-1] = Replay(recorded.products).seconds(self.clock)
        return numbers

    def swap_to(self, partition: int) -> None:
        super().swap_to(partition)
        self.swaps.clear()  # they multiply nothing
