"""`make bench`: from what sections measured to a page, pictures and JSON. The sections have tests of their own."""

import dataclasses
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench  # noqa: E402
from side_by_side import page, plots  # noqa: E402
from side_by_side.rows import Row, Rows, is_complete, read  # noqa: E402


def some_rows() -> list[Row]:
    table = "an update of a model"
    rows = []
    for words in (15_000, 500_000):
        here = {"table": table, "setting": f"{words:,} words", "unit": "s"}
        rows.append(Row(system="ours", turns=[1.0, 1.2, 2.0], ours=True, more={"MB": 12.0, "% products": 80}, **here))
        rows.append(Row(system="slower", turns=[words / 1000, 50.0, 60.0], peer=True, **here))
        rows.append(Row(system="faster", turns=[0.5, 0.4, 1.0], peer=True, more={"MB": 0.5}, **here))
        rows.append(Row(system="the floor", turns=[0.9, 0.9, 0.9], **here))
        rows.append(Row(system="elsewhere", peer=True, note="absent: not | installed", **here))
    return rows


def test_a_ratio_is_the_median_of_that_of_each_turn():
    ours, other = Row("t", "s", "a", "s", [1.0, 4.0, 9.0]), Row("t", "s", "b", "s", [1.0, 2.0, 3.0])
    assert other.ratio(ours) == 2 and other.median == 2 and other.spread == (1.5, 2.5)
    none = Row("t", "s", "c", "s")
    assert none.ratio(ours) is none.median is none.spread is None
    assert Row("t", "s", "d", "s", [3.0]).spread == (3.0, 3.0)


def test_rows_are_written_after_each_and_read_again(tmp_path, capsys):
    rows = Rows(tmp_path / "rows.json")
    for count, row in enumerate(some_rows(), start=1):
        rows.add(row)
        assert read(tmp_path / "rows.json") == (some_rows()[:count], {})
    assert "elsewhere: - absent" in capsys.readouterr().out


def test_the_page_has_every_row_and_says_where_we_are_behind():
    text = page.page(some_rows(), {"torch": "2.13"}, "3 minutes.", [("cost.svg", "Cost")])
    assert "torch 2.13" in text and "![Cost](cost.svg)" in text
    assert "Of 4 comparisons with others, ours is at or below 1.00 in 2." in text
    assert text.count("**2.00**") == 2  # 1/0.5, 1.2/0.4, 2/1: "faster" is faster, at both sizes
    assert "- an update of a model: faster, in 2 of 2 settings; ours takes 2.00 of its time" in text
    # 80 % of 1.2 s is more than the 0.5 s of the other
    assert text.count("ahead: our matrix products alone, 80 % of our time, take longer") == 2
    assert text.count("- elsewhere: absent") == 1
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 10 and len({len(re.findall(r"\|", line)) for line in rows}) == 1  # none breaks its table
    assert "| 15,000 words | ours | 1.2 (1.1–1.6) | 1.00 | 12 | 80 |" in text


def test_the_page_names_a_program_once_and_says_how_many_turns_were_made():
    versions = {"fairseq-fixed": "0.12", "torch": "2.13", "fairseq": "0.12", "marian": "1", "pymarian": "2"}
    rows = [Row("t", "s", "a", "s", turns) for turns in ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], [1.0], [])]
    text = page.page(rows, versions, "", [])
    assert "\nfairseq-fixed 0.12, torch 2.13, marian 1, pymarian 2\n" in text
    assert "rows of 3 turns, unless" in text
    assert [" 1 turn |" in line for line in text.splitlines() if " a |" in line] == [False, False, True, False]


def test_a_row_that_is_behind_has_the_profile_that_says_why():
    ours = Row("t", "s", "ours", "s", [1.0], ours=True, more={"% products": 40.0})
    assert page.why(ours, Row("t", "s", "b", "s", [0.9])) == "ahead: 60 % of our time is not matrix products"
    assert "40 % of our time, take longer" in page.why(ours, Row("t", "s", "c", "s", [0.3]))
    assert page.why(Row("t", "s", "ours", "s", [1.1]), ours) == "ahead"
    assert (
        page.why(Row("t", "s", "ours", "s", [0.9, 1.2]), ours)
        == "ahead in most turns, but not by more than turns differ"
    )
    rows = [ours, *(Row("t", "s", "b", "s", [x], peer=True, note="8 bits") for x in (0.5, 0.8))]
    text = page.page(rows, {}, "", [])
    assert "b, in 2 of 2 settings; ours takes 1.25 to 2.00 of its time" in text
    assert "| **1.25** |  | 8 bits; ahead: 60 % of our time is not matrix products |" in text


def test_pictures_are_drawn_of_what_was_measured_at_several_sizes(tmp_path):
    assert plots.cost(some_rows(), tmp_path / "cost.svg") and plots.shares(some_rows(), tmp_path / "shares.svg")
    drawn = (tmp_path / "cost.svg").read_text()
    assert all(name in drawn for name in ("ours", "slower", "faster", "the floor")) and "elsewhere" not in drawn
    one_size = [row for row in some_rows() if row.setting.startswith("15")]
    assert not plots.cost(one_size, tmp_path / "no.svg") and not plots.shares([], tmp_path / "no.svg")


@pytest.mark.parametrize("number, text", [(0, "0"), (1234.5, "1,234"), (12.345, "12.3"), (0.0456, "0.0456")])
def test_numbers_have_three_digits_that_count(number, text):
    assert page.number(number) == text and math.isfinite(float(text.replace(",", "")))


def test_a_section_that_was_measured_is_kept_and_one_that_fails_is_told(tmp_path, capfd):
    rows = Rows(tmp_path / "lexicon.json")
    rows.add(*some_rows())
    rows.close()
    flags = ["--quick", "--work", str(tmp_path), "--out", str(tmp_path / "page")]
    assert bench.main([*flags, "--keep", "--only", "lexicon"]) == 0
    stored = json.loads((tmp_path / "page" / "bench.json").read_text())
    fields = [field.name for field in dataclasses.fields(Row)]
    found = [Row(**{name: row[name] for name in fields}) for row in stored["rows"]]
    assert found == some_rows() and "torch" in stored["versions"]
    for row in stored["rows"][:3]:
        assert row["median"] == statistics.median(row["turns"])
        pairs = zip(stored["rows"][0]["turns"], row["turns"])
        assert row["ours / it"] == statistics.median(mine / its for mine, its in pairs)
    assert (tmp_path / "page" / "README.md").is_file() and (tmp_path / "page" / "cost.svg").is_file()
    assert bench.main([*flags, "--only", "lexicon", "--more", "lexicon:--no-such-flag"]) == 1
    assert "lexicon failed: exit code" in capfd.readouterr().err
    assert json.loads((tmp_path / "page" / "bench.json").read_text()) == stored  # of before: nothing was measured
    assert bench.main([*flags, "--keep", "--only", "lexicon"]) == 0


def test_what_a_section_had_when_it_broke_off_is_shown_and_not_kept(tmp_path, monkeypatch):
    def break_off(command, **options):
        rows = Rows(Path(command[command.index("--out") + 1]))
        rows.add(*some_rows())
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])

    monkeypatch.setattr(bench, "start", break_off)
    assert bench.main(["--quick", "--work", str(tmp_path), "--only", "lexicon"]) == 1
    page = (tmp_path / "README.md").read_text()
    assert "**Not complete: lexicon.**" in page and "Of 4 comparisons" in page
    assert not (tmp_path / "lexicon.json").exists()


REFUSED = {
    "there is no text no": ["--source", "no", "--target", "no"],
    "/dev/null": ["--source", "/dev/null", "--target", "/dev/null"],
    "empty is empty": ["--source", "empty", "--target", "empty"],
    "write SECTION:FLAGS, with one of start": ["--only", "start", "--more", "lexicon:-h"],
    "--more start: write SECTION:FLAGS": ["--more", "start"],
}


@pytest.mark.parametrize("said, flags", REFUSED.items(), ids=REFUSED)
def test_flags_that_cannot_work_are_refused(said, flags, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(SystemExit):
        bench.main(flags)
    assert said in capsys.readouterr().err


def test_a_section_that_broke_off_is_not_taken_for_a_whole_one(tmp_path):
    path = tmp_path / "rows.json"
    assert not is_complete(path)
    rows = Rows(path)
    rows.add(*some_rows())
    assert not is_complete(path)
    rows.close()
    assert is_complete(path) and read(path)[0] == some_rows()
