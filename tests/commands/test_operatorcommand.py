"""
Tests for L{svcbroker.commands.operatorcommand}, over real sockets of this machine.
"""

from __future__ import annotations

import io
import json
import re
import ssl
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase
from zope.interface import directlyProvides

from svcbroker.carriers.http import BrokerSite
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.commands import main, operatorcommand
from svcbroker.commands.clientcommand import Contexts, contextsPath
from svcbroker.commands.operatorcommand import MAX_ANSWER, anyCertificate, operated, operatingOf
from svcbroker.commands.terminal import CommandError
from svcbroker.daemon.operating import OPERATOR_NAME
from svcbroker.interfaces import IFaultyLedger
from tests.access.support import openAccess
from tests.broker.support import makeFixture
from tests.carriers.http.test_operator import TOKEN, FaultyDouble


class Canned(Protocol):
    """Answers whoever says anything."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.received = b""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.received += data
        head, end, body = self.received.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        if not end or (found and len(body) < int(found[1])):
            # A connection that is closed before all is read may lose the answer.
            return
        self.transport.write(self.answer)
        self.transport.loseConnection()


class ClientTests(TestCase):
    """
    One call to something that listens.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()

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
            fixture.calls,
            HttpSettings(basePath="/b"),
            openAccess(fixture.clock),
            operatorToken=TOKEN,
        )
        return await self.listen(site) + "/b"

    async def call(self, url: str, token: str = TOKEN, **parameters: object) -> Any:
        """Stop a node."""
        given = {"data_dir": self.directory, "url": (), "group": None, "timeout": 60.0}
        given.update(
            dict.fromkeys(("config", "context", "user", "password_file", "token_file", "cert"))
        )
        given.update(dict.fromkeys(("ca", "cert_key")))
        (self.directory / OPERATOR_NAME).write_text(json.dumps({"url": url, "token": token}))

        def ask() -> Any:
            with operated(given, {}, None) as daemon:
                return daemon.call("faults/stop", **parameters)

        return await deferToThread(ask)

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
            self.assertEqual(
                await self.fails(url),
                (f"there is no svcbroker at {url}; is it {url}/svcbroker?", 2),
            )

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


class Nodeless:
    """A daemon whose group has no nodes."""

    group = None

    def call(self, name: str, **parameters: object) -> Any:
        """An operator call."""
        return {"nodes": [], "changes": 0}


class CredentialTests(SynchronousTestCase):
    """
    Which daemon is asked, and as whom.
    """

    def operating(
        self, *arguments: str, environment: Mapping[str, str] | None = None, typed: str = ""
    ) -> tuple[str, Mapping[str, str]]:
        """What arguments, the environment and standard input mean: the URL, and the headers."""
        found: list[tuple[str, Mapping[str, str]]] = []

        @contextmanager
        def operated(
            given: Mapping[str, Any], _: Mapping[str, str], word: str | None
        ) -> Iterator[Any]:
            settings = {"XDG_CONFIG_HOME": str(self.root), **(environment or {})}
            url, headers, context = operatingOf(given, settings, word)
            self.isLocal = context is None
            found.append((url, headers))
            yield Nodeless()

        errors = io.StringIO()
        self.patch(operatorcommand, "operated", operated)
        self.patch(sys, "stdin", io.StringIO(typed))
        self.patch(sys, "stdout", io.StringIO())
        self.patch(sys, "stderr", errors)
        code = main(["nodes", *arguments])
        if not found:
            self.assertEqual(code, 2)
            raise CommandError(errors.getvalue())
        return found[0]

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()

    def refused(self, *arguments: str, **given: Any) -> str:
        """Why there is nothing to ask."""
        error = self.assertRaises(CommandError, self.operating, *arguments, **given)
        return str(error)

    def test_accountIsAskedForAtAURL(self) -> None:
        """Its password comes from the environment or from standard input."""
        basic = {"Authorization": "Basic " + b64encode("op:geheïm".encode()).decode()}
        for asked in (
            ("https://host/b/", "show", "--account", "op"),
            ("show", "--url=https://host/b", "--user=op"),
        ):
            for given in (
                {"environment": {"SVCBROKER_PASSWORD": "geheïm", "SVCBROKER_TOKEN": "x"}},
                {"typed": "geheïm\r\n"},
            ):
                self.assertEqual(self.operating(*asked, **given), ("https://host/b", basic))
                self.assertFalse(self.isLocal)
            self.assertIn("there is no password", self.refused(*asked))

    def test_tokenNeedsNoAccount(self) -> None:
        _, headers = self.operating("http://host/b", environment={"SVCBROKER_TOKEN": "abc"})
        self.assertEqual(headers, {"Authorization": "Bearer abc"})
        self.assertIn("SVCBROKER_TOKEN", self.refused("http://host/b"))

    def test_dataDirectoryNeedsNoAccount(self) -> None:
        """Its token is that of the running daemon."""
        directory = self.root / "data"
        directory.mkdir()
        self.assertIn("no daemon", self.refused(str(directory)))
        (directory / "operator.json").write_text('{"url": "http://127.0.0.1:1/b", "token": "t"}')
        expected = ("http://127.0.0.1:1/b", {"Authorization": "Bearer t"})
        others = {"SVCBROKER_TOKEN": "abc", "SVCBROKER_URL": "http://host/b"}
        for words in ((str(directory),), ("show", f"--data-dir={directory}")):
            self.assertEqual(self.operating(*words, environment=others), expected)
            self.assertTrue(self.isLocal)
            self.assertIn("instead of its data dir", self.refused(*words, "--account=op"))
            for more in ("--url=http://host", "--context=x", "--config=x"):
                self.assertIn(f"{more.partition('=')[0]}", self.refused(*words, more))
                self.assertIn("not both", self.refused(*words, more))
        # It is the default where nothing else says which daemon is meant.
        self.patch(operatorcommand, "DATA_DIR", directory)
        self.assertEqual(self.operating(), expected)
        url, _ = self.operating(environment=others)
        self.assertEqual(url, "http://host/b")
        (directory / "operator.json").unlink()
        self.assertIn("give --data-dir, or --url and --user", self.refused())

    def test_configurationNamesTheDataDirectory(self) -> None:
        directory = self.root / "data"
        directory.mkdir()
        (directory / "operator.json").write_text('{"url": "http://127.0.0.1:1/b", "token": "t"}')
        file = self.root / "svcbroker.toml"
        file.write_text(f'data-dir = "{directory}"')
        expected = ("http://127.0.0.1:1/b", {"Authorization": "Bearer t"})
        self.assertEqual(self.operating("show", f"--config={file}"), expected)
        for text, words in (
            ("data-dir = 1", f"--config: {file}: "),
            ("data-dir", f"--config: {file}: "),
            ("", "no daemon"),
        ):
            file.write_text(text)
            self.assertIn(words, self.refused("show", f"--config={file}"))

    def test_contextsAreUsed(self) -> None:
        """The one that is given, or the one in use."""
        path = contextsPath({"XDG_CONFIG_HOME": str(self.root)})
        (self.root / "token").write_text("abc\n")
        fields = {"url": "http://host/b", "token-file": str(self.root / "token")}
        Contexts(path, {"one": fields}, "one").write()
        expected = ("http://host/b", {"Authorization": "Bearer abc"})
        self.assertEqual(self.operating(), expected)
        self.assertEqual(self.operating("show", "--context=one"), expected)
        self.assertIn("no context 'on'; did you mean one?", self.refused("show", "--context=on"))
        url = ("--url=http://host/b", "--url=http://other/b")
        self.assertIn("give one --url", self.refused("show", *url))


class PolicyTests(SynchronousTestCase):
    """
    TLS to this machine.
    """

    def test_certificateIsNotVerified(self) -> None:
        """The connection does not leave the machine."""
        context = anyCertificate()
        self.assertEqual((context.verify_mode, context.check_hostname), (ssl.CERT_NONE, False))
