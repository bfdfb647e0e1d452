"""The page: one file that fetches nothing but this server's own answers, with the colours of reports."""

import base64
import hashlib
import re
from functools import cache
from importlib import resources

from lv_fairseq.report.palette import variables


@cache
def page() -> str:
    text = resources.files("lv_fairseq.serving").joinpath("page.html").read_text(encoding="utf-8")
    return text.replace("/*light*/", variables("light")).replace("/*dark*/", variables("dark"))


def hashed(element: str) -> str:
    """What a policy calls the script, or the style, of the page."""
    inside = re.search(rf"<{element}>(.*?)</{element}>", page(), re.DOTALL).group(1)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"


# nothing runs that is not in the file, whatever a text may hold
POLICY = (
    f"default-src 'none'; script-src {hashed('script')}; style-src {hashed('style')}; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
