"""
Clients: they say a thing again until it is answered, and then the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from svcbroker.chain import Kind, Transaction, accountAddress

from .clock import Alarm, VirtualClock
from .trace import Trace, short

PATIENCE = 1.5
"""Seconds after which a client asks again."""


class Client:
    """
    Publishes one event after the other, and sometimes opens or closes a topic.

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
        @param submit: sends a transaction to the nodes; it may get lost.
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
        """Begin."""
        self._clock.callLater(self._random.uniform(0.0, 0.2), self._next)

    def hear(self, hash: bytes) -> None:
        """A node says that a transaction is final."""
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
        # The other client's topic is fair game, too, once it is there.
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
        self._say()

    def _say(self) -> None:
        if self._current is not None:
            self._submit(self._current)
            self._retry = self._clock.callLater(PATIENCE, self._say)
