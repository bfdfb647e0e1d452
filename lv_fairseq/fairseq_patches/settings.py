"""Settings that are text to compute with, such as ``[(512, 3)] * 20``: numbers are computed, code is not run.

fairseq hands such text to ``eval``, whether it was typed or comes from a checkpoint that somebody else made.
"""

import ast
import sys
from collections.abc import Callable

from lv_fairseq.errors import UserError

MOST = 10_000  # characters of a text, and elements of what it stands for


def run_no_code() -> None:
    """Let every module of fairseq that is loaded find one of the functions below under the name of ``eval``."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq":
            module.eval = numbers if name.startswith("fairseq.models.") else literals


def numbers(text: str):
    """Lists and tuples of numbers, True and False, put together with + and *: what a model is made from."""
    return checked(text, lambda: limited(computed(ast.parse(text.strip(), mode="eval").body)))


def literals(text: str):
    """The same, or any other value that can be written down."""
    try:
        return numbers(text)
    except UserError:
        return checked(text, lambda: ast.literal_eval(text))


def checked(text: str, compute: Callable):
    if not isinstance(text, str):  # as eval does, by which fairseq tells that there is nothing to compute
        raise TypeError(f"a setting is {type(text).__name__}, not text")
    try:
        if len(text) <= MOST:
            return compute()
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError):
        pass
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise UserError(
        f"a setting is {' '.join(shown.split())!r}, where only numbers, brackets, commas, +, *, True and False may "
        "stand: nothing of it was run. If you did not type it, do not trust the checkpoint that it comes from"
    )


def computed(node: ast.AST):
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return limited(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=parts):
            return [computed(part) for part in parts]
        case ast.Tuple(elts=parts):
            return tuple(computed(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return limited(computed(left) + computed(right))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            left, right = computed(left), computed(right)
            for some, times in ((left, right), (right, left)):
                if isinstance(some, list | tuple) and not (isinstance(times, int) and size(some) * times <= MOST):
                    raise ValueError("too many elements")
            return limited(left * right)
    raise ValueError("neither a number nor a list")


def limited(value):
    """The value, if it is not larger than any model's."""
    if isinstance(value, list | tuple) and size(value) > MOST or isinstance(value, int | float) and abs(value) > 1e15:
        raise ValueError("too large")
    return value


def size(value) -> int:
    return 1 + sum(map(size, value)) if isinstance(value, list | tuple) else 1
