"""
Tests for L{svcbroker.commands.doctor.endpointchecks}.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.certificates import Authority
from svcbroker.commands.doctor.endpointchecks import (
    CertificateFacts,
    EndpointFacts,
    ServerAnswer,
    askServer,
    checkCertificates,
    checkEndpoint,
)
from svcbroker.net.findings import Finding

from .support import DAY, NOW, CheckTestCase


class _Handler(BaseHTTPRequestHandler):
    """Answers with a text in JSON of as many characters as the path says."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(b'"%b"' % (b"x" * int(self.path[1:])))

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""


class AskTests(SynchronousTestCase):
    def ask(self, size: int) -> ServerAnswer | None:
        """The answer of a server that answers at such a length."""
        server = HTTPServer(("127.0.0.1", 0), _Handler)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            return askServer(f"http://127.0.0.1:{server.server_port}/{size}")
        finally:
            thread.join()
            server.server_close()

    def test_answerIsRead(self) -> None:
        answer = self.ask(1000)
        assert answer is not None
        self.assertEqual(answer.value, "x" * 1000)

    def test_longAnswerIsNotRead(self) -> None:
        """Whoever answers cannot take up the memory."""
        self.assertIsNone(self.ask(8_000_000))


class EndpointTests(CheckTestCase):
    """
    The endpoints.
    """

    def check(
        self, daemon: int | None = None, hasAccounts: bool = True, **facts: object
    ) -> Iterable[Finding]:
        """The findings of an endpoint of HTTP."""
        made: EndpointFacts = EndpointFacts(**{"name": "http", "text": "tcp:8080", **facts})  # type: ignore[arg-type]
        return checkEndpoint(made, daemon, hasAccounts=hasAccounts)

    def test_freePortIsGood(self) -> None:
        self.good(self.check(bindError=0), "can be listened on")

    def test_daemonsOwnPortIsGood(self) -> None:
        used = self.check(7, bindError=errno.EADDRINUSE, listener=7, isBroker=True)
        self.good(used, "the daemon (process 7) listens on tcp:8080, and answers")

    def test_daemonThatDoesNotAnswerIsAProblem(self) -> None:
        used = self.check(7, bindError=errno.EADDRINUSE, listener=7, isBroker=False)
        self.fails(used, "does not answer /healthz")

    def test_portOfAnotherProgramIsAProblem(self) -> None:
        used = self.check(bindError=errno.EADDRINUSE, listener=9, listenerName="nginx")
        self.fails(used, "another program, process 9 (nginx), listens on tcp:8080", "--http")

    def test_portOfAnotherBrokerIsAProblem(self) -> None:
        used = self.check(bindError=errno.EADDRINUSE, listener=9, isBroker=True)
        self.fails(used, "another svcbroker")

    def test_listenerOfAnotherUserMayBeTheDaemon(self) -> None:
        self.good(self.check(7, bindError=errno.EADDRINUSE), "may not look at")

    def test_listenerBesideAnUnreadableDirectoryIsLeftOpen(self) -> None:
        facts = EndpointFacts(
            name="http", text="tcp:8080", bindError=errno.EADDRINUSE, isBroker=True
        )
        found = checkEndpoint(facts, None, isDaemonKnown=False, hasAccounts=True)
        self.good(found, "a svcbroker listens on tcp:8080; whether it is this one is unknown")

    def test_runningDaemonThatDoesNotListenIsWarnedOf(self) -> None:
        self.warns(self.check(7, bindError=0), "process 7", "other settings")

    def test_privilegedPortIsAProblem(self) -> None:
        self.fails(self.check(bindError=errno.EACCES), "CAP_NET_BIND_SERVICE")

    def test_addressOfAnotherMachineIsAProblem(self) -> None:
        self.fails(self.check(bindError=errno.EADDRNOTAVAIL), "ip address")

    def test_plainEndpointForOtherMachinesIsWarnedOf(self) -> None:
        self.warns(self.check(bindError=0, isLocal=False), "without TLS")
        self.good(self.check(bindError=0, isLocal=False, hasTLS=True))
        self.good(self.check(bindError=0, isLocal=False, hasAccounts=False))

    def test_socketOfSystemdIsNotTried(self) -> None:
        self.good(self.check(isInherited=True), "systemctl list-sockets")


class CertificateTests(CheckTestCase):
    """
    The certificates of endpoints.
    """

    def check(self, days: float = 0, names: Sequence[str] = (), **facts: object) -> list[Finding]:
        """
        The findings of a certificate for C{b.example} and C{*.c.example} that is good for 90 days.

        @param days: since it was made.
        """
        authority = Authority(datetime.fromtimestamp(NOW, UTC), 90)
        chain = [authority.server(["b.example", "*.c.example"])[0]]
        made = CertificateFacts(
            endpoint="mqtt",
            place=Path("/etc/tls"),
            chains=[chain],
            names=names,
            **facts,  # type: ignore[arg-type]
        )
        return list(checkCertificates(made, NOW + days * DAY))

    def test_freshCertificateIsGood(self) -> None:
        self.good(self.check(names=["b.example", "x.c.example"]), "b.example", "2027-02-20")

    def test_endedCertificateIsAProblem(self) -> None:
        self.fails(
            self.check(93), "has ended on 2027-02-20", "3 days ago", "svcbroker admin reload"
        )

    def test_certificateThatEndsSoonIsWarnedOf(self) -> None:
        self.warns(self.check(80), "in 10 days")

    def test_certificateOfTheFutureIsAProblem(self) -> None:
        self.fails(self.check(-10), "is valid from", "timedatectl")

    def test_certificateForOtherNamesIsWarnedOf(self) -> None:
        self.warns(self.check(names=["b.example", "d.example"]), "not for d.example")

    def test_selfSignedCertificateIsWarnedOf(self) -> None:
        own = Authority(datetime.fromtimestamp(NOW, UTC), 90).certificate
        facts = CertificateFacts(endpoint="mqtt", place=Path("/etc/tls"), chains=[[own]])
        self.warns(checkCertificates(facts, NOW), "has signed itself")

    def test_readablePrivateKeyIsAProblem(self) -> None:
        self.fails(self.check(readableKeys=[Path("/etc/tls/key.pem")]), "chmod o= /etc/tls/key.pem")
