"""The colours of page and pictures in the light and the dark scheme. Inks have a contrast of 4.5 or more to paper."""

from typing import Dict, NamedTuple


class Colour(NamedTuple):
    light: str
    dark: str


PALETTE: Dict[str, Colour] = {
    "paper": Colour("#fefefe", "#15181c"),
    "band": Colour("#f2f4f6", "#1f242a"),
    "rule": Colour("#cbd2d9", "#3c444d"),
    "ink": Colour("#1b1f24", "#e6e9ec"),
    "quiet": Colour("#4f5a66", "#a9b3bd"),
    "link": Colour("#0a58a8", "#7db9f5"),
    "mark": Colour("#b3261e", "#ff9d94"),
    "tint": Colour("#fdeeba", "#4a3f12"),
    "heat": Colour("#0b5fa5", "#62b0f2"),
    "line1": Colour("#0b62b0", "#6cb4f5"),
    "line2": Colour("#b8450a", "#f5985a"),
    "line3": Colour("#1a7a4a", "#5fcf95"),
    "line4": Colour("#8a3aa8", "#d79bee"),
    "line5": Colour("#7a6206", "#d9bd4a"),
    "line6": Colour("#b0246e", "#f58cc0"),
    "line7": Colour("#0a7483", "#53c7d8"),
    "line8": Colour("#565f69", "#b4bec8"),
}
LINES = [name for name in PALETTE if name.startswith("line")]


def light(name: str) -> str:
    return PALETTE[name].light


def variables(scheme: str) -> str:
    """The colours of a scheme as CSS variables."""
    return "".join(f"--{name}:{getattr(colour, scheme)};" for name, colour in PALETTE.items())
