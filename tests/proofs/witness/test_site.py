"""
Tests for the HTTP interface of a witness.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from svcbroker.proofs.tlog import MAX_REQUEST_SIZE, SIZE_TYPE, NoteSignature
from svcbroker.proofs.witness import WitnessSite
from svcbroker.proofs.witness._site import MAX_WAITING
from svcbroker.storage import StorageError

from .test_witness import LOG, ORIGIN, WitnessCase


class SiteTests(WitnessCase):
    """
    L{WitnessSite}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.waiting: list[Deferred[None]] = []
        self.isWaiting = False

        def run(work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
            if self.isWaiting:
                self.waiting.append(Deferred())
                return self.waiting[-1].addCallback(lambda _: work(*arguments))
            return maybeDeferred(work, *arguments)

        self.site = WitnessSite(self.witness, run).site(Clock())

    def send(self, data: bytes) -> StringTransport:
        """Send bytes over a connection of their own."""
        protocol: Any = self.site.buildProtocol(None)
        transport = StringTransport()
        protocol.makeConnection(transport)
        protocol.dataReceived(data)
        return transport

    def answerOf(self, transport: StringTransport) -> tuple[int, str, bytes]:
        """Status, content type and body of an answer."""
        head, _, body = transport.value().partition(b"\r\n\r\n")
        status, *lines = head.decode("ascii").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        self.assertEqual(int(headers["Content-Length"]), len(body))
        return int(status.split()[1]), headers.get("Content-Type", ""), body

    def post(self, body: bytes) -> tuple[int, str, bytes]:
        """Ask for a cosignature."""
        return self.answerOf(self.send(self.request(body)))

    def request(self, body: bytes) -> bytes:
        """A request for a cosignature."""
        head = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body

    def get(self, path: str) -> tuple[int, str, bytes]:
        """The answer to a GET."""
        return self.answerOf(self.send(f"GET {path} HTTP/1.1\r\nHost: w\r\n\r\n".encode()))

    def test_checkpointIsCosigned(self) -> None:
        """The cosignatures are the answer, and the checkpoint is served with them."""
        path = f"/{sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
        self.assertEqual(self.get(path)[0], 404)
        status, type, body = self.post(LOG.request(0, 9).encode())
        self.assertEqual((status, type), (200, "text/plain; charset=utf-8"))
        signatures = [NoteSignature.parse(each) for each in body.decode().splitlines()]
        status, type, body = self.get(path)
        note = self.witness.seen[ORIGIN].note
        self.assertEqual((status, body), (200, note.encode()))
        self.assertEqual(list(note.signatures[1:]), signatures)

    def test_refusalsHaveTheirStatus(self) -> None:
        """A conflict is answered with the size, what else is refused with words."""
        self.post(LOG.request(0, 9).encode())
        self.assertEqual(self.post(LOG.request(0, 9).encode()), (409, SIZE_TYPE, b"9\n"))
        for request, status in (
            (LOG.forked(3).request(9, 12).encode(), 422),
            (b"nonsense", 400),
        ):
            found, _, body = self.post(request)
            self.assertEqual((found, body[-1:]), (status, b"\n"))

    def test_bodiesAreBounded(self) -> None:
        """A body that is too long ends the connection, with its length given before or not."""
        long = b"x" * (MAX_REQUEST_SIZE + 1)
        chunked = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\n"
        for sent in (
            self.request(long)[:200],
            self.request(long),
            b"%b%x\r\n%b" % (chunked, len(long), long),
            chunked + b"1\r\nx\r\n" * 2 * MAX_REQUEST_SIZE + b"0\r\n\r\n",
        ):
            transport = self.send(sent)
            self.assertEqual(self.answerOf(transport)[0], 413)
            self.assertTrue(transport.disconnecting)
        self.assertEqual(self.witness.seen, {})

    def test_waitingCheckpointsAreBounded(self) -> None:
        """While the disk is slow, so many wait, and more are refused."""
        self.isWaiting = True
        request = self.request(LOG.request(0, 9).encode())
        transports = [self.send(request) for _ in range(MAX_WAITING + 1)]
        self.assertEqual(self.answerOf(transports.pop())[0], 503)
        self.isWaiting = False
        for each in self.waiting:
            each.callback(None)
        statuses = [self.answerOf(each)[0] for each in transports]
        self.assertEqual(statuses, [200] + [409] * (MAX_WAITING - 1))
        self.assertEqual(self.post(LOG.request(9, 9).encode())[0], 200)

    def test_fullDiskIsUnavailable(self) -> None:
        """A checkpoint that cannot be stored is not cosigned."""

        def write(changes: object) -> None:
            raise StorageError("the disk is full")

        self.patch(self.witness._state, "write", write)
        self.assertEqual(self.post(LOG.request(0, 9).encode())[0], 503)
        self.assertEqual(len(self.flushLoggedErrors(StorageError)), 1)

    def test_listNamesLogsAndForks(self) -> None:
        """The list of checkpoints is for people, and names forks."""
        self.post(LOG.request(0, 9).encode())
        self.post(LOG.forked(3).request(9, 12).encode())
        status, _, body = self.get("/")
        lines = body.decode().splitlines()
        keys = [f"witness {key.text}" for key in self.witness.verifiers]
        self.assertEqual((status, lines[: len(keys)]), (200, keys))
        self.assertEqual(
            lines[len(keys) :],
            [
                f"log {ORIGIN}: size 9, cosigned 1970-01-01 00:16:40 UTC",
                "  FORK REFUSED 1970-01-01 00:16:40 UTC: it has signed another history, of size 12",
            ],
        )

    def test_otherPathsAndMethodsAreRefused(self) -> None:
        """Other paths are not found, and other methods are not allowed."""
        self.assertEqual(self.get("/other")[0], 404)
        self.assertEqual(self.get("/add-checkpoint")[0], 405)
        self.assertEqual(self.get("/healthz"), (200, "text/plain; charset=utf-8", b"ok\n"))
