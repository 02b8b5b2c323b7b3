"""
Tests for L{svcbroker.commands._daemon}, over real sockets of this machine.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import directlyProvides
from zope.interface.verify import verifyObject

from svcbroker.carriers.http import BrokerSite, HttpSettings, makeSite
from svcbroker.commands._command import CommandError
from svcbroker.commands._daemon import MAX_ANSWER, DaemonClient, ThisMachine
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
            Operating(url=url, token=token),
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
