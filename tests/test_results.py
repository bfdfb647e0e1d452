"""results.json has one schema, which its writer and its reader share; so has the line that decoding ends with."""

import copy
import json

import pytest
from test_report import made_up_results

from lv_fairseq import results
from lv_fairseq.decoding.statistics import Statistics
from lv_fairseq.report.part import Part
from lv_fairseq.report.run_file import RunFile


def test_what_a_report_reads_may_be_written():
    results.check(made_up_results())


@pytest.mark.parametrize(
    "place, value",
    [
        (("sytems",), []),
        (("systems", 0, "beam"), 12),
        (("systems", 0, "dev", "bleu"), "20"),
        (("systems", 0, "against"), "base"),
        (("curves",), {}),
        (("curves", 0, "points", 0, "hours"), 1.0),
        (("corpus", "source", "coverage", "500"), [1]),
        (("attention", 0, "replaced"), ["3"]),
        (("grid", 0, "K"), 1.5),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else "",
)
def test_what_the_schema_does_not_have_is_not_written(place, value):
    made_up = part = copy.deepcopy(made_up_results())
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with pytest.raises((KeyError, TypeError)):
        results.check(made_up)


def test_a_reader_cannot_ask_for_a_name_that_is_not_in_the_schema(tmp_path):
    whole = Part(made_up_results(), "", RunFile(tmp_path, "results.json"), results.Results)
    assert whole["systems"].elements(9)[0]["dev"]["signature"].text() == "tok:13a"
    for part, name in ((whole, "system"), (whole["systems"].elements(9)[0]["dev"], "blue")):
        with pytest.raises(KeyError):
            part[name]


def test_what_decoding_did_is_one_line_of_data_that_fits_the_schema():
    statistics = Statistics(lists=4, words=4002, expanded=1, sentences=3, list_seconds=0.5, search_seconds=2.0)
    text = f"a warning\n{statistics.summary()}\n{results.line_of(statistics.figures())}\nGenerate test with beam=5\n"
    figures = results.in_output(text)
    assert figures == json.loads(json.dumps(statistics.figures()))
    results.check(figures, results.Decoding)
    expected = {"sentences": 3, "mean_list": 1000, "expanded": 1, "list_seconds": 0.5, "search_seconds": 1.5}
    assert figures == {**expected, "unknown": None, "replaced": None}
    assert results.in_output("nothing of that kind\n") == {}
