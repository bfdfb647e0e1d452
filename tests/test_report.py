"""lv-report: the numbers are sacrebleu's, the page is safe and readable, and what a run lacks is said."""

import copy
import html
import json
import math
import random
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from lv_fairseq.commands.report import main
from lv_fairseq.errors import UserError
from lv_fairseq.report.differences import words_outside
from lv_fairseq.report.page import POLICY
from lv_fairseq.report.run import read_run
from lv_fairseq.report.scores import bootstrap

EVIL = "<script>alert('x')</script>"
SYSTEMS = {"base": "RNNsearch", "lv": 'LV "all" & <b>more</b>', "copy": "A copy of the first"}
SENTENCES = 40


def made_up_texts(folder) -> None:
    """A dev and a test set with outputs: the references, with more or fewer words exchanged."""
    draw = random.Random(1)
    words = [f"w{i}" for i in range(60)] + [EVIL, "&amp;", "$a_1$", "#0b62b0", "Gr\u00fc\u00dfe", "\u4f60\u597d"]
    for which in ("dev", "test"):
        references = [[draw.choice(words) for _ in range(draw.randint(3, 15))] for _ in range(SENTENCES)]
        write(folder / f"{which}.ref", references)
        write(folder / f"{which}.src", [reversed(line) for line in references])
        for system, share in (("base", 0.5), ("lv", 0.3)):
            lines = [[draw.choice(words) if draw.random() < share else word for word in line] for line in references]
            write(folder / f"{system}.{which}.hyp", lines)
        shutil.copy(folder / f"base.{which}.hyp", folder / f"copy.{which}.hyp")


def write(path, lines) -> None:
    path.write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")


def lines(path) -> list:
    return path.read_text(encoding="utf-8").splitlines()


def made_up_results() -> dict:
    def system(id: str, name: str, number: int) -> dict:
        outputs = {
            which: {
                "hypotheses": f"{id}.{which}.hyp",
                "signature": "tok:13a",
                "tokenised_bleu": 20.5 + number,
                "names": {"wanted": 1022, "arrived": 14 * number},
            }
            for which in ("dev", "test")
        }
        decoding = {"ms_per_word": 2.5 * (number + 1), "mean_list": 15210, "replaced": 312, "unknown": 320}
        training = {"seconds": 3661, "updates": 10000}
        return {"id": id, "name": name, "note": EVIL, "decoding": decoding, "training": training, **outputs}

    side = {"tokens": 123456, "types": 7890, "coverage": {"500": 0.8125, "15000": 0.97}}
    points = [{"seconds": 60 * i, "updates": 100 * i, "bits": 9 - math.log(i), "bleu": None} for i in range(1, 9)]
    long_sentence = [f"word{i}" for i in range(45)]
    return {
        "name": f"a run {EVIL}",
        "signature": {"tau": 15000, "K": 15000, "K'": 10, "versions": {"torch": "2.x"}, "machine": "2 cores"},
        "corpus": {"pairs": 200000, "source": side, "target": side},
        "texts": {which: {"source": f"{which}.src", "reference": f"{which}.ref"} for which in ("dev", "test")},
        "systems": [system(id, name, i) for i, (id, name) in enumerate(SYSTEMS.items())],
        "grid": [
            {"K": k, "K'": per_word, "bleu": 10 + per_word / 7, "mean_list": k + 9 * per_word, "coverage": 0.987}
            for k in (15000, 30000)
            for per_word in (0, 1, 10, 50)
        ],
        "curves": [{"system": id, "name": name, "points": points} for id, name in SYSTEMS.items()],
        "attention": [
            {"system": "lv", "source": ["a", EVIL], "target": ["x", "$y$"], "weights": [[0.9, 0.1], [0.2, 0.8]]},
            {
                "system": "lv",
                "source": long_sentence,
                "target": long_sentence,
                "weights": [[1 / 45] * 45] * 45,
                "replaced": [3],
            },
        ],
    }


def without_pictures() -> dict:
    """The same, for tests of what is not drawn."""
    return {name: part for name, part in made_up_results().items() if name not in ("grid", "curves", "attention")}


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """A run folder with its report and pictures."""
    folder = tmp_path_factory.mktemp("run")
    made_up_texts(folder)
    (folder / "results.json").write_text(json.dumps(made_up_results()))
    main([str(folder), "--png", str(folder / "png")])
    return folder


@pytest.fixture(scope="module")
def twice(complete):
    """A page with the same run twice."""
    bootstrap.cache_clear()
    main([str(complete), str(complete), "--out", str(complete / "twice.html")])
    return (complete / "twice.html").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A run folder to spoil."""
    made_up_texts(tmp_path)
    return tmp_path


def report(folder, results) -> str:
    """The page of some results."""
    (folder / "results.json").write_text(json.dumps(results))
    main([str(folder)])
    return page_of(folder)


def page_of(folder) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The elements of a page with their attributes, and the rows of its tables."""

    def __init__(self, text: str):
        super().__init__()
        self.elements, self.rows, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag == "table":
            self.rows.append([])

    def handle_data(self, data):
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def row(self, name: str, having: str) -> list:
        """The row of that name that has a cell in which the text stands."""
        return next(row for row in self.rows if row[:1] == [name] and any(having in cell for cell in row[1:]))


def test_scores_and_intervals_are_those_of_sacrebleu(complete):
    page = Page(page_of(complete))
    for id, name in SYSTEMS.items():
        rows = [row for row in page.rows if row[:1] == [name] and "\u00b1" in row[1]]
        for which, (_, cell, *_) in zip(("dev", "test"), rows):
            hypotheses, references = lines(complete / f"{id}.{which}.hyp"), lines(complete / f"{which}.ref")
            metric = BLEU()
            score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
            assert cell == f"{score.score:.2f} \u00b1 {score._ci:.2f}"
            assert str(metric.get_signature()) in page.text


def test_differences_to_the_first_system_are_tested_by_sacrebleus_paired_bootstrap(complete):
    outputs = [(id, lines(complete / f"{id}.test.hyp")) for id in ("base", "lv")]
    _, result = PairedTest(outputs, {"BLEU": BLEU()}, [lines(complete / "test.ref")], test_type="bs", n_samples=1000)()
    first, second = result["BLEU"]
    cell = Page(page_of(complete)).row(f"{SYSTEMS['lv']} against {SYSTEMS['base']}", "p")[2]
    assert cell == f"{second.score - first.score:+.2f} (p\u00a0=\u00a0{second.p_value:.3f})"


def test_a_system_is_not_significantly_different_from_its_copy(complete):
    name = f"{SYSTEMS['copy']} against {SYSTEMS['base']}"
    assert Page(page_of(complete)).row(name, "") == [name, "same output", "same output"]


def test_a_system_is_compared_with_those_it_names(folder):
    results = without_pictures()
    results["systems"][1]["against"], results["systems"][2]["against"] = [], ["lv", "base"]
    page = Page(report(folder, results))
    names = [row[0] for row in page.rows if row and " against " in row[0]]
    assert names == [f"{SYSTEMS['copy']} against {SYSTEMS[other]}" for other in ("lv", "base")]
    outputs = [(id, lines(folder / f"{id}.dev.hyp")) for id in ("lv", "copy")]
    _, result = PairedTest(outputs, {"BLEU": BLEU()}, [lines(folder / "dev.ref")], test_type="bs", n_samples=1000)()
    first, second = result["BLEU"]
    more = f"{second.score - first.score:+.2f}".replace("-", "\u2212")
    assert page.row(names[0], "p")[1] == f"{more} (p\u00a0=\u00a0{second.p_value:.3f})"


def test_the_best_of_a_column_is_marked_and_named_in_the_summary(complete):
    page = page_of(complete)
    best = re.findall(r'<strong class="best">(.*?)</strong>', page)
    scores = {
        which: BLEU().corpus_score(lines(complete / f"lv.{which}.hyp"), [lines(complete / f"{which}.ref")]).score
        for which in ("dev", "test")
    }
    assert best[0].startswith(f"{scores['dev']:.2f} ") and best[3].startswith(f"{scores['test']:.2f} ")
    assert best[1:3] == best[4:6] == ["22.50", "28 of 1,022"]  # tokenised BLEU and names of another system
    assert f"Best on the test set: <strong>{html.escape(SYSTEMS['lv'])}</strong>" in page


def test_other_numbers_are_those_of_the_results(complete):
    page = Page(page_of(complete))
    assert page.row("500 words", "%") == ["500 words", "81.2 %", "81.2 %"]
    assert page.row("all: types", "7,890")[1:] == ["7,890", "7,890"]
    assert page.row("RNNsearch", "15,210") == ["RNNsearch", "2.5", "1.00", "15,210", "320", "312"]
    assert page.row(SYSTEMS["lv"], "15,210")[1:3] == ["5.0", "2.00"]
    assert page.row("RNNsearch", "1 h 01 min")[2:] == ["1 h 01 min", "10,000"]
    assert page.row("15,000", "11.43") == ["15,000", "10.00", "10.14", "11.43", "17.14"]
    assert page.row("15,000", "98.7 %")[1:] == ["98.7 %"] * 4
    assert page.row("30,000", "30,450")[1:] == ["30,000", "30,009", "30,090", "30,450"]
    assert page.row("versions: torch", "2.x") and page.row("tau", "15,000")
    assert page.row("$y$", "0.80") == ["$y$", EVIL, "0.80"]
    assert page.row("word3 *", "word0")


def test_names_that_arrived_stand_beside_bleu(complete):
    page = Page(page_of(complete))
    heads = next(row for row in page.rows if "names" in row)
    assert [page.row(name, "of 1,022")[heads.index("names")] for name in SYSTEMS.values()] == [
        "0 of 1,022",
        "14 of 1,022",
        "28 of 1,022",
    ]


def test_a_run_of_before_has_no_names(folder):
    results = without_pictures()
    for system in results["systems"]:
        for which in ("dev", "test"):
            del system[which]["names"]
    assert not any("names" in row for row in Page(report(folder, results)).rows)


def test_sentences_side_by_side_are_those_with_the_largest_difference_of_chrf(complete):
    references = lines(complete / "test.ref")
    outputs = [lines(complete / f"{id}.test.hyp") for id in ("base", "lv")]
    metric = CHRF()
    long_enough = [i for i, reference in enumerate(references) if len(reference.split()) >= 5]
    difference = lambda i: abs(
        metric.sentence_score(outputs[0][i], [references[i]]).score
        - metric.sentence_score(outputs[1][i], [references[i]]).score
    )
    expected = sorted(long_enough, key=difference, reverse=True)[:20]
    page = page_of(complete)
    assert [int(number) - 1 for number in re.findall(r"<h4>Sentence (\d+)</h4>", page)] == expected
    first = page[page.index("<h4>Sentence ") :].split("</article>")[0]
    assert html.escape(references[expected[0]]) in first and first.count("<dt>") == 4  # the copy stands with the first


def test_words_outside_the_reference_are_found_whatever_punctuation_is_around():
    found = words_outside("The (red) house , burns!", "the red house burns.")
    assert found == [("The", True), ("(red)", False), ("house", False), (",", False), ("burns!", False)]


def test_words_of_files_never_become_markup(complete):
    page = page_of(complete)
    names = {name for name, _ in Page(page).elements}
    assert not names & {"script", "img", "iframe", "object", "embed", "b"}
    assert "<script" not in page and page.count(html.escape(EVIL)) > 10
    assert "$y$" in page and "&gt;#0b62b0" not in page
    assert not any(key.startswith("on") for _, attributes in Page(page).elements for key in attributes)


def test_nothing_is_fetched_from_anywhere(complete):
    page = page_of(complete)
    for _, attributes in Page(page).elements:
        for key, value in attributes.items():
            if key in ("src", "srcset", "href", "xlink:href", "action", "data", "poster", "background"):
                assert value.startswith("#") or value == "data:,"
            assert "http:" not in (value or "") and "https:" not in (value or "")
    assert all(found == "url(#" for found in re.findall(r"url\(.", page))
    assert "@import" not in page and POLICY.startswith("default-src 'none'") and html.escape(POLICY) in page


def test_identifiers_are_unique_and_links_lead_somewhere(twice):
    elements = Page(twice).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a[key][1:] for _, a in elements for key in ("href", "xlink:href") if a.get(key, "").startswith("#")]
    clips = [a["clip-path"][5:-1] for _, a in elements if "clip-path" in a]
    labels = [a["aria-labelledby"] for _, a in elements if "aria-labelledby" in a]
    assert labels and set(targets + clips + labels) <= set(ids)


def test_tables_and_pictures_can_be_read_aloud(complete):
    elements = Page(page_of(complete)).elements
    count = lambda name: sum(element == name for element, _ in elements)
    assert count("table") == count("caption") > 8
    assert all(attributes.get("scope") in ("row", "col", "colgroup") for name, attributes in elements if name == "th")
    assert all(attributes.get("role") == "img" for name, attributes in elements if name == "svg")
    assert count("svg") + 1 == count("title") == 7  # one for the page


def test_pictures_are_also_png_files(complete):
    names = {path.name for path in (complete / "png").iterdir()}
    expected = ("attention-1", "attention-2", "curves-time", "curves-updates", "grid-bleu", "lists")
    assert {name.rpartition("script-")[2] for name in names} == {f"{name}.png" for name in expected}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (complete / "png").iterdir())


def test_replaced_words_are_marked_by_colour_and_asterisk(complete):
    page = page_of(complete)
    assert re.search(r"<text [^>]*var\(--mark\)[^>]*>word3 \*</text>", page)
    assert "* replaced: word3" in page


def test_attention_of_all_systems_stands_together_by_sentence(folder):
    results = without_pictures()
    one = {"source": ["a", "b"], "target": ["x"], "weights": [[0.9, 0.1]]}
    results["attention"] = [{**one, "system": id, "sentence": number} for number in (7, 3) for id in ("base", "lv")]
    results["attention"].append({**one, "system": "copy", "sentence": 7})
    section = report(folder, results).partition("<h3>Attention</h3>")[2].partition("</section>")[0]
    systems = ["base", "lv", "copy", "base", "lv"]
    found = re.findall(r"<h4>(.*?)</h4>|<figcaption>(.*?)</figcaption>", section)
    captions = [html.escape(SYSTEMS[id]) for id in systems]
    assert [a or b for a, b in found] == ["Sentence 8", *captions[:3], "Sentence 4", *captions[3:]]
    assert section.count("<svg") == section.count("The source word with the largest weight") / 2 == 5


def test_replaced_words_are_marked_side_by_side(folder):
    results = without_pictures()
    write(folder / "lv.test.hyp", [["Vimar,", "EVIL", "w1", "Vimar"]] * SENTENCES)
    results["systems"][1]["test"]["replaced"] = {str(i): ["Vimar", "<unk>", "w1"] for i in range(SENTENCES)}
    page = report(folder, results)
    assert '<span class="replaced">Vimar,*</span></mark> <mark>EVIL</mark>' in page
    first = page[page.index("<h4>Sentence ") :].split("</article>")[0]
    assert first.count('class="replaced"') == 2 and "Vimar</mark>" in first  # each as often as it was replaced


def test_a_learning_curve_of_the_training_text_is_drawn_and_a_single_point_is_in_the_table(folder):
    results = without_pictures()
    points = [{"seconds": 60 * i, "updates": 100 * i, "training_bits": 9 - i} for i in range(1, 6)]
    results["curves"] = [{"name": "lv", "points": [*points, {"seconds": 301, "updates": 501, "bits": 4.125}]}]
    page = report(folder, results)
    assert re.findall(r'id="run1-curves-(\w+)-title"', page) == ["training"]
    assert Page(page).row("lv", "501") == ["lv", "501", "4.12"]


def test_the_same_files_give_the_same_page(complete, twice):
    once = page_of(complete).partition("<main>")[2].partition("</main>")[0]
    assert twice.partition("<main>")[2].startswith(once)


def test_an_empty_run_says_of_each_section_what_is_missing(tmp_path):
    page = report(tmp_path, {})
    assert page.count('class="missing"') == 9
    assert tmp_path.name in page


def test_one_system_without_a_test_set(folder):
    results = without_pictures()
    results["systems"] = results["systems"][:1]
    del results["systems"][0]["test"]
    page = report(folder, results)
    assert "RNNsearch has " in page and "There are no outputs of two systems to compare." in page
    assert 'class="best"' not in page.split("Quality by candidate list")[1].split("BLEU by K")[0]


@pytest.mark.parametrize(
    "spoil, note",
    [
        (lambda f: (f / "lv.test.hyp").unlink(), "(lv.test.hyp) is missing."),
        (lambda f: (f / "lv.test.hyp").write_text("one line\n"), "(lv.test.hyp) has 1 lines, the reference 40."),
        (lambda f: (f / "lv.test.hyp").write_bytes(b"\xff\n"), "(lv.test.hyp) is not UTF-8."),
        (lambda f: (f / "test.ref").unlink(), "(test.ref) is missing. Scores are those of results.json"),
        (lambda f: (f / "test.ref").write_text(""), "(test.ref) is empty."),
        (lambda f: (f / "test.src").unlink(), "(test.src) is missing."),
    ],
)
def test_a_text_that_is_missing_or_not_whole_is_named_and_the_rest_is_shown(folder, spoil, note):
    spoil(folder)
    results = without_pictures()
    results["systems"][1]["test"]["bleu"] = 12.34
    page = report(folder, results)
    assert note in page
    if "src" not in note:  # the score cannot be taken again: it is what was measured then
        assert Page(page).row(SYSTEMS["lv"], "12.34")


def test_a_score_that_the_files_do_not_give_is_noticed(folder):
    results = without_pictures()
    results["systems"][0]["test"]["bleu"] = 99.0
    assert "RNNsearch: results.json says 99.00 BLEU, the file gives" in report(folder, results)


@pytest.mark.parametrize(
    "value", [None, math.nan, -math.inf, 10**400, -1], ids=["None", "NaN", "-Infinity", "huge", "-1"]
)
def test_numbers_that_are_none_are_left_out(folder, value):
    def spoiled(part):
        if isinstance(part, dict):
            return {key: part[key] if key in ("K", "K'", "replaced") else spoiled(part[key]) for key in part}
        if isinstance(part, list):
            return [spoiled(element) for element in part]
        return part if isinstance(part, str) else value

    results = {**spoiled(made_up_results()), "signature": {}}
    del results["attention"][1]
    page = report(folder, results)
    assert "nan" not in Page(page).text and "inf" not in Page(page).text.replace("info", "")
    assert "results.json has no learning curves." in page


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "is no run folder: there is no results.json in it"),
        (b"", "is damaged, make it again"),
        (b"{", "is damaged, make it again"),
        (b"\xff", "is damaged, make it again"),
        (b"[" * 100000, "is damaged, make it again"),
        (b"[]", "the whole must be an object, not []"),
        (b'{"systems": {"a": 1}}', "systems must be a list"),
        (b'{"systems": [3]}', "systems[0] must be an object, not 3"),
        (b'{"systems": [{"test": {"bleu": "12"}}]}', "systems[0].test.bleu must be a number, not '12'"),
        (b'{"systems": [{"id": "a", "against": ["a"]}]}', "against[0] must be the id of a system before this one"),
        (b'{"grid": [{"K": 5}]}', "grid[0].K' must be a whole number, not None"),
        (b'{"corpus": {"source": {"coverage": {"many": 0.5}}}}', "must be named by a number of words, not 'many'"),
        (b'{"attention": [{"source": ["a"], "target": ["b"], "weights": [[1, 2]]}]}', "1 rows (target words) of 1"),
        (b'{"systems": [{"test": {"replaced": {"x": ["a"]}}}]}', "must be the number of a sentence"),
        (b'{"attention": [{"source": [], "target": [], "weights": [], "replaced": [0]}]}', "places of the 0 target"),
    ],
)
def test_damaged_results_end_in_one_line_and_leave_the_last_report_alone(tmp_path, content, message):
    (tmp_path / "report.html").write_text("the last one")
    if content is not None:
        (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(SystemExit) as error:
        main([str(tmp_path)])
    assert message in str(error.value) and str(tmp_path) in str(error.value) and "\n" not in str(error.value)
    assert page_of(tmp_path) == "the last one"
    assert {path.name for path in tmp_path.iterdir()} <= {"report.html", "results.json"}


def test_whatever_stands_in_the_results_is_read_or_refused_in_one_line(folder):
    """Every value of the file exchanged for every other kind of value."""

    def places(part, path=()):
        yield path
        for key in part if isinstance(part, dict) else range(min(len(part), 2)) if isinstance(part, list) else ():
            yield from places(part[key], (*path, key))

    results = made_up_results()
    del results["attention"][1], results["curves"][1:], results["grid"][1:], results["systems"][1:]
    for path in list(places(results))[1:]:
        for value in (None, True, -1, 1e308, "", "\ud800", [], {}, [[]], {"a": None}):
            spoiled = copy.deepcopy(results)
            part = spoiled
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            (folder / "results.json").write_text(json.dumps(spoiled))
            try:
                read_run(folder).name.encode()
            except UserError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--out", "{}/nowhere/page.html"], "there is no folder"),
        (["--out", "{}"], "is a folder: name a file"),
        (["--markdown", "{}/nowhere/tables.md"], "there is no folder"),
        (["--markdown", "{}"], "is a folder: name a file with --markdown"),
        (["--markdown", "{}/results.json"], "is a file of the run itself"),
        (["--markdown", "{}/report.html"], "is the page itself"),
        (["--png", "{}/results.json"], "is no folder: name another one"),
    ],
)
def test_a_place_that_cannot_be_written_is_noticed_before_the_work(tmp_path, capsys, options, message):
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(SystemExit, match=message):
        main([str(tmp_path), *(option.format(tmp_path) for option in options)])
    assert capsys.readouterr().err == "" and not (tmp_path / "report.html").exists()


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
MEASURE = """<!DOCTYPE html><title>not measured</title><body>
<iframe width="{width}" height="800" srcdoc="{page}"></iframe>
<script>onload = () => {{
  const page = frames[0].document, root = page.documentElement;
  const scales = [...page.querySelectorAll("svg")].map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width);
  const fetched = frames[0].performance.getEntriesByType("resource").length;
  document.title = "measured " + [root.scrollWidth, root.clientWidth, Math.min(...scales), fetched].join(" ");
}}</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_it_without_scrolling_sideways(complete, tmp_path, width):
    # in a frame, since a window of a headless browser cannot be as narrow as a phone
    frame = tmp_path / "frame.html"
    frame.write_text(MEASURE.format(width=width, page=html.escape(page_of(complete))), encoding="utf-8")
    command = [BROWSER, *QUIET.split(), "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}"]
    command += ["--window-size=1400,900", "--virtual-time-budget=2000", "--dump-dom", frame.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=100).stdout
    measured = re.search(r"<title>measured (\S+) (\S+) (\S+) (\S+)</title>", shown)
    assert measured, shown[:300]
    page_width, visible, scale, fetched = map(float, measured.groups())
    assert page_width <= visible <= width
    assert scale * 11.5 > 10  # pixels of the smallest letters in pictures
    assert fetched == 0
