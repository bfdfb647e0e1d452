"""Models of Marian's with random weights, of the sizes and with the words of ours."""

from argparse import Namespace
from pathlib import Path
from typing import Dict, List

import numpy as np

from lv_fairseq import processes

NEVER = -1e4  # the bias of a word that is not to be chosen


def make_vocabularies(data: Path, folder: Path, joined: bool) -> List[Path]:
    """Of the dictionaries of fairseq's data."""
    found = {}
    for side in ("tgt",) if joined else ("src", "tgt"):
        lines = (data / f"dict.{side}.txt").read_text(encoding="utf-8").splitlines()
        found[side] = folder / f"vocabulary.{side}.txt"
        words = ["</s>", "<unk>", *(line.rpartition(" ")[0] for line in lines)]
        found[side].write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return [found.get("src", found["tgt"]), found["tgt"]]


def sizes_of(arch: str, sizes: Dict[str, int], args: Namespace) -> Dict[str, object]:
    """Its flags for the sizes of one of our models."""
    if arch == "rnnsearch":
        return {"type": "s2s", "dim-emb": sizes["decoder_embed_dim"], "dim-rnn": sizes["decoder_hidden_size"]}
    flags = {"type": "transformer", "dim-emb": sizes["decoder_embed_dim"], "transformer-heads": args.heads}
    flags |= {"transformer-dim-ffn": sizes["decoder_ffn_embed_dim"], "transformer-ffn-activation": "relu"}
    return {**flags, "enc-depth": args.layers, "dec-depth": args.layers, "tied-embeddings-all": "true"}


def make_model(python: Path, folder: Path, vocabularies: List[Path], sizes: Dict[str, object]) -> Path:
    """One update over one pair of two words gives a model; then no sentence of it ends before its longest length."""
    sets = []
    for side, vocabulary in zip(("src", "tgt"), vocabularies):
        with open(vocabulary, encoding="utf-8") as file:
            words = [next(file).strip() for _ in range(4)][2:]
        sets.append(folder / f"train.{side}")
        sets[-1].write_text(" ".join(words) + "\n", encoding="utf-8")
    trained = folder / "trained.npz"
    flags = {"model": trained, "after": "1u", "optimizer": "sgd", "learn-rate": 1e-6, "mini-batch": 1, "seed": 1}
    flags |= {"cpu-threads": 1, "workspace": 128, **sizes}
    command = [python, "-m", "pymarian", "train", "--train-sets", *sets, "--vocabs", *vocabularies, "--overwrite"]
    command += [x for name, value in flags.items() for x in (f"--{name}", value)]
    processes.run([str(x) for x in command], "Marian")
    (folder / "trained.npz.optimizer.npz").unlink(missing_ok=True)
    with np.load(trained) as stored:
        arrays = {name: stored[name] for name in stored.files}
    (bias,) = (name for name in arrays if name.endswith(("_logit_l2_b", "_logit_out_b")))
    arrays[bias][0, 0] = NEVER  # </s>
    trained.unlink()
    np.savez(folder / "model.npz", **arrays)
    return folder / "model.npz"


def options_of(model: Path, vocabularies: List[Path], threads: int, shortlist: List[object]) -> str:
    """Of marian-decoder: as many words as the source has, and its end.

    Args:
        shortlist: a lexicon's file, K and K'; none: all words
    """
    flags = ["--models", model, "--vocabs", *vocabularies, "--cpu-threads", threads, "--data-threads", 1, "--quiet"]
    flags += ["--max-length-factor", 1, "--mini-batch", 64, "--maxi-batch", 1, "--workspace", 512, "--normalize", 1]
    return " ".join(map(str, [*flags, *(["--shortlist", *shortlist, 0] if shortlist else [])]))
