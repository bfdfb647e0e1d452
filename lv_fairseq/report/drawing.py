"""From a picture to what stands in a file: SVG inside a page, in the page's colours, or PNG."""

import io
import re
import warnings

import matplotlib

from lv_fairseq.report.figures import STYLE, Picture
from lv_fairseq.report.markup import Html, escaped, tag
from lv_fairseq.report.palette import PALETTE

PNG_DPI, PNG_PIXELS = 200, 5000  # the latter of a side: memory grows with its square
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
NAMES = {colour.light: name for name, colour in PALETTE.items()}


def svg(picture: Picture) -> Html:
    """The picture as an element of a page: labelled, with its colours by name, so that they follow the scheme."""
    out = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": picture.id}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that matplotlib's font has not; the browser's will
        picture.figure.savefig(
            out, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.03, metadata=NO_METADATA
        )
    whole = out.getvalue().decode()
    opening, inside = re.search(r"<svg([^>]*)>(.*)</svg>", whole, re.DOTALL).groups()
    box = re.search(r'viewBox="([^"]+)"', opening).group(1)
    width, height = (float(x) for x in box.split()[2:])
    inside = re.sub(r"<style.*?</style>", "", inside, flags=re.DOTALL)  # it would hold for the whole page
    # every tag, and nothing between tags, where words of the user stand
    inside = re.sub(r"<[^>]+>", lambda found: in_page(found.group(), picture.id), inside)
    label = f"{picture.id}-title"
    return tag(
        "svg",
        tag("title", picture.description, id=label),
        Html(inside),
        class_="scales" if picture.scales else "fixed",
        viewBox=box,
        width=f"{width * 4 / 3:.0f}",
        height=f"{height * 4 / 3:.0f}",
        role="img",
        aria_labelledby=label,
    )


def in_page(tag: str, id: str) -> str:
    """A tag of matplotlib's SVG: identifiers that no other picture has, colours by name, no fonts by name."""
    if tag.startswith(("<!--", "<?", "<!")):
        return ""
    tag = re.sub(r'\b(id=")', rf"\g<1>{escaped(id)}-", tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{escaped(id)}-", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda found: named(found.group()), tag)
    tag = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", tag)
    tag = re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 sans-serif", tag)  # matplotlib before 3.11
    return re.sub(r"\s+", " ", tag)


def named(colour: str) -> str:
    return f"var(--{NAMES[colour]})" if colour in NAMES else colour


def png(picture: Picture) -> bytes:
    out = io.BytesIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dpi = min(PNG_DPI, PNG_PIXELS / max(picture.figure.get_size_inches()))
        picture.figure.savefig(out, format="png", dpi=dpi, facecolor="white", bbox_inches="tight", pad_inches=0.1)
    return out.getvalue()
