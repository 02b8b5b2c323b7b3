"""
Everything that serves clients, as the service sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.logger import Logger

from ..broker import Broker, Keeper
from ..broker.subscriptions import Subscriptions

_log = Logger()


def _nothing() -> Deferred[None]:
    return succeed(None)


@frozen(kw_only=True)
class Part:
    """
    One carrier.

    @ivar start: begins, before HTTP lets clients in. Called once.
    @ivar drain: answers what was accepted, then closes; fires when that is done. Cancelling its
        Deferred has it close at once. Called once, also where C{start} was not.
    """

    start: Callable[[], Deferred[Any]] = _nothing
    drain: Callable[[], Deferred[Any]] = _nothing


@frozen(kw_only=True)
class Carriers:
    """
    All carriers, and what they have in common.

    @ivar factories: what makes the protocols of connections, by the name of the port.
    @ivar parts: the carriers, in the order in which they start.
    @ivar release: lets go of the rest, at the very end.
    """

    factories: Mapping[str, Any]
    parts: Sequence[Part]
    broker: Broker
    subscriptions: Subscriptions
    keeper: Keeper
    release: Callable[[], object] = field(default=lambda: None)

    def start(self) -> Deferred[None]:
        """
        Start all, before clients are let in. Where one cannot start, all are drained and let go.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        try:
            await self.subscriptions.start()
            for part in self.parts:
                await part.start()
        except BaseException:
            await self._drain()
            self.stop()
            raise

    def drain(self) -> Deferred[None]:
        """
        Drain all, the while the ledgers still run. What subscriptions keep is on disk then, also
        where this is cancelled because clients take too long.
        """
        return Deferred.fromCoroutine(self._drain())

    async def _drain(self) -> None:
        try:
            draining = [maybeDeferred(part.drain) for part in self.parts]
            for isGood, failure in await DeferredList(draining, consumeErrors=True):
                if not isGood:
                    _log.failure("A carrier did not close in order", failure)
        finally:
            self.subscriptions.stop()
            await self.keeper.stop()

    def stop(self) -> None:
        """Let go of everything, after the ledgers have stopped."""
        self.broker.stop()
        self.release()
