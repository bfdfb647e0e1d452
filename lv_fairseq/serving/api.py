"""Requests to JSON and back. Every answer that is no translation is one line: ``{"error": "..."}``."""

import asyncio
import json
import logging
import time
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from lv_fairseq import __version__
from lv_fairseq.errors import UserError
from lv_fairseq.serving.page import POLICY, page
from lv_fairseq.serving.settings import Settings
from lv_fairseq.serving.translator import TooLongError
from lv_fairseq.serving.worker import BusyError, Job, StoppingError, Worker

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 20  # of a request
DRAINED = 16  # times as many are read, so that who sends too much reads the answer
CHARACTERS = 50  # of a word, on average over a sentence
MOST_ASKED = 100  # words of a question
RETRY = 1  # seconds after which a busy server may be asked again
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Limits(NamedTuple):
    words: int  # of a sentence
    sentences: int  # of a request
    seconds: float  # that a request may take


class Refused(Exception):  # noqa: N818
    """A request that gets no answer, and why not."""

    def __init__(self, status: int, why: str, **headers: str):
        super().__init__(why)
        self.status, self.headers = status, headers


def application(worker: Worker, limits: Limits, hosts: Optional[Collection[str]] = None) -> Callable:
    """
    Args:
        hosts: names by which the server may be called; None: any. A page of another site can make a browser take its
            own name for an address of this machine (DNS rebinding), but not change the name that the browser sends.
    """
    api = Api(worker, limits)
    routes = [
        Route("/", api.page, methods=["GET"]),
        Route("/health", api.health, methods=["GET"]),
        Route("/translate", api.translate, methods=["POST"]),
        Route("/why", api.why, methods=["POST"]),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: not_there, Refused: refused, Exception: broken})
    app.router.redirect_slashes = False
    return guarded(app, hosts)


def guarded(app: Callable, hosts: Optional[Collection[str]]) -> Callable:
    """An application that answers no foreign page, and that writes a line about each request."""

    async def answer(scope, receive, send):
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        start, status = time.perf_counter(), 0

        async def watch(message):
            nonlocal status
            status = message.get("status", status)
            await send(message)

        why_not = foreign(scope, hosts)
        try:
            await (app if why_not is None else reply({"error": why_not}, 403))(scope, receive, watch)
        except Exception:  # has its answer from `broken`
            pass
        finally:
            milliseconds = 1000 * (time.perf_counter() - start)
            logger.debug("%s %r: %d, %.1f ms", scope["method"], scope["path"][:100], status, milliseconds)

    return answer


def foreign(scope: Dict, hosts: Optional[Collection[str]]) -> Optional[str]:
    """Why a request is not one of our own page or of a program on this machine; None if it may be."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    host = headers.get(b"host", "")
    if hosts is not None and name_of(host) not in hosts:
        return "the Host header names another machine: call the server by its address, or start it with --allow-host"
    if scope["method"] == "POST" and of_another_site(headers, host, hosts or ()):
        return "a page of another site may not ask"
    return None


def name_of(host: str) -> str:
    """Without the port."""
    return (host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]).lower()


def of_another_site(headers: Dict[bytes, str], host: str, hosts: Collection[str]) -> bool:
    """Browsers say so themselves, but not to an address of the network without TLS: there they name the page's origin.
    Programs send neither."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None or origin is None:
        return site not in (None, "same-origin", "none")
    asking = origin.partition("://")[2]
    return asking != host and name_of(asking) not in hosts


class Api:
    def __init__(self, worker: Worker, limits: Limits):
        self.worker, self.limits, self.bounds = worker, limits, worker.translator.bounds

    async def page(self, request: Request) -> Response:
        return Response(page(), media_type="text/html; charset=utf-8", headers=HEADERS)

    async def health(self, request: Request) -> Response:
        """That it lives, and what it can be asked."""
        translator = self.worker.translator
        limits = {**self.bounds.limits(), "words": translator.most_words, "sentences": self.limits.sentences}
        return reply(
            {
                "status": "ok",
                "version": __version__,
                **translator.about(),
                "settings": self.bounds.default._asdict(),
                "limits": {**limits, "seconds": self.limits.seconds},
                "waiting": self.worker.waiting,
            }
        )

    async def translate(self, request: Request) -> Response:
        given = await self._read(request)
        settings = self._settings(given, {"text"})
        texts = self._texts(given)
        return reply({"translations": await self._answer(Job(texts, settings))})

    async def why(self, request: Request) -> Response:
        given = await self._read(request)
        settings = self._settings(given, {"text", "words"})
        if not isinstance(given.get("text"), str):
            raise Refused(400, '"text" must be the source sentence, as text')
        words = given.get("words")
        words = [words] if isinstance(words, str) else words
        if not is_texts(words) or not words:
            raise Refused(400, '"words" must be a target word, or a list of them')
        if len(words) > MOST_ASKED:
            raise Refused(413, f"{len(words):,} words: at most {MOST_ASKED} in a question")
        for word in words:
            self._check(word, "a word")
        (answer,) = await self._answer(Job(self._texts(given), settings, words))
        return reply(answer)

    async def _read(self, request: Request) -> Dict[str, Any]:
        """The object that a request brings."""
        body, read = bytearray(), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in request.stream():
                    read += len(part)
                    if read <= MOST_BYTES:
                        body += part
                    elif read > DRAINED * MOST_BYTES:
                        break
        except TimeoutError:
            raise Refused(408, f"the request was not complete after {self.limits.seconds:g} s") from None
        if read > MOST_BYTES:
            raise Refused(413, f"a request of more than {MOST_BYTES:,} bytes: send fewer sentences at once")
        try:
            given = json.loads(body.decode("utf-8"))
        except UnicodeDecodeError:
            raise Refused(400, "the request is not UTF-8") from None
        except (ValueError, RecursionError) as error:
            where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
            raise Refused(400, f'the request is not JSON{where}: send {{"text": "..."}}') from None
        if not isinstance(given, dict):
            raise Refused(400, 'the request is no object: send {"text": "..."}')
        return given

    def _settings(self, given: Dict[str, Any], others: Collection[str]) -> Settings:
        unknown = [name for name in given if name not in Settings._fields and name not in others]
        if unknown:
            known = ", ".join([*sorted(others), *Settings._fields])
            raise Refused(400, f"{ascii(unknown[0][:50])} is no field of this request: there are {known}")
        try:
            return self.bounds.choose({name: value for name, value in given.items() if name in Settings._fields})
        except ValueError as error:
            raise Refused(400, str(error)) from None

    def _texts(self, given: Dict[str, Any]) -> List[str]:
        texts = given.get("text")
        texts = [texts] if isinstance(texts, str) else texts
        if not is_texts(texts):
            raise Refused(400, '"text" must be a sentence, or a list of sentences')
        if len(texts) > self.limits.sentences:
            raise Refused(413, f"{len(texts):,} sentences: at most {self.limits.sentences:,} in a request")
        for text in texts:
            self._check(text, "a sentence")
        return texts

    def _check(self, text: str, what: str) -> None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise Refused(400, f"{what} holds half a character (a lone surrogate)") from None
        if len(text) > CHARACTERS * self.limits.words:
            raise Refused(413, f"{what} of {len(text):,} characters: at most {CHARACTERS * self.limits.words:,}")

    async def _answer(self, job: Job) -> List:
        if not job.texts:
            return []
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.worker.submit(job)), self.limits.seconds)
        except TimeoutError:
            seconds = f"{self.limits.seconds:g} s"
            raise Refused(504, f"no answer within {seconds}: send fewer or shorter sentences, or try later") from None
        except BusyError:
            later = {"Retry-After": str(RETRY)}
            raise Refused(503, "too many sentences are waiting: try again later", **later) from None
        except StoppingError:
            raise Refused(503, "the server is being stopped", **{"Retry-After": str(RETRY)}) from None
        except TooLongError as error:
            raise Refused(413, str(error)) from None
        except UserError as error:
            raise Refused(400, str(error)) from None


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def reply(answer: Dict, status: int = 200, headers: Optional[Dict[str, str]] = None) -> Response:
    body = json.dumps(answer, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    return Response(body, status, {**HEADERS, **(headers or {})}, "application/json")


async def refused(request: Request, error: Refused) -> Response:
    return reply({"error": str(error)}, error.status, error.headers)


async def not_there(request: Request, error: HTTPException) -> Response:
    """An unknown path, or one that is asked in another way."""
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return reply({"error": f"{request.url.path} takes {allowed}, not {request.method}"}, 405, {"Allow": allowed})
    if error.status_code == 404:
        there = "there are /, /health, /translate and /why"
        return reply({"error": f"there is no {ascii(request.url.path[:100])}: {there}"}, 404)
    return reply({"error": error.detail}, error.status_code)


async def broken(request: Request, error: Exception) -> Response:
    if not isinstance(error, ClientDisconnect):
        logger.error("a request failed", exc_info=error)
    return reply({"error": "something went wrong; the server's log says what"}, 500)
