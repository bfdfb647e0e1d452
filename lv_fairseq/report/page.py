"""The page: sections of all runs, one style, and nothing that is fetched from anywhere."""

from typing import Sequence, Tuple

from lv_fairseq.report.markup import Html, join, tag
from lv_fairseq.report.palette import variables
from lv_fairseq.report.sections import SET_NAMES, Results, Section, best, shown_part, with_interval
from lv_fairseq.report.tables import NOTHING, table

# whatever a file may have smuggled in: a browser neither runs nor fetches it
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root{color-scheme:light dark;%(light)s}
@media (prefers-color-scheme:dark){:root{%(dark)s}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%%;text-size-adjust:100%%}
body{margin:0 auto;padding:1rem;max-width:70rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0 1rem}
h2{font-size:1.35rem;line-height:1.25;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:3px solid var(--rule)}
h3{font-size:1.15rem;margin:2rem 0 .25rem}
h4{font-size:1rem;margin:1.25rem 0 .25rem}
p{max-width:44rem;margin:.5rem 0}
a{color:var(--link)}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem;list-style:none;margin:.5rem 0;padding:0}
nav a{display:inline-block;padding:.25rem 0}
.quiet,.explanation,nav h2{color:var(--quiet)}
.quiet{font-size:.9rem}
.missing{padding:.5rem .75rem;background:var(--band);border-left:4px solid var(--rule);font-size:.95rem}
.scroll{overflow-x:auto;max-width:100%%;margin:.75rem 0;
background:linear-gradient(90deg,var(--paper) 60%%,transparent) 0/1.5rem 100%% local,
linear-gradient(270deg,var(--paper) 60%%,transparent) 100%%/1.5rem 100%% local,
linear-gradient(90deg,var(--quiet),transparent) 0/.6rem 100%% scroll,
linear-gradient(270deg,var(--quiet),transparent) 100%%/.6rem 100%% scroll;background-repeat:no-repeat}
.scroll:focus-visible{outline:2px solid var(--link)}
table{border-collapse:collapse;font-size:.95rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding:.25rem 0;min-width:16rem}
caption span{display:inline-block;position:sticky;left:0;max-width:calc(100vw - 3rem)}
th,td{padding:.3rem .65rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--rule)}
td{white-space:nowrap}
thead th,thead td{background:var(--band);vertical-align:bottom}
tbody th{font-weight:500;min-width:5rem;max-width:18rem}
th:first-child,.words th,.words td{text-align:left}
.words td,.pairs td{white-space:normal}
.words td{overflow-wrap:break-word}
.pairs tbody th{min-width:9rem;max-width:26rem}
.pairs .name{font-weight:600}
.best{background:var(--tint);padding:.05rem .3rem;margin-right:-.3rem;border-radius:.2rem}
code{font:.85rem/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
.pictures,.beside{display:flex;flex-wrap:wrap;gap:1rem;margin:.75rem 0}
figure{margin:0;flex:1 1 24rem;max-width:30rem;min-width:0}
figure.scroll{flex:0 1 auto;max-width:100%%}
figcaption{font-weight:600;font-size:.9rem;max-width:24rem;padding:0 0 .25rem;position:sticky;left:0}
svg{display:block;overflow:visible;stroke-linejoin:round}
svg.scales{width:100%%;height:auto}
details{margin:.25rem 0}
summary{cursor:pointer;color:var(--link);padding:.25rem 0}
.sentence{margin:1rem 0;padding:.25rem .9rem .6rem;border:1px solid var(--rule);border-radius:.4rem}
dl{margin:0}
dl>div{padding:.3rem 0;border-top:1px solid var(--rule)}
dl>div:first-child{border:0}
dt{font-weight:600;font-size:.9rem}
dd{margin:0}
mark{background:none;color:inherit;text-decoration:underline dotted 2px var(--mark);text-underline-offset:.2em}
.replaced{color:var(--mark);font-weight:600}
@media (min-width:48rem){body{padding:1.5rem 2rem}
table.systems tbody th{min-width:13rem}
dl>div{display:grid;grid-template-columns:13rem 1fr;gap:1rem}}
@media (max-width:30rem){th,td{padding:.3rem .45rem}
tbody th{max-width:8rem;position:sticky;left:0;background:var(--paper);overflow-wrap:break-word}}
@media print{.scroll{overflow:visible}details{display:none}}
""" % {"light": variables("light"), "dark": variables("dark")}  # noqa: UP031


def page(runs: Sequence[Tuple[Results, Sequence[Section]]]) -> str:
    """The whole page as text."""
    names = [results.run.name for results, _ in runs]
    title = names[0] if len(names) == 1 else f"{len(names)} runs: {', '.join(names)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),  # or a browser would ask the server for one
        tag("title", f"{title} \u2013 lv-report"),
        tag("style", Html(STYLE)),
    )
    body = tag("main", *(article(results, sections) for results, sections in runs))
    top = [tag("h1", "Translation report"), contents(runs)]
    if len(runs) > 1:
        top.append(comparison([results for results, _ in runs]))
    return f'<!DOCTYPE html>\n<html lang="en">{head}{tag("body", tag("header", *top), body)}</html>\n'


def contents(runs: Sequence[Tuple[Results, Sequence[Section]]]) -> Html:
    """Links to the sections of each run."""
    lists = []
    for results, sections in runs:
        if len(runs) > 1:
            lists.append(tag("p", tag("strong", tag("a", results.run.name, href=f"#{results.prefix}run"))))
        links = (tag("li", tag("a", section.title, href=f"#{section.id}")) for section in sections)
        lists.append(tag("ul", *links))
    return tag("nav", *lists, aria_label="Sections")


def comparison(everything: Sequence[Results]) -> Html:
    """The best system of each run."""
    rows = []
    for results in everything:
        top = best(results.run, results.scores)
        if top is None:
            rows.append([results.run.name, NOTHING, NOTHING, NOTHING])
        else:
            which, i, scored = top
            rows.append([results.run.name, results.run.systems[i].name, SET_NAMES[which], with_interval(scored)])
    return table("The best system of each run", ["Run", "System", "Set", "BLEU"], rows, kind="words")


def article(results: Results, sections: Sequence[Section]) -> Html:
    inside = [
        tag(
            "section",
            tag("h3", section.title),
            tag("p", section.explanation, class_="explanation"),
            *(shown_part(part) for part in section.parts),
            id=section.id,
        )
        for section in sections
    ]
    return tag("article", tag("h2", results.run.name, id=f"{results.prefix}run"), join(inside))
