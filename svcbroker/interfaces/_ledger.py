"""
The contracts of ledgers: what all of them do, and what those add that prove, export, measure
themselves, take faults on purpose, or are decided by a network or a set of validators; a request on
its way into one; and a ledger's plugin, which reads its description and makes it.

Many names: each is a small contract of its own, which few ledgers provide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import Factory, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.plugin import IPlugin
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface

from ..errors import BrokerError, EventErased
from ..model import (
    Block,
    BlockRecord,
    ChainPart,
    Event,
    EventId,
    FaultReport,
    Health,
    HeldRange,
    HoldRecord,
    LedgerMeasures,
    NodeRecord,
    Page,
    Position,
    Receipt,
    ReleasedPage,
    Request,
    Statistics,
    Topic,
    TopicRule,
    TransactionRecord,
)

if TYPE_CHECKING:
    from ..chain import ValidatorChange, ValidatorSet
    from ..proofs import Checkpoint, ConsistencyProof, EventProof, GenesisFields, TopicProof


class Submission:
    """
    Requests that were submitted in one call, and the outcome of each as far as it is known.

    @ivar outcomes: in the order of the requests: the receipt, or the error why the request was not
        executed; C{None} while neither is known.
    @ivar done: fires with the submission when every outcome is known; the ledger never fails it.
        It belongs to the caller, who may cancel it, or fire it at a time-out. This does not
        affect the requests, and outcomes are still added here.
    """

    __slots__ = ("_left", "done", "outcomes")

    def __init__(self, count: int) -> None:
        """
        @param count: how many requests there are, 1 or more.
        """
        self.outcomes: list[Receipt | BrokerError | None] = [None] * count
        self.done: Deferred[Submission] = Deferred()
        self._left = count

    @classmethod
    def refused(cls, count: int, error: BrokerError) -> Submission:
        """
        A submission of which no request was accepted.

        @param error: the outcome of each.
        """
        submission = cls(count)
        submission.settle(0, [error] * count)
        return submission

    def settle(self, start: int, outcomes: Sequence[Receipt | BrokerError]) -> None:
        """
        Add the outcomes of consecutive requests. The ledger calls it, once for each request.

        @param start: the index of the first of these requests.
        """
        count = len(outcomes)
        self.outcomes[start : start + count] = outcomes
        self._left -= count
        if not self._left and not self.done.called:
            self.done.callback(self)

    def only(self) -> Deferred[Receipt]:
        """
        The receipt of a submission of one request.

        @return: fires with the receipt, or fails with the error why it was not executed.
            Cancelling it does not affect the request.
        """
        receipt: Deferred[Receipt] = Deferred()
        self.done.addCallback(_settleOnly, receipt)
        return receipt


def _settleOnly(submission: Submission, receipt: Deferred[Receipt]) -> None:
    [outcome] = submission.outcomes
    if receipt.called:
        return  # It was cancelled.
    if isinstance(outcome, Receipt):
        receipt.callback(outcome)
    else:
        receipt.errback(Failure(outcome))


# Methods of a zope.interface take no "self".
# ruff: noqa: N805


class IBlockObserver(Interface):
    """
    Something that follows a ledger's blocks.
    """

    def blockCommitted(block: Block) -> None:
        """
        A block is final and on stable storage.

        Called by the ledger in the reactor thread, once for each block after the observer was
        added, in order of height, without gap, and before any receipt of the block is given: who
        subscribes once its event is acknowledged gets the events after it. Must return soon and
        must not raise; a ledger logs what an observer raises and goes on.
        """


class ILedger(Interface):
    """
    One group's log: an ordered chain of blocks that only grows.

    The broker calls all of it, in the reactor thread; so do carriers' tests and the contract
    suite L{svcbroker.testing.makeLedgerTests}. Every method that answers later returns a
    Deferred. Apart from the errors named at a method, any method's Deferred may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>} when the engine or the disk below
    cannot be reached; the caller may try again.

    Cancelling a Deferred of this interface only ends the waiting. It never
    takes back a transaction that was submitted.

    What is read is what is final: a transaction's effects are seen by reads as soon as its
    receipt has been given, and not before its block is final and on stable storage.
    """

    group: str = Attribute("The id of the group whose log this is.")

    chain: bytes = Attribute(
        "What tells this log from every other one, also from one that took its place: the chain's "
        "id, once L{start} has fired. The same after each start. Empty where nothing is kept when "
        "the ledger stops. Positions of subscriptions are tied to it: the broker reads it at each "
        "start, and sets aside what it keeps of another chain of the group."
    )

    def start() -> Deferred[None]:
        """
        Open the log and begin to decide. Called once, before anything else.

        Fires when reads and L{submitMany} work.

        @raise svcbroker.errors.LedgerUnavailable: the log cannot be opened. The message is one
            line for the operator and says what to do. Nothing is left open, nothing changed.
        """

    def stop() -> Deferred[None]:
        """
        Finish what was accepted and close the log. Called once, after L{start} has fired.

        From the call on, the outcome of every request is C{LedgerUnavailable}. Transactions that
        were accepted before are still given a bounded time to become final; those that do not
        get there fail with C{LedgerUnavailable} if they are never executed, and else with
        C{TransactionTimeout}. Then everything is synced and closed. Observers are told of every
        block until then.
        """

    def submitMany(requests: Sequence[Request]) -> Submission:
        """
        Have requests executed by the chain, in their order and with no other between them.

        The broker calls it for everything that is published, opened and closed: with all events
        of one client's call, and several times in one turn of the reactor when clients call at
        the same time. A ledger that makes blocks should therefore let the submissions of one turn
        share a block; the broker does not collect them.

        Requests of one broker are executed in the order of the calls. The broker has checked
        them: name, content and extensions are valid.

        The submission fires once each request's block is final and on stable storage. The
        outcome of a request is one of:

         - a receipt, which also says if the chain refused the request,
         - C{Overloaded}: what waits already is as much as the ledger keeps. It is known at
           once, nothing of this request was submitted, and trying again later is safe. If there
           is room for some of the requests only, these are the first ones, and all others are
           C{Overloaded}.
         - L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}: the request was not executed:
           the ledger is stopped, or a block could not be stored (a full disk). Trying again is
           safe.

        A ledger may not be able to execute everything that is not
        L{plain<svcbroker.model.isPlain>}: signatures, idempotency keys, expected sequence numbers,
        sets of authors, erasures, holds. It refuses such a request with an error,
        C{ParameterInvalid} or C{LedgerUnavailable}, and never executes it as if it was plain.

        A ledger has no time-out of its own: the caller sets one. After a caller stopped waiting,
        the requests may still become final.

        @param requests: one or more.
        """

    def topicState(name: str) -> Topic | None:
        """
        The state of a topic on the chain now, closed ones included; C{None} if it was never opened.

        The broker calls it for every event that is published. So it must answer from memory: a
        ledger keeps the topics of its chain there, or a view of them that is never older than
        the last receipt that it gave.

        @raise svcbroker.errors.LedgerUnavailable: the ledger is stopped, or has no chain yet.
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

        The event's C{index} is always 0 here: clients who ask for an event by its id are not
        told, and finding it may cost another read. L{locate} finds it.

        @raise svcbroker.errors.HeightUnknown: its block is above the chain's height.
        @raise svcbroker.errors.EventNotFound: there is no such event.
        @raise svcbroker.errors.EventErased: its content was erased.
        """

    def locate(eventId: EventId) -> Deferred[Position]:
        """
        The position of an event in the log, for subscriptions that begin after it.

        @raise svcbroker.errors.HeightUnknown: its block is above the chain's height.
        @raise svcbroker.errors.EventNotFound: there is no such event.
        """

    def readBlock(height: int) -> Deferred[Block]:
        """
        One final block with its events, for followers and subscribers.

        @param height: 1 up to the chain's height.
        @raise svcbroker.errors.HeightUnknown: there is no such block (yet).
        """

    def mayHold(height: int, extension: str) -> Deferred[bool]:
        """
        Whether a block may hold an event with an extension of this name.

        The MQTT carrier calls it for every block that it has not seen, at a start, to skip blocks
        without retained messages. C{True} is always a right answer; a ledger answers C{False} if
        it can tell for less than L{readBlock} costs.

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
        Count the events from a height on in topics that match any of these filters.

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


def submit(ledger: ILedger, request: Request) -> Deferred[Receipt]:
    """
    Submit one request to a ledger.

    @return: as L{Submission.only}. Apart from the errors of
        L{ILedger.submitMany<svcbroker.interfaces.ILedger.submitMany>} it cannot fail.
    """
    return ledger.submitMany((request,)).only()


def topicOfEvent(ledger: ILedger, eventId: EventId) -> Deferred[str]:
    """
    The topic of an event, also of one whose content was erased.

    @raise svcbroker.errors.HeightUnknown: its block is above the chain's height.
    @raise svcbroker.errors.EventNotFound: there is no such event.
    """
    return ledger.getEvent(eventId).addCallbacks(lambda event: event.topic, _topicOfErased)


def _topicOfErased(failure: Failure) -> str:
    failure.trap(EventErased)
    error: Any = failure.value
    topic: str = error.topic
    return topic


class ICheckedLedger(ILedger):
    """
    A ledger that can tell, before its start, whether it would start. C{svcbroker run --check} and
    C{svcbroker doctor} ask it; L{ILedger.start} makes the same checks, by the same code.
    """

    def check() -> None:
        """
        Look at the directory and at what the settings name. Nothing is changed, no other machine is
        asked, and another process may be using the directory. The ledger is not started afterwards.

        @raise svcbroker.errors.LedgerUnavailable: it would not start. The text is one line for the
            operator.
        """


class ITopicRuleLedger(Interface):
    """
    A ledger that says which names the topics of its chain may have. Topics of others have the
    names of the published interface.
    """

    topicRule: TopicRule = Attribute("The rule of topics' names, once L{ILedger.start} has fired.")


class ISizedLedger(Interface):
    """
    A ledger that tells how many bytes the events of its topics take.
    """

    def topicBytes(names: Sequence[str]) -> Deferred[Sequence[int | None]]:
        """
        The bytes of each topic's events in the log now: names, extensions and contents. An erased
        event counts without its content, once that is removed.

        The broker calls it for a page of topics. What takes long goes on at the next call.

        @param names: names of topics.
        @return: C{None} for a topic that was never opened, or whose bytes are not known yet.
        """


class IHoldLedger(Interface):
    """
    A ledger that executes holds: as long as one is in force, no event that it names is erased.
    """

    latestRelease: int = Attribute(
        "The height of the block with the latest release of a hold; 0 where there is none. Who "
        "passes over held events comes back to them when it has changed."
    )

    def heldRanges(topic: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Iterator[HeldRange]]:
        """
        The events of a topic that are held, of those in some ranges: for each hold an iterator of
        those that it names, rising, each within one of the ranges.

        The broker calls it before it has events erased, by retention for each topic of a block, so
        it answers from memory. A step of an iterator takes less than a millisecond, and the
        iterators tell of the holds that are in force now. The chain decides: a hold may come in
        between.

        @param topic: the name of a topic, which may never have been opened.
        @param ranges: pairs of the first and the last sequence number, rising.
        @raise svcbroker.errors.LedgerUnavailable: the ledger is stopped, or has no chain yet.
        """

    def listHolds(
        offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        """
        The holds that are in force, in the order in which they came into force.

        @param offset: how many to leave out at the start, 0 or more.
        @param limit: the most to answer, 1 or more.
        @param case: only that of this case, with the events that it names.
        """

    def listReleased(
        limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        """
        The holds that were released, with their releases, the latest hold first. There may be any
        number of them, so they are read page by page.

        @param limit: the most to answer, 1 or more.
        @param before: the C{next} of the page before; C{None} for the first page.
        @param case: only those of this case, with the events that they name.
        """


class INetworkLedger(ILedger):
    """
    A ledger of which other nodes have the log too. This node may lack blocks from which another
    node has answered already; all of them come.

    The broker waits for such blocks where a call names them, continues subscriptions at places that
    this node has not reached, and lets the chain decide what it would refuse elsewhere because of
    the state of topics.
    """

    takesRequests: bool = Attribute("Whether this node submits requests. A copy refuses them all.")


def isDecidedByChain(ledger: ILedger) -> bool:
    """
    Whether the chain alone knows if a request is to be refused, since this node may be behind.
    """
    return INetworkLedger.providedBy(ledger) and bool(ledger.takesRequests)


class IProvableLedger(ILedger):
    """
    A ledger that can prove what its validators have signed, to be checked without it.

    The broker calls it for the operations C{proof}, C{topicProof}, C{checkpoint}, C{consistency}
    and C{genesis}. What it answers is checked with L{svcbroker.proofs}, without the ledger. All of
    it may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def getGenesis() -> Deferred[GenesisFields]:
        """
        The beginning of the chain, which every proof starts from.
        """

    def getCheckpoint(height: int | None) -> Deferred[Checkpoint]:
        """
        A final block, named so that there can be no other in its place: that of the height, or
        where it has no certificate of its own, the last one below that has. (Where an engine
        decides, only blocks with transactions have.)

        @param height: the block's height, from 0; C{None} for the latest one.
        @raise svcbroker.errors.HeightUnknown: there is no such block (yet).
        """

    def prove(
        eventId: EventId, checkpoint: int | None, *, trusted: int | None = None
    ) -> Deferred[EventProof]:
        """
        Prove an event.

        @param checkpoint: the height of a later block that is to vouch for it too, or the
            checkpoint of that height; C{None} where the event's own is enough.
        @param trusted: the height of a checkpoint that the verifier trusts, instead: the proof
            leads to it, and has no certificates. It may be the event's own block.
        @raise svcbroker.errors.HeightUnknown: its block, or the checkpoint's, is above the
            chain's height.
        @raise svcbroker.errors.EventNotFound: there is no such event.
        @raise svcbroker.errors.ParameterInvalid: the checkpoint is not after the event's block.
        """

    def proveTopic(name: str) -> Deferred[TopicProof]:
        """
        Prove how many events a topic has, in the state after the latest block.

        @raise svcbroker.errors.TopicNotFound: the topic was never opened.
        """

    def proveConsistency(older: int, newer: int) -> Deferred[ConsistencyProof]:
        """
        Prove that the chain up to one block is the beginning of the chain up to another.

        @param older: a height, from 0.
        @param newer: a height above it.
        @raise svcbroker.errors.HeightUnknown: the newer block is above the chain's height.
        @raise svcbroker.errors.ParameterInvalid: the heights are not in that order.
        """

    def readHistory(level: int, first: int, count: int) -> Deferred[Sequence[bytes]]:
        """
        Hashes of the chain's history tree: the log that witnesses cosign. The broker makes tiles,
        roots and consistency proofs of them.

        @param level: 0 for the hashes of the headers by height, of which the leaves are made;
            8, 16 and so on for inner nodes that have all their leaves.
        @param first: the position of the first one in its level.
        @param count: the most to answer, up to 256. There are fewer at the end of the chain.
        @raise svcbroker.errors.ParameterInvalid: there is no such level.
        """

    def deriveKey(purpose: str) -> bytes:
        """
        A private key of this ledger's own for one purpose. It follows from the ledger's private
        key, so it is the same after a restart, and another one once that key has changed.

        @param purpose: what the key is for; each purpose has a key of its own.
        @return: 32 bytes, of which the ledger's private key cannot be computed.
        @raise svcbroker.errors.LedgerUnavailable: the ledger has no private key now.
        """


class IExportableLedger(ILedger):
    """
    A ledger whose chain other brokers can keep a verified copy of.

    The embedded ledger, the one beside an engine, and a copy itself provide it.
    """

    def exportBlocks(first: int) -> ChainPart:
        """
        Read the next blocks with their certificates, up to a bounded size. Blocks on the disk:
        the broker calls it in a thread of its own, also after C{stop} was called.

        @param first: the height of the first one, from 1.
        """


# Methods of a zope.interface take no "self".
# ruff: noqa: N805


class IFaultyLedger(Interface):
    """
    A ledger whose nodes and whose network an operator can break and mend, to see what becomes
    of an application meanwhile. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}; one whose nodes are not its own to stop does not.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, and
    only where the daemon was started with C{--faults}. No fault may endanger what is final;
    with too many of them nothing new becomes final until they are mended.

    Any Deferred may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.
    """

    def stopNode(index: int) -> Deferred[None]:
        """
        Stop a node. Stopping a stopped one changes nothing.

        @raise svcbroker.errors.ParameterInvalid: there is no node of this index.
        """

    def startNode(index: int) -> Deferred[None]:
        """
        Let a stopped node go on. Starting a running one changes nothing.

        @raise svcbroker.errors.ParameterInvalid: there is no node of this index.
        """

    def setNetwork(
        *,
        delay: tuple[float, float] | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        cut: Collection[tuple[int, int]] | None = None,
    ) -> Deferred[None]:
        """
        Change the network between the nodes. What is C{None} stays as it is.

        @param delay: the shortest and the longest time that a message takes, in seconds, at
            most L{MAX_DELAY<svcbroker.model.MAX_DELAY>}.
        @param loss: the share of messages that are lost, 0 to 1.
        @param duplication: the share of messages that arrive twice, 0 to 1.
        @param cut: pairs (from, to) of nodes between which nothing passes, in that direction.
        @raise svcbroker.errors.ParameterInvalid: there is no node of one of the indexes.
        """

    def heal() -> Deferred[None]:
        """
        Let every node run, and make the network what it was when the ledger started.
        """

    def describeFaults() -> Deferred[FaultReport]:
        """
        The nodes and the network as they are now.
        """


# Methods of a zope.interface take no "self".


class IMeasuredLedger(Interface):
    """
    A ledger that tells of itself for metrics. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}. What every ledger tells by L{ILedger
    <svcbroker.interfaces.ILedger>} (height, intervals and sizes of blocks, health) needs no more
    than that.
    """

    def measure() -> LedgerMeasures:
        """
        The ledger now.

        The broker calls it in the reactor thread at each scrape, which may be each second, after
        the ledger's start and before its stop. It answers from memory, at once, and does not raise.
        """


# Methods of a zope.interface take no "self".
# ruff: noqa: N805


class IValidatorSetLedger(Interface):
    """
    A ledger whose blocks a set of validators decides. A ledger may provide it beside
    L{ILedger<svcbroker.interfaces.ILedger>}.

    The broker calls it in the reactor thread, after the ledger's start and before its stop, for
    operator calls. Any Deferred may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.

    There are two ways to change the set. A ledger that holds all private keys makes the change
    itself (L{changeNodes}); one whose validators belong to several organisations takes a change
    that they have signed (L{submitChange}). Each refuses the way that it does not have.
    """

    def getNodes() -> Deferred[ValidatorSet]:
        """
        The validators that decide the next block.
        """

    def changeNodes(rotate: Sequence[int] = (), count: int | None = None) -> Deferred[ValidatorSet]:
        """
        Give validators new keys, or change how many there are, by a transaction. Proofs of
        earlier blocks remain valid.

        @param rotate: the indexes of the validators that get new keys.
        @param count: how many validators there are to be; C{None} for as many as there are.
        @return: fires with the new set, which decides from the next block on, when the change
            is final.
        @raise svcbroker.errors.ParameterInvalid: there is no such validator, nothing would
            change, the number is out of range, or the ledger does not hold the keys.
        """

    def submitChange(change: ValidatorChange) -> Deferred[ValidatorSet]:
        """
        Have a signed change of the validators executed. One that was executed already changes
        nothing.

        @param change: with its signatures.
        @return: fires with the new set when the change is final.
        @raise svcbroker.errors.ParameterInvalid: it does not hold, and the text says why; or the
            ledger holds all keys itself.
        """


# ruff: noqa: N805


class InvalidDescription(Exception):
    """
    A description of a ledger or of another plugin that cannot be used. The text is one line for the
    operator and names the setting.
    """


@frozen(kw_only=True)
class LedgerContext:
    """
    The directory, clock, randomness and threads that a ledger is given. A ledger takes time,
    randomness, threads and its place
    on the disk from here and from nowhere else, so that a test can hold all of them.

    @ivar group: the group whose log it is to keep.
    @ivar directory: a directory for this ledger alone. Its parent exists; the ledger makes it
        when it needs one.
    @ivar reactor: the clock: for waiting (C{callLater}). In the daemon it is the reactor.
    @ivar now: the wall clock: seconds since the epoch, for timestamps.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar runInThread: C{runInThread(f, *args)} runs blocking disk work off the reactor
        thread, one call at a time in the order of the calls, and gives its result in a
        Deferred. A test runs it at once.
    @ivar runBriefly: the same for what a disk in good health does in less time than a thread
        takes to hear of it, such as storing a block. It may run on the reactor thread, and its
        Deferred may have fired when it is returned. By default it is C{runInThread}.
    @ivar maxContent: the largest content in bytes that the broker lets in.
    @ivar turn: fires when a read that takes long may go on. The daemon shares the time of a turn of
        the reactor among all that clients ask for. By default it is the next turn.
    """

    group: str
    directory: Path
    reactor: IReactorTime
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    runInThread: Callable[..., Deferred[Any]]
    runBriefly: Callable[..., Deferred[Any]] = Factory(
        lambda self: self.runInThread, takes_self=True
    )
    maxContent: int
    turn: Callable[[], Deferred[None]] = Factory(
        lambda self: partial(deferLater, self.reactor, 0), takes_self=True
    )


class ILedgerFactory(IPlugin, Interface):
    """
    A kind of ledger, chosen by the first word of a description such as C{pbft:nodes=7}.

    A plugin module under C{twisted/plugins/} provides instances of it; the option parser finds
    them with C{twisted.plugin.getPlugins}.
    """

    name: str = Attribute("The first word of its descriptions.")

    summary: str = Attribute("What it is, in a line, for --help-ledger.")

    settings: Mapping[str, str] = Attribute(
        "What may follow the name: each setting's key, and its meaning, unit and default in a "
        "line, for --help-ledger."
    )

    def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
        """
        Check a description's settings and remember them.

        Called by the option parser, once a group, before anything is started, with the
        settings as written (C{pbft:nodes=7} gives C{{"nodes": "7"}}). Has no side effects.

        @return: what makes the ledger; it is called once, with no more to go wrong than
            L{ILedger.start} can say.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """


class IBoundedLedgerFactory(Interface):
    """
    A kind of ledger that tells how much memory one of it may take. L{LedgerPlugin
    <svcbroker.ledgers.LedgerPlugin>} asks the module of any kind of ledger; of a factory without
    this, operators are told that it is not known.
    """

    def memory(settings: Mapping[str, str]) -> Mapping[str, int] | None:
        """
        The bounds of a ledger: what it keeps in memory, in a few words for operators, and the most
        bytes of it. What grows with the chain does not belong here.

        @param settings: as L{ILedgerFactory.configure} has them.
        @return: C{None} where that is not known.
        @raise InvalidDescription: a setting is unknown or has a bad value.
        """


class IFeaturePlugin(IPlugin, Interface):
    """
    A feature of the daemon that another distribution brings, such as a carrier. The daemon loads
    all of them when it reads its settings.
    """

    def load() -> Any:
        """Import it: a C{svcbroker.broker.features.Feature}. Called once."""
