"""
The carriers as one: started and drained together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.logger import Logger

from ..access import Access, AuditTrail
from ..broker import Broker, MetadataStore
from ..broker.subscriptions import Subscriptions
from ..net.deferreds import asDeferred

_log = Logger()


def _nothing() -> Deferred[None]:
    return succeed(None)


@frozen(kw_only=True)
class Lifecycle:
    """
    How one carrier is started and drained.

    @ivar start: begins, before HTTP lets clients in. Called once.
    @ivar drain: answers what was accepted, then closes; fires when that is done. Cancelling its
        Deferred has it close at once. Called once, also where C{start} was not.
    """

    start: Callable[[], Deferred[Any]] = _nothing
    drain: Callable[[], Deferred[Any]] = _nothing


@frozen(kw_only=True)
class Carriers:
    """
    All carriers, and the broker that they share.

    @ivar factories: what makes the protocols of connections, by the name of the port.
    @ivar lifecycles: those of the carriers, in the order in which they start.
    @ivar access: who may use the broker.
    @ivar readFiles: reads settings, and the secrets of webhooks, again, and gives what
        applies them.
    @ivar release: lets go of the rest, at the very end.
    """

    factories: Mapping[str, Any]
    lifecycles: Sequence[Lifecycle]
    broker: Broker
    subscriptions: Subscriptions
    metadata: MetadataStore
    access: Access
    readFiles: Callable[[], Callable[[], None]]
    audit: AuditTrail | None = None
    release: Callable[[], object] = field(default=lambda: None)

    @asDeferred
    async def start(self) -> None:
        """
        Start all, before clients are let in. Where one cannot start, all are drained and let go.
        """
        try:
            await self.subscriptions.start()
            for each in self.lifecycles:
                await each.start()
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
            draining = [maybeDeferred(each.drain) for each in self.lifecycles]
            for isGood, failure in await DeferredList(draining, consumeErrors=True):
                if not isGood:
                    _log.failure("A carrier did not close in order", failure)
        finally:
            self.subscriptions.stop()
            if self.audit is not None:
                self.audit.stop()
            await self.metadata.stop()

    def handleReload(self, reload: Callable[[], Deferred[Sequence[str]]]) -> None:
        """Have operators call C{reload}. Called once, before the start."""
        self.broker.operator.handleReload(reload)

    @asDeferred
    async def reload(self) -> None:
        """
        Read settings, accounts, grants, limits and secrets again.

        @raise ConfigError, InvalidDescription: one of the files cannot be used. Nothing has
            changed.
        """
        isGood = False
        try:
            useFiles = self.readFiles()
            await self.access.reload()
            useFiles()
            isGood = True
        finally:
            if self.audit is not None:
                self.audit.reloaded(isGood)

    def stop(self) -> None:
        """Let go of everything, after the ledgers have stopped."""
        self.broker.stop()
        self.release()
