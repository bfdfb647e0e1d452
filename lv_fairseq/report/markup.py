"""HTML from Python: `tag` makes an element, and whatever is not `Html` already is escaped on its way in."""

import html
from typing import Iterable

VOID = {"meta", "link", "br"}


class Html(str):
    """Text that is HTML; all other text is escaped before it becomes part of a page."""


def escaped(text) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(str(text), quote=True))


def join(parts: Iterable, between: str = "") -> Html:
    return Html(between.join(escaped(part) for part in parts))


def tag(element: str, *inside, **attributes) -> Html:
    """An element; ``class_`` and ``http_equiv`` become class and http-equiv. An attribute that is None is left out."""
    pairs = (
        f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    opening = f"<{element}{''.join(pairs)}>"
    return Html(opening if element in VOID else f"{opening}{join(inside)}</{element}>")
