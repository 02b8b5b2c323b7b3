"""
Certificates: fetches the commits of the engine, and stores them with the blocks they certify.

The engine's header after a block of this chain commits to that block, and the validators have
signed it. It is fetched and stored soon after it was decided, so that events can be proved and
the chain audited when the engine has pruned the block or is not running. Empty blocks have no
certificate: the engine's headers do not commit to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...archive import Certificates, NotCertified
from ...chain import Genesis, Header, ValidatorSet
from ...errors import LedgerUnavailable
from ...net.deferreds import asDeferred
from ...proofs import AnyCertificate, CometCertificate, checkLightBlock
from ...proofs.cometbft import LightBlock, LightBlockInvalid
from ...storage import ChainReader, Store
from ._rpc import MAX_LIGHT, EngineError, EngineRpc

T = TypeVar("T")

INTERVAL: Final = 1.0
"""Seconds after a block until the certificates of all blocks since are stored together."""

RETRY: Final = 15.0
"""Seconds until the next attempt, after the engine did not answer."""

TIMEOUT: Final = 5.0
"""Seconds that a proof waits for the engine's next block."""

_LOOK: Final = 0.1
_ROWS: Final = 256
"""The number of blocks that are looked at in one turn of the reactor."""


class _Sets:
    """
    The validator sets of a chain.
    """

    def __init__(self, genesis: Genesis, store: ChainReader) -> None:
        self._sets = [(-1, genesis.validatorSet)]
        for row in store.validatorSets():
            self._sets.append((row.height, ValidatorSet.decode(row.encoded)))

    def at(self, height: int) -> ValidatorSet:
        """The set that decides a block."""
        return next(nodes for since, nodes in reversed(self._sets) if since < height)


class Certifier:
    """
    Fetches and stores the certificates of one chain's blocks.
    """

    _log = Logger()

    def __init__(
        self, rpc: EngineRpc, clock: IReactorTime, runInThread: Callable[..., Deferred[Any]]
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        """
        self._rpc = rpc
        self._clock = clock
        self._runInThread = runInThread
        self._chain: tuple[Genesis, Store] | None = None
        self._next: int | None = None
        self._call: IDelayedCall | None = None
        self._pass: Deferred[None] | None = None
        self._asking: Deferred[Any] | None = None
        self._stopping: list[Deferred[None]] = []

    def begin(self, genesis: Genesis, store: Store) -> None:
        """Start with a chain, instead of any former one."""
        self._chain, self._next = (genesis, store), None
        self.committed()

    def retained(self, height: int, keep: int) -> int:
        """
        The first block that the engine has to keep; 0 for all. It certifies the block before it.

        @param height: the height of the last block.
        @param keep: how many blocks the engine is to keep; 0 for all.
        """
        if not keep or self._next is None:
            return 0
        return max(0, min(height - keep + 1, self._next))

    def committed(self) -> None:
        """A block was committed."""
        self._schedule(INTERVAL)

    def stop(self) -> Deferred[None]:
        """
        Stop using the store.

        @return: fires when the last write is done.
        """
        self._chain = None
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if self._pass is None:
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._stopping.append(stopped)
        if self._asking is not None:
            self._asking.cancel()
        return stopped

    @asDeferred
    async def complete(self, make: Callable[[Certificates], Deferred[T]]) -> T:
        """
        Make a proof that may need certificates that are not stored yet.

        @param make: makes it. It may fail with
            L{NotCertified<svcbroker.archive.NotCertified>}.
        @raise LedgerUnavailable: it cannot be made without a certificate that cannot be had now.
        """
        given: dict[int, AnyCertificate | None] = {}
        reasons: dict[int, LedgerUnavailable] = {}
        while True:
            try:
                return await make(given)
            except NotCertified as missing:
                height = missing.height
                if height in reasons:
                    raise reasons[height] from None
                try:
                    given[height] = await self.certificate(height)
                except LedgerUnavailable as reason:
                    # A later block that has a certificate may do instead.
                    given[height], reasons[height] = None, reason

    async def certificate(self, height: int) -> CometCertificate:
        """
        Fetch the certificate of a block. Waits up to L{TIMEOUT} for the engine's next block, which
        certifies it.

        @raise LedgerUnavailable: it is not available now, or not from this engine.
        """
        deadline = self._clock.seconds() + TIMEOUT
        while True:
            genesis, store = self._running()
            tip = store.tip()
            if tip is not None and tip.height > height:
                break
            if self._clock.seconds() >= deadline:
                raise LedgerUnavailable(
                    f"the engine has not decided the block that certifies block {height} yet"
                )
            await deferLater(self._clock, _LOOK)
        row = store.blockHead(height)
        if row is None:
            raise LedgerUnavailable(f"there is no block {height}")
        try:
            block = await self._rpc.lightBlock(height + 1)
            self._check(genesis, _Sets(genesis, store), Header.decode(row.header), block)
        except (EngineError, LightBlockInvalid) as error:
            raise LedgerUnavailable(
                f"the engine here does not show that block {height} is final ({error}): ask the "
                "broker of an engine that has had all blocks from the beginning"
            ) from error
        return CometCertificate.of(block)

    def _running(self) -> tuple[Genesis, Store]:
        if self._chain is None:
            raise LedgerUnavailable("the ledger is not running")
        return self._chain

    def _check(self, genesis: Genesis, sets: _Sets, header: Header, block: LightBlock) -> None:
        checkLightBlock(block, header, sets.at(header.height), genesis.group)

    # Storing.

    def _schedule(self, delay: float) -> None:
        if self._chain is not None and self._call is None and self._pass is None:
            self._call = self._clock.callLater(delay, self._run)

    def _run(self) -> None:
        self._call = None
        done: Deferred[None] = Deferred()
        self._pass = done
        done.addCallback(lambda _: self._keepAll(*self._running()))
        done.addErrback(self._failed)
        done.addCallback(self._passed)
        done.callback(None)

    def _failed(self, failure: Failure) -> float | None:
        """The time to wait before the next pass."""
        if failure.check(CancelledError):
            return None
        if failure.check(EngineError):
            # The engine may have pruned blocks.
            self._next = None
            self._log.debug(
                "certificates cannot be fetched: {error}", error=failure.getErrorMessage()
            )
        else:
            self._log.failure("certificates cannot be stored", failure)
        return RETRY

    def _passed(self, delay: float | None) -> None:
        self._pass = None
        stopping, self._stopping = self._stopping, []
        for each in stopping:
            each.callback(None)
        if delay is not None:
            self._schedule(delay)

    @asDeferred
    async def _keepAll(self, genesis: Genesis, store: Store) -> None:
        following = self._next
        if following is None:
            following = await self._firstOf(store)
        while self._chain == (genesis, store):
            headers, following = self._uncertified(store, following)
            if not headers and following >= store.height:
                self._next = following
                return
            if not headers:
                await self._ask(deferLater(self._clock, 0))
                continue
            asked = self._rpc.lightBlocks([header.height + 1 for header in headers])
            blocks = await self._ask(asked)
            if self._chain != (genesis, store):
                return
            sets = _Sets(genesis, store)
            for header, block in zip(headers, blocks, strict=True):
                self._check(genesis, sets, header, block)
            await self._runInThread(
                store.certify,
                {
                    header.height: block.encode()
                    for header, block in zip(headers, blocks, strict=True)
                },
            )
            if self._chain == (genesis, store):
                self._next = following

    async def _firstOf(self, store: Store) -> int:
        """The first block whose certificate may be missing here and known to the engine."""
        status = await self._ask(self._rpc.status())
        first = max(1, status.syncInfo.earliestBlockHeight - 1)
        tip = store.tip()
        last = 0 if tip is None else tip.height
        while last >= first:
            begin = max(first, last - _ROWS + 1)
            for row in reversed(store.blockHeads(begin, last)):
                if row.certificate:
                    return row.height + 1
            last = begin - 1
            await self._ask(deferLater(self._clock, 0))
        return first

    def _uncertified(self, store: Store, first: int) -> tuple[Sequence[Header], int]:
        """
        The next blocks without a stored certificate that have transactions, among L{_ROWS} blocks.

        @return: their headers, and the height at which to continue.
        """
        found: list[Header] = []
        for row in store.blockHeads(first, min(first + _ROWS, store.height) - 1):
            header = Header.decode(row.header)
            if header.transactionCount and not row.certificate:
                found.append(header)
            first = row.height + 1
            if len(found) == MAX_LIGHT:
                break
        return found, first

    async def _ask(self, asked: Deferred[T]) -> T:
        self._asking = asked
        try:
            return await asked
        finally:
            self._asking = None
