"""lv-serve: its answers are those of fairseq-interactive, however they are batched, and every mistake is one line."""

import asyncio
import http.client
import json
import re
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import PLUGIN, ROOT, hypotheses, preprocess, run, run_code
from networks import word_for_word
from started import Started

from lv_fairseq.commands import serve
from lv_fairseq.serving import api
from lv_fairseq.serving.page import POLICY, page
from lv_fairseq.serving.settings import Settings
from lv_fairseq.serving.translator import Translator
from lv_fairseq.serving.worker import BusyError, Job, StoppingError, Worker

SCRIPT = ROOT / "lv_fairseq" / "commands" / "serve.py"
LISTS = ("--candidate-frequent", 20, "--candidate-per-word", 2, "--unk-replacement", "lexicon-lowercase", "--cpu")


def lists(names) -> tuple:
    return (
        names / "data",
        "--user-dir",
        "elsewhere/lv_fairseq",
        "--path",
        names / "model.pt",
        "--lexicon",
        names / "lexicon",
        *LISTS,
    )


def translator_of(*flags, most_words: int = 200) -> Translator:
    return Translator(serve.configure([str(x) for x in flags]), most_words)


def answers(translator: Translator, texts, settings: Settings = None, together: bool = True) -> list:
    """What is answered to some sentences, in their order."""
    settings = settings or translator.bounds.default
    groups = [texts] if together else [[text] for text in texts]
    found = []
    for group in groups:
        mine = dict(translator.translate([translator.words(text) for text in group], settings))
        found += [mine[i] for i in range(len(group))]
    return found


@pytest.fixture(scope="module")
def translator(names):
    return translator_of(*lists(names))


@pytest.fixture
def worker(translator):
    worker = Worker(translator, most_waiting=100)
    worker.start()
    yield worker
    worker.stop()
    assert worker.join(60)


def sentences(names) -> list:
    return ["", *(names / "test.src").read_text(encoding="utf-8").splitlines(), "qwertz Uiop"]


def test_answers_are_those_of_fairseq_interactive_alone_and_together(names, translator):
    typed = sentences(names)
    command = ("fairseq-interactive", *lists(names), *PLUGIN, "--buffer-size", 100, "--batch-size", 7)
    printed = run(*command, stdin="\n".join(typed) + "\n").stdout
    expected = hypotheses(printed)
    assert "selten" in " ".join(expected) and len(set(expected)) > 50
    together, alone = answers(translator, typed), answers(translator, typed, together=False)
    assert [answer["text"] for answer in together] == [answer["text"] for answer in alone] == expected
    assert max(answer["batch"] for answer in alone) == 1 < min(answer["batch"] for answer in together)
    scores = sorted((int(x), float(score)) for x, score in re.findall(r"^H-(\d+)\t(\S+)", printed, re.MULTILINE))
    assert [answer["score"] for answer in together] == pytest.approx([score for _, score in scores], abs=1e-4)


@pytest.mark.parametrize("length", [(), ("--max-len-a", 1, "--max-len-b", 3)])
def test_a_network_that_is_not_sure_answers_the_same_alone_and_together(data, drawn, text, length):
    """Also where the longest source sentence of a batch decides how long its translations may be."""
    length = length or ("--max-len-b", 8)
    flags = (data, "--path", drawn / "one.pt", "--candidate-frequent", 30, "--beam", 3, "--cpu", *length)
    translator = translator_of(*flags, "--batch-size", 16)
    typed = (text / "test.src").read_text(encoding="utf-8").splitlines()[:20]
    together, alone = answers(translator, typed), answers(translator, typed, together=False)
    assert [answer["text"] for answer in together] == [answer["text"] for answer in alone]
    assert max(answer["batch"] for answer in together) > 1


def test_settings_of_a_request_are_those_of_the_flags(names, translator):
    typed = sentences(names)[:12]
    for flags, changed in (
        (("--unk-replacement", "none"), {"unk_replacement": "none"}),
        (("--unk-replacement", "copy", "--beam", 2), {"unk_replacement": "copy", "beam": 2}),
        (("--candidate-frequent", 30, "--candidate-per-word", 0), {"candidate_frequent": 30, "candidate_per_word": 0}),
        (("--candidate-frequent", 0, "--candidate-per-word", 0), {"candidate_frequent": 0, "candidate_per_word": 0}),
        (("--candidate-frequent", 60), {"candidate_frequent": 60}),
    ):
        other = translator_of(*lists(names), *flags)
        expected = answers(other, typed)
        mine = answers(translator, typed, translator.bounds.choose(changed))
        for answer in (*expected, *mine):
            del answer["milliseconds"]
        assert mine == expected
    back = answers(translator, typed)
    assert [answer["list"]["candidate_frequent"] for answer in back if answer["tokens"]] == [20] * 11


def test_settings_that_nobody_uses_are_forgotten(names, translator):
    for frequent in range(1, 40):
        answers(translator, ["s1"], translator.bounds.choose({"candidate_frequent": frequent}))
    assert len(translator._made) == 16
    assert answers(translator, ["s1"])[0]["text"] == "t1"


def test_a_server_that_was_started_without_lists_makes_them_when_asked(names):
    translator = translator_of(names / "data", "--path", names / "model.pt", "--lexicon", names / "lexicon", "--cpu")
    (answer,) = answers(translator, ["s1 Mc1"])
    assert answer["list"] is None and [token["origin"] for token in answer["tokens"]] == ["all words", "special"]
    (answer,) = answers(translator, ["s1 Mc1"], translator.bounds.choose({"candidate_frequent": 20}))
    assert answer["list"] == {"words": 25, "candidate_frequent": 20, "candidate_per_word": 10}


def test_every_word_says_where_it_came_from(translator):
    (answer,) = answers(translator, ["s2 s1 rare3 Mc77"])
    assert answer["text"] == "t2 t1 selten3 Mc77" and answer["milliseconds"] > 0
    assert [word["unknown"] for word in answer["source"]] == [False, False, True, True]
    assert [token["attention"] for token in answer["tokens"]] == [[float(i == j) for j in range(4)] for i in range(4)]
    kinds = [(token["word"], token["origin"], token["unknown"]) for token in answer["tokens"]]
    rank = {token["word"]: token["rank"] for token in answer["tokens"][:2]}
    assert rank["t2"] <= 20 < rank["t1"]
    assert kinds == [
        ("t2", "frequent", False),
        ("t1", "lexicon", False),
        ("selten3", "special", True),
        ("Mc77", "special", True),
    ]
    assert [token["replaced"] for token in answer["tokens"]] == [
        None,
        None,
        {"rule": "lexicon-lowercase", "how": "translated", "source": "rare3", "place": 2},
        {"rule": "lexicon-lowercase", "how": "copied", "source": "Mc77", "place": 3},
    ]
    assert answer["tokens"][1]["lexicon"] == {"source": "s1", "number": 1, "probability": 0.9048}
    (answer,) = answers(translator, ["s2 Mc77"], translator.bounds.choose({"unk_replacement": "none"}))
    assert answer["text"] == "t2 <unk>" and answer["tokens"][1]["replaced"] is None


def test_pieces_of_words_say_which_word_they_became_part_of(tmp_path):
    """The network knows "Mc" and not the rest of a name; the piece that it wrote is part of the whole word."""
    known = [f"s{i}" for i in range(30)]
    for split in ("train", "valid", "test"):
        lines = [f"{word} Mc@@ {known[i - 1]}\n" for i, word in enumerate(known)]
        (tmp_path / f"{split}.src").write_text("".join(lines))
        (tmp_path / f"{split}.tgt").write_text("".join(lines))
    preprocess(tmp_path, tmp_path / "data")
    word_for_word(tmp_path / "model.pt", tmp_path / "data", lambda word: word)
    flags = (tmp_path / "data", "--path", tmp_path / "model.pt", "--unk-replacement", "copy", "--cpu")
    translator = translator_of(*flags, "--post-process", "subword_nmt")
    (answer,) = answers(translator, ["s1 Mc@@ Kay s2"])
    assert answer["text"] == "s1 McKay s2"
    first, piece, rest, last = [token["replaced"] for token in answer["tokens"]]
    assert first is last is None and {piece["how"], rest["how"]} == {"joined", "copied"}
    assert (rest if rest["how"] == "copied" else piece)["source"] == "McKay"


def test_a_question_says_why_a_word_is_or_is_not_on_the_list(translator):
    asked = ["t2", "t1", "t30", "nowhere", "selten3"]
    found = translator.why(translator.words("s2 s1"), asked, translator.bounds.default)
    why = {answer["word"]: answer for answer in found["words"]}
    assert [why[word]["on_list"] for word in asked] == [True, True, False, False, False]
    assert re.fullmatch(r"number \d+ by frequency, K = 20", why["t2"]["why"]) and why["t2"]["origin"] == "frequent"
    assert why["t1"]["why"] == "translation 1 of 's1', K' = 2" and why["t1"]["origin"] == "lexicon"
    assert re.fullmatch(
        r"number \d+ by frequency, K = 20; no translation of a source word in the lexicon", why["t30"]["why"]
    )
    assert why["nowhere"]["why"] == "not in the dictionary of target words"
    assert found["list"]["words"] == answers(translator, ["s2 s1"])[0]["list"]["words"]
    everything = translator.bounds.choose({"candidate_frequent": 0, "candidate_per_word": 0})
    (word,) = translator.why(translator.words("s2"), ["t30"], everything)["words"]
    assert word["on_list"] and word["why"] == "there is no list: all 64 words may be chosen"


def test_what_waits_together_is_decoded_together_and_goes_to_who_asked(translator):
    worker = Worker(translator, most_waiting=100)
    copy = translator.bounds.choose({"unk_replacement": "copy"})
    jobs = [Job([f"s{i} rare1"] * (1 + i % 2), copy if i % 3 else translator.bounds.default) for i in range(12)]
    futures = [worker.submit(job) for job in jobs]
    assert worker.waiting == 18
    futures[4].cancel()
    assert worker.waiting == 17
    worker.start()
    for i, future in enumerate(futures):
        if i != 4:
            rare = "rare1" if i % 3 else "selten1"
            assert [answer["text"] for answer in future.result(60)] == [f"t{i} {rare}"] * (1 + i % 2)
    assert [future.result()[0]["batch"] for i, future in enumerate(futures) if i != 4] == [
        12 - 1 if i % 3 else 6 for i in range(12) if i != 4
    ]
    worker.stop()
    assert worker.join(60) and worker.waiting == 0


def test_a_sentence_that_fails_takes_no_other_with_it(translator):
    class Failing:
        def __getattr__(self, name):
            return getattr(translator, name)

        def translate(self, sentences, settings):
            for place, answer in translator.translate(sentences, settings):
                if sentences[place] == ["s3"]:
                    raise MemoryError
                yield place, answer

    worker = Worker(Failing(), most_waiting=100)
    futures = [worker.submit(Job([f"s{i}"], translator.bounds.default)) for i in range(6)]
    worker.start()
    with pytest.raises(MemoryError):
        futures[3].result(60)
    assert [futures[i].result(60)[0]["text"] for i in range(6) if i != 3] == [f"t{i}" for i in range(6) if i != 3]
    worker.stop()


def test_what_takes_too_long_after_a_stop_is_given_up(translator):
    begun, go_on = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, name):
            return getattr(translator, name)

        def translate(self, sentences, settings):
            begun.set()
            assert go_on.wait(60)
            yield from translator.translate(sentences, settings)

    worker = Worker(Slow(), most_waiting=100)
    worker.start()
    running = worker.submit(Job(["s1"], translator.bounds.default))
    assert begun.wait(60)
    worker.stop()
    worker.give_up()
    with pytest.raises(StoppingError):
        running.result(60)
    assert not worker.join(0)
    go_on.set()
    assert worker.join(60)


def test_a_stopped_worker_begins_nothing(translator):
    worker = Worker(translator, most_waiting=2)
    waiting = worker.submit(Job(["s1", "s2"], translator.bounds.default))
    with pytest.raises(BusyError):
        worker.submit(Job(["s1"], translator.bounds.default))
    worker.stop()
    worker.start()
    with pytest.raises(StoppingError):
        waiting.result(60)
    with pytest.raises(StoppingError):
        worker.submit(Job(["s1"], translator.bounds.default))
    assert worker.join(60)


class Client:
    """Calls an application as a server does."""

    def __init__(self, worker, limits=None, hosts=("127.0.0.1",)):
        self.worker, self.app = worker, api.application(worker, limits or api.Limits(20, 4, 60), hosts)

    def ask(self, method: str, path: str, body=None, stalls: bool = False, **headers) -> tuple:
        """Status, headers, and what was answered."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        headers = {"host": "127.0.0.1:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {"type": "http", "method": method, "path": path, "query_string": b"", "root_path": ""}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        sent = []

        async def call():
            never = asyncio.Event()
            parts = iter([{"type": "http.request", "body": body, "more_body": stalls}])

            async def receive():
                return next(parts, None) or await never.wait()

            async def send(message):
                sent.append(message)

            await self.app(scope, receive, send)

        asyncio.run(call())
        got = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return sent[0]["status"], got, json.loads(text) if got["content-type"] == "application/json" else text


@pytest.fixture
def client(worker):
    return Client(worker)


def test_translations_come_in_the_order_of_the_request(client):
    status, headers, answer = client.ask("POST", "/translate", {"text": "s1 Ł1"})
    assert status == 200 and headers["content-type"] == "application/json"
    assert [translation["text"] for translation in answer["translations"]] == ["t1 Ł1"]
    _, _, answer = client.ask("POST", "/translate", {"text": ["s1", "s2 s3", "", "s4"], "beam": 2})
    assert [translation["text"] for translation in answer["translations"]] == ["t1", "t2 t3", "", "t4"]
    assert client.ask("POST", "/translate", {"text": []})[2] == {"translations": []}
    status, _, answer = client.ask("POST", "/why", {"text": "s1", "words": "t1", "candidate_per_word": None})
    assert status == 200 and answer["words"][0]["on_list"]


def test_health_says_what_may_be_asked(client, names):
    status, _, answer = client.ask("GET", "/health")
    assert status == 200 and answer["status"] == "ok" and answer["waiting"] == 0
    assert answer["settings"] == {
        "candidate_frequent": 20,
        "candidate_per_word": 2,
        "beam": 5,
        "unk_replacement": "lexicon-lowercase",
    }
    assert answer["limits"]["candidate_frequent"] == answer["target_words"] == 60
    assert str(names) not in json.dumps(answer)


TEXT = {"text": "s1"}
MISTAKES = [
    ("GET", "/nowhere", None, 404, "there is no '/nowhere': there are /, /health, /translate and /why"),
    ("POST", "/translate/", TEXT, 404, "there is no '/translate/'"),
    ("GET", "/translate", None, 405, "/translate takes POST, not GET"),
    ("DELETE", "/health", None, 405, "/health takes"),
    ("POST", "/translate", b"", 400, "the request is not JSON"),
    ("POST", "/translate", b"{", 400, "the request is not JSON (line 1, column 2)"),
    ("POST", "/translate", b'{"text": "\xff"}', 400, "the request is not UTF-8"),
    ("POST", "/translate", b"[" * 100_000, 400, "the request is not JSON"),
    ("POST", "/translate", b'{"text": "s1", "beam": ' + b"9" * 5000 + b"}", 400, "the request is not JSON"),
    ("POST", "/translate", [1], 400, "the request is no object"),
    ("POST", "/translate", {}, 400, '"text" must be a sentence, or a list of sentences'),
    ("POST", "/translate", {"text": 5}, 400, '"text" must be a sentence, or a list of sentences'),
    ("POST", "/translate", {"text": ["s1", None]}, 400, '"text" must be a sentence, or a list of sentences'),
    ("POST", "/translate", {"text": "\ud800"}, 400, "a sentence holds half a character (a lone surrogate)"),
    ("POST", "/translate", {"text": ["s1"] * 5}, 413, "5 sentences: at most 4 in a request"),
    ("POST", "/translate", {"text": "s" * 1001}, 413, "a sentence of 1,001 characters: at most 1,000"),
    ("POST", "/translate", {"text": "s1 " * 201}, 413, "a sentence of 201 words: at most 200 are translated"),
    ("POST", "/translate", {"text": "s" * 2_000_000}, 413, "a request of more than 1,048,576 bytes"),
    ("POST", "/translate", {**TEXT, "beem": 5}, 400, "'beem' is no field of this request: there are text, candidate_"),
    ("POST", "/translate", {**TEXT, "beam": 0}, 400, "beam must be a whole number from 1 to 32"),
    ("POST", "/translate", {**TEXT, "beam": True}, 400, "beam must be a whole number from 1 to 32"),
    ("POST", "/translate", {**TEXT, "beam": None}, 400, "beam must be a whole number from 1 to 32"),
    ("POST", "/translate", b'{"text": "s1", "beam": NaN}', 400, "beam must be a whole number from 1 to 32"),
    ("POST", "/translate", {**TEXT, "candidate_frequent": 61}, 400, "candidate_frequent must be a whole number from 0"),
    ("POST", "/translate", {**TEXT, "candidate_per_word": -1}, 400, "candidate_per_word must be a whole number from 0"),
    ("POST", "/translate", {**TEXT, "unk_replacement": "best"}, 400, "unk_replacement must be one of none, copy, lex"),
    ("POST", "/translate", {**TEXT, "unk_replacement": []}, 400, "unk_replacement must be one of none, copy, lexicon"),
    ("POST", "/why", {"text": "s1"}, 400, '"words" must be a target word, or a list of them'),
    ("POST", "/why", {"words": "t1"}, 400, '"text" must be the source sentence, as text'),
    ("POST", "/why", {"text": "s1", "words": ["t"] * 101}, 413, "101 words: at most 100 in a question"),
]


@pytest.mark.parametrize("method, path, body, code, line", MISTAKES)
def test_a_bad_request_gets_one_clear_error(translator, caplog, method, path, body, code, line):
    words = 200 if isinstance(body, dict) and " " in str(body.get("text")) else 20
    worker = Worker(translator, 100)
    worker.start()
    status, headers, answer = Client(worker, api.Limits(words, 4, 60)).ask(method, path, body)
    worker.stop()
    assert (status, list(answer)) == (code, ["error"]) and answer["error"].startswith(line), answer
    assert "\n" not in answer["error"] and headers["content-type"] == "application/json"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_what_needs_a_lexicon_is_refused_without_one(names):
    worker = Worker(translator_of(names / "data", "--path", names / "model.pt", "--cpu"), 100)
    for given, line in (
        ({"unk_replacement": "lexicon"}, "unk_replacement lexicon needs a lexicon"),
        ({"candidate_per_word": 3}, "candidate_per_word takes words from a lexicon"),
    ):
        status, _, answer = Client(worker).ask("POST", "/translate", {**TEXT, **given})
        assert status == 400 and answer["error"].startswith(line)


def test_foreign_pages_and_names_are_refused(client):
    assert client.ask("GET", "/health", host="evil.example")[0] == 403
    assert client.ask("GET", "/", host="127.0.0.1.evil.example:8000")[0] == 403
    status, headers, answer = client.ask("POST", "/translate", TEXT, sec_fetch_site="cross-site", origin="http://evil")
    assert status == 403 and list(answer) == ["error"]
    assert client.ask("POST", "/translate", TEXT, origin="http://evil")[0] == 403
    assert client.ask("POST", "/translate", TEXT, origin="null")[0] == 403
    assert client.ask("POST", "/translate", TEXT, origin="http://127.0.0.1:8000")[0] == 200
    anywhere = Client(client.worker, hosts=None)
    assert anywhere.ask("POST", "/translate", TEXT, host="10.0.0.1", origin="http://evil")[0] == 403
    behind_a_proxy = Client(client.worker, hosts={"127.0.0.1", "translate.example"})
    assert behind_a_proxy.ask("POST", "/translate", TEXT, origin="https://translate.example")[0] == 200
    assert not [name for name in headers if name.startswith("access-control")]
    assert client.ask("POST", "/translate", TEXT, sec_fetch_site="same-origin")[0] == 200
    assert Client(client.worker, hosts=None).ask("GET", "/health", host="translate.example")[0] == 200


def test_a_full_queue_and_a_slow_answer_are_said(translator):
    worker = Worker(translator, most_waiting=1)  # nobody works
    status, _, answer = Client(worker, api.Limits(20, 4, 0.05)).ask("POST", "/translate", TEXT)
    assert status == 504 and answer["error"].startswith("no answer within 0.05 s")
    worker.submit(Job(["s1"], translator.bounds.default))
    status, headers, answer = Client(worker).ask("POST", "/translate", TEXT)
    assert status == 503 and headers["retry-after"] == "1" and answer["error"].startswith("too many sentences")
    status, _, answer = Client(worker, api.Limits(20, 4, 0.05)).ask("POST", "/translate", b'{"te', stalls=True)
    assert status == 408 and answer["error"] == "the request was not complete after 0.05 s"
    worker.stop()
    status, headers, answer = Client(worker).ask("POST", "/translate", TEXT)
    assert status == 503 and answer["error"] == "the server is being stopped"


def test_something_that_breaks_is_in_the_log_and_not_in_the_answer(translator, caplog):
    class Broken(Worker):
        def submit(self, job):
            raise ZeroDivisionError("secret")

    status, _, answer = Client(Broken(translator, 1)).ask("POST", "/translate", TEXT)
    assert status == 500 and answer == {"error": "something went wrong; the server's log says what"}
    assert "secret" in caplog.text


def test_the_page_is_whole_and_runs_nothing_else(client):
    status, headers, text = client.ask("GET", "/")
    assert status == 200 and text == page() and headers["content-type"].startswith("text/html")
    assert headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
    assert "/*" not in text and "innerHTML" not in text
    assert not re.search(r"""(src|href)=["'](?!data:,)|url\(|@import|https?://""", text)


@pytest.mark.parametrize(
    "flags, line",
    [
        (("--path", "nowhere.pt"), "nowhere.pt"),
        ((), "--path is missing: name the checkpoint to serve"),
        (("--path", "MODEL", "--candidate-scope", "batch", "--candidate-frequent", "9"), "--candidate-scope does not"),
        (("--path", "MODEL", "--print-candidates", "--candidate-frequent", "9"), "--print-candidates does not work"),
        (("--path", "MODEL", "--task", "translation"), "--task translation knows no lists: take lv_translation"),
        (("--path", "MODEL", "--candidate-frequent", "999"), "--candidate-frequent 999 is more than the 60 words"),
        (("--path", "MODEL", "--timeout", "0"), "--timeout must be more than 0, not 0.0"),
        (("--path", "MODEL", "--port", "70000"), "--port must be from 0 to 65535, not 70000"),
        (("--path", "MODEL", "--host", "nowhere.invalid"), "cannot listen at nowhere.invalid, port 0: "),
    ],
)
def test_a_wrong_start_ends_in_one_line(names, flags, line):
    flags = [str(names / "model.pt") if flag == "MODEL" else flag for flag in flags]
    with pytest.raises(SystemExit) as ended:
        serve.main([str(names / "data"), "--cpu", "--port", "0", *flags])
    assert line in ended.value.code and "\n" not in ended.value.code


def test_help_shows_its_flags_and_those_of_fairseq_interactive(capsys):
    with pytest.raises(SystemExit) as ended:
        serve.main(["--help"])
    text = capsys.readouterr().out
    assert ended.value.code == 0 and text.startswith("usage: lv-serve ")
    assert all(f"\n  {flag} " in text for flag in ("--port", "--max-queue", "--beam", "--path", "--candidate-retries"))


def test_without_its_extra_it_says_what_to_install_and_the_package_does_without(names, tmp_path):
    code = (
        "import sys\n"
        "import lv_fairseq\n"
        "lv_fairseq.register()\n"
        "assert 'starlette' not in sys.modules and 'uvicorn' not in sys.modules\n"
        "sys.modules['starlette'] = None\n"
        "from lv_fairseq.commands.serve import main\n"
        f"main([{str(names / 'data')!r}, '--path', {str(names / 'model.pt')!r}])\n"
    )
    ended = run_code(code, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "lv-serve needs starlette: pip install 'lv_fairseq[serve]'"


def test_a_second_signal_ends_it_at_once(tmp_path):
    code = (
        "import signal, uvicorn\n"
        "from lv_fairseq.serving.server import Server\n"
        "server = Server(uvicorn.Config(None), None)\n"
        "with server.capture_signals():\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    assert server.should_exit\n"
        "    signal.raise_signal(signal.SIGINT)\n"
    )
    assert run_code(code, tmp_path).returncode == 128 + signal.SIGINT


@pytest.fixture(scope="module")
def server(names):
    """A real one, with its port."""
    started = Started(sys.executable, SCRIPT, *lists(names), "--port", 0)
    lines = []
    for line in started.process.stderr:
        lines.append(line)
        if found := re.search(r"http://127.0.0.1:(\d+) answers", line):
            break
    else:
        raise AssertionError("".join(lines))
    started.port = int(found.group(1))
    yield started
    started.kill()


def post(port: int, given: dict, path: str = "/translate") -> tuple:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", path, json.dumps(given))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_many_ask_at_once_and_each_has_its_own_answer(server):
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda i: post(server.port, {"text": f"s{i % 40} Mc{i}"}), range(60)))
    assert [status for status, _ in found] == [200] * 60
    assert [x["translations"][0]["text"] for _, x in found] == [f"t{i % 40} Mc{i}" for i in range(60)]


def test_a_port_that_is_taken_is_said_in_one_line(server, names):
    with pytest.raises(SystemExit) as ended:
        serve.main([str(x) for x in (*lists(names), "--port", server.port)])
    assert ended.value.code == (
        f"cannot listen at 127.0.0.1, port {server.port}: Address already in use; name others with --host and --port"
    )


def test_too_much_is_answered_and_not_cut_off(server):
    status, answer = post(server.port, {"text": "s" * 5_000_000})
    assert status == 413 and list(answer) == ["error"]


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    if BROWSER is None:
        pytest.skip("needs chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[360, 1280])
def tab(request, browser, server):
    """The page in a window of a phone's and of a desk's width. Nothing may be wrong in it, or come from elsewhere."""
    context = browser.new_context(viewport={"width": request.param, "height": 800}, has_touch=request.param == 360)
    tab, wrong, asked = context.new_page(), [], []
    tab.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.set_default_timeout(60_000)
    tab.goto(f"http://127.0.0.1:{server.port}/")
    yield tab
    assert tab.evaluate("document.documentElement.scrollWidth") <= request.param
    assert wrong == [] and all(url.startswith((f"http://127.0.0.1:{server.port}/", "data:")) for url in asked)
    context.close()


def about(tab) -> str:
    return tab.locator(".about").first.inner_text()


def test_in_a_browser_a_sentence_is_translated_and_explained(tab):
    tab.get_by_label("Sentences to translate").fill("s2 s1 rare3 Mc77\n<b>Mc5</b>")
    tab.get_by_role("button", name="Translate", exact=True).click()
    first = tab.locator(".answer").first
    assert first.locator(".whole").inner_text() == "t2 t1 selten3 Mc77"
    assert tab.locator(".answer").nth(1).locator(".whole").inner_text() == "<b>Mc5</b>"
    assert tab.locator(".answer b").count() == 0
    assert " ms · a list of " in first.locator(".quiet").first.inner_text()
    assert first.locator(".word small").all_inner_texts() == ["F", "L", "R", "R"]
    first.locator(".word.replaced").first.click()
    assert "translated from “rare3” (rule lexicon-lowercase)" in about(tab)
    assert "Looks at: “rare3” 100 %" in about(tab)
    assert first.locator("ul.words li.seen").inner_text().startswith("rare3")
    first.locator(".word.lexicon").hover()
    assert "on the list by the lexicon" in about(tab) and "translation 1 of “s1”" in about(tab)
    assert first.locator("ul.words li.seen").inner_text().startswith("s1")
    first.get_by_label("Why is a word on the list").fill("t1 nowhere")
    first.get_by_role("button", name="Why?").click()
    first.locator(".why p").nth(1).wait_for()
    assert first.locator(".why p").all_inner_texts() == [
        "t1 is on the list: translation 1 of 's1', K' = 2",
        "nowhere is not on the list: not in the dictionary of target words",
    ]
    tab.get_by_label("K, frequent words").fill("0")
    tab.get_by_label("K′, translations of a word").fill("0")
    tab.get_by_label("Unknown words").select_option("none")
    tab.get_by_role("button", name="Translate", exact=True).click()
    tab.locator(".word.left").first.wait_for()
    assert first.locator(".whole").inner_text() == "t2 t1 <unk> <unk>"
    assert "all words" in first.locator(".quiet").first.inner_text()


def test_in_a_browser_the_keyboard_is_enough(tab):
    focused = lambda: tab.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.id")
    assert focused() == "text"
    tab.keyboard.type("s2 Mc77 s1")
    tab.keyboard.press("Control+Enter")
    tab.locator(".answer").wait_for()
    for _ in range(20):
        tab.keyboard.press("Tab")
        if focused() == "t2, frequent":
            break
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("ArrowRight")
    assert focused() == "Mc77, replaced" and "copied from “Mc77”" in about(tab)
    tab.keyboard.press("End")
    assert focused() == "t1, from the lexicon" and tab.locator("[aria-current=true]").count() == 1
    for _ in range(5):
        tab.keyboard.press("Tab")
        if focused() == "why0":
            break
    tab.keyboard.type("t1")
    tab.keyboard.press("Enter")
    tab.locator(".why p").wait_for()
    assert tab.locator("[aria-live=polite]").count() == 3
    unlabelled = "[...document.querySelectorAll('input, select, textarea')].filter(x => !x.labels.length).length"
    assert tab.evaluate(unlabelled) == 0


def test_in_a_browser_mistakes_are_said(tab):
    tab.get_by_role("button", name="Translate", exact=True).click()
    assert tab.locator("#status .error").inner_text() == "Type a sentence first."
    tab.get_by_label("Sentences to translate").fill("s1")
    tab.get_by_label("Beam").fill("99")
    tab.get_by_role("button", name="Translate", exact=True).click()
    assert tab.locator("#status .error").inner_text().startswith("Beam: ")
    tab.get_by_role("button", name="Settings as started").click()
    tab.get_by_role("button", name="Translate", exact=True).click()
    tab.locator(".answer").wait_for()
    assert tab.locator("#status .error").count() == 0


def test_a_signal_ends_it_in_order(server):
    """Last in this file: the server is gone then."""
    found = []
    texts = [" ".join(f"s{(i + j) % 40}" for j in range(10)) for i in range(64)]
    thread = threading.Thread(target=lambda: found.append(post(server.port, {"text": texts, "beam": 8})))
    thread.start()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    waiting = 0
    while not waiting and not found:  # until the request is there, or has been answered already
        connection.request("GET", "/health")
        waiting = json.loads(connection.getresponse().read())["waiting"]
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    ((status, answer),) = found
    assert (status, list(answer)) in ((200, ["translations"]), (503, ["error"]))
    assert server.process.wait(60) == 0 and not server.alive()
    said = server.process.stderr.read()
    assert "stopped by SIGTERM" in said and "Traceback" not in said
