"""
Copies of chains that are beside them, without a network.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from svcbroker.archive import exportPart
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import (
    IBlockObserver,
    IExportableLedger,
    IHoldLedger,
    ILedger,
    IProvableLedger,
    LedgerContext,
    Submission,
)
from svcbroker.ledgers import pbft
from svcbroker.ledgers.copy import CopyLedger, CopyProgress, CopySettings
from svcbroker.ledgers.copy._original import Original, OriginalAnswer, OriginalUnavailable
from svcbroker.model import Block, Receipt, Request
from svcbroker.testing import FaultyDisk
from tests.archive.erasable import ErasableChain
from tools.vectors.signedchain import SignedChain

URL = "http://original.example/svcbroker"


class FakeOriginal:
    """
    An original whose chain is in a directory of this machine.

    @ivar directory: the group's directory; C{None} while it cannot be reached.
    @ivar change: makes another answer of one.
    @ivar limit: the height of the last block that it gives; C{None} for all.
    @ivar asked: the heights that it was asked for.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.change: Callable[[OriginalAnswer], OriginalAnswer] = lambda answer: answer
        self.limit: int | None = None
        self.asked: list[int] = []
        self._waiting: Deferred[OriginalAnswer] | None = None

    def connect(self, reactor: Any, group: str, settings: CopySettings) -> Original:
        """In the place of L{Original.connect}."""
        return cast(Original, self)

    def read(self, first: int, wait: int = 0) -> Deferred[OriginalAnswer]:
        """See L{Original.read}. Waits until L{wake} is called."""
        self.asked.append(first)
        try:
            if self.directory is None:
                raise OriginalUnavailable("cannot be reached")
            part = exportPart(self.directory, first)
        except OriginalUnavailable as error:
            return fail(error)
        isBeyond = self.limit is not None and first > self.limit
        if part.stream and (part.last < first or isBeyond) and wait:
            self._waiting = Deferred()
            return self._waiting
        return succeed(
            self.change(OriginalAnswer(stream=part.stream, height=part.height, tip=part.tip))
        )

    def wake(self) -> None:
        """Answer a copy that waits for a block."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.called:
            self.read(self.asked.pop(), 0).chainDeferred(waiting)

    def close(self) -> Deferred[None]:
        """See L{Original.close}."""
        return succeed(None)


def makeCopy(
    context: LedgerContext,
    original: FakeOriginal,
    report: Callable[[CopyProgress], object] = lambda progress: None,
    **settings: Any,
) -> CopyLedger:
    """A copy of an original."""
    return CopyLedger(context, CopySettings(url=URL, **settings), original.connect, report)


@implementer(IProvableLedger, IExportableLedger, IHoldLedger, IBlockObserver)
class CopiedLedger:
    """
    An embedded ledger that is written to, and a copy of it, of which everything is read. Receipts
    are given once the copy has their blocks.
    """

    def __init__(self, context: LedgerContext) -> None:
        directory = context.directory
        self._directory = directory
        self._original: Any = pbft.configure({})(evolve(context, directory=directory / "original"))
        self._fake = FakeOriginal(directory / "original")
        self._copy: Any = makeCopy(evolve(context, directory=directory / "copy"), self._fake)
        self._height = 0
        self._held: list[tuple[int, Callable[[], None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copy, name)

    def deriveKey(self, purpose: str) -> bytes:
        # Only the original has a private key.
        key: bytes = self._original.deriveKey(purpose)
        return key

    def start(self) -> Deferred[None]:
        self._directory.mkdir(exist_ok=True)

        def started(_: None) -> Deferred[None]:
            self._original.addObserver(_Waker(self._fake))
            starting: Deferred[None] = self._copy.start()
            return starting.addCallback(lambda _: self._copy.addObserver(self))

        starting: Deferred[None] = self._original.start()
        return starting.addCallback(started)

    def stop(self) -> Deferred[None]:
        stopping: Deferred[None] = self._original.stop()
        return stopping.addCallback(lambda _: self._copy.stop())

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        inner, outer = self._original.submitMany(requests), Submission(len(requests))

        def settled(_: Submission) -> None:
            heights = [each.height for each in inner.outcomes if isinstance(each, Receipt)]
            self._held.append((max(heights, default=0), partial(outer.settle, 0, inner.outcomes)))
            self._release()

        inner.done.addCallback(settled)
        return outer

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        self._height = block.height
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for height, settle in held:
            if height <= self._height:
                settle()
            else:
                self._held.append((height, settle))


@implementer(IBlockObserver)
class _Waker:
    def __init__(self, original: FakeOriginal) -> None:
        self._original = original

    def blockCommitted(self, block: Block) -> None:
        self._original.wake()


def makeCopied(context: LedgerContext) -> ILedger:
    """See L{CopiedLedger}."""
    ledger: ILedger = CopiedLedger(context)
    return ledger


class CopyTestCase(SynchronousTestCase):
    """
    A chain, and a copy of it.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.directory = self.root / "copy" / "1"
        self.directory.parent.mkdir(parents=True)
        self.clock = Clock()
        self.disk = FaultyDisk()
        self.progress: list[CopyProgress] = []
        self.chain = self.makeChain("original")
        self.original = FakeOriginal(self.root / "original")
        self.isRunning = False

    def makeChain(self, name: str) -> ErasableChain:
        """A chain of four blocks in a directory of its own."""
        directory = self.root / name
        directory.mkdir()
        chain = ErasableChain(directory)
        self.addCleanup(chain.close)
        chain.open("t", "u")
        for number in range(3):
            chain.publish("t", b"%d" % number)
        return chain

    def start(self, **settings: Any) -> CopyLedger:
        """A copy that has started."""
        self.successResultOf(self.make(**settings).start())
        self.isRunning = True
        self.addCleanup(self.stop)
        return self.copy

    def make(self, **settings: Any) -> CopyLedger:
        """A copy that has not started."""
        self.context = LedgerContext(
            group=self.directory.name,
            directory=self.directory,
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=os.urandom,
            runInThread=self.disk,
            maxContent=1024,
        )
        self.copy = makeCopy(self.context, self.original, self.progress.append, **settings)
        return self.copy

    def stop(self) -> None:
        """Stop the copy if it runs."""
        if self.isRunning:
            self.isRunning = False
            self.successResultOf(self.copy.stop())

    def refuseStart(self, **settings: Any) -> str:
        """The reason why a copy does not start."""
        failure = self.failureResultOf(self.make(**settings).start(), LedgerUnavailable)
        return str(failure.value.message)

    def contents(self) -> list[bytes]:
        """The contents of all events of the copy."""
        events = []
        for height in range(1, self.copy.progress.height + 1):
            block = self.successResultOf(self.copy.readBlock(height))
            events += [event.content for event in block.events]
        return events

    def reason(self) -> str:
        """The reason why the copy is not ready."""
        return self.successResultOf(self.copy.getHealth()).reason

    def publish(self, *contents: bytes, chain: SignedChain | None = None) -> None:
        """Publish in the original, and have the copy hear of it."""
        (chain or self.chain).publish("t", *contents)
        self.original.wake()
