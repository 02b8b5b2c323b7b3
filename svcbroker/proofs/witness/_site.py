"""
A witness over HTTP, by Klein.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request as HttpRequest
from twisted.web.server import Request, Site

from ...net.deferreds import asDeferred
from ...storage import StorageError
from ..tlog import MAX_REQUEST_SIZE, SIZE_TYPE, CheckpointRefused
from ._executing import ExecutedCopy
from ._witness import Witness

MAX_WAITING: Final = 100
"""The most checkpoints that wait for the disk, or to be executed. More are refused."""
IDLE_TIMEOUT: Final = 60.0
"""A connection on which nothing arrives for this long is closed, in seconds."""

_TEXT: Final = "text/plain; charset=utf-8"


class BoundedRequest(Request):
    """
    A request whose body is bounded while it arrives. One that is too long is refused once, and its
    connection closed.
    """

    _received = 0
    _isRefused = False

    def gotLength(self, length: int | None) -> None:
        """See C{twisted.web.http.Request}."""
        if length is not None and length > MAX_REQUEST_SIZE:
            self._refuse()
        super().gotLength(min(length or 0, MAX_REQUEST_SIZE))

    def handleContentChunk(self, data: bytes) -> None:
        """See C{twisted.web.http.Request}."""
        self._received += len(data)
        if self._received > MAX_REQUEST_SIZE and not self._isRefused:
            self._refuse()
        if not self._isRefused:
            super().handleContentChunk(data)

    def process(self) -> None:
        """See C{twisted.web.http.Request}."""
        if not self._isRefused:
            super().process()

    def _refuse(self) -> None:
        self._isRefused = True
        transport: Any = self.channel.transport
        transport.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        transport.loseConnection()


class WitnessSite:
    """
    The HTTP interface of a witness: C{add-checkpoint}, the checkpoints it has cosigned, and a
    list of them.
    """

    app = Klein()
    _log = Logger()

    def __init__(
        self,
        witness: Witness,
        run: Callable[..., Deferred[Any]],
        executed: ExecutedCopy | None = None,
    ) -> None:
        """
        @param run: runs blocking work, one call after the other.
        @param executed: the copy of a witness that executes.
        """
        self._witness = witness
        self._run = run
        self._executed = executed
        self._waiting = 0

    def site(self, reactor: Any) -> Site:
        """The site that a port serves."""
        site = Site(self.app.resource(), timeout=IDLE_TIMEOUT, reactor=reactor)
        site.requestFactory = BoundedRequest
        # The log of accesses would say no more than the list of checkpoints.
        site.noisy = False
        site.log = lambda request: None  # type: ignore[method-assign]
        return site

    @app.route("/add-checkpoint", methods=["POST"])
    @asDeferred
    async def addCheckpoint(self, request: HttpRequest) -> bytes:
        """Cosign a checkpoint."""
        if self._waiting >= MAX_WAITING:
            return self._answer(request, 503, "too many checkpoints wait\n")
        assert request.content is not None
        self._waiting += 1
        try:
            lines = await self._cosign(request.content.read())
        except CheckpointRefused as refusal:
            if refusal.size is not None:
                return self._answer(request, refusal.status, f"{refusal.size}\n", SIZE_TYPE)
            self._log.warn("A checkpoint is refused: {reason}", reason=str(refusal))
            return self._answer(request, refusal.status, f"{refusal}\n")
        except StorageError:
            self._log.failure("A checkpoint cannot be stored")
            return self._answer(request, 503, "the checkpoint cannot be stored now\n")
        finally:
            self._waiting -= 1
        return self._answer(request, 200, lines)

    async def _cosign(self, data: bytes) -> str:
        """See L{Witness.addCheckpoint}."""
        head = None
        if self._executed is not None:
            head = await self._executed.confirm(await self._run(self._witness.checkRequest, data))
        lines: str = await self._run(self._witness.addCheckpoint, data, head)
        return lines

    @app.route("/<originHash>/checkpoint", methods=["GET", "HEAD"])
    def checkpoint(self, request: HttpRequest, originHash: str) -> bytes:
        """The last cosigned checkpoint of a log."""
        seen = self._witness.latest(originHash)
        if seen is None:
            return self._answer(request, 404, "no checkpoint of this log was cosigned here\n")
        request.setHeader("Cache-Control", "max-age=5")
        return self._answer(request, 200, seen.note.encode().decode())

    @app.route("/", methods=["GET", "HEAD"])
    def listSeen(self, request: HttpRequest) -> bytes:
        """Answer with the name of the witness and all that it has cosigned, in lines for people."""
        return self._answer(request, 200, "\n".join(describe(self._witness)) + "\n")

    @app.route("/healthz", methods=["GET", "HEAD"])
    def health(self, request: HttpRequest) -> bytes:
        """Whether it runs."""
        return self._answer(request, 200, "ok\n")

    @app.handle_errors(Exception)
    def failed(self, request: Any, failure: Failure) -> bytes:
        """Answer what has no answer of its own: other paths and methods, and bugs."""
        status = getattr(failure.value, "code", 500)
        if status == 500:
            self._log.failure("A request failed", failure)
        return self._answer(request, status, f"{getattr(failure.value, 'name', 'error')}\n")

    def _answer(self, request: HttpRequest, status: int, text: str, type: str = _TEXT) -> bytes:
        body = text.encode()
        request.setResponseCode(status, HTTPStatus(status).phrase.encode())
        request.setHeader("Content-Type", type)
        request.setHeader("Content-Length", str(len(body)))
        return body


def describe(witness: Witness) -> list[str]:
    """Describe what a witness has seen, in lines for people."""
    lines = [f"witness {each.text}" for each in witness.verifiers]
    for origin, seen in sorted(witness.seen.items()):
        lines.append(f"log {origin}: size {seen.head.size}, cosigned {_timeText(seen.time)}")
        fork = witness.forks.get(origin)
        if fork is not None:
            lines.append(
                f"  FORK REFUSED {_timeText(fork.time)}: it has signed another history, of size "
                f"{fork.head.size}"
            )
    for chain, wrong in sorted(witness.wrongs.items()):
        lines.append(f"chain {chain}: WRONG {_timeText(wrong.time)}: {wrong.text}")
    return lines


def _timeText(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
