"""
Clients, which repeat a request until it is answered, and then send the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from svcbroker.chain import Kind, Transaction, accountAddress
from svcbroker.errors import BrokerError
from svcbroker.interfaces import submit
from svcbroker.model import CloseTopic, OpenTopic, PublishEvent, Receipt, Request

from .clock import Alarm, VirtualClock
from .trace import Trace, short

if TYPE_CHECKING:
    from .embedded import Embedded

RETRY_AFTER = 1.5
"""Seconds after which a client repeats its request."""


class Client:
    """
    A client of the cluster. Publishes events, and sometimes opens or closes a topic.

    @ivar answered: how many of its transactions were answered.
    """

    def __init__(
        self,
        number: int,
        chain: bytes,
        clock: VirtualClock,
        random: Random,
        trace: Trace,
        submit: Callable[[Transaction], None],
    ) -> None:
        """
        @param submit: sends a transaction to the replicas; it may get lost.
        """
        self.answered = 0
        self._number = number
        self._address = accountAddress(chain, f"client {number}")
        self._clock = clock
        self._random = random
        self._trace = trace
        self._submit = submit
        self._nonce = 0
        self._current: Transaction | None = None
        self._retry: Alarm | None = None

    def start(self) -> None:
        """Start sending."""
        self._clock.callLater(self._random.uniform(0.0, 0.2), self._next)

    def onAnswer(self, hash: bytes) -> None:
        """Handle a host's answer that a transaction is final."""
        if self._current is None or self._current.hash != hash:
            return
        self._current = None
        self.answered += 1
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._clock.callLater(self._random.uniform(0.05, 0.6), self._next)

    def _next(self) -> None:
        self._nonce += 1
        kind = Kind.PUBLISH
        # Clients also use each other's topics.
        topic = f"topic/{self._random.choice((self._number, self._number, 0))}"
        if self._nonce == 1:
            kind, topic = Kind.OPEN, f"topic/{self._number}"
        elif self._random.random() < 0.1:
            kind = self._random.choice((Kind.OPEN, Kind.CLOSE))
        self._current = Transaction.create(
            kind,
            self._address,
            self._nonce,
            int(self._clock.seconds() * 1000),
            topic,
            b"%d" % self._nonce if kind is Kind.PUBLISH else b"",
        )
        self._trace.note(
            self._clock.seconds(),
            f"client {self._number}: {kind.name} {topic} {short(self._current.hash)}",
        )
        self._broadcast()

    def _broadcast(self) -> None:
        if self._current is not None:
            self._submit(self._current)
            self._retry = self._clock.callLater(RETRY_AFTER, self._broadcast)


class LedgerClient:
    """
    A client of the embedded ledger. Submits one request after the other.

    @ivar answered: how many became final.
    """

    def __init__(self, embedded: Embedded, number: int) -> None:
        self.answered = 0
        self._embedded = embedded
        self._number = number
        self._count = 0
        # The number of the current request: answers to earlier ones are ignored.
        self._call = 0

    def start(self) -> None:
        """Start sending."""
        self._later(0.2)

    def disconnect(self) -> None:
        """Forget the outstanding request: the process has ended."""
        self._call += 1
        self._later(1.0)

    def _later(self, longest: float) -> None:
        embedded = self._embedded
        embedded.clock.callLater(embedded.random.uniform(0.01, longest), self._next, self._call)

    def _next(self, call: int) -> None:
        embedded = self._embedded
        if call != self._call:
            return
        if not embedded.isUp:
            self._later(0.5)
            return
        result = submit(embedded.ledger, self._request())
        hash = embedded.latest

        def done(receipt: Receipt) -> None:
            if call == self._call:
                self.answered += 1
                event = receipt.eventId
                sequence = 0 if event is None else event.sequence
                embedded.acknowledged(receipt.transactionHash, receipt.height, sequence)
                self._later(0.4)

        def failed(failure: Failure) -> None:
            failure.trap(BrokerError)
            if call == self._call:
                said = failure.getErrorMessage()
                if "nothing was executed" in said or "before this was" in said:
                    embedded.refused(hash)
                self._later(1.0)

        result.addCallbacks(done, failed)

    def _request(self) -> Request:
        random = self._embedded.random
        self._count += 1
        topic = f"topic/{random.choice((self._number, self._number, 0))}"
        if self._count == 1:
            return OpenTopic(topic=f"topic/{self._number}")
        choice = random.random()
        if choice < 0.05:
            return CloseTopic(topic=topic)
        if choice < 0.15:
            return OpenTopic(topic=topic)
        return PublishEvent(topic=topic, content=b"%d %d" % (self._number, self._count))
