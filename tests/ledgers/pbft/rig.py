"""
A whole ledger on a test clock, with a disk controlled by the test.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import shake_256
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Certificate, Genesis, Header, History, ValidatorSet, checkCertificate
from svcbroker.interfaces import LedgerContext, submit
from svcbroker.ledgers.pbft import PbftLedger
from svcbroker.ledgers.pbft._pbftledger import readSettings
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.model import OpenTopic, PublishEvent, Receipt
from svcbroker.storage import Store
from tests.ledgers.pbft.sets import NOW, Journal, mixed


class Disk:
    """
    A C{runInThread} controlled by the test.

    @ivar isHeld: whether calls wait for L{release}.
    @ivar error: the error that all calls but C{close} fail with, while it is set.
    @ivar done: the names of the calls made, or failed.
    """

    def __init__(self) -> None:
        self.isHeld = False
        self.error: Exception | None = None
        self.done: list[str] = []
        self.waiting: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()

    def __call__(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        result: Deferred[Any] = Deferred()
        self.waiting.append((result, call, args))
        if not self.isHeld:
            self.release()
        return result

    def release(self) -> None:
        """Make the waiting calls in order, and those that follow from them."""
        while self.waiting:
            self.step()

    def step(self) -> None:
        """Make the first waiting call."""
        result, call, args = self.waiting.popleft()
        self.done.append(call.__name__)
        if self.error is not None and call.__name__ != "close":
            result.errback(self.error)
        else:
            maybeDeferred(call, *args).chainDeferred(result)

    def crash(self, *, isWritten: bool) -> None:
        """Drop the waiting calls without a result, after they were made if C{isWritten}."""
        for _, call, args in self.waiting:
            if isWritten:
                call(*args)
        self.waiting.clear()


class LedgerRig:
    """
    A ledger on a test clock.

    @ivar receipts: the results of all submissions that were not yet checked, in order.
    @ivar salt: distinguishes the keys of this rig from those of others.
    """

    def __init__(
        self,
        test: SynchronousTestCase,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        clock: Clock | None = None,
        worse: Mapping[int, type[Replica]] | None = None,
    ) -> None:
        self.test = test
        self.directory = newDirectory(test) if directory is None else directory
        self.clock = Clock() if clock is None else clock
        if clock is None:
            self.clock.advance(NOW)
        self.now = self.clock.seconds
        self.disk = Disk()
        self.journal = Journal()
        self.receipts: list[Deferred[Receipt]] = []
        self.salt = 0
        self._entropy = 0
        self.ledger = PbftLedger(
            LedgerContext(
                group="1",
                directory=self.directory,
                reactor=self.clock,
                now=lambda: self.now(),
                entropy=self._random,
                runInThread=self.disk,
                maxContent=1024,
            ),
            readSettings(settings or {}),
            mixed(worse or {}, self.journal.maker),
        )

    def _random(self, size: int) -> bytes:
        self._entropy += 1
        return shake_256(b"%d %d" % (self.salt, self._entropy)).digest(size)

    def start(self) -> LedgerRig:
        """Start the ledger."""
        self.test.successResultOf(self.ledger.start())
        self.test.addCleanup(self.close)
        return self

    def close(self) -> None:
        """Close everything a test left open."""
        self.disk.crash(isWritten=False)
        self.ledger.replicaSet.stop()
        self.store.close()

    @property
    def store(self) -> Store:
        """The ledger's store."""
        store: Store = self.ledger._producer._store
        return store

    @property
    def replicaSet(self) -> Any:
        """The ledger's replicas."""
        return self.ledger.replicaSet

    @property
    def height(self) -> int:
        """The height of the last stored block."""
        return self.ledger._producer.head.height

    def open(self, topic: str = "t") -> LedgerRig:
        """Open a topic, and wait for it."""
        self.receipts.append(submit(self.ledger, OpenTopic(topic=topic)))
        self.settle()
        self.test.successResultOf(self.receipts.pop())
        return self

    def publish(self, count: int = 1, content: bytes = b"x", topic: str = "t") -> None:
        """Submit events."""
        for _ in range(count):
            request = PublishEvent(topic=topic, content=content)
            self.receipts.append(submit(self.ledger, request))

    def run(self, seconds: float, step: float = 0.05) -> None:
        """Advance the clock."""
        for _ in range(round(seconds / step)):
            self.clock.advance(step)

    def change(self, rotate: Sequence[int] = (), count: int | None = None) -> ValidatorSet:
        """Give nodes new keys, or change their number, and wait for it."""
        changed: list[Any] = []

        def keep(result: Any) -> Any:
            changed.append(result)
            return result

        changing = self.ledger.changeNodes(rotate, count).addBoth(keep)
        for _ in range(2400):
            if changed:
                break
            self.clock.advance(0.05)
        following: ValidatorSet = self.test.successResultOf(changing)
        return following

    @property
    def keyFiles(self) -> list[str]:
        """The names of the files in the directory of keys."""
        return sorted(path.name for path in (self.directory / "keys").iterdir())

    def settle(self, limit: float = 120.0, step: float = 0.05) -> None:
        """Advance the clock until every submission has a receipt."""
        for _ in range(round(limit / step)):
            if all(receipt.called for receipt in self.receipts):
                return
            self.clock.advance(step)
        self.test.fail("there are not receipts of everything")

    def sequences(self) -> list[int]:
        """The sequence numbers of the events published so far."""
        found = [self.test.successResultOf(receipt) for receipt in self.receipts if receipt.called]
        self.receipts = [receipt for receipt in self.receipts if not receipt.called]
        return [receipt.eventId.sequence for receipt in found if receipt.eventId]

    def check(self) -> None:
        """
        Check all invariants: headers, certificates, validator sets, sequence numbers and agreement.
        """
        genesis = Genesis.decode(self.store.genesis)
        parent, sequence = genesis.header(), 0
        changed = {row.height: row for row in self.store.validatorSets()}
        validators = genesis.validatorSet
        history = History.of([parent.hash])
        for row in self.store.blockHeads(1, self.height):
            header = Header.decode(row.header)
            self.test.assertEqual((header.height, header.parent), (parent.height + 1, parent.hash))
            self.test.assertGreaterEqual(header.view, parent.view)
            self.test.assertGreaterEqual(header.timestamp, parent.timestamp)
            checkCertificate(
                Certificate.decode(row.certificate),
                header,
                len(validators.keys),
                validators.verify,
            )
            self.test.assertEqual(
                (header.history, header.validators), (history.root, validators.hash)
            )
            history = history.after(header.hash)
            if header.height in changed:
                validators = ValidatorSet.decode(changed[header.height].encoded)
            self.test.assertEqual(header.nextValidators, validators.hash)
            self.test.assertLessEqual(self.journal.decided.get(header.height, set()), {header.hash})
            for event in self.test.successResultOf(self.ledger.readBlock(header.height)).events:
                sequence += 1
                self.test.assertEqual(event.eventId.sequence, sequence)
            parent = header
        self.test.assertEqual(self.ledger._state.validators, validators)
        self.test.assertEqual(self.ledger._state.history.root, history.root)
        self.test.assertEqual(self.test.flushLoggedErrors(), [])


def newDirectory(test: SynchronousTestCase) -> Path:
    """The path of a new ledger's directory, whose parent exists."""
    directory = Path(test.mktemp()).absolute()
    directory.mkdir(parents=True)
    return directory / "1"
