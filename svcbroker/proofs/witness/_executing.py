"""
The verified copy of a witness that executes: the chain of a log, of which every block is executed
before a checkpoint that has it is cosigned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from ...archive import STORE_NAME, auditChain
from ...broker.transparency import LOG_TOPIC, LogKeyRecord
from ...chain import History, Malformed
from ...errors import BrokerError, LedgerUnavailable
from ...interfaces import IBlockObserver
from ...ledgers.copy import CopyLedger, CopyProgress, CopyRefused
from ...model import Block
from ...net.deferreds import asDeferred
from ...storage import StorageError
from ..tlog import (
    TILE_HEIGHT,
    CheckpointRefused,
    Note,
    Tiles,
    TreeHead,
    VerifierKey,
    encodeTile,
    neededTiles,
)
from ._statefile import Seen
from ._witness import FORKED, Witness

if TYPE_CHECKING:
    from ._statements import ExecutedStatements

RETRY: Final = 600.0
"""
Seconds after which a block is asked for again that somebody in between may have changed.
"""

PATIENT: Final = 15.0
"""The seconds that a request waits for blocks that are still to be executed. Logs wait longer."""

_PAGE: Final = 100
_TREES: Final = "svcbroker/scitt "
"""The beginning of lines of a checkpoint with trees of statements."""


@implementer(IBlockObserver)
class ExecutedCopy:
    """
    The copy of a witness: it follows the chain of a log, and tells which checkpoints are of blocks
    that were executed here and found right.

    The certificates, the links and the results of each block are checked before it is stored. A
    copy that was there before is executed again from its first block on, since nothing else shows
    who has executed it.

    @ivar copy: the copy itself.
    """

    _log = Logger()

    def __init__(
        self,
        witness: Witness,
        run: Callable[..., Deferred[Any]],
        makeCopy: Callable[[Callable[[CopyProgress], None]], CopyLedger],
        directory: Path,
        clock: IReactorTime,
        audit: Callable[..., Deferred[Any]],
        given: Mapping[str, Sequence[VerifierKey]] | None = None,
    ) -> None:
        """
        @param witness: stores findings.
        @param run: runs the blocking calls of the witness.
        @param makeCopy: makes the copy, which calls its argument with each progress.
        @param directory: the directory of the copied group.
        @param audit: runs an audit, and what is done with trees of statements, in a thread of its
            own.
        @param given: the keys of logs, by their origins, of which the witness uses those that the
            chain certifies; C{None} for all that it certifies.
        """
        self._witness = witness
        self._run = run
        self._directory = directory
        self._clock = clock
        self._audit = audit
        self._given = given
        self._makeCopy = makeCopy
        self._retry: IDelayedCall | None = None
        self._keys: dict[str, list[VerifierKey]] = {}
        self._reason = self._found = ""
        self._isAuditing = self._isRefused = self._isStopping = False
        self._waiting: list[Deferred[None]] = []
        self._statements: ExecutedStatements | None = None
        self.copy = makeCopy(self._report)

    @asDeferred
    async def start(self) -> None:
        """
        Begin to follow the chain.

        @raise LedgerUnavailable: the copy cannot be opened, or not be made.
        """
        await self.copy.start()
        await self._readKeys()
        self.copy.addObserver(self)
        if self.wrong:
            self._log.error(
                "NOTHING OF {chain} IS COSIGNED: {text}", chain=self._chain, text=self.wrong
            )

    @asDeferred
    async def stop(self) -> None:
        """Stop. Requests that wait are refused."""
        self._isStopping = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._wake()
        await self._stopCopy()

    async def _stopCopy(self) -> None:
        if self._statements is not None:
            await self._statements.stop()
            self._statements = None
        await self.copy.stop()

    @property
    def _chain(self) -> str:
        return self.copy.chain.hex()

    @property
    def wrong(self) -> str:
        """
        The fault that was found in the chain, now or at any time before, in a sentence; empty
        where there was none.
        """
        kept = self._witness.wrongs.get(self._chain)
        # What cannot be stored is not forgotten in this run.
        return self._found if kept is None else kept.text

    @property
    def executed(self) -> int:
        """The number of entries of the log that were executed and found right."""
        return self.copy.wholeHeight + 1 if self.copy.wholeHeight else 0

    # Confirming.

    @asDeferred
    async def confirm(self, checked: Seen) -> TreeHead:
        """
        Confirm that a checkpoint is of executed blocks. Waits for some seconds for blocks that are
        on their way.

        @param checked: the checkpoint, which the log has signed, and which continues what was
            cosigned last.
        @return: what it says.
        @raise CheckpointRefused: it is not, or not yet.
        """
        head, latest = checked.head, self._witness.seen.get(checked.head.origin)
        await self._reach(head.size)
        if self.wrong:
            raise CheckpointRefused(FORKED, self.wrong)
        if head.size > self.executed or not self.copy.chain:
            reason = self._reason or self.copy.progress.reason or "ask again"
            raise CheckpointRefused(
                503, f"this witness has executed the log up to size {self.executed}: {reason}"
            )
        try:
            if latest is not None and await self._rootAt(latest.head.size) != latest.head.root:
                raise CheckpointRefused(
                    FORKED,
                    f"the copy of this witness is not the log that it has cosigned at size "
                    f"{latest.head.size}",
                )
            if await self._rootAt(head.size) == head.root:
                await self._confirmStatements(checked)
                return head
        except (LedgerUnavailable, Malformed) as error:
            raise CheckpointRefused(503, f"the copy cannot be read now: {error}") from None
        text = (
            f"the log has signed a checkpoint of size {head.size} that is not of the blocks that "
            "its validators have signed and this witness has executed"
        )
        await self._find(text, checked.note)
        raise CheckpointRefused(FORKED, text)

    async def _confirmStatements(self, checked: Seen) -> None:
        """
        Confirm that the trees of statements in a checkpoint are those of its events.

        @raise CheckpointRefused: they are not, or not yet.
        @raise LedgerUnavailable: that cannot be seen now.
        """
        if not any(each.startswith(_TREES) for each in checked.head.extensions):
            return
        try:
            from ._statements import ExecutedStatements
        except ImportError:
            raise CheckpointRefused(
                503, "this witness needs cbor2 for trees of statements: see svcbroker[scitt]"
            ) from None
        if self._statements is None:
            self._statements = ExecutedStatements(
                *(self.copy, self._directory, self._clock),
                lambda f, *given: self._audit(partial(f, *given)),
            )
        fault = await self._statements.findFault(checked.head, PATIENT)
        if not fault:
            return
        text = f"the log has signed {fault}"
        self._log.error("A CHECKPOINT OF {chain} IS WRONG: {text}", chain=self._chain, text=text)
        # The blocks are right, so checkpoints with the right tree are cosigned all the same.
        await self._run(self._witness.keepWrong, f"{self._chain} statements", text, checked.note)
        raise CheckpointRefused(FORKED, text)

    async def _reach(self, size: int) -> None:
        """Wait until a size is executed, or for L{PATIENT} seconds."""
        deadline = self._clock.seconds() + PATIENT
        while size > self.executed and not (self.wrong or self._isStopping):
            left = deadline - self._clock.seconds()
            if left <= 0 or self._reason:
                return
            waiting: Deferred[None] = Deferred()
            self._waiting.append(waiting)
            call = self._clock.callLater(left, self._wake)
            try:
                await waiting
            finally:
                if call.active():
                    call.cancel()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    async def _rootAt(self, size: int) -> bytes:
        """The root of the log of a size, by the copy."""
        found = {}
        for tile in neededTiles(size):
            hashes = await self.copy.readHistory(TILE_HEIGHT * tile.level, tile.first, tile.width)
            found[tile] = encodeTile(tile, hashes)
        return History.load(size, Tiles(found).source).root

    # Following.

    def _report(self, progress: CopyProgress) -> None:
        """See L{CopyLedger}."""
        if progress.refused is not None and not self._isRefused:
            self._isRefused = True
            self._reason = progress.reason
            self._refused(progress.refused)
        elif progress.behind == 0 and self.copy.isUnknown and not self._isAuditing:
            self._isAuditing = True
            self._executeAgain().addErrback(
                lambda failure: self._log.failure("The copy was not executed", failure)
            )
        self._wake()

    def _refused(self, refused: CopyRefused) -> None:
        if not refused.isSigned:
            # Anybody between here and the log can have made it, so it is asked for again. Nothing
            # after it is executed, and so nothing is cosigned.
            self._log.error("Nothing more is executed: {reason}", reason=self._reason)
            self._retry = self._clock.callLater(RETRY, self._followAgain)
            return
        self._find(f"{refused}").addErrback(
            lambda failure: self._log.failure("What is wrong is not stored", failure)
        )

    @asDeferred
    async def _followAgain(self) -> None:
        """Ask for refused blocks again, with a copy that was opened anew."""
        await self._stopCopy()
        if self._isStopping:
            return
        self.copy = self._makeCopy(self._report)
        self._isRefused, self._reason = False, ""
        try:
            await self.start()
        except (LedgerUnavailable, StorageError) as error:
            self._reason = str(error)
            self._log.error("Nothing more is executed: {reason}", reason=self._reason)
            self._retry = self._clock.callLater(RETRY, self._followAgain)

    @asDeferred
    async def _find(self, text: str, note: Note | None = None) -> None:
        """
        Store a finding, and log it.

        @raise svcbroker.storage.StorageError: it cannot be stored. Nothing is cosigned all the
            same, in this run.
        """
        self._found = self._found or text
        self._reason = self._reason or text
        self._log.error(
            "WRONG: {text}. Nothing of {chain} is cosigned any more, in this run or any other",
            text=text,
            chain=self._chain,
        )
        await self._run(self._witness.keepWrong, self._chain, text, note)
        self._wake()

    @asDeferred
    async def _executeAgain(self) -> None:
        """Execute what was in the copy before this start, from its first block on."""
        self._log.info(
            "The copy that was there is executed again, up to block {height}",
            height=self.copy.progress.height,
        )
        try:
            audited = await self._audit(
                partial(
                    auditChain,
                    self._directory / STORE_NAME,
                    group=self._directory.name,
                    pause=self._pause,
                )
            )
        except CancelledError:
            return
        except (StorageError, OSError) as error:
            self._reason = f"the copy cannot be executed again: {error}"
        else:
            if audited.isGood:
                self.copy.wasAudited()
                self._log.info(
                    "The copy is executed up to block {height}", height=self.copy.wholeHeight
                )
            else:
                first = next(each for each in audited.findings.kept if each.isDamage)
                self._reason = (
                    f"the copy is damaged ({first}): move it away, and another one is made"
                )
        if self._reason:
            self._log.error("Nothing is cosigned: {reason}", reason=self._reason)
        self._isAuditing = False
        self._wake()

    def _pause(self) -> None:
        if self._isStopping:
            raise CancelledError

    # The keys of the log.

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver<svcbroker.interfaces.IBlockObserver>}."""
        self._takeKeys(block)
        self._wake()

    async def _readKeys(self) -> None:
        """Read what the chain has certified so far."""
        first = 1
        while heights := await self.copy.findBlocks([LOG_TOPIC], first, _PAGE):
            for height in heights:
                self._takeKeys(await self.copy.readBlock(height))
            first = heights[-1] + 1

    def useLogs(self, given: Mapping[str, Sequence[VerifierKey]]) -> None:
        """Use these keys from now on, of those that the chain certifies."""
        self._given = given
        self._useKeys()

    def _useKeys(self) -> None:
        """Give the witness the keys that count."""
        given = self._given
        used = {
            origin: [key for key in keys if given is None or key in given.get(origin, ())]
            for origin, keys in self._keys.items()
        }
        # A log without a key is one that is not witnessed.
        self._witness.useLogs({origin: keys for origin, keys in used.items() if keys})

    def _takeKeys(self, block: Block) -> None:
        for event in block.events:
            if event.topic != LOG_TOPIC:
                continue
            try:
                record = msgspec.json.decode(event.content, type=LogKeyRecord)
                key = VerifierKey.parse(record.key)
            except (msgspec.MsgspecError, Malformed, BrokerError):
                continue
            if key.name == record.origin and key not in self._keys.get(key.name, ()):
                self._keys.setdefault(key.name, []).append(key)
                self._useKeys()
                self._log.info("The chain certifies the key of the log {key}", key=key.text)
