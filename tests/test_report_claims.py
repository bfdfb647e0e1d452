"""What a report shows of several seeds, of the paper's claims and of its analysis; and old results without them."""

import html
import json
import re
import statistics

import pytest
from sacrebleu.metrics import BLEU
from test_report import Page, lines, made_up_texts, page_of, report, without_pictures

from lv_fairseq import results as schema
from lv_fairseq.commands.report import main
from lv_fairseq.report.contrasts import t_test
from lv_fairseq.report.run import read_run

BANDS = [
    {"least": 1, "most": 2, "wanted": 40, "arrived": [4, 8]},
    {"least": 1001, "most": None, "wanted": 10, "arrived": [10, 10]},
]


def claim(text, expected, more, less) -> dict:
    return {"claim": text, "paper": "3 against 2", "expected": expected, "more": more, "less": less}


def with_seeds() -> dict:
    """Two seeds: the outputs of the other systems stand in for a second one."""
    results = without_pictures()
    outputs = lambda id: {which: dict(results["systems"][0][which], hypotheses=f"{id}.{which}.hyp") for which in SETS}
    results["systems"][0]["seeds"] = [{"seed": 1, **outputs("base")}, {"seed": 2, **outputs("copy")}]
    results["systems"][1]["seeds"] = [{"seed": 1, **outputs("lv")}, {"seed": 2, **outputs("base")}]
    results["lists"] = [
        {"id": f"list-{tau}-{k}-{x}", "tau": tau, "K": k, "K'": x, "seeds": [{"seed": 1, "test": outputs(id)["test"]}]}
        for tau in (5, 9)
        for k in (10, 20)
        for x, id in ((1, "base"), (10, "lv"))
    ]
    results["times"] = [
        {"name": "baseline", "threads": 1, "ms_per_word": 2.0, "mean_list": None, "bleu": 10},
        {"name": "one list", "threads": 1, "ms_per_word": 3.0, "mean_list": 120, "bleu": 11},
    ]
    results["rare_words"] = [{"system": "lv", "bands": BANDS}]
    results["claims"] = [
        claim("LV is above", "above", ["lv"], ["base"]),
        claim("a copy is not below", "not below", ["copy"], ["base"]),
        claim("K' = 1 is below", "above", ["list-5-10-10"], ["list-5-10-1"]),
        claim("what was not measured", "above", ["nothing"], ["base"]),
    ]
    results["seconds"] = {"train": 7200}
    return results


SETS = ("dev", "test")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    made_up_texts(folder)
    results = with_seeds()
    schema.check(results)
    (folder / "results.json").write_text(json.dumps(results))
    main([str(folder), "--png", str(folder / "png"), "--markdown", str(folder / "tables.md")])
    return folder, Page(page_of(folder))


def bleu(folder, id, which="test") -> float:
    return BLEU().corpus_score(lines(folder / f"{id}.{which}.hyp"), [lines(folder / f"{which}.ref")]).score


def test_mean_and_spread_of_seeds_stand_beside_bleu(shown):
    folder, page = shown
    heads = next(row for row in page.rows if "mean of seeds" in row)
    scores = [bleu(folder, "lv", "dev"), bleu(folder, "base", "dev")]
    cell = page.row('LV "all" & <b>more</b>', "(2)")[heads.index("mean of seeds")]
    assert cell == f"{statistics.fmean(scores):.2f} \u00b1 {statistics.stdev(scores):.2f} (2)"


def test_a_claim_has_its_difference_both_chances_and_a_verdict(shown):
    folder, page = shown
    single = [bleu(folder, "lv") - bleu(folder, "base"), 0.0]
    row = page.row("LV is above", "p")
    assert row[1] == "not sure"  # two seeds that differ so much
    assert row[3].startswith(f"{statistics.fmean(single):+.2f} \u00b1 {statistics.stdev(single):.2f} (sentences p")
    assert row[3].endswith(f"seeds p\u00a0=\u00a0{t_test(single):.3f})") and row[4] == "3 against 2"
    assert page.row("a copy is not below", "")[1] == "comes out"
    lists = page.row("K' = 1 is below", "p")
    assert lists[1] == "comes out" and lists[3].startswith(
        f"{bleu(folder, 'lv') - bleu(folder, 'base'):+.2f} (sentences"
    )
    assert page.row("what was not measured", "")[1] == "not measured"


def test_the_analysis_is_shown_as_tables_and_pictures(shown):
    folder, page = shown
    best = f"{bleu(folder, 'lv'):.2f}"
    assert page.row("10", best) == ["10", f"{bleu(folder, 'base'):.2f}", best]  # K by K'
    assert page.row("9", best) == ["9", best, best]  # tau by K
    assert {path.name.rpartition("per-word-")[2] for path in (folder / "png").glob("*per-word*")} == {"5.png", "9.png"}
    assert page.row("one list", "120") == ["one list", "3.00", "1.50", "120", "11.00", "1"]
    rare = page.row('LV "all" & <b>more</b>', "%")
    assert rare[1:] == ["15.0 % (4\u20138)", "100.0 % (10)"]
    assert page.row("train", "2 h")


def markdown_rows(text: str) -> list:
    """The rows of all tables, as a reader sees them."""
    rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in text.splitlines() if line.startswith("| ")]
    shown = lambda cell: html.unescape(re.sub(r"\\(.)", r"\1", cell.replace("**", "")))
    return [list(map(shown, row)) for row in rows]


def test_the_tables_as_markdown_are_those_of_the_page(shown):
    folder, page = shown
    text = (folder / "tables.md").read_text(encoding="utf-8")
    rows = markdown_rows(text)
    assert rows == [[" ".join(cell.split()) for cell in row] for row in page.rows if row]
    assert len(rows) > 30 and "<" not in text  # whatever is in a run is shown and not obeyed
    assert text.count("\n|---") == sum(element == "table" for element, _ in page.elements)
    assert re.search(r"\*\*\d+\.\d\d \u00b1 \d+\.\d\d\*\*", text)  # the best of a column
    assert r"nrefs:1\|bs:1000" in text


def test_names_with_marks_of_markdown_are_shown_as_they_are(tmp_path):
    made_up_texts(tmp_path)
    results = with_seeds()
    results["systems"][0]["name"] = name = "*a* | _b_ `c` [d](e) \\ ~f~"
    (tmp_path / "results.json").write_text(json.dumps(results))
    main([str(tmp_path), "--markdown", str(tmp_path / "tables.md")])
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith(r"| \*a"))
    assert line.startswith(r"| \*a\* \| \_b\_ \`c\` \[d\](e) \\ \~f\~ | ")
    assert html.unescape(re.sub(r"\\(.)", r"\1", line)).startswith(f"| {name} |")


def test_the_order_of_seeds_does_not_matter(tmp_path):
    made_up_texts(tmp_path)
    results = with_seeds()
    for which in SETS:
        results["systems"][0]["seeds"][1][which]["hypotheses"] = f"lv.{which}.hyp"
    before = Page(report(tmp_path, results)).row("LV is above", "p")
    results["systems"][1]["seeds"].reverse()
    single = [bleu(tmp_path, "lv") - bleu(tmp_path, "base"), bleu(tmp_path, "base") - bleu(tmp_path, "lv")]
    assert Page(report(tmp_path, results)).row("LV is above", "\u00b1") == before
    assert f"\u00b1 {statistics.stdev(single):.2f}" in before[3]


def test_what_is_known_of_other_trainings_is_said_if_a_system_has_only_one(tmp_path):
    made_up_texts(tmp_path)
    results = with_seeds()
    del results["systems"][0]["seeds"]
    row = Page(report(tmp_path, results)).row("LV is above", "p")  # its second output is that of the other
    assert row[3].endswith(", not every training says so)") and row[1] == "not sure"


def test_results_of_before_have_neither_claims_nor_seeds(tmp_path):
    made_up_texts(tmp_path)
    page = report(tmp_path, without_pictures())
    assert "Claims of the paper" not in page and "mean of seeds" not in page and "Rare words" not in page


@pytest.mark.parametrize("spoil", ["unlink", "short"])
def test_an_output_of_a_seed_that_is_gone_leaves_its_score(tmp_path, spoil):
    made_up_texts(tmp_path)
    results = with_seeds()
    results["systems"][1]["seeds"][1]["test"].update(hypotheses="gone.hyp", bleu=12.5)
    if spoil == "short":
        (tmp_path / "gone.hyp").write_text("a line\n")
    page = Page(report(tmp_path, results))
    mean = statistics.fmean([bleu(tmp_path, "lv"), 12.5])
    assert any(f"{mean:.2f}" in cell for row in page.rows for cell in row) and "(gone.hyp)" in page.text
    assert "sentences p" not in page.row("LV is above", "seeds p")[3]


@pytest.mark.parametrize(
    "place, value, message",
    [
        ("claims", [{"expected": "equal"}], "claims[0].expected must be one of above, not below"),
        ("claims", [{"more": "lv"}], "claims[0].more must be a list"),
        ("lists", [{"K": 5}], "lists[0].tau must be a whole number"),
        ("rare_words", [{"bands": [{"least": 1, "arrived": [0.5]}]}], "arrived[0] must be a whole number"),
        ("seconds", [], "seconds must be an object"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, place, value, message):
    (tmp_path / "results.json").write_text(json.dumps({place: value}))
    with pytest.raises(Exception, match=message.replace("[", r"\[")):
        read_run(tmp_path)
