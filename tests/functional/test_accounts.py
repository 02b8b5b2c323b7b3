"""
A real daemon with accounts: log-ins, and reloads while clients are connected.
"""

from __future__ import annotations

import signal
from base64 import b64encode
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred, DeferredQueue, gatherResults
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from .daemon import LOCAL, Daemon, DaemonTestCase, reactor
from .innocent import used


class RawClient(Protocol):
    """Sends bytes, and waits for what comes back."""

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.answered: Deferred[bytes] = Deferred()
        self.closed: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if not self.answered.called:
            self.answered.callback(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed.callback(None)


class AccountsTests(DaemonTestCase):
    """
    Over HTTP and STOMP.
    """

    def setUp(self) -> None:
        super().setUp()
        self.file = self.root / "accounts.toml"

    async def command(self, *arguments: str) -> tuple[str, str, int]:
        """What a command prints, and its exit code."""
        code, output, errors = await self.outcomeOf(*arguments)
        return output, errors, code

    async def serve(self) -> tuple[Daemon, str]:
        """A daemon with the account ann, and her token."""
        self.file.write_text('[roles.orders]\ngrants = ["* 1 orders/#"]\n')
        for words in (("add", "--no-password", "--role=orders"), ("token",)):
            output, errors, code = await self.command(
                "account", words[0], "ann", "--accounts=accounts.toml", *words[1:]
            )
            self.assertEqual(code, 0, errors)
        daemon = await self.start(f"--accounts={self.file}", f"--stomp={LOCAL}")
        return daemon, output.strip()

    async def publish(self, daemon: Daemon, authorization: str, topic: str = "orders/a") -> Any:
        """The code or the status of a publish; the topic is opened before."""
        headers: Any = {"Authorization": authorization} if authorization else None
        await daemon.call("/rest/open", topic=topic, headers=headers)
        answer = await daemon.call("/rest/publish", topic=topic, content="x", headers=headers)
        return answer.get("status", answer.get("code"))

    async def stomp(self, daemon: Daemon, data: bytes) -> RawClient:
        """A connection to the port of STOMP, on which something was sent."""
        found = await daemon.protocol.waitFor(r"STOMP on 127\.0\.0\.1:([0-9]+)")
        endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{found[1]}")
        client: RawClient = await endpoint.connect(Factory.forProtocol(RawClient))
        self.addCleanup(client.transport.abortConnection)
        client.transport.write(data)
        return client

    async def test_credentialsAreNeeded(self) -> None:
        daemon, token = await self.serve()
        basic = "Basic " + b64encode(f"ann:{token}".encode()).decode()
        for authorization, topic, answer in (
            ("", "orders/a", 101015),
            ("Bearer svct_wrong", "orders/a", 101015),
            (f"Bearer {token}", "orders/a", "SUCCESS"),
            (basic, "orders/a", "SUCCESS"),
            (basic, "invoices/a", 101016),
        ):
            self.assertEqual(await self.publish(daemon, authorization, topic), answer)

    async def test_reloadChangesRightsAtOnceAndEndsRemovedAccounts(self) -> None:
        """By a signal and by a command; a file with a mistake changes nothing."""
        daemon, token = await self.serve()
        bearer = f"Bearer {token}"
        connect = f"CONNECT\naccept-version:1.2\nhost:x\nlogin:ann\npasscode:{token}\n\n\0"
        client = await self.stomp(daemon, connect.encode())
        self.assertTrue((await client.answered).startswith(b"CONNECTED"), client.received)

        good = self.file.read_text()
        self.file.write_text(good.replace("orders/#", "invoices/#"))
        daemon.process.signalProcess(signal.SIGHUP)
        await daemon.protocol.waitFor("Accounts and settings were read again")
        self.assertEqual(await self.publish(daemon, bearer, "orders/a"), 101016)
        self.assertEqual(await self.publish(daemon, bearer, "invoices/a"), "SUCCESS")

        self.file.write_text(good.replace("roles =", "role ="))
        output, _, code = await self.command("reload", str(self.dataDir))
        self.assertEqual(code, 1)
        self.assertIn(f"{self.file}: [accounts.ann] role: there is no such key", output)
        self.assertEqual(await self.publish(daemon, bearer, "invoices/a"), "SUCCESS")
        self.assertFalse(client.closed.called)

        # Another token ends connections by the first one alone.
        self.file.write_text(good)
        output, errors, code = await self.command(
            "account", "token", "ann", "--accounts=accounts.toml", "--label=second"
        )
        self.assertEqual(code, 0, errors)
        await self.command("reload", str(self.dataDir))
        second = connect.replace(token, output.strip())
        other = await self.stomp(daemon, second.encode())
        self.assertTrue((await other.answered).startswith(b"CONNECTED"), other.received)
        digest = sha256(token.encode()).hexdigest()
        self.file.write_text(self.file.read_text().replace(digest, "0" * 64))
        await self.command("reload", str(self.dataDir))
        await client.closed
        self.assertFalse(other.closed.called)
        self.assertEqual(await self.publish(daemon, bearer, "orders/a"), 101015)

        await self.command("account", "remove", "ann", "--accounts=accounts.toml")
        self.file.write_text("")
        output, _, code = await self.command("reload", str(self.dataDir))
        self.assertEqual((output, code), ("reloaded\n", 0))
        await other.closed
        self.assertEqual(await self.publish(daemon, bearer, "invoices/a"), 101015)

    async def test_manyGuessesHoldNobodyElse(self) -> None:
        """A thousand wrong passwords at a time, from the same address."""
        daemon, token = await self.serve()
        found = await daemon.protocol.waitFor(r"HTTP on 127\.0\.0\.1:([0-9]+)")
        endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{found[1]}")
        clients: list[RawClient] = await gatherResults(
            [endpoint.connect(Factory.forProtocol(RawClient)) for _ in range(1000)]
        )
        answers: DeferredQueue[bytes] = DeferredQueue()
        for number, client in enumerate(clients):
            client.answered.addCallback(answers.put)
            self.addCleanup(client.transport.abortConnection)
            value = b64encode(f"ann:{number}".encode()).decode()
            client.transport.write(
                b"GET /svcbroker/rest/publish?topic=orders/a&content=x HTTP/1.1\r\nHost: "
                b"127.0.0.1\r\nAuthorization: Basic " + value.encode() + b"\r\n\r\n"
            )
        # Seconds of a processor: other programs do not count.
        started = used(daemon.process.pid)
        for _ in range(10):
            self.assertEqual(await self.publish(daemon, f"Bearer {token}"), "SUCCESS")
        self.assertLess(used(daemon.process.pid) - started, 10)
        # At most 200 log-ins of an address wait; some may have been checked by now.
        refused = [b"200101" in await answers.get() for _ in range(700)].count(True)
        self.assertGreater(refused, 600)
