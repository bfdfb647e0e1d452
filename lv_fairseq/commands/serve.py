"""``lv-serve``: a page and an API for a trained model."""

import argparse
import logging
import os
import sys
from typing import Callable, List, Optional, Sequence, Tuple

from lv_fairseq.errors import UserError, behind, command
from lv_fairseq.processes import signals_as_exit

logger = logging.getLogger("lv_fairseq.serving")

USAGE = "lv-serve DATA --path CHECKPOINT [flags]; lv-serve --help lists them"
DESCRIPTION = """\
Serves a trained model: a page to play with, and a JSON API (POST /translate with {"text": "..."}).

  lv-serve data --path model/checkpoint_best.pt --lexicon lexicon --candidate-frequent 5000 \\
      --unk-replacement lexicon-lowercase --copy-rare-words 20 --port 8000

Sentences are taken as fairseq-interactive takes them: in the words that the model was trained on, or as people type
them with the --tokenizer or --bpe that its text was made with (scripts/prepare prints them). The flags of lv-serve
itself (--host, --port, --timeout, ...) are the last ones below; all others are those of fairseq-interactive.
"""
LOG = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"  # as fairseq's commands


def add_flags(add) -> None:
    add("--host", default="127.0.0.1", metavar="NAME", help="address to listen at (default: 127.0.0.1, this machine)")
    add("--port", type=int, default=8000, metavar="N", help="port to listen at; 0 = any that is free (default: 8000)")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name by which requests may call a server of this machine, such as that of a proxy before it",
    )
    add(
        "--max-request-words",
        type=int,
        default=200,
        metavar="N",
        help="most words of a sentence, in the tokens of the model (default: 200)",
    )
    add(
        "--max-request-sentences",
        type=int,
        default=64,
        metavar="N",
        help="most sentences of a request (default: 64)",
    )
    add(
        "--max-queue",
        type=int,
        default=1000,
        metavar="N",
        help="most sentences that may wait; a request beyond them is told to come later (default: 1000)",
    )
    add("--timeout", type=float, default=30, metavar="S", help="most seconds that a request may take (default: 30)")


def parse_args(argv: Optional[Sequence[str]]) -> Tuple[argparse.Namespace, List[str]]:
    """Our flags, and the rest, which is for fairseq-interactive."""
    parser = argparse.ArgumentParser(
        prog="lv-serve",
        add_help=False,
        allow_abbrev=False,
        description="Serves a trained model, as a page and as an API: lv-serve DATA --path CHECKPOINT. Beside these "
        "flags it takes those of fairseq-interactive.",
    )
    add_flags(parser.add_argument)
    args, others = parser.parse_known_args(argv)
    for name in ("max_request_words", "max_request_sentences", "timeout"):
        if not getattr(args, name) > 0:
            raise UserError(f"--{name.replace('_', '-')} must be more than 0, not {getattr(args, name)}")
    if args.max_queue < 0:
        raise UserError(f"--max-queue must be 0 or more, not {args.max_queue}")
    if not 0 <= args.port < 65536:
        raise UserError(f"--port must be from 0 to 65535, not {args.port}")
    return args, others


def configure(flags: Sequence[str]):
    """fairseq's configuration, of the flags of fairseq-interactive."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    import lv_fairseq.models.rnnsearch
    import lv_fairseq.tasks.lv_translation
    import lv_fairseq.tasks.lv_translation_from_pretrained_bart
    import lv_fairseq.tasks.lv_translation_multi_simple_epoch  # noqa: F401

    flags, arguments = without_own_user_dir(flags), sys.argv
    try:
        sys.argv = arguments[:1]  # where fairseq looks for --user-dir by itself
        parser = options.get_interactive_generation_parser(default_task="lv_translation")
    finally:
        sys.argv = arguments
    parser.prog, parser.usage, parser.description = "lv-serve", USAGE, DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_flags(parser.add_argument_group("lv-serve").add_argument)
    return in_one_line(lambda: convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, flags)))


def without_own_user_dir(flags: Sequence[str]) -> List[str]:
    """fairseq-interactive needs --user-dir lv_fairseq; here it is imported already, perhaps from another place."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir")
    args, others = parser.parse_known_args(flags)
    own = args.user_dir is None or os.path.basename(os.path.normpath(args.user_dir)) == "lv_fairseq"
    return others if own else ["--user-dir", args.user_dir, *others]


def in_one_line(work: Callable):
    """The result of some work of fairseq; whatever it says of wrong flags is said in one line."""
    from lv_fairseq.fairseq_patches.commands import wrong_flags

    try:
        return work()
    except Exception as error:
        line = behind(error) or wrong_flags(error)
        if line is None:
            raise
        raise UserError(str(line)) from None


@command
@signals_as_exit()
def main(argv: Optional[Sequence[str]] = None) -> None:
    logging.basicConfig(format=LOG, datefmt="%Y-%m-%d %H:%M:%S", level=os.environ.get("LOGLEVEL", "INFO").upper())
    args, others = parse_args(argv)
    try:
        from lv_fairseq.serving import api, server
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in ("starlette", "uvicorn"):
            raise
        raise UserError(f"lv-serve needs {missing}: pip install 'lv_fairseq[serve]'") from None
    from lv_fairseq.serving.translator import Translator
    from lv_fairseq.serving.worker import Worker

    cfg = configure(others)
    bound = server.bind(args.host, args.port)
    translator = in_one_line(lambda: Translator(cfg, args.max_request_words))
    worker = Worker(translator, args.max_queue)
    limits = api.Limits(translator.most_words, args.max_request_sentences, args.timeout)
    hosts = server.known_hosts(bound, args.host, args.allow_host)
    if hosts is None:
        logger.warning("whoever reaches %s may use this server: it asks for no password", args.host)
    logging.getLogger("fairseq.tasks").setLevel(logging.WARNING)  # four lines for each batch
    server.serve(api.application(worker, limits, hosts), worker, bound)


if __name__ == "__main__":
    main()
