"""Scores what fairseq-generate printed: detokenised with sacrebleu, and tokenised as the paper does.

    fairseq-generate runs/own/data --user-dir lv_fairseq --task lv_translation --path ... > runs/own/test.out
    scripts/score runs/own runs/own/test.out

runs/own is a folder that scripts/prepare made. Detokenised translations are written beside the output (.hyp), in the
order of the text. Tokenised BLEU is over the words of the output and of the reference, as multi-bleu.perl counts them.
Names are words of the source text outside its dictionary that the reference has too; with subwords there are none.
"""

import argparse
import re
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import sacrebleu
from names import count_names, shown
from preparation import folder as prepared
from preparation.text import read_lines
from programs import Parser, file_errors

from lv_fairseq.errors import UserError, command
from lv_fairseq.files import written_whole
from lv_fairseq.fingerprint import dictionary_words
from lv_fairseq.processes import printing, signals_as_exit
from lv_fairseq.report.scores import bootstrap

UNKNOWN = "\u2047"


def best_hypotheses(path: Path) -> List[str]:
    """The first hypothesis of each sentence, as it was generated, in the order of the text."""
    found: Dict[int, str] = {}
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                match = re.match(r"H-([0-9]+)\t[^\t]*\t(.*)", line.rstrip("\n"))
                if match:
                    found.setdefault(int(match.group(1)), match.group(2))
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8: is it what fairseq-generate printed?") from None
    if sorted(found) != list(range(len(found))) or not found:
        raise UserError(f"{path} is not the whole output of fairseq-generate: sentences are missing")
    return [found[i] for i in range(len(found))]


def detokenise(lines: List[str], segmentation: str, language: str) -> List[str]:
    """Running text. Unknown words become one character, as sentencepiece writes them: sacrebleu takes <unk> apart into
    three tokens, and would punish an unknown word three times."""
    lines = [line.replace("<unk>", UNKNOWN) for line in lines]
    if segmentation == "sentencepiece":
        return [" ".join(join_pieces(line).replace(UNKNOWN, f" {UNKNOWN} ").split()) for line in lines]
    import sacremoses

    detokenizer = sacremoses.MosesDetokenizer(language)
    return [detokenizer.detokenize(line.split(), unescape=False) for line in lines]


def join_pieces(line: str) -> str:
    return line.replace(" ", "").replace("\u2581", " ")


def tokenise(lines: List[str], language: str) -> List[str]:
    import sacremoses

    tokenizer = sacremoses.MosesTokenizer(language)
    return [tokenizer.tokenize(line, return_str=True, escape=False) for line in lines]


def score(folder: Path, output: Path, subset: str, sentences: Optional[int] = None) -> Tuple[List[str], Dict]:
    """Detokenised translations, and their scores. With ``sentences``, of the first ones of the text only."""
    settings = prepared.read(folder)
    language, segmentation = settings["target_lang"], settings["segmentation"]
    reference = read_lines(prepared.text_of(folder, subset, language))[:sentences]
    hypotheses = best_hypotheses(output)
    if len(reference) != len(hypotheses):
        raise UserError(f"{output} has {len(hypotheses):,} sentences, the {subset} text {len(reference):,}")
    detokenised = detokenise(hypotheses, segmentation, language)
    words = hypotheses if segmentation == "words" else tokenise(detokenised, language)
    (bleu,), signature = bootstrap((tuple(detokenised),), tuple(reference), signature="")
    chrf = sacrebleu.CHRF()
    tokenised = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    scores = {
        "bleu": float(bleu.score),
        "interval": float(bleu.ci),
        "signature": signature,
        "chrf": chrf.corpus_score(detokenised, [reference]).score,
        "tokenised_bleu": tokenised.corpus_score(words, [tokenise(reference, language)]).score,
    }
    if segmentation == "words":
        scores["names"] = score_names(folder, subset, hypotheses)
    return detokenised, scores


def score_names(folder: Path, subset: str, hypotheses: List[str]) -> Dict[str, int]:
    """Names that arrived in translations of a subset, or of its first sentences. They are outside the dictionary of all
    words of the folder, whichever words a model knows, so that models can be compared."""
    about = prepared.read(folder)
    languages = about["source_lang"], about["target_lang"]
    texts = [read_lines(prepared.text_of(folder, subset, x, "text"))[: len(hypotheses)] for x in languages]
    known = frozenset(dictionary_words(folder / "data" / f"dict.{languages[0]}.txt"))
    return count_names(*texts, hypotheses, known)


def beside(output: Path) -> Path:
    """Where the detokenised translations of an output go."""
    path = output.with_suffix(".hyp")
    if path.exists() and path.samefile(output):
        raise UserError(f"the translations are written to {path}: give what fairseq-generate printed another name")
    return path


def write_hypotheses(path: Path, lines: List[str]) -> None:
    with written_whole(path) as file:
        file.writelines(line.encode() + b"\n" for line in lines)


@printing()
def show(scores: Dict) -> None:
    print(f"BLEU {scores['bleu']:.2f} \u00b1 {scores['interval']:.2f}  {scores['signature']}")
    print(f"chrF {scores['chrf']:.2f}")
    print(f"BLEU of words, cased (multi-bleu): {scores['tokenised_bleu']:.2f}")
    if "names" in scores:
        print(f"names {shown(scores['names'])} (source words outside the dictionary that the reference has)")


@command
@signals_as_exit("nothing was written")
@file_errors()
def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = Parser(prog="score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what scripts/prepare made")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="what fairseq-generate printed")
    parser.add_argument("--subset", default="test", help="valid or test (default: test)")
    args = parser.parse_args(argv)
    if args.subset not in ("valid", "test"):
        parser.error(f"--subset is valid (the development text) or test, not {args.subset}")
    if not args.output.is_file():
        raise UserError(f"there is no {args.output}")
    hypotheses = beside(args.output)
    detokenised, scores = score(args.folder, args.output, args.subset)
    write_hypotheses(hypotheses, detokenised)
    show(scores)
