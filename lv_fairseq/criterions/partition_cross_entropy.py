"""``--criterion partition_cross_entropy``: the log-likelihood of the right words among those of their partition."""

import math
from dataclasses import dataclass, field
from typing import Dict, List

import numpy as np
import torch
from fairseq import metrics, utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.label_smoothed_cross_entropy_with_alignment import (
    LabelSmoothedCrossEntropyCriterionWithAlignment as WithAlignment,
)
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from lv_fairseq.errors import UserError
from lv_fairseq.models.families import word_tables
from lv_fairseq.softmax import full_cross_entropy, limited_cross_entropy, listed_cross_entropy


@dataclass
class PartitionCrossEntropyConfig(FairseqDataclass):
    label_smoothing: float = field(
        default=0.0, metadata={"help": "share of the probability that is spread over all words of the softmax"}
    )
    alignment_lambda: float = field(
        default=0.05, metadata={"help": "weight of the alignments that --load-alignments brings (transformer_align)"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("partition_cross_entropy", dataclass=PartitionCrossEntropyConfig)
class PartitionCrossEntropy(FairseqCriterion):
    """In training the softmax runs over the active rows of the output table: the page of the partition's words V'_i, or
    all words without --tau. In validation it runs over all words, some rows at a time, or over candidate lists."""

    def __init__(self, task, sentence_avg: bool, label_smoothing: float, alignment_lambda: float = 0.05):
        super().__init__(task)
        if not 0 <= label_smoothing < 1:
            raise UserError(f"--label-smoothing must be at least 0 and below 1, not {label_smoothing}")
        self.sentence_avg, self.label_smoothing = sentence_avg, label_smoothing
        self.alignment_lambda = alignment_lambda

    def forward(self, model, sample, reduce=True):
        tables, log = word_tables(model), {}
        if tables is None:
            raise UserError("--criterion partition_cross_entropy needs word tables: give --task lv_translation")
        table = tables.output
        with table.handing_back():
            features, extra = model(**sample["net_input"])[:2]
        if not model.training and str(getattr(self.task.cfg, "validation_vocab", "full")) == "candidates":
            loss, nll, log["outside"] = self.over_lists(features, sample, table)
        else:
            target = sample["target"].flatten()
            # the places of the words, without padding, and without asking the device how many there are
            words = torch.argsort(target.eq(self.padding_idx).to(torch.uint8), stable=True)[: sample["ntokens"]]
            phi, target = features.flatten(0, 1)[words], target[words]
            if model.training:
                rows, weight, bias, offset = table.active(target)
                loss, nll = limited_cross_entropy(phi, weight, bias, offset, rows, self.label_smoothing)
            else:
                loss, nll = full_cross_entropy(phi, table.chunks(), target, self.label_smoothing)
        objective = loss
        if sample.get("alignments") is not None:
            aligned = WithAlignment.compute_alignment_loss(self, sample, (features, extra))  # None without a link
            log["alignment_loss"] = loss.new_zeros(()) if aligned is None else aligned.data
            objective = loss if aligned is None else loss + self.alignment_lambda * aligned
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        return (
            objective,
            sample_size,
            {
                "loss": loss.data,
                "nll_loss": nll,
                "ntokens": sample["ntokens"],
                "nsentences": sample["target"].size(0),
                "sample_size": sample_size,
                **log,
            },
        )

    def over_lists(self, features, sample, table):
        """Each sentence over its own candidate list."""
        lists, others = self.task.candidate_lists(sample)
        common = len(lists.common) if lists.prefix else torch.from_numpy(np.sort(lists.common)).to(features.device)
        words = sample["target"].ne(self.padding_idx)
        lengths = words.sum(dim=1).tolist()
        return listed_cross_entropy(
            features[words].split(lengths),
            sample["target"][words].split(lengths),
            common,
            [torch.from_numpy(numbers).to(features.device) for numbers in others],
            table.rows,
            self.task.target_dictionary.unk(),
            self.label_smoothing,
        )

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict]) -> None:
        """Losses in bits, as fairseq's own criteria report them."""
        keys = {key for log in logging_outputs for key in log}
        total = {key: sum(log.get(key, 0) for log in logging_outputs) for key in keys}
        bits = math.log(2)
        metrics.log_scalar("loss", total["loss"] / max(total["sample_size"], 1) / bits, total["sample_size"], round=3)
        metrics.log_scalar("nll_loss", total["nll_loss"] / max(total["ntokens"], 1) / bits, total["ntokens"], round=3)
        if "outside" in total:  # words that are not on their sentence's candidate list, in percent
            share = 100 * total["outside"] / max(total["ntokens"], 1)
            metrics.log_scalar("outside", share, total["ntokens"], round=2)
        if "alignment_loss" in total:
            share = total["alignment_loss"] / max(total["sample_size"], 1) / bits
            metrics.log_scalar("alignment_loss", share, total["sample_size"], round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
