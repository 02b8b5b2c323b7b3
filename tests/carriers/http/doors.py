"""
Two sites of the same kind, one with the door and one without: what is done to one is done to the
other, and a difference fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from svcbroker.carriers.http import HttpSettings
from svcbroker.carriers.http.settings import FAST, KLEIN

from .support import Client

_DATE = re.compile(rb"\r\nDate: [^\r\n]*")


class FastClient(Client):
    """A client of a site with the door."""

    door = FAST


class KleinClient(Client):
    """A client of a site without the door."""

    door = KLEIN


class Side:
    """One site and a connection to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.rest("open?topic=t")
        self.world = client.world
        self.ledger = client.world.ledger
        self.drained: Deferred[None] | None = None
        self.isOpen = True
        self.transport = StringTransport(lenient=True)
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
            self.channel.connectionLost(Failure(ConnectionDone()))

    def written(self) -> bytes:
        """What came back since the last time, without dates."""
        data = self.transport.value()
        self.transport.clear()
        return _DATE.sub(b"", data)

    def fate(self) -> tuple[object, ...]:
        """What became of the connection, and what was done."""
        isDrained = self.drained is not None and self.drained.called
        return (
            *(self.isOpen, self.transport.disconnected, isDrained, len(self.client.site.channels)),
            *(self.ledger.submitted, self.world.second.submitted),
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
        side.world.clock.advance(self.seconds)


def hold(side: Side) -> None:
    """From now on the ledger takes its time."""
    side.ledger.isHolding = True


def release(side: Side) -> None:
    """The ledger has decided, and is quick again."""
    side.ledger.isHolding = False
    side.ledger.release()


def decide(side: Side) -> None:
    """The ledger has decided what it was given."""
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


def play(
    steps: Sequence[Step],
    check: Callable[[Any, Any, str], object],
    settings: HttpSettings | None = None,
) -> bytes:
    """
    Do all steps to both.

    @param check: is told, after each step, what should be equal.
    @return: all that was answered.
    """
    fast, klein = Side(FastClient(settings)), Side(KleinClient(settings))
    answers = []
    for step in steps:
        for side in (fast, klein):
            step(side)
            side.settle()
        answer = klein.written()
        check(fast.written(), answer, f"answered after {step}")
        check(fast.fate(), klein.fate(), f"after {step}")
        answers.append(answer)
    return b"".join(answers)
