"""lv-report reads nothing but the files of its run, and ends with a page or one line whatever these hold."""

import contextlib
import json
import math
import os
import signal
import socket
import urllib.request

import pytest
from conftest import printed_in_ascii
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from lv_fairseq.commands import report as command
from lv_fairseq.commands.report import main
from lv_fairseq.errors import UserError
from lv_fairseq.report import contrasts, run_file
from lv_fairseq.report.drawing import png
from lv_fairseq.report.figures import Picture
from lv_fairseq.report.run import read_run
from lv_fairseq.report.scores import SENTENCES

SECRET = "what is kept elsewhere"


def results(reference="test.ref", hypotheses="a.hyp", **more) -> dict:
    """One system with an output for the test set."""
    system = {"id": "a", "name": "A", "test": {"hypotheses": hypotheses, "bleu": 12.34}}
    return {"texts": {"test": {"reference": reference}}, "systems": [system], **more}


@pytest.fixture
def run(tmp_path):
    """A run folder, with a secret beside it."""
    folder = tmp_path / "run"
    (folder / "inner").mkdir(parents=True)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    for name in ("test.ref", "a.hyp", "inner/b.hyp"):
        (folder / name).write_text("one two three four five\n")
    return folder


def write(folder, value) -> None:
    (folder / "results.json").write_text(json.dumps(value))


def page(folder, value, *options) -> str:
    write(folder, value)
    main([str(folder), *map(str, options)])
    return (folder / "report.html").read_text(encoding="utf-8")


def refusal(folder, *options) -> str:
    """The one line that ends the command; no page is written."""
    before = set(folder.rglob("*"))
    with pytest.raises(SystemExit) as error:
        main([str(folder), *map(str, options)])
    line = str(error.value)
    assert line and "\n" not in line and len(line) < 1000 and SECRET not in line
    assert set(folder.rglob("*")) == before
    return line


@pytest.mark.parametrize("field", ["reference", "hypotheses"])
@pytest.mark.parametrize("name", ["{}/secret", "{}/run/a.hyp", "../secret", "inner/../a.hyp", "link", "links/secret"])
def test_a_name_that_leads_out_of_the_folder_is_refused(run, field, name):
    (run / "link").symlink_to(run.parent / "secret")
    (run / "links").symlink_to(run.parent)
    write(run, results(**{field: name.format(run.parent)}))
    line = refusal(run)
    assert field in line and "must be the name of a file inside this folder" in line


def test_results_that_are_a_link_out_of_the_folder_are_refused(run):
    (run.parent / "results.json").write_text(json.dumps({"name": SECRET}))
    (run / "results.json").symlink_to(run.parent / "results.json")
    assert "leads out of the run's folder" in refusal(run)


def test_links_inside_the_folder_are_followed_and_the_folder_may_be_one(run, tmp_path):
    (run / "link").symlink_to("inner")
    (tmp_path / "short").symlink_to(run)
    text = page(tmp_path / "short", results(hypotheses="link/b.hyp"))
    assert "100.00 \u00b1" in text


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:  # names of sockets are short
        made.bind(path.name)


def make_huge(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no place on the disk


@pytest.mark.parametrize(
    "make, why",
    [(make_pipe, "it is no ordinary file"), (make_socket, "it is no ordinary file"), (make_huge, "it has more than")],
)
def test_what_is_no_ordinary_file_of_ordinary_size_is_not_read(run, make, why):
    (run / "a.hyp").unlink()
    make(run / "a.hyp")
    text = page(run, results())
    assert f"(a.hyp) cannot be read: {why}" in text and "12.34" in text
    (run / "results.json").unlink()
    (run / "report.html").unlink()
    make(run / "results.json")
    assert why in refusal(run)


def test_a_pipe_that_takes_the_place_of_a_file_while_it_is_opened_is_not_read(run, monkeypatch):
    opened = os.open

    def swapped(name, *args, **kwargs):
        if name == "a.hyp":
            (run / name).unlink()
            os.mkfifo(run / name)
        return opened(name, *args, **kwargs)

    monkeypatch.setattr(run_file.os, "open", swapped)
    assert "(a.hyp) cannot be read: it is no ordinary file" in page(run, results())


@pytest.mark.parametrize("name", ["a.hyp", "inner/secret"])
def test_a_link_that_comes_between_look_and_open_is_not_followed(run, monkeypatch, name):
    (run / "inner" / "secret").write_text("one\n")
    opened = run_file.opened

    def swapped(root, place):
        if "/".join(place) == name:
            (run / place[0]).rename(run / "away")
            (run / place[0]).symlink_to(run.parent / "secret" if len(place) == 1 else run.parent)
        return opened(root, place)

    monkeypatch.setattr(run_file, "opened", swapped)
    text = page(run, results(hypotheses=name))
    assert "cannot be read" in text and SECRET not in text


@pytest.mark.parametrize("tokeniser", ["spm", "flores101", "flores200", "spBLEU-1K", "unheard-of"])
def test_a_tokeniser_that_sacrebleu_would_download_is_not_used(run, monkeypatch, tokeniser):
    asked = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **kwargs: asked.append(args))
    monkeypatch.setattr(socket.socket, "connect", lambda *args: asked.append(args))
    value = results(grid=[{"K": 5, "K'": 5, "bleu": 1}])  # so that something is drawn
    value["systems"][0]["test"]["signature"] = f"nrefs:1|case:mixed|tok:{tokeniser}|version:2.5"
    text = page(run, value)
    assert not asked
    assert f"Outputs are not scored with the tokeniser {tokeniser}" in text and "12.34" in text


def test_texts_that_are_too_long_to_score_keep_the_score_of_the_results(run):
    for lines, note in ((["x"] * (SENTENCES + 1), "has 10,001 lines; a report scores"), (["x" * 10_001], "a line of")):
        for name in ("test.ref", "a.hyp"):
            (run / name).write_text("\n".join(lines))
        text = page(run, results())
        assert note in text and "12.34" in text


@pytest.mark.parametrize(
    "content, why",
    [
        ('{"name": "Gr\u00fc\u00dfe"}'.encode("latin-1"), "is damaged, make it again: 'utf-8' codec"),
        (b'{"signature": ' + b'{"a": ' * 300 + b"1" + b"}" * 301, "nested too deep"),
        (b'{"systems": ' + b"[" * 900 + b"]" * 900 + b"}", "nested too deep"),
        (b'{"corpus": {"pairs": 1' + b"0" * 5000 + b"}}", "is damaged, make it again: Exceeds the limit"),
        (b'{"systems": [' + b"{}," * 4999 + b"{}]}", "systems must be a list of at most 100"),
        (b'{"curves": [{"points": [' + b"{}," * 30000 + b"{}]}]}", "curves[0].points must be a list of at most"),
        (b'{"grid": [' + b"[]," * 4999 + b"[]]}", "grid must be a list of at most 400"),
        (b'{"attention": [{"source": [' + b'"a",' * 999 + b'"a"]}]}', "source must be a list of at most 250"),
        (b'{"systems": [{"decoding": {"a\\nb": "x"}}]}', "must be a number, not 'x'"),
        (b'{"systems": [{"decoding": {"' + b"a" * 9999 + b'": "x"}}]}', "must be a number, not 'x'"),
        (b'{"texts": {"test": {"source": "' + b"a/" * 99999 + b'"}}}', "must be the name of a file inside"),
        (b'{"grid": [{"K": 1e308, "K\'": 1}]}', "grid[0].K must be a whole number"),
        (b'{"grid": [{"K": 1' + b"0" * 400 + b', "K\'": 1}]}', "grid[0].K must be a whole number"),
        (b'{"grid": [{"K": -5, "K\'": 1}]}', "grid[0].K must be a whole number"),
        (b'{"grid": [{"K": true, "K\'": 1}]}', "grid[0].K must be a number, not True"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_results_that_no_run_has_end_in_one_line(run, content, why):
    (run / "results.json").write_bytes(content)
    assert why in refusal(run)


def points(count, seeds=1, **more) -> list:
    """As many lists, all of different K and K'; every output is the same file, each with a signature of its own."""
    output = lambda i, seed: {"hypotheses": "a.hyp", "signature": f"case:mixed|tok:13a|version:{i}.{seed}"}
    of = lambda i: [{"seed": seed, "test": output(i, seed)} for seed in range(seeds)]
    return [{"id": f"list-{i}", "tau": 5, "K": i, "K'": i, "seeds": of(i), **more} for i in range(1, count + 1)]


def test_more_outputs_than_a_page_is_made_of_are_refused(run):
    write(run, results(lists=points(1000, seeds=2)))
    assert "names 2,001 outputs to score, and a page is made of 2,000 at most" in refusal(run)


def test_one_file_is_scored_once_whatever_its_signatures_say(run, monkeypatch):
    scored = []
    once = contrasts.resampled
    monkeypatch.setattr(contrasts, "resampled", lambda *args: scored.append(args) or once(*args))
    page(run, results(lists=points(300)))
    assert len(scored) == 1


def test_lists_that_have_nothing_in_common_make_a_line_each_and_no_matrix(run):
    text = page(run, results(lists=points(300)))
    assert text.count("<td>") < 2000 and "The first 40 of 300 lines." in text
    assert '<tr><th scope="row">7</th><td>7</td><td>' in text
    few = page(run, results(lists=points(9)))
    assert "lines." not in few and few.count("<td>\u2013</td>") >= 72  # a matrix


@pytest.mark.parametrize("place", ["lists", "grid"])
def test_more_tau_than_pictures_are_drawn_for_are_refused(run, place):
    write(run, {place: [{"id": str(tau), "tau": tau, "K": 1, "K'": 1, "bleu": 1} for tau in range(51)]})
    assert f"{place} must be of at most 50 different tau" in refusal(run)


def test_a_byte_order_mark_and_a_field_that_stands_twice_do_no_harm(run):
    (run / "results.json").write_bytes(b'\xef\xbb\xbf{"name": "first", "name": "second", "corpus": {"pairs": 1}}')
    main([str(run)])
    assert "second" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)], ids=str)
def test_settings_that_are_no_numbers_are_shown_as_missing(run, value):
    text = page(run, {"signature": {"tau": value, "inner": {"seed": -1, "deeper": {"rate": 1e308}}}})
    assert '<th scope="row">tau</th><td>\u2013</td>' in text
    assert '<th scope="row">inner: seed</th><td>-1</td>' in text
    assert '<th scope="row">inner: deeper: rate</th><td>1e+308</td>' in text


def test_nothing_measured_is_negative_or_infinitely_more_than_something_else(run):
    times = [5e-324, 1e14, -3, 0]
    systems = [{"name": f"system {i}", "decoding": {"ms_per_word": ms}} for i, ms in enumerate(times)]
    text = page(run, {"systems": systems, "corpus": {"pairs": -7}})
    assert "inf" not in text.split("Decoding time, and what was")[1].split("</table>")[0]
    assert "-3" not in text and "-7" not in text


NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(),
    st.sampled_from([0, -0.0, 5e-324, 1e-15, 1, 1e14, 999999999999999, 1e15, 1e308, math.nan, math.inf, -math.inf]),
    st.sampled_from([10**400, -(10**400)]),
)
WHOLE = st.sampled_from([0, 1, 2, 7, 15000, 2**31, 10**14, 999999999999999])
TEXTS = st.text(max_size=6)


def some(*names, values=NUMBERS):
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))


@st.composite
def attention(draw):
    source, target = draw(st.lists(TEXTS, max_size=3)), draw(st.lists(TEXTS, max_size=3))
    weights = [[draw(NUMBERS) for _ in source] for _ in target]
    replaced = draw(st.lists(st.sampled_from(range(len(target))), max_size=3)) if target else []
    return {"source": source, "target": target, "weights": weights, "replaced": replaced}


RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "signature": st.dictionaries(TEXTS, st.one_of(NUMBERS, st.booleans(), TEXTS, some("a")), max_size=3),
        "corpus": st.fixed_dictionaries(
            {
                "pairs": NUMBERS,
                "source": st.fixed_dictionaries({"tokens": NUMBERS, "coverage": some("0", "5", "9" * 99)}),
            }
        ),
        "systems": st.lists(
            st.fixed_dictionaries(
                {
                    "test": some("bleu", "tokenised_bleu"),
                    "decoding": some("ms_per_word", "mean_list", "unknown"),
                    "training": some("seconds", "updates"),
                }
            ),
            max_size=3,
        ),
        "grid": st.lists(
            st.builds(
                lambda k, per_word, rest: {"K": k, "K'": per_word, **rest},
                WHOLE,
                WHOLE,
                some("bleu", "interval", "sentences", "mean_list", "coverage"),
            ),
            max_size=3,
        ),
        "curves": st.lists(
            st.fixed_dictionaries({"points": st.lists(some("seconds", "updates", "bits", "bleu"), max_size=3)}),
            max_size=2,
        ),
        "attention": st.lists(attention(), max_size=1),
    },
)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(value=RESULTS)
def test_a_page_is_made_of_any_numbers_at_all(tmp_path_factory, value):
    folder = tmp_path_factory.mktemp("run")
    text = page(folder, value)
    cells = [cell.split("<")[0] for part in ("<td>", "<td><strong>") for cell in text.split(part)[1:]]
    assert not {"nan", "inf", "-inf", "nan %", "inf %"} & set(cells)


ANYTHING = st.recursive(
    st.one_of(NUMBERS, st.booleans(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=6,
)
FIELDS = (
    *("name", "signature", "corpus", "texts", "systems", "grid", "curves", "attention", "source", "target", "weights"),
    *(
        "replaced",
        "points",
        "coverage",
        "test",
        "reference",
        "hypotheses",
        "against",
        "id",
        "bleu",
        "K",
        "K'",
        "training",
    ),
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    value=st.recursive(
        ANYTHING,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_fields_that_hold_anything_at_all_are_read_or_refused_in_one_line(tmp_path_factory, value):
    folder = tmp_path_factory.getbasetemp()
    write(folder, value)
    try:
        read_run(folder)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000


@pytest.mark.parametrize("name", ["results.json", "test.ref", "inner/link"])
def test_a_page_never_takes_the_place_of_what_it_is_made_from(run, name):
    (run / "inner" / "link").symlink_to("../a.hyp")
    write(run, results())
    before = (run / name).read_bytes()
    assert "is a file of the run itself" in refusal(run, "--out", run / name)
    assert (run / name).read_bytes() == before


def test_what_is_in_the_way_of_page_or_pictures_is_named_and_left_alone(run):
    write(run, {"grid": [{"K": 5, "K'": 5, "bleu": 1}]})
    make_pipe(run / "pipe")
    assert f"{run}/pipe is in the way" in refusal(run, "--out", run / "pipe")
    assert "a.hyp is no folder" in refusal(run, "--png", run / "a.hyp" / "png")
    (run / "nowhere").symlink_to("not-there")
    assert "nowhere is no folder" in refusal(run, "--png", run / "nowhere")
    (run / "run-grid-bleu.png").mkdir()
    assert "run-grid-bleu.png is in the way" in refusal(run, "--png", run)


def test_pictures_of_runs_of_one_name_are_different_files(tmp_path):
    folders = [tmp_path / str(i) for i in range(3)]
    for folder, name in zip(folders, ("a_3", "a", "a")):
        folder.mkdir()
        write(folder, {"name": name, "grid": [{"K": 5, "K'": 5, "bleu": 1}]})
    main([*map(str, folders), "--png", str(tmp_path / "png")])
    assert len(list((tmp_path / "png").iterdir())) == 3


def test_a_picture_of_a_long_sentence_has_no_more_pixels_than_memory_bears():
    content = png(Picture("tall", Figure(figsize=(1, 100)), "a picture of 100 inches"))
    assert int.from_bytes(content[20:24], "big") < 5200  # its height


def test_the_name_of_the_page_is_printed_in_any_encoding(run):
    write(run, {})
    said = printed_in_ascii(main, [str(run), "--out", str(run / "page \u00fc.html")])
    assert rb"page \xfc.html: 1 run" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_leaves_nothing_of_a_page_that_is_not_whole(run, monkeypatch, number):
    written_whole = command.written_whole

    @contextlib.contextmanager
    def interrupted(path):
        with written_whole(path) as file:
            file.write(b"half a page")
            os.kill(os.getpid(), number)
            yield file

    monkeypatch.setattr(command, "written_whole", interrupted)
    write(run, {})
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)
    try:
        with pytest.raises(SystemExit):
            main([str(run)])
        assert signal.getsignal(number) is usual
    finally:
        signal.signal(number, before)
    assert {path.name for path in run.iterdir()} == {"results.json", "test.ref", "a.hyp", "inner"}
