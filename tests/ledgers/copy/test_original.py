"""
Tests for the requests to the original, the meaning of its answers, and the settings of a copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from zope.interface import implementer

from svcbroker.interfaces import InvalidDescription
from svcbroker.ledgers import parseDescription
from svcbroker.ledgers.copy import CopySettings, readSettings
from svcbroker.ledgers.copy._original import Original, OriginalAnswer, OriginalUnavailable
from svcbroker.net.http import HttpClient
from svcbroker.proofs import Checkpoint

URL = "https://original.example:8443/svcbroker"
HEIGHTS = {"Svcbroker-Height": "40", "Svcbroker-Tip": "41"}


class FakeBroker(Resource):
    """
    Answers all requests alike.

    @ivar asked: the requests.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.headers: Mapping[str, str] = HEIGHTS
        self.body = b"export"
        self.asked: list[Any] = []

    def render(self, request: Any) -> bytes:
        self.asked.append(request)
        request.setResponseCode(self.status)
        for name, value in self.headers.items():
            request.setHeader(name, value)
        return self.body


@implementer(IAgent)
class RefusingAgent:
    """An agent that reaches nothing."""

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(ConnectionRefusedError())


class OriginalTests(SynchronousTestCase):
    """
    Tests for L{Original}.
    """

    def setUp(self) -> None:
        self.broker = FakeBroker()
        self.client = HttpClient(RequestTraversalAgent(self.broker), Clock())
        self.original = Original(URL, "1", self.client, b"Bearer x")

    def refused(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> str:
        """The error for an answer that has no blocks."""
        self.broker.status, self.broker.headers, self.broker.body = status, headers or {}, body
        return str(self.failureResultOf(self.original.read(1), OriginalUnavailable).value)

    def test_blocksAreAskedFor(self) -> None:
        """The height, the wait and the credentials are in the request, the heights in the
        answer."""
        answer = self.successResultOf(self.original.read(7, 5))
        self.assertEqual(answer, OriginalAnswer(stream=b"export", height=40, tip=41))
        [request] = self.broker.asked
        self.assertEqual(request.uri, b"/svcbroker/replication/1?from=7&wait=5")
        self.assertEqual(request.getHeader(b"host"), b"original.example:8443")
        self.assertEqual(request.getHeader(b"authorization"), b"Bearer x")

    def test_shorterChainHasNoStream(self) -> None:
        """The answer has its height alone where the chain ends before."""
        self.broker.status, self.broker.body = 416, b'{"code":1,"message":"x"}'
        answer = self.successResultOf(self.original.read(100))
        self.assertEqual(answer, OriginalAnswer(stream=b"", height=40, tip=41))

    def test_refusalsAreQuoted(self) -> None:
        """The original's refusal is told, and an answer that is none is told, too."""
        text = self.refused(403, b'{"code":101016,"message":"not granted\\n"}')
        self.assertEqual(text, "refuses: 'not granted\\n' (HTTP status 403)")
        wrongPath = self.refused(404, b'{"code":200204,"message":"no such call"}')
        self.assertIn("is its path right, such as /svcbroker?", wrongPath)
        for body in (b"<html>", b"[]", b"\xff", b"{}"):
            self.assertIn("is no svcbroker that can be copied", self.refused(200, body))
        self.assertIn("200", self.refused(200, b"", {**HEIGHTS, "Svcbroker-Height": "-1"}))

    def test_networkErrorsAreTold(self) -> None:
        """An original that cannot be reached gives none."""
        original = Original(URL, "1", HttpClient(RefusingAgent(), Clock()), None)
        failure = self.failureResultOf(original.read(1), OriginalUnavailable)
        self.assertEqual(str(failure.value), "cannot be reached")

    def test_credentialsAreReadFromFiles(self) -> None:
        """The first line of a file is the password or the token."""
        path = Path(self.mktemp())
        path.write_text("secret\nmore\n")
        account = CopySettings(url=URL, account="ann", passwordFile=path)
        for settings, expected in (
            (account, b"Basic YW5uOnNlY3JldA=="),
            (CopySettings(url=URL, tokenFile=path), b"Bearer secret"),
        ):
            original = Original.connect(Clock(), "1", settings)
            original._client = self.client
            self.successResultOf(original.read(1))
            self.assertEqual(self.broker.asked.pop().getHeader(b"authorization"), expected)
        path.write_text("\n")
        with self.assertRaisesRegex(ValueError, "no secret on its first line"):
            Original.connect(Clock(), "1", account)


class SettingsTests(SynchronousTestCase):
    """
    Tests for L{readSettings}.
    """

    def test_settingsAreRead(self) -> None:
        """A description has all settings, with backslashes before colons."""
        digest = "0a" * 32
        found = readSettings(
            {"url": f"{URL}/", "genesis": digest, "checkpoint": f"7:{digest}", "ca": "/ca.pem"}
        )
        block = Checkpoint(7, bytes.fromhex(digest))
        self.assertEqual(
            found,
            CopySettings(url=URL, genesis=block.hash, checkpoint=block, ca=Path("/ca.pem")),
        )
        parseDescription("copy:url=http\\://127.0.0.1\\:8080/svcbroker")

    def test_badSettingsAreRefused(self) -> None:
        """A bad value is told with its setting."""
        for settings, text in (
            ({}, "url is missing"),
            ({"url": "ftp://x"}, "url: 'ftp://x'"),
            ({"url": "http://ann:secret@x"}, "without credentials"),
            ({"url": "http://x:99999"}, "is not an http or https URL"),
            ({"url": URL, "genesis": "00"}, "genesis: '00'"),
            ({"url": URL, "checkpoint": "7"}, "checkpoint: '7'"),
            ({"url": URL, "account": "ann"}, "belong together"),
            ({"url": URL, "account": "a:b", "password-file": "x"}, "the name of an account"),
            ({"url": URL, "nodes": "4"}, "no such setting"),
            (
                {"url": URL, "account": "ann", "password-file": "x", "token-file": "y"},
                "an account already",
            ),
        ):
            with self.assertRaises(InvalidDescription) as caught:
                readSettings(settings)
            self.assertIn(text, str(caught.exception))
