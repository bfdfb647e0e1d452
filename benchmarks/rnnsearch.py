"""Speed of RNNsearch against fairseq's own lstm of the same size, on random sentences, in one run.

    python benchmarks/rnnsearch.py                  # 256 units everywhere
    python benchmarks/rnnsearch.py --arch rnnsearch # the paper's sizes

Machines are noisy: read the ratios. Rows are measured in turns, and the best of all turns counts.
"""

import argparse
import time
from argparse import Namespace
from typing import Optional, Sequence

import torch
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMModel, base_architecture
from fairseq.sequence_generator import SequenceGenerator

import lv_fairseq
from lv_fairseq.models.rnnsearch import RNNSearchConfig, RNNSearchModel, RNNSearchSmallConfig

DECODED = 4  # sentences of a beam search


def build_models(arch: str, task: Namespace) -> dict:
    config = {"rnnsearch": RNNSearchConfig, "rnnsearch_small": RNNSearchSmallConfig}[arch]
    cfg = config()
    lstm = Namespace(
        encoder_embed_dim=cfg.encoder_embed_dim,
        encoder_hidden_size=cfg.encoder_hidden_size,
        encoder_bidirectional=True,
        decoder_embed_dim=cfg.decoder_embed_dim,
        decoder_hidden_size=cfg.decoder_hidden_size,
        decoder_out_embed_dim=cfg.decoder_out_embed_dim,
        dropout=0.0,
        criterion="cross_entropy",
    )
    base_architecture(lstm)
    return {
        arch: RNNSearchModel.build_model(cfg, task),
        f"{arch} --fused-gru": RNNSearchModel.build_model(config(fused_gru=True), task),
        "fairseq's lstm": LSTMModel.build_model(lstm, task),
    }


def update(model, source, target, lengths) -> float:
    """Seconds of a forward and a backward pass over a batch."""
    model.train()
    start = time.perf_counter()
    scores = model(source, lengths, target)[0]
    torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten()).backward()
    return time.perf_counter() - start


def decode(model, source, lengths, dictionary, beam, words) -> float:
    """Seconds of a beam search that is made to write ``words`` words for each sentence."""
    model.eval()
    generator = SequenceGenerator(
        [model], dictionary, beam_size=beam, max_len_a=0, max_len_b=words, min_len=words, normalize_scores=True
    )
    start = time.perf_counter()
    generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
    return time.perf_counter() - start


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=["rnnsearch", "rnnsearch_small"], default="rnnsearch_small")
    parser.add_argument("--words", type=int, default=5000, help="size of both vocabularies (default: 5000)")
    parser.add_argument("--length", type=int, default=25, help="words of a sentence (default: 25)")
    parser.add_argument("--batch", type=int, default=80, help="sentences of a training batch (default: 80)")
    parser.add_argument("--beam", type=int, default=12, help="hypotheses of a sentence (default: 12)")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args(argv)

    lv_fairseq.register()
    torch.manual_seed(1)
    dictionary = Dictionary()
    for i in range(args.words - len(dictionary)):
        dictionary.add_symbol(f"word{i}")
    task = Namespace(source_dictionary=dictionary, target_dictionary=dictionary, cfg=Namespace())
    models = build_models(args.arch, task)
    source, target = torch.randint(4, args.words, (2, args.batch, args.length))
    lengths = torch.full((args.batch,), args.length)

    few = source[:DECODED], lengths[:DECODED]
    train = {name: [] for name in models}
    search = {name: [] for name in models}
    for _ in range(args.turns + 1):
        for name, model in models.items():
            train[name].append(update(model, source, target, lengths))
            search[name].append(decode(model, *few, dictionary, args.beam, args.length))
    last = list(models)[-1]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.words} words, beam {args.beam}")
    print(f"{'':28}{'training words/s':>18}{'ratio':>8}{'decoding ms/word':>18}{'ratio':>8}")
    for name in models:
        speed = args.batch * args.length / min(train[name][1:])
        cost = 1000 * min(search[name][1:]) / (len(few[0]) * args.length)
        ratios = min(train[name][1:]) / min(train[last][1:]), min(search[name][1:]) / min(search[last][1:])
        print(f"{name:28}{speed:18.0f}{ratios[0]:8.2f}{cost:18.2f}{ratios[1]:8.2f}")


if __name__ == "__main__":
    main()
