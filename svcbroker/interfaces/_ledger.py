"""
The ledger contract.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from ..model import (
    Block,
    BlockRecord,
    Event,
    EventId,
    Health,
    NodeRecord,
    Page,
    Receipt,
    Request,
    Statistics,
    Topic,
    TransactionRecord,
)


class IBlockObserver(Interface):
    """
    Something that follows a ledger's blocks.
    """

    def blockCommitted(block: Block) -> None:
        """
        A block is final and on stable storage.

        Called by the ledger in the reactor thread, once for each block after the observer was
        added, in order of height, without gap. Must return soon and must not raise; a ledger
        logs what an observer raises and goes on.
        """


class ILedger(Interface):
    """
    One group's log: an ordered chain of blocks that only grows.

    The broker calls all of it, in the reactor thread; so do carriers' tests and the contract
    suite L{svcbroker.testing.makeLedgerTests}. Every method that answers later returns a
    Deferred. Apart from the errors named at a method, any method's Deferred may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>} when the engine or the disk below
    cannot be reached; the caller may try again.

    Cancelling a Deferred of this interface only means that nobody waits any more. It never
    takes back a transaction that was submitted.

    What is read is what is final: a transaction's effects are seen by reads as soon as its
    receipt has been given, and not before its block is final and on stable storage.
    """

    group: str = Attribute("The id of the group whose log this is.")

    def start() -> Deferred[None]:
        """
        Open the log and begin to decide. Called once, before anything else.

        Fires when reads and L{submit} work.

        @raise svcbroker.errors.LedgerUnavailable: the log cannot be opened. The message is one
            line for the operator and says what to do. Nothing is left open, nothing changed.
        """

    def stop() -> Deferred[None]:
        """
        Finish what was accepted and close the log. Called once, after L{start} has fired.

        From the call on, L{submit} fails with C{LedgerUnavailable}. Transactions that were
        accepted before are still given a bounded time to become final; those that do not get
        there fail with C{LedgerUnavailable}. Then everything is synced and closed. Observers
        are told of every block until then.
        """

    def submit(request: Request) -> Deferred[Receipt]:
        """
        Have a request executed by the chain.

        Transactions submitted by one broker are executed in the order of the calls. What the
        request holds was checked by the broker: name, content and extensions are valid.

        Fires once the transaction's block is final and on stable storage, with the receipt,
        which also says if the chain refused it. Does not time out by itself: the caller does.
        After a caller stopped waiting the transaction may still become final.

        @raise svcbroker.errors.Overloaded: at once: what waits already is as much as the
            ledger keeps. Nothing was submitted, trying again later is safe.
        @raise svcbroker.errors.LedgerUnavailable: it was not executed: the ledger is stopped,
            or a block could not be stored (a full disk). Trying again is safe.
        """

    def getTopic(name: str) -> Deferred[Topic | None]:
        """
        What the chain knows of a topic, closed ones included; C{None} where it was never
        opened.
        """

    def listTopics(offset: int, limit: int) -> Deferred[Page[Topic]]:
        """
        Open topics in the order of their creation.

        @param offset: how many to leave out at the start, 0 or more.
        @param limit: the most to answer, 1 or more.
        """

    def getEvent(eventId: EventId) -> Deferred[Event]:
        """
        One event. Events of closed topics are answered too.

        @raise svcbroker.errors.HeightUnknown: its block is above the chain's height.
        @raise svcbroker.errors.EventNotFound: there is no such event.
        """

    def readBlock(height: int) -> Deferred[Block]:
        """
        One final block with its events, for followers and subscribers.

        @param height: 1 up to the chain's height.
        @raise svcbroker.errors.HeightUnknown: there is no such block (yet).
        """

    def findBlocks(topics: Sequence[str], first: int, limit: int) -> Deferred[Sequence[int]]:
        """
        The heights of the next blocks that hold events of any of these topics, for replay.

        @param topics: names of topics, also of closed ones and of such that were never opened.
        @param first: the lowest height to look at.
        @param limit: the most heights to answer, 1 or more. Fewer mean that there are no more.
        @return: heights in rising order.
        """

    def countEvents(filters: Sequence[str], first: int) -> Deferred[int]:
        """
        How many events there are from a height on in topics that match any of these filters.

        @param filters: topics or patterns, as in L{svcbroker.model.filterMatches}.
        @param first: the lowest height to count.
        """

    def addObserver(observer: IBlockObserver) -> None:
        """
        Tell C{observer} of every block from now on. Adding it twice changes nothing.
        """

    def removeObserver(observer: IBlockObserver) -> None:
        """
        Tell C{observer} no more. Removing one that was not added changes nothing.
        """

    def getStatistics() -> Deferred[Statistics]:
        """
        The ledger in numbers.
        """

    def listBlocks(
        offset: int,
        limit: int,
        *,
        height: int | None = None,
        hash: bytes | None = None,
    ) -> Deferred[Page[BlockRecord]]:
        """
        Blocks from height 1, newest first.

        @param offset: how many to leave out at the start, 0 or more.
        @param limit: the most to answer, 1 or more.
        @param height: only the block of this height.
        @param hash: only the block of this hash. Filters given together must all hold.
        """

    def listTransactions(
        offset: int,
        limit: int,
        *,
        height: int | None = None,
        hash: bytes | None = None,
    ) -> Deferred[Page[TransactionRecord]]:
        """
        Transactions of the whole chain, refused ones included, newest first.

        @param offset: how many to leave out at the start, 0 or more.
        @param limit: the most to answer, 1 or more.
        @param height: only those of this block.
        @param hash: only the one of this hash. Filters given together must all hold.
        """

    def listNodes(
        offset: int, limit: int, *, name: str | None = None
    ) -> Deferred[Page[NodeRecord]]:
        """
        The nodes that hold this ledger, in the order of their indexes.

        @param offset: how many to leave out at the start, 0 or more.
        @param limit: the most to answer, 1 or more.
        @param name: only those of this name.
        """

    def getHealth() -> Deferred[Health]:
        """
        Whether the ledger makes progress, for C{/readyz}. Never fails.
        """
