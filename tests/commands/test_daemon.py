"""
Tests for L{svcbroker.commands._daemon}, over real sockets of this machine.
"""

from __future__ import annotations

import io
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import directlyProvides
from zope.interface.verify import verifyObject

from svcbroker.carriers.http import BrokerSite, HttpSettings, makeSite
from svcbroker.commands import nodes
from svcbroker.commands._command import CommandError
from svcbroker.commands._daemon import MAX_ANSWER, DaemonClient, ThisMachine, operatingOf
from svcbroker.daemon.operatorfile import Operating
from svcbroker.interfaces import IFaultyLedger
from svcbroker.net.http import makeClient
from tests.access.support import openAccess
from tests.broker.support import makeFixture
from tests.carriers.http.test_operator import TOKEN, FaultyDouble


class Canned(Protocol):
    """Answers whoever says anything."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(self.answer)
        self.transport.loseConnection()


class ClientTests(TestCase):
    """
    One call to something that listens.
    """

    async def listen(self, factory: Any) -> str:
        """Listen; the base address."""
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(factory)
        self.addCleanup(port.stopListening)
        if isinstance(factory, BrokerSite):
            self.addCleanup(factory.drain)
        return f"http://127.0.0.1:{port.getHost().port}"

    async def canned(self, answer: bytes) -> str:
        """Something that answers so."""
        return await self.listen(Factory.forProtocol(lambda: Canned(answer)))

    async def daemon(self) -> str:
        """A daemon whose group 1 knows faults."""
        self.double = FaultyDouble()
        directlyProvides(self.double, IFaultyLedger)
        fixture = makeFixture(ledgers={"1": self.double}, hasFaults=True)
        site = makeSite(
            fixture.broker,
            HttpSettings(basePath="/b"),
            openAccess(fixture.clock),
            operatorToken=TOKEN,
        )
        return await self.listen(site) + "/b"

    async def call(self, url: str, token: str = TOKEN, **parameters: object) -> Any:
        """Stop a node."""
        client = DaemonClient(
            Operating.byToken(url, token),
            makeClient(reactor, maxBody=MAX_ANSWER, tls=ThisMachine()),
            60,
        )
        return await client.call("faults/stop", **parameters)

    async def fails(self, url: str, token: str = TOKEN, **parameters: object) -> tuple[str, int]:
        """What the operator is told, and the exit code."""
        try:
            await self.call(url, token, **parameters)
        except CommandError as error:
            return str(error), error.code
        raise AssertionError("it did not fail")

    async def test_callReachesLedger(self) -> None:
        """Its data comes back."""
        data = await self.call(await self.daemon(), node=2, groupId=None)
        self.assertEqual(self.double.told, [("stop", 2)])
        self.assertEqual(data["nodes"][0]["blockNumber"], 7)

    async def test_refusalExitsWithOne(self) -> None:
        """Also of the token of an earlier daemon."""
        url = await self.daemon()
        for token, given, words in [
            (TOKEN, {}, "the daemon refused: node: "),
            ("00", {"node": 1}, "the daemon refused: this is not the token of this daemon"),
        ]:
            message, code = await self.fails(url, token, **given)
            self.assertIn(words, message)
            self.assertEqual(code, 1)
        self.assertEqual(self.double.told, [])

    async def test_closedPortIsToldAsNoDaemon(self) -> None:
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(Factory())
        url = f"http://127.0.0.1:{port.getHost().port}"
        await port.stopListening()
        message, code = await self.fails(url)
        self.assertTrue(message.startswith(f"no daemon answers at {url}"), message)
        self.assertEqual(code, 2)

    async def test_otherProgramIsNoBroker(self) -> None:
        """It has the port by now."""
        for body in (b"<html>", b"[]", b"1", b"{}", b'{"code": 0}', b"[" * 100000):
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
            url = await self.canned(head + body)
            self.assertEqual(await self.fails(url), (f"what answers at {url} is no svcbroker", 2))

    async def test_brokenConnectionIsTold(self) -> None:
        for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"):
            url = await self.canned(answer)
            self.assertEqual(
                await self.fails(url),
                (f"the daemon at {url} closed the connection before it had answered", 2),
            )

    async def test_tokenIsNotRedirected(self) -> None:
        url = await self.daemon()
        head = f"HTTP/1.1 307 x\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()
        await self.fails(await self.canned(head), node=1)
        self.assertEqual(self.double.told, [])

    async def test_endlessAnswerIsNotRead(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_ANSWER + 1)
        message, _ = await self.fails(await self.canned(head + b" " * (MAX_ANSWER + 1)))
        self.assertIn("more than", message)


class CredentialTests(SynchronousTestCase):
    """
    Which daemon is asked, and as whom.
    """

    def operating(
        self, *arguments: str, environment: Mapping[str, str] | None = None, typed: str = ""
    ) -> Operating:
        """What arguments, the environment and standard input mean."""
        options = nodes.Options()
        options.parseOptions(arguments)
        self.patch(sys, "stdin", io.StringIO(typed))
        return operatingOf(options, environment or {})

    def refused(self, *arguments: str, **given: Any) -> str:
        """Why there is nothing to ask."""
        error = self.assertRaises(CommandError, self.operating, *arguments, **given)
        return str(error)

    def test_accountIsAskedForAtAURL(self) -> None:
        """Its password comes from the environment or from standard input."""
        basic = b"Basic " + b64encode("op:geheïm".encode())
        expected = Operating(url="https://host/b", authorization=basic)
        asked = ("https://host/b/", "show", "--account", "op")
        for given in (
            {"environment": {"SVCBROKER_PASSWORD": "geheïm", "SVCBROKER_TOKEN": "x"}},
            {"typed": "geheïm\r\n"},
        ):
            found = self.operating(*asked, **given)
            self.assertEqual(found, expected)
            self.assertNotIn("Basic", repr(found))
        self.assertEqual(self.refused(*asked), "there is no password")

    def test_tokenNeedsNoAccount(self) -> None:
        found = self.operating("http://host/b", environment={"SVCBROKER_TOKEN": "abc"})
        self.assertEqual(found.authorization, b"Bearer abc")
        self.assertIn("SVCBROKER_TOKEN", self.refused("http://host/b"))

    def test_dataDirectoryNeedsNoAccount(self) -> None:
        """Its token is that of the running daemon."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.assertIn("no daemon", self.refused(str(directory)))
        (directory / "operator.json").write_text('{"url": "http://127.0.0.1:1/b", "token": "t"}')
        found = self.operating(str(directory), environment={"SVCBROKER_TOKEN": "abc"})
        self.assertEqual(found, Operating.byToken("http://127.0.0.1:1/b", "t"))
        with self.assertRaises(usage.UsageError):
            self.operating(str(directory), "--account", "op")


class PolicyTests(SynchronousTestCase):
    """
    TLS to this machine.
    """

    def test_certificateIsNotVerified(self) -> None:
        """The connection does not leave the machine."""
        policy = ThisMachine()
        verifyObject(IPolicyForHTTPS, policy)
        tls: Any = None
        connection = policy.creatorForNetloc(b"127.0.0.1", 1).clientConnectionForTLS(tls)
        self.assertEqual(connection.get_context().get_verify_mode(), 0)
