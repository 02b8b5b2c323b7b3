"""
The transparency service that the commands of SCITT ask, by the SCITT Reference API. Nothing that it
answers is verified here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from time import monotonic, sleep
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

import httpx

from ..client._effects import HttpResponse
from ..client._httpx import answerOf, makeContext
from ..client._requests import authorization, checkUrl, readError
from ..proofs import ProofInvalid
from .clientcommand import brokerOf
from .terminal import CommandError, Exit, quoted

_COSE: Final = {"Content-Type": "application/cose", "Accept": "application/cose"}
_PROBLEM: Final = "application/concise-problem-details+cbor"
_UNDER_WAY: Final = (202, 204, 302, 303)
"""The answers about a statement that is being registered; drafts up to -10 redirect."""


class ScittClient:
    """
    A transparency service.

    Its methods raise L{CommandError}: it cannot be reached, refuses, or does not answer in time.

    @ivar urls: the broker that it is at.
    @ivar settings: the options of a client of that broker.
    """

    def __init__(
        self,
        base: str,
        http: httpx.Client,
        timeout: float,
        now: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep,
        urls: Sequence[str] = (),
        settings: Mapping[str, Any] = {},
    ) -> None:
        """
        @param base: the URL above its resources.
        @param timeout: how many seconds everything may take together; 0 for as long as it takes.
        @param now: the time in seconds, of a clock that never goes back.
        @param wait: waits for so many seconds.
        """
        self.urls = urls
        self.settings = settings
        self._base = base
        self._http = http
        self._now = now
        self._wait = wait
        self._timeout = timeout
        self._end = now() + (timeout or inf)

    def keys(self) -> bytes:
        """Its keys: a COSE_KeySet."""
        return self._result(self._ask("GET", "/.well-known/scitt-keys"))

    def register(self, statement: bytes) -> bytes:
        """
        Register a statement.

        @return: a receipt.
        """
        return self._result(self._settled(self._ask("POST", "/entries", statement)))

    def receipt(self, id: bytes, size: int | None = None) -> bytes:
        """
        A new receipt of an entry.

        @param id: the hash of the entry.
        @param size: the size of the tree that it is to be of, which only a broker knows; C{None}
            for the tree as it is now.
        """
        query = "" if size is None else f"?size={size}"
        return self._result(self._settled(self._ask("GET", f"/entries/{id.hex()}{query}")))

    def policy(self) -> bytes:
        """The Transparent Statement with the policy, whose receipt is of the tree as it is now."""
        return self._result(self._ask("GET", "/policy"))

    def consistency(self, size: int) -> bytes | None:
        """
        A receipt that the tree has everything that it had at a size.

        @return: C{None} where it has not grown.
        """
        answer = self._ask("GET", f"/consistency/{size}")
        return None if answer.status == 204 else self._result(answer)

    def _settled(self, answer: HttpResponse) -> HttpResponse:
        """The answer about a statement once it is no more under way."""
        place = self._base
        while answer.status in _UNDER_WAY:
            place = urljoin(place, answer.headers.get("location", ""))
            if urlsplit(place)[:2] != urlsplit(self._base)[:2] or place == self._base:
                raise CommandError(f"the service names no place of its own: {quoted(place)}")
            if not self._pause(answer):
                raise CommandError(
                    f"the statement was not registered within {self._timeout:g} seconds; ask "
                    "later: svcbroker proof scitt receipt",
                    Exit.BAD,
                )
            answer = self._ask("GET", place)
        return answer

    def _ask(self, method: str, path: str, body: bytes = b"") -> HttpResponse:
        """The answer to a request, which is made again while the service says so."""
        while True:
            answer = self._send(method, path if "://" in path else self._base + path, body)
            if answer.status not in (429, 503) or not self._pause(answer):
                return answer

    def _pause(self, answer: HttpResponse) -> bool:
        """Wait as an answer says. @return: whether there is time for it."""
        seconds = 1.0 if answer.retryAfter is None else answer.retryAfter
        if self._now() + seconds > self._end:
            return False
        self._wait(seconds)
        return True

    def _send(self, method: str, url: str, body: bytes) -> HttpResponse:
        from ..proofs.scitt import MAX_MESSAGE

        headers: Mapping[str, str] = _COSE if body else {}
        try:
            with self._http.stream(method, url, headers=headers, content=body or None) as response:
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MAX_MESSAGE:
                        raise CommandError(f"{url}: the answer has more than {MAX_MESSAGE} bytes")
                return answerOf(response, bytes(content))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CommandError(f"{url}: {error or type(error).__name__}") from None

    def _result(self, answer: HttpResponse) -> bytes:
        """The body of an answer that is good."""
        if answer.status in (200, 201):
            return answer.body
        text = _problemOf(answer)
        if text is None:
            raise CommandError(
                f"there is no transparency service at {self._base} (HTTP status {answer.status})"
            )
        raise CommandError(f"the service refused ({answer.status}): {text}", Exit.BAD)


def _problemOf(answer: HttpResponse) -> str | None:
    """The text of an error; C{None} where it is none that a service answers."""
    from ..proofs.scitt import decodeCbor

    if answer.headers.get("content-type") == _PROBLEM:
        try:
            fields = decodeCbor(answer.body, "the error")
        except ProofInvalid:
            fields = None
        if isinstance(fields, dict):
            words = [fields[each] for each in (-1, -2) if isinstance(fields.get(each), str)]
            return quoted(": ".join(words)[:1000])
    error = readError(answer.body)
    # What the broker says itself: of credentials, or of the size of a request.
    return None if error is None or answer.status == 404 else quoted(error.message)


@contextmanager
def askedService(given: Mapping[str, Any], topic: str | None) -> Iterator[ScittClient]:
    """
    The service that the options of the command line name.

    @param given: those that say which broker is asked.
    @param topic: the topic of the service; C{None} for the one at the root.
    @raise CommandError: they are wrong.
    """
    urls, settings = brokerOf(given, os.environ)
    if len(urls) > 1:
        raise CommandError("give one --url: the service is at one broker")
    try:
        base = checkUrl(urls[0])
        names = ("user", "password", "token")
        headers = authorization(*(settings.get(each) for each in names))
        options: Any = settings
        context = makeContext(options)
    except ValueError as error:
        raise CommandError(str(error)) from None
    timeout = given["timeout"]
    with httpx.Client(headers=headers, verify=context, timeout=timeout or None) as http:
        where = serviceUrl(base, topic)
        yield ScittClient(where, http, timeout, urls=urls, settings=settings)


def serviceUrl(base: str, topic: str | None) -> str:
    """
    The URL above the resources of a service.

    @param base: that of a broker, or of another service.
    @param topic: the topic, whose resources are below that; C{None} for those at the root.
    """
    if topic is not None:
        return f"{base}/scitt/{quote(topic)}"
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc}"
