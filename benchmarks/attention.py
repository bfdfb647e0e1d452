"""How often an attention looks at the source word that a target word translates, against known alignments.

    python scripts/demo_corpus.py --out text --pairs 10000 --lemmas 300 --max-clauses 1 --alignments
    fairseq-preprocess -s src -t tgt --trainpref text/train --validpref text/valid --testpref text/test \\
      --destdir data --thresholdsrc 4 --thresholdtgt 4 --align-suffix align
    fairseq-train data ... --save-dir models/transformer
    python benchmarks/attention.py data --alignments text/test.align models/*/checkpoint_last.pt

Each model reads the test set and its translations, and for each target word the source word with the largest weight is
taken, as for the replacement of unknown words. Of a transformer each layer is a row, the mean of its heads; --unk-
replacement goes by the row with a star. Columns, in percent: target words that have an alignment and look at a word of
it; the alignment error rate, 1 - 2 |A and S| / (|A| + |S|), of these links A against the known ones S; the first figure
for unknown target words alone: how often the right source word is copied.
"""

import argparse
import logging
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

import fairseq.options
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerDecoderBase

import lv_fairseq
from lv_fairseq.decoding.attention import Heads, attention_of, heads_of
from lv_fairseq.decoding.source_text import word_places
from lv_fairseq.errors import UserError, command
from lv_fairseq.large_vocabulary import keep_attention

Link = Tuple[int, int]  # places of a source word and of a target word


def load_task(data: str, subset: str):
    flags = [data, "--task", "lv_translation", "--path", "-", "--user-dir", str(Path(lv_fairseq.__file__).parent)]
    args = fairseq.options.parse_args_and_arch(fairseq.options.get_generation_parser(), flags)
    task = tasks.setup_task(convert_namespace_to_omegaconf(args).task)
    task.load_dataset(subset)
    return task


def read_alignments(path: Path, sentences: int) -> List[Set[Link]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [{tuple(map(int, link.split("-"))) for link in line.split()} for line in lines]
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the alignments {path}: {error}") from None
    if len(found) != sentences:
        raise UserError(f"{path} has {len(found):,} lines, the data {sentences:,} sentences")
    return found


def rows_of(model) -> Dict[str, Optional[Heads]]:
    """What is measured of a model, and its names."""
    taken = heads_of(model, None, None)
    if not isinstance(model.decoder, TransformerDecoderBase):
        return {"*": None}
    last = len(model.decoder.layers) - 1
    rows = {
        f"layer {i}": heads_of(model, i, layer.encoder_attn.num_heads) for i, layer in enumerate(model.decoder.layers)
    }
    if taken is None:
        rows[f"layer {last} *"] = rows.pop(f"layer {last}")
    else:
        rows[f"layer {taken.alignment_layer}, heads {taken.alignment_heads} *"] = taken
    return rows


def batches(dataset, size: int = 32) -> Iterator[Dict]:
    for start in range(0, len(dataset), size):
        yield dataset.collater([dataset[i] for i in range(start, min(start + size, len(dataset)))])


@torch.no_grad()
def look(model, heads: Optional[Heads], task, dataset) -> Iterator[Tuple[int, List[int], List[int]]]:
    """Of each sentence its number, its target words, and the places of the source words that these look at most."""
    pad = task.source_dictionary.pad()
    for batch in batches(dataset):
        inputs = batch["net_input"]
        encoder_out = model.encoder.forward_torchscript(inputs)
        attention = attention_of(model, heads, encoder_out, inputs["prev_output_tokens"])
        turned = getattr(model.encoder, "left_pad", False) and bool(inputs["src_tokens"][:, 0].eq(pad).any())
        for row, number in enumerate(batch["id"].tolist()):
            tokens = inputs["src_tokens"][row]
            places = word_places(tokens, int(tokens.ne(pad).sum()) - 1, pad, turned)
            target = batch["target"][row]
            target = target[target.ne(task.target_dictionary.pad())][:-1]
            yield number, target.tolist(), attention[row, : len(target)][:, places].argmax(dim=1).tolist()


def measure(looked: Iterator[Tuple[int, List[int], List[int]]], alignments: List[Set[Link]], unk: int) -> List[float]:
    right = aligned = common = made = sure = copied = unknown = 0
    for number, target, sources in looked:
        known = alignments[number]
        with_link = {j for _, j in known}
        sure, made = sure + len(known), made + len(target)
        for j, (word, i) in enumerate(zip(target, sources)):
            common += (i, j) in known
            if j in with_link:
                aligned, right = aligned + 1, right + ((i, j) in known)
                unknown, copied = unknown + (word == unk), copied + (word == unk and (i, j) in known)
    return [100 * right / max(aligned, 1), 100 * (1 - 2 * common / max(made + sure, 1)), 100 * copied / max(unknown, 1)]


@command
def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="what fairseq-preprocess has written")
    parser.add_argument("--alignments", type=Path, required=True, help="of the subset, each line as 0-0 2-1")
    parser.add_argument("--subset", default="test", help="(default: test)")
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT")
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    lv_fairseq.register()
    torch.set_num_threads(1)
    task = load_task(args.data, args.subset)
    dataset, unk = task.dataset(args.subset), task.target_dictionary.unk()
    alignments = read_alignments(args.alignments, len(dataset))
    print(f"{'':58}{'right %':>10}{'AER %':>10}{'copied %':>10}")
    for path in args.checkpoints:
        (model,), cfg = checkpoint_utils.load_model_ensemble([path], task=task)
        keep_attention([model.eval()])
        for name, heads in rows_of(model).items():
            figures = measure(look(model, heads, task, dataset), alignments, unk)
            print(
                f"{f'{Path(path).parent.name}, {name}':58}" + "".join(f"{figure:10.1f}" for figure in figures),
                flush=True,
            )


if __name__ == "__main__":
    main()
