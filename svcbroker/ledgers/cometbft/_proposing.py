"""
What a block is proposed of, when it is this node's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from ._outbox import Outbox

LONGEST = 0.2
"""Seconds that a proposal waits at most."""


class Proposer:
    """
    Adds to what the engine offers for a block: batches that the application has seen meanwhile,
    and this broker's own, which need no way through the engine then.

    Who waited for the last block is about to send the next transaction, and a block costs the
    same whatever is in it. So a proposal waits until all brokers that the last block was of have
    sent something, but no longer than a part of the time from block to block.
    """

    def __init__(self, clock: IReactorTime, outbox: Outbox, share: float) -> None:
        """
        @param outbox: this broker's batches.
        @param share: that part of the time: 0 to 0.9; 0: it does not wait.
        """
        self._clock = clock
        self._outbox = outbox
        self._share = share
        self._last: float | None = None
        self._wait = 0.0
        self._expected: AbstractSet[bytes] = frozenset()
        self._missing: set[bytes] = set()
        self._heard: dict[bytes, None] = {}
        self._timer: IDelayedCall | None = None
        self._complete: Deferred[None] | None = None

    def committed(self, senders: AbstractSet[bytes]) -> None:
        """
        There is a block.

        @param senders: the addresses of the brokers that it is of.
        """
        now = self._clock.seconds()
        span = 0.0 if self._last is None else now - self._last
        self._wait = min(LONGEST, self._share * span)
        self._last = now
        self._expected = senders

    def hear(self, batch: bytes, senderOf: Callable[[bytes], bytes]) -> None:
        """
        There is a batch that may be in a block.

        @param senderOf: the address of a batch's broker.
        """
        if self._complete is not None:
            self._heard[batch] = None
            self._missing.discard(senderOf(batch))
            self._look()

    def stir(self) -> None:
        """There is a new transaction at this broker."""
        if self._complete is not None:
            self._look()

    async def gather(
        self, offered: Sequence[bytes], senderOf: Callable[[bytes], bytes]
    ) -> Sequence[bytes]:
        """
        All that may be proposed, in order.

        @param offered: what waits in the engine.
        @param senderOf: the address of a batch's broker.
        """
        self._heard = dict.fromkeys(offered)
        self._missing = set(self._expected).difference(map(senderOf, offered))
        if self._missing and self._wait:
            self._outbox.hold()
            complete = self._complete = Deferred[None]()
            self._timer = self._clock.callLater(self._wait, self._end)
            self._look()
            await complete
        heard, self._heard = self._heard, {}
        own = self._outbox.propose()
        for batch in own:
            heard.pop(batch, None)
        return [*heard, *own]

    def _look(self) -> None:
        if self._outbox.isGathered:
            self._missing.discard(self._outbox.sender)
        if not self._missing:
            self._end()

    def _end(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()
        complete, self._complete = self._complete, None
        if complete is not None:
            complete.callback(None)
