"""
Chains with authors, idempotency keys and erasures, and what is left of them in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from svcbroker.archive import Eraser, Erasing, loadChain
from svcbroker.chain import Erasure, Header, Kind, Transaction, decodeBody, decodeReceipts
from svcbroker.model import Execution, topicPrefix
from svcbroker.storage import Store
from tools.vectors.signedchain import SignedChain


def canary(*parts: object) -> bytes:
    """Bytes that are nowhere else."""
    return sha256(repr(parts).encode()).hexdigest().encode()


class ErasableChain(SignedChain):
    """
    A chain with erasures.
    """

    def erasure(self, topic: str, *ranges: tuple[int, int]) -> Transaction:
        """An erasure of some events."""
        content = Erasure(account="operator", reason="asked for", ranges=ranges).encode()
        return self.make(Kind.ERASE, topic, content)

    def erase(self, topic: str, *ranges: tuple[int, int]) -> Header:
        """Erase events, in a block alone."""
        return self.decide([self.erasure(topic, *ranges)])


def filesWith(directory: Path, wanted: bytes) -> Sequence[str]:
    """The names of the files below a directory in which some bytes are."""
    return [
        str(path.relative_to(directory))
        for path in sorted(directory.rglob("*"))
        if path.is_file() and wanted in path.read_bytes()
    ]


def eventsIn(store: Store) -> dict[tuple[str, int], bytes | None]:
    """
    The content of each event by topic and sequence number, C{None} where it is missing; found in
    the body of its block, and at the place that the index of its topic names.
    """
    events: dict[tuple[str, int], bytes | None] = {}
    for height in range(1, store.height + 1):
        row = store.block(height)
        assert row is not None
        transactions = decodeBody(row.body, mayBeErased=True)
        for transaction, receipt in zip(transactions, decodeReceipts(row.receipts), strict=True):
            if transaction.kind is not Kind.PUBLISH or receipt.execution is not Execution.DONE:
                continue
            prefix, sequence = topicPrefix(transaction.topic), receipt.sequence
            [place] = store.eventPlaces(prefix, height, sequence)
            assert place is not None
            entry = store.bodySlice(height, place.offset, place.length)
            found = Transaction.decode(entry, mayBeErased=True)
            assert found == transaction, (height, sequence)
            content = None if found.isErased else found.content
            events[transaction.topic, sequence] = content
    return events


def makeErasable(directory: Path, *, isRemoved: bool = True) -> ErasableChain:
    """
    A chain that has a bit of everything: both versions, topics with authors, uses of keys,
    publishes that were refused, and three erased events. It is open.

    @param directory: that of the group.
    @param isRemoved: whether the contents of the erased events are removed.
    """
    directory.mkdir(parents=True, mode=0o700)
    chain = ErasableChain(directory)
    chain.open("a", "b")
    chain.publish("a", canary("old"), b"", canary("old kept"))
    chain.openFor("by", "ann", "bob")
    chain.decide(
        [
            chain.say("a", canary("gone"), key="one", extensions={"svc-private-note": "x"}),
            chain.say("b", canary("kept"), key="two"),
            chain.say("by", canary("gone by"), author="ann", key="one"),
            chain.say("by", canary("refused"), author="ann", isSigned=False),
            chain.say("by", canary("refused, too"), author="carol"),
        ]
    )
    chain.decide(
        [
            chain.erasure("a", (1, 1), (4, 4)),
            chain.erasure("by", (1, 1)),
            # Of a use whose event is erased, and of one whose is not.
            chain.say("a", canary("another"), key="one"),
            chain.say("b", canary("kept"), key="two"),
            chain.say("b", canary("other"), key="two"),
        ]
    )
    chain.publish("a", canary("after"))
    if isRemoved:
        assert Eraser(chain.store).run() is Erasing.DONE
    return chain


def reopened(path: Path) -> Store:
    """A store that was closed, with its state checked."""
    store = Store.open(path)
    loadChain(store)
    return store
