"""
Two sites of the same kind, one with the fast path and one without: what is done to one is done to
the other, and a difference fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svcbroker.access import Access
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.testing._fixtures import memoryLedger
from tests.access.support import openAccess
from tests.broker.support import MAX_CONTENT, makeFixture

from .support import Client

LOOPBACK = IPv4Address("TCP", "127.0.0.1", 8080)
_DATE = re.compile(rb"\r\nDate: [^\r\n]*")


class FastClient(Client):
    """A client of a site with the fast path."""

    hasFastPath = True


class KleinClient(Client):
    """A client of a site without the fast path."""

    hasFastPath = False


class Side:
    """A new connection to one site, over new ledgers."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.fixture = client.fixture
        self.ledger = client.fixture.ledger
        for group, ledger in (("1", self.ledger), ("2", self.fixture.second)):
            ledger._ledger = memoryLedger(self.fixture.clock, group, MAX_CONTENT)
        client.rest("open?topic=t")
        self.ledger.submitted.clear()
        self.fixture.second.submitted.clear()
        self.drained: Deferred[None] | None = None
        self.isOpen = True
        self.transport = StringTransport(hostAddress=LOOPBACK, lenient=True)
        self.channel = client.site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        """Send bytes, if they are read."""
        if not self.transport.disconnecting:
            self.channel.dataReceived(data)

    def settle(self) -> None:
        """
        Close the connection if the server wants that: a transport does it in a turn of its own.
        """
        if self.isOpen and self.transport.disconnecting:
            self.isOpen = False
            self.transport.producer = None
            self.channel.connectionLost(Failure(ConnectionDone()))

    def written(self) -> bytes:
        """The bytes that were answered since the last time, without dates."""
        data = self.transport.value()
        self.transport.clear()
        return _DATE.sub(b"", data)

    def fate(self) -> tuple[object, ...]:
        """The state of the connection, and the requests that reached the ledgers."""
        isDrained = self.drained is not None and self.drained.called
        return (
            *(self.isOpen, self.transport.disconnected, isDrained, len(self.client.site.channels)),
            *(self.ledger.submitted, self.fixture.second.submitted),
        )


class Step(Protocol):
    """Something that happens to a connection."""

    def __call__(self, side: Side) -> None:
        """Do it to one of them."""


@frozen
class Send:
    """The client sends."""

    data: bytes

    def __call__(self, side: Side) -> None:
        side.send(self.data)


@frozen
class Pass:
    """Time goes by."""

    seconds: float

    def __call__(self, side: Side) -> None:
        side.fixture.clock.advance(self.seconds)


def hold(side: Side) -> None:
    """From now on the ledger decides nothing."""
    side.ledger.isHolding = True


def release(side: Side) -> None:
    """The ledger decides what waits, and from now on everything at once."""
    side.ledger.isHolding = False
    side.ledger.release()


def decide(side: Side) -> None:
    """The ledger decides what waits."""
    side.ledger.release()


def pause(side: Side) -> None:
    """The client does not read."""
    if side.transport.producer is not None:
        side.transport.producer.pauseProducing()


def resume(side: Side) -> None:
    """The client reads again."""
    if side.transport.producer is not None:
        side.transport.producer.resumeProducing()


def drain(side: Side) -> None:
    """The broker stops."""
    if side.drained is None:
        side.drained = side.client.site.drain()


def leave(side: Side) -> None:
    """The client goes away."""
    side.transport.loseConnection()


class TwoSites:
    """
    The two sites. They take long to make, and are used for many stories.
    """

    def __init__(
        self,
        settings: HttpSettings | None = None,
        makeAccess: Callable[[IReactorTime], Access] = openAccess,
    ) -> None:
        self._settings = settings
        self._makeAccess = makeAccess
        self._clients: tuple[Client, ...] = ()

    def _make(self, kind: type[Client]) -> Client:
        fixture = makeFixture()
        return kind(self._settings, fixture=fixture, access=self._makeAccess(fixture.clock))

    def play(self, steps: Sequence[Step], check: Callable[[Any, Any, str], object]) -> bytes:
        """
        Do all steps to both.

        @param check: is told, after each step, what should be equal.
        @return: all that was answered.
        """
        clients = self._clients or (self._make(FastClient), self._make(KleinClient))
        # Unless the story ends well, the next one begins with new sites.
        self._clients = ()
        fast, klein = sides = [Side(client) for client in clients]
        answers = []
        for step in steps:
            for side in sides:
                step(side)
                side.settle()
            answer = klein.written()
            check(fast.written(), answer, f"answered after {step}")
            check(fast.fate(), klein.fate(), f"after {step}")
            answers.append(answer)
        if klein.drained is None and not klein.isOpen:
            self._clients = clients
        return b"".join(answers)
