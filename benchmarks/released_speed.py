"""Decoding speed of a model like NLLB-200, with lists and without, beside plain fairseq and CTranslate2.

    make .venv-peers/.installed                      # CTranslate2, once; without it its rows say that it is absent
    python benchmarks/released_speed.py              # 256,206 rows, 512 dims, 6 layers; 5 minutes

A model with random weights and the structure of NLLB-200 (scripts/small_released_model.py) translates the same
sentences, on one thread, with the plug-in over all words and over lists of K frequent words and K' translations of each
source word, with fairseq alone, and with CTranslate2 over the same weights: over all words, and over the same lists by
its vmap. They take turns. What counts is the processor's time, which other work on the machine disturbs less. Random
weights do not know when to end: every sentence gets the same number of words from all of them.

Frequent words and translations are drawn from all rows, so that no list is a slice of the table. "same": translations
that have the words of the plug-in's, all words or lists; the rest differ by rounding, or, in a batch, because
CTranslate2 lets its sentences share their lists.
"""

import argparse
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import lv_fairseq
from lv_fairseq.lexicon import Lexicon
from lv_fairseq.lexicon.entries import Entries

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import small_released_model  # noqa: E402
from side_by_side.ctranslate import convert, ctranslate2_at  # noqa: E402

SOURCE, TARGET = "eng_Latn", "deu_Latn"
PEERS = ROOT / ".venv-peers" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def token(language: str) -> str:
    return f"__{language}__"


def drawn_lists(words: Sequence[str], args: Namespace) -> Tuple[List[str], Dict[str, List[str]]]:
    """Frequent words, and translations of the words that sentences are made of."""
    random = np.random.default_rng(1)
    frequent = [words[i] for i in random.choice(len(words), args.frequent, replace=False)]
    sources = [words[i] for i in random.choice(len(words), args.source_words, replace=False)]
    found = random.integers(0, len(words), (len(sources), args.per_word))
    return frequent, {source: [words[i] for i in row] for source, row in zip(sources, found)}


def write_lists(folder: Path, frequent: List[str], translations: Dict[str, List[str]]) -> List[str]:
    """Our flags for them; beside these files is vmap, for CTranslate2, with the same words."""
    counted = "".join(f"{word} {len(frequent) - place}\n" for place, word in enumerate(frequent))
    (folder / "frequent.txt").write_text(counted, encoding="utf-8")
    entries = Entries()
    for source, targets in translations.items():
        entries.add([source.encode()] * len(targets), [x.encode() for x in targets], np.full(len(targets), -1.0))
    Lexicon.of(entries, {"dictionaries": {}}).save(folder / "lexicon")
    lines = [f"\t{' '.join([*frequent, token(TARGET)])}\n"]
    lines += [f"{source}\t{' '.join(targets)}\n" for source, targets in translations.items()]
    (folder / "vmap").write_text("".join(lines), encoding="utf-8")
    flags = {"--lexicon": folder / "lexicon", "--frequent-words": folder / "frequent.txt"}
    most = max(map(len, translations.values()))
    flags |= {"--candidate-frequent": len(frequent), "--candidate-per-word": most, "--candidate-retries": 0}
    return [str(x) for flag in flags.items() for x in flag]


class OfFairseq:
    """fairseq's task and model, with the plug-in or without, as fairseq-generate opens them.

    Args:
        flags: of the task
        length: words of a translation besides the language token
    """

    def __init__(self, folder: Path, task: str, flags: Sequence[str], length: int):
        arguments = [folder / "data", "--task", task, *flags, "-s", SOURCE, "-t", TARGET, "--cpu"]
        arguments += ["--path", folder / "checkpoint.pt", "--min-len", length + 1, "--max-len-b", length + 1]
        parsed = options.parse_args_and_arch(options.get_generation_parser(), [str(x) for x in arguments])
        self.cfg = cfg = convert_namespace_to_omegaconf(parsed)
        self.task = tasks.setup_task(cfg.task)
        self.models, _ = checkpoint_utils.load_model_ensemble([cfg.common_eval.path], task=self.task)
        for model in self.models:
            model.prepare_for_inference_(cfg)

    def search(self, beam: int) -> None:
        self.cfg.generation.beam = beam
        self.generator = self.task.build_generator(self.models, self.cfg.generation)

    def __call__(self, sentences: List[List[str]]) -> List[List[str]]:
        words = self.task.source_dictionary
        rows = [[words.index(token(SOURCE)), *map(words.index, sentence), words.eos()] for sentence in sentences]
        numbers = torch.tensor(rows)
        lengths = numbers.ne(words.pad()).sum(dim=1)
        sample = {"net_input": {"src_tokens": numbers, "src_lengths": lengths}}
        found = self.task.inference_step(self.generator, self.models, sample)
        return [[self.task.target_dictionary[i] for i in best["tokens"].tolist()[1:-1]] for best, *_ in found]


class OfCTranslate2:
    """
    Args:
        opened: its translator
        listed: by its vmap
    """

    def __init__(self, opened, listed: bool, length: int):
        self.opened = opened
        self.how = {"use_vmap": listed, "min_decoding_length": length + 1, "max_decoding_length": length + 1}

    def search(self, beam: int) -> None:
        self.how["beam_size"] = beam

    def __call__(self, sentences: List[List[str]]) -> List[List[str]]:
        sources = [[token(SOURCE), *sentence] for sentence in sentences]
        found = self.opened.translate_batch(sources, [[token(TARGET)]] * len(sources), **self.how)
        return [result.hypotheses[0][1:] for result in found]


def all_words(folder: Path) -> Dictionary:
    """Of the checkpoint's rows: fairseq alone is given them by a file, since it does not know of NLLB's tags."""
    words = Dictionary.load(str(folder / "dictionary.txt"))
    languages = (folder / "languages.txt").read_text(encoding="utf-8").split()
    for word in (*map(token, languages), *small_released_model.TAGS):
        words.add_symbol(word)
    words.save(str(folder / "all.txt"))
    return words


def of_fairseq(folder: Path, lists: List[str], length: int) -> Dict[str, OfFairseq]:
    """Who translates with fairseq, and over which words."""
    languages = (folder / "languages.txt").read_text(encoding="utf-8").split()
    nllb = small_released_model.KINDS["nllb"]
    flags = small_released_model.flags_of(nllb, folder, languages, [f"{SOURCE}-{TARGET}"])
    fixed = [*flags, "--fixed-dictionary", str(folder / "all.txt")]
    return {
        "all words": OfFairseq(folder, f"lv_{nllb.task}", flags, length),
        "lists": OfFairseq(folder, f"lv_{nllb.task}", [*flags, *lists], length),
        "fairseq alone": OfFairseq(folder, nllb.task, fixed, length),
    }


def of_ctranslate2(folder: Path, args: Namespace, model, dictionary: Dictionary) -> Dict[str, OfCTranslate2]:
    module = ctranslate2_at(args.peers)
    if module is None:
        print(f"CTranslate2 is absent: it is not in {args.peers}")
        return {}
    print(f"CTranslate2 {module.__version__}")
    found = {}
    for kind in ("float32", "int8")[: 1 if args.no_int8 else 2]:
        convert(model, dictionary, folder / "vmap", folder / kind, kind)
        opened = module.Translator(str(folder / kind), compute_type=kind, inter_threads=1, intra_threads=1)
        found[f"CTranslate2 {kind}"] = OfCTranslate2(opened, False, args.length)
        found[f"CTranslate2 {kind}, vmap"] = OfCTranslate2(opened, True, args.length)
    return found


def measure(
    found: Dict[str, Union[OfFairseq, OfCTranslate2]], sources: Sequence[str], args: Namespace, beam: int, batch: int
) -> None:
    """Some batches with each, in turns, and a table; the first batch is not counted."""
    random = np.random.default_rng(2)
    seconds: Dict[str, List[float]] = {name: [] for name in found}
    same: Dict[str, int] = dict.fromkeys(found, 0)
    for _ in range(args.turns + 1):
        sentences = [[sources[i] for i in row] for row in random.integers(0, len(sources), (batch, args.length))]
        said = {}
        for name, translate in found.items():
            start = time.process_time()
            said[name] = translate(sentences)
            seconds[name].append((time.process_time() - start) / (batch * args.length))
            assert all(len(words) == args.length for words in said[name]), f"{name}: other lengths"
        for name in found:
            like = said["lists" if name.endswith(("lists", "vmap")) else "all words"]
            same[name] += sum(a == b for a, b in zip(said[name], like))
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    print(f"{f'beam {beam}, batches of {batch}':34}{'ms a word':>10}{'least':>9}{'most':>9}{'to lists':>10}{'same':>8}")
    for name, times in seconds.items():
        row = [1000 * x for x in (medians[name], min(times[1:]), max(times[1:]))]
        ratio, share = medians[name] / medians["lists"], same[name] / (batch * (args.turns + 1))
        print(f"{name:34}{row[0]:10.2f}{row[1]:9.2f}{row[2]:9.2f}{ratio:10.2f}{100 * share:7.0f}%")
    print(flush=True)


def parse_args(argv: Optional[Sequence[str]]) -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rows", type=int, default=256_206, help="of the word table (256206)")
    add("--dim", type=int, default=512, help="of word vectors (512)")
    add("--layers", type=int, default=6, help="of encoder and decoder (6)")
    add("--heads", type=int, default=8, help="of attention (8)")
    add("--frequent", type=int, default=5000, help="K (5000)")
    add("--per-word", type=int, default=10, help="K' (10)")
    add("--source-words", type=int, default=2000, help="different words that sentences are made of (2000)")
    add("--length", type=int, default=20, help="words of a sentence and of its translation (20)")
    add("--beam", type=int, nargs="+", default=[1, 5], help="(1 5)")
    add("--batch", type=int, nargs="+", default=[1, 8], help="sentences that are translated together (1 8)")
    add("--turns", type=int, default=4, help="batches to translate with each (4)")
    add("--no-int8", action="store_true", help="leave out CTranslate2's 8-bit weights")
    add("--peers", type=Path, default=PEERS, metavar="DIR", help="where CTranslate2 is (.venv-peers/...)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = parse_args(argv)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    lv_fairseq.register()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        sizes = [x for name in ("rows", "dim", "layers", "heads") for x in (f"--{name}", getattr(args, name))]
        small_released_model.main([str(x) for x in ("nllb", "--out", folder, *sizes)])
        dictionary = all_words(folder)
        words = dictionary.symbols[dictionary.nspecial : dictionary.index(token(SOURCE))]
        frequent, translations = drawn_lists(words, args)
        lists = write_lists(folder, frequent, translations)
        print(f"torch {torch.__version__}, 1 thread, {len(dictionary):,} rows, {args.dim} dims, {args.layers} layers")
        found = of_fairseq(folder, lists, args.length)
        found |= of_ctranslate2(folder, args, found["fairseq alone"].models[0], dictionary)
        for beam in args.beam:
            for translate in found.values():
                translate.search(beam)
            for batch in args.batch:
                measure(found, list(translations), args, beam, batch)
        print(found["lists"].task.decoding.statistics.summary())


if __name__ == "__main__":
    main()
