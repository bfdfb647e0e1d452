"""Make a small model, with random weights, of the structure of NLLB-200, M2M-100, mBART-50 or mBART cc25.

The released files are large. What fails with them fails with these too: task, architecture,
settings in the checkpoint, sentencepiece model, the order of dictionary, language tokens and fillers are the same.

  nllb     plain transformer, translation_multi_simple_epoch, __xx__, and three tags that fairseq does not know of
  m2m      the same task with --fixed-dictionary, fillers after the languages; some pieces are not in the dictionary
  mbart50  mbart_large, the same task with --lang-tok-style mbart: [xx], and <mask>
  mbart25  mbart_large, translation_from_pretrained_bart: a sentence ends with the language token

DIR gets sentencepiece.model, languages.txt, dictionary.txt (m2m: data_dict.txt, model_dict.txt), text and pieces
({train,valid,test}.SRC-TGT.LANG), data (binarised), checkpoint.pt, and model.json, which holds the flags of fairseq:

  python scripts/small_released_model.py nllb --out DIR
  fairseq-generate DIR/data --user-dir lv_fairseq --path DIR/checkpoint.pt -s eng_Latn -t deu_Latn \\
      $(python scripts/small_released_model.py --flags DIR)

For a benchmark with NLLB's own vocabulary: --rows 256206 --dim 512 --layers 6. The same seed makes the same files.
"""

from __future__ import annotations

import argparse
import io
import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple, Optional, Sequence

import numpy as np
import sentencepiece
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.multilingual.multilingual_utils import get_lang_tok
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

SPLITS = ("train", "valid", "test")
TAGS = ("<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>")
FILLERS = 8  # of M2M-100
SPECIALS = 4  # <s>, <pad>, </s>, <unk>
SYLLABLES = [onset + vowel for onset in "b d f g k l m n p r s t v z sch tr".split() for vowel in "aeiou"]
MULTI, BART = "translation_multi_simple_epoch", "translation_from_pretrained_bart"


class Kind(NamedTuple):
    """What the released models differ in.

    Args:
        style: of language tokens
        own: flags of the task
        after: rows after the words and the language tokens
        cut: every so many pieces one is missing in the dictionary; 0: none
        settings: where the checkpoint has them, under "args", flat, or under "cfg"
    """

    task: str
    arch: str
    style: str
    own: tuple
    after: tuple
    cut: int
    settings: str


BEFORE = ("--encoder-normalize-before", "--decoder-normalize-before")
MBART = (*BEFORE, "--layernorm-embedding", "--share-all-embeddings", "--encoder-learned-pos", "--decoder-learned-pos")
TRANSFORMER = (*BEFORE, "--share-all-embeddings")
TOKENS = ("--encoder-langtok", "src", "--decoder-langtok")
KINDS = {
    "nllb": Kind(MULTI, "transformer", "multilingual", TOKENS, TAGS, 0, "cfg"),
    "m2m": Kind(MULTI, "transformer_wmt_en_de_big", "multilingual", TOKENS, (), 7, "args"),
    "mbart50": Kind(MULTI, "mbart_large", "mbart", (*TOKENS, "--lang-tok-style", "mbart"), ("<mask>",), 0, "args"),
    "mbart25": Kind(BART, "mbart_large", "mbart", (), ("<mask>",), 0, "args"),
}


def made_up_texts(languages: Sequence[str], sentences: int, seed: int) -> dict[str, list[str]]:
    """The same sentences in made-up languages: each has words of its own for things, and an order of its own."""
    random = np.random.default_rng([seed, 1])
    words = {}
    for place, language in enumerate(languages):
        own = np.random.default_rng([seed, 2, place])
        letters = [s.replace("a", "äáâãå"[place % 5]) if place % 2 else s for s in SYLLABLES]
        words[language] = ["".join(own.choice(letters, own.integers(1, 4))) for _ in range(400)]
    texts: dict[str, list[str]] = {language: [] for language in languages}
    for _ in range(sentences):
        things = random.zipf(1.3, random.integers(3, 10)) % 400
        number = str(random.integers(1, 2000)) if random.random() < 0.3 else ""
        for place, language in enumerate(languages):
            order = things if place % 2 == 0 else things[::-1]
            line = [words[language][thing] for thing in order]
            texts[language].append(" ".join([line[0].capitalize(), *line[1:], *filter(None, [number])]) + " .")
    return texts


def given_texts(prefix: str, languages: Sequence[str]) -> dict[str, list[str]]:
    """PREFIX.LANG of some of the languages, line by line translations of each other."""
    found = {language: Path(f"{prefix}.{language}") for language in languages}
    texts = {
        language: path.read_text(encoding="utf-8").splitlines() for language, path in found.items() if path.is_file()
    }
    if len(texts) < 2 or len(set(map(len, texts.values()))) != 1:
        sys.exit(f"--text {prefix}: no files {prefix}.LANG of two of {','.join(languages)} with as many lines")
    return texts


def train_pieces(texts: dict[str, list[str]], pieces: int, path: Path) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for lines in texts.values() for line in lines),
        model_writer=model,
        vocab_size=pieces,
        hard_vocab_limit=False,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def word_dictionary(kind: Kind, pieces: sentencepiece.SentencePieceProcessor, rows: int, languages: int) -> Dictionary:
    """The pieces as the release has them, in sentencepiece's order, filled up with words that no text has."""
    dictionary = Dictionary()
    known = [pieces.id_to_piece(i) for i in range(3, len(pieces))]
    for place, piece in enumerate(known):
        rare = place > len(known) // 2 and len(piece) > 1
        if not (kind.cut and rare and place % kind.cut == 0):
            dictionary.add_symbol(piece, len(known) - place)
    others = languages + len(kind.after) + (FILLERS if kind.cut else 0)
    if rows and rows < len(dictionary) + others:
        sys.exit(f"--rows {rows}: there are {len(dictionary) + others} without any filling, take fewer --pieces")
    for number in range(rows - others - len(dictionary)):
        dictionary.add_symbol(f"\u2581w{number:06}", 1)
    return dictionary


def save_dictionaries(kind: Kind, dictionary: Dictionary, out: Path, languages: Sequence[str]) -> None:
    if not kind.cut:
        dictionary.save(str(out / "dictionary.txt"))
        for language in languages:
            dictionary.save(str(out / "data" / f"dict.{language}.txt"))
        return
    dictionary.save(str(out / "data_dict.txt"))
    whole = Dictionary.load(str(out / "data_dict.txt"))
    for language in languages:
        whole.add_symbol(get_lang_tok(language, kind.style))
    for number in range(FILLERS):
        whole.add_symbol(f"madeupword{number:04}", 0)
    whole.save(str(out / "model_dict.txt"))


def write_pair(out: Path, texts: dict, pair: str, parts: dict[str, slice], pieces, dictionary: Dictionary) -> None:
    """Text, pieces and binarised data of a language pair."""
    for split, part in parts.items():
        for language in pair.split("-"):
            lines = texts[language][part]
            segmented = [" ".join(pieces.encode(line, out_type=str)) for line in lines]
            name = f"{split}.{pair}.{language}"
            (out / "text" / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            (out / "pieces" / name).write_text("".join(line + "\n" for line in segmented), encoding="utf-8")
            builder = indexed_dataset.MMapIndexedDatasetBuilder(str(out / "data" / f"{name}.bin"), np.int32)
            for line in segmented:
                builder.add_item(dictionary.encode_line(line, add_if_not_exist=False))
            builder.finalize(str(out / "data" / f"{name}.idx"))


def flags_of(kind: Kind, out: Path, languages: Sequence[str], pairs: Sequence[str]) -> list[str]:
    """Of the task, for all of fairseq's commands; training and decoding need data and languages besides."""
    flags = [*kind.own, "--langs", ",".join(languages)]
    if kind.task == MULTI:
        flags += ["--lang-pairs", ",".join(pairs)]
    if kind.cut:
        flags += ["--fixed-dictionary", str(out / "model_dict.txt")]
    return flags


def architecture(kind: Kind, args: argparse.Namespace) -> list[str]:
    flags = ["--arch", kind.arch, *(MBART if kind.arch == "mbart_large" else TRANSFORMER)]
    for side in ("encoder", "decoder"):
        flags += [f"--{side}-embed-dim", args.dim, f"--{side}-ffn-embed-dim", 4 * args.dim]
        flags += [f"--{side}-layers", args.layers, f"--{side}-attention-heads", args.heads]
    return [str(x) for x in flags]


def draw(model: torch.nn.Module, seed: int, pad: int, ends: dict[int, float]) -> None:
    """Random weights, with which what is said depends on what is read, and sentences come to an end.

    Args:
        ends: words, and by how much they are likelier than others, wherever it is
    """
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if parameter.dim() > 1:
                strong = "layers." in name  # else a word would be said again and again
                parameter.normal_(0, (4 if strong else 1) * parameter.size(-1) ** -0.5, generator=random)
        words = model.decoder.embed_tokens.weight
        words[pad] = 0
        *_, last = (module for name, module in model.decoder.named_modules() if name.endswith("layer_norm"))
        direction = torch.nn.functional.normalize(torch.randn(words.size(1), generator=random), dim=0)
        last.weight *= 2
        last.bias += 2 * direction  # all that is scored has this part
        for word, more in ends.items():
            words[word] += more / 2 * direction


def save_checkpoint(kind: Kind, out: Path, flags: list[str], args: argparse.Namespace, languages) -> None:
    parser = options.get_training_parser()
    settings = options.parse_args_and_arch(parser, [str(out / "data"), *flags, "--optimizer", "adam"])
    if kind.task == BART:
        settings.source_lang, settings.target_lang = args.pairs[0].split("-")
    cfg = convert_namespace_to_omegaconf(settings)
    task = tasks.setup_task(cfg.task)
    for dictionary in {id(x): x for x in (task.source_dictionary, task.target_dictionary)}.values():
        for symbol in kind.after:
            dictionary.add_symbol(symbol)
    torch.manual_seed(args.seed)
    model = task.build_model(cfg.model)
    words = task.target_dictionary
    tokens = {words.index(get_lang_tok(language, kind.style)): 3.0 for language in languages}
    draw(model, args.seed, words.pad(), {words.eos(): 6.0, **tokens})
    if TAGS[0] in kind.after:  # as the branch of fairseq that made NLLB-200 does
        cfg.task.add_data_source_prefix_tags = settings.add_data_source_prefix_tags = True
    state = (model.half() if args.fp16 else model).state_dict()
    history = [{"criterion_name": "LabelSmoothedCrossEntropyCriterion", "optimizer_name": "FairseqAdam"}]
    history[0].update(lr_scheduler_state={}, num_updates=0)
    flat = kind.settings == "args"
    whole = None if flat else OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    if whole:  # what only that branch knows
        whole["model"].moe_freq = 0
    saved = {"args": settings if flat else None, "cfg": whole, "model": state, "optimizer_history": history}
    torch.save({**saved, "extra_state": {}, "last_optimizer_state": None}, out / "checkpoint.pt")


def make(args: argparse.Namespace) -> None:
    kind, out = KINDS[args.kind], args.out.resolve()
    languages = args.languages.split(",") if args.languages else default_languages(args.kind)
    for name in ("text", "pieces", "data"):
        (out / name).mkdir(parents=True, exist_ok=True)
    if args.text:
        texts = given_texts(args.text, languages)
    else:
        texts = made_up_texts(languages[:4], args.sentences, args.seed)
    first = list(texts)
    args.pairs = args.pairs.split(",") if args.pairs else [f"{first[0]}-{first[1]}", f"{first[1]}-{first[0]}"]
    if missing := sorted({x for pair in args.pairs for x in pair.split("-")} - texts.keys()):
        sys.exit(f"--pairs: there is no text of {', '.join(missing)}")
    (out / "languages.txt").write_text("".join(f"{language}\n" for language in languages), encoding="utf-8")
    pieces = train_pieces(texts, args.pieces, out / "sentencepiece.model")
    dictionary = word_dictionary(kind, pieces, args.rows, len(languages))
    save_dictionaries(kind, dictionary, out, languages)
    lines = len(next(iter(texts.values())))
    held = min(args.held_out, lines // 4)
    parts = dict(
        zip(SPLITS, (slice(0, lines - 2 * held), slice(lines - 2 * held, lines - held), slice(lines - held, lines)))
    )
    for pair in args.pairs:
        write_pair(out, texts, pair, parts, pieces, dictionary)
    flags, arch = flags_of(kind, out, languages, args.pairs), architecture(kind, args)
    save_checkpoint(kind, out, ["--task", kind.task, *flags, *arch], args, languages)
    about = {"kind": args.kind, "task": kind.task, "flags": flags, "arch": arch, "pairs": args.pairs}
    about["languages"] = languages
    (out / "model.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def default_languages(kind: str) -> list[str]:
    """Named as the release names them."""
    names = {"nllb": "eng_Latn deu_Latn fra_Latn ces_Latn fin_Latn swh_Latn", "m2m": "en de fr cs fi sw"}
    return names.get(kind, "en_XX de_DE fr_XX cs_CZ fi_FI sw_KE").split()


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=KINDS, help="the released model that it is like")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the files; made if missing")
    parser.add_argument("--flags", type=Path, metavar="DIR", help="print the flags of a model that was made, no more")
    parser.add_argument("--text", metavar="PREFIX", help="PREFIX.LANG instead of made-up sentences")
    parser.add_argument("--languages", metavar="A,B,...", help="all, in the order of their tokens")
    parser.add_argument(
        "--pairs", metavar="A-B,...", help="language pairs with data (default: the first two, both ways)"
    )
    for name, default, text in (
        ("--sentences", 300, "made-up sentences of each language"),
        ("--held-out", 30, "of them for valid, and as many for test"),
        ("--pieces", 300, "of sentencepiece"),
        ("--rows", 0, "of the word table; 0: as many as there are pieces, special symbols and language tokens"),
        ("--dim", 32, "of embeddings; the feed-forward layers have four times as many"),
        ("--layers", 2, "of encoder and decoder"),
        ("--heads", 4, "of attention"),
        ("--seed", 1, "of text and weights"),
    ):
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    parser.add_argument("--fp16", action="store_true", help="weights in half precision, as NLLB-200 has them")
    args = parser.parse_args(argv)
    if args.flags:
        about = json.loads((args.flags / "model.json").read_text(encoding="utf-8"))
        print(shlex.join(["--task", "lv_" + about["task"], *about["flags"]]))
    elif args.kind is None or args.out is None:
        parser.error("name a kind and --out DIR")
    else:
        make(args)


if __name__ == "__main__":
    main()
