"""
The transparency service: what clients register and get, and what the service itself registers: its
policy, and the issuers that it trusts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ...access import Principal
from ...broker import Broker, KeyCertification, Publication, PublishPolicy, SendStatus
from ...chain import Malformed, leafHash, rootOfGrowth, rootOfPath
from ...errors import (
    BrokerError,
    ContentTooLarge,
    EventErased,
    EventNotFound,
    LedgerUnavailable,
    ParameterInvalid,
)
from ...interfaces import Action, IProvableLedger
from ...model import EventId, OpenTopic, PublishEvent, Receipt
from ...net.deferreds import asDeferred, cancelAll
from ...net.turns import Lock
from ...proofs.scitt import (
    KEY_TOPIC,
    Claims,
    CoseKey,
    Entry,
    KeyRecord,
    RegistrationPolicy,
    ServiceKey,
    SignedStatement,
    Signing,
    StatementRefused,
    TreeLine,
)
from ...proofs.tlog import TILE_HEIGHT, parseTilePath
from .statementtree import RETRY, StatementTree, TreeState

CARRIER: Final = "scitt"
"""The name of the carrier, for metrics."""

MAX_OPEN: Final = 10_000
"""The most statements of which it is remembered that the chain gave no answer in time."""

OPEN_SECONDS: Final = 600.0
"""For how long that is remembered."""

TREE_TIMEOUT: Final = 1.0
"""The seconds for which a checkpoint of the log waits for the tree."""

_PURPOSE: Final = "scitt key"


@frozen(kw_only=True)
class EntryReceipt:
    """
    The answer about an entry.

    @ivar id: the hash of the entry.
    @ivar content: the entry.
    @ivar receipt: a receipt of it; C{None} where it is not in the tree yet.
    """

    id: bytes
    content: bytes
    receipt: bytes | None


class ScittService:
    """
    The transparency service of a topic.

    A principal needs the right to publish to the topic for what it registers, and to read it for
    everything else but keys. Everything may fail with
    L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>} while the service is not ready.

    @ivar refused: the number of refused statements, by the title of the refusal.
    """

    _log = Logger()

    def __init__(
        self,
        topic: str,
        name: str,
        policy: RegistrationPolicy,
        ledger: IProvableLedger,
        tree: StatementTree,
        broker: Broker,
        reactor: Any,
        now: Callable[[], float],
    ) -> None:
        """
        @param name: the name of the service in its receipts; empty for one by the chain.
        @param now: the wall clock: seconds since the epoch.
        """
        self.topic = topic
        self.tree = tree
        self.refused: Counter[str] = Counter()
        self._name = name
        self._wanted = policy
        self._ledger = ledger
        self._broker = broker
        self._reactor = reactor
        self._now = now
        self._chain = KeyCertification(ledger, KEY_TOPIC)
        self._lock = Lock()
        self._current: tuple[bytes, Signing, ServiceKey] | None = None
        self._policy = PublishPolicy(carrier=CARRIER, own=frozenset({topic}))
        # By the ids of entries: those who wait for their registration, and until when the chain may
        # still register them.
        self._registering: dict[bytes, list[Deferred[None]]] = {}
        self._open: OrderedDict[bytes, float] = OrderedDict()
        self._preparing: Deferred[None] | None = None

    @property
    def name(self) -> str:
        """The name of the service in its receipts."""
        return self._name or f"svcbroker/{self._ledger.chain.hex()}/scitt/{self.topic}"

    @asDeferred
    async def start(self) -> None:
        """Begin. Nothing waits for it."""
        await self.tree.start()
        self._preparing = self._prepare()

    @asDeferred
    async def stop(self) -> None:
        """End."""
        if self._preparing is not None:
            cancelAll([self._preparing])
        await self.tree.stop()

    def use(self, policy: RegistrationPolicy) -> None:
        """Put another policy in force, unless it is the same."""
        self._wanted = policy
        if self._preparing is not None:
            cancelAll([self._preparing])
            self._preparing = self._prepare()

    # What clients ask

    @asDeferred
    async def register(self, principal: Principal, data: bytes) -> EntryReceipt:
        """
        Register a statement. One that is registered already is not registered again.

        @param data: as it was sent.
        @return: without a receipt where the chain gives no answer in time.
        @raise StatementRefused: the policy refuses it.
        @raise ContentTooLarge: it is larger than events may be.
        @raise BrokerError: it was not published; see L{Broker.publish}.
        """
        principal.require(Action.PUBLISH, self._ledger.group, self.topic)
        limit = self._broker.limits.maxContent
        if len(data) > limit:
            raise ContentTooLarge(
                f"a statement has at most {limit} bytes here: register its hash (RFC 9995)"
            )
        self._checkReady()
        try:
            entry = self.tree.registration.check(data, int(self._now() * 1000), isAhead=True)
        except StatementRefused as error:
            self.refused[error.title] += 1
            raise
        waiting: Deferred[None] = Deferred()
        if entry.id in self._registering:
            self._registering[entry.id].append(waiting)
        else:
            self._registering[entry.id] = [waiting]
            self._publish(principal, entry)
        # Who leaves does not take the statement back.
        await waiting
        found = await self._receipt(entry.id, entry=entry)
        if found is None:
            if not self._isOpen(entry.id):
                raise StatementRefused("Rejected", "the policy has refused it meanwhile")
            found = EntryReceipt(id=entry.id, content=entry.content, receipt=None)
        return found

    @asDeferred
    async def _publish(self, principal: Principal, entry: Entry) -> None:
        """
        Publish a statement that is not registered yet, and tell all who wait for it. It is looked
        up here, where nobody else registers it meanwhile.
        """
        failure: Exception | None = None
        try:
            isKnown = await self.tree.place(entry.id, self._checkReady().size) is not None
            if not isKnown and not self._isOpen(entry.id):
                failure = await self._append(principal, entry)
        except BrokerError as error:
            failure = error
        for waiting in self._registering.pop(entry.id):
            if not waiting.called:
                waiting.callback(None) if failure is None else waiting.errback(failure)

    async def _append(self, principal: Principal, entry: Entry) -> Exception | None:
        """
        Publish a statement.

        @return: the reason why the log does not take it.
        """
        publication = Publication(
            topic=self.topic, groupId=self._ledger.group, content=entry.content, extensions={}
        )
        [outcome] = await self._broker.publish(principal, (publication,), self._policy)
        if isinstance(outcome, BrokerError):
            return outcome
        if outcome.status is SendStatus.TIMEOUT:
            self._keepOpen(entry.id)
        elif outcome.status is SendStatus.SUCCESS:
            await self.tree.reach(EventId.parse(outcome.eventId).height)
        else:
            return LedgerUnavailable("the topic of the service was closed")
        return None

    def _keepOpen(self, id: bytes) -> None:
        self._open[id] = self._reactor.seconds() + OPEN_SECONDS
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def _isOpen(self, id: bytes) -> bool:
        """Whether the chain may still register a statement: it gave no answer in time."""
        return bool(self._open.get(id, 0.0) > self._reactor.seconds())

    @asDeferred
    async def receipt(
        self, principal: Principal, id: bytes, size: int | None = None
    ) -> EntryReceipt | None:
        """
        An entry, with a new receipt.

        @param id: the hash of the entry.
        @param size: the size of the tree that the receipt is to be of; C{None} for the tree as it
            is now.
        @return: without content and receipt where it is being registered; C{None} where there is
            none in that tree.
        @raise ParameterInvalid: no receipt is of a tree of this size.
        """
        principal.require(Action.SUBSCRIBE, self._ledger.group, self.topic)
        found = await self._receipt(id, size)
        if found is None and (id in self._registering or self._isOpen(id)):
            found = EntryReceipt(id=id, content=b"", receipt=None)
        return found

    async def _receipt(
        self, id: bytes, size: int | None = None, entry: Entry | None = None
    ) -> EntryReceipt | None:
        """
        See L{receipt}.

        @param entry: the entry, where the caller has it.
        """
        key, state = await self._key(), self._checkReady()
        if size is not None:
            state, _ = await self._earlier(size, state)
        place = await self.tree.place(id, state.size)
        if place is None:
            return None
        if entry is None:
            try:
                event = await self._ledger.getEvent(EventId.parse(place.event))
            except (EventErased, EventNotFound):
                raise LedgerUnavailable("the content of the entry was erased") from None
            content, statement = event.content, SignedStatement.decode(event.content)
        else:
            content, statement = entry.content, entry.statement
        hashed = leafHash(sha256(content).digest())
        try:
            root = rootOfPath(place.hash, place.number, state.size, place.path)
        except Malformed:
            root = b""
        self._checkRoot(root == state.root and place.hash in (leafHash(content), hashed))
        self.tree.signed(state)
        claims = self._claims(statement.claims.subject)
        receipt = key.inclusion(claims, place.number, state.size, place.path, root)
        return EntryReceipt(id=id, content=content, receipt=receipt)

    @asDeferred
    async def document(self, principal: Principal, kind: str) -> EntryReceipt:
        """
        The entry with the policy or the trust anchors that are in force, with a new receipt.

        @param kind: the content type of the document.
        """
        principal.require(Action.SUBSCRIBE, self._ledger.group, self.topic)
        self._checkReady()
        event = await self._ledger.getEvent(EventId.parse(self.tree.documents[kind]))
        found = await self._receipt(sha256(event.content).digest())
        if found is None:
            raise LedgerUnavailable("the document is on its way into the tree: try again")
        return found

    @asDeferred
    async def tile(self, principal: Principal, path: str) -> bytes | None:
        """
        A tile of the tree: up to 256 hashes of one level.

        @param path: its path below C{tile/}, by C{c2sp.org/tlog-tiles}.
        @return: C{None} where the tree has not all of it. Entries have no tiles: the events of the
            topic are what they are made of.
        @raise ParameterInvalid: this is not the path of a tile.
        """
        principal.require(Action.SUBSCRIBE, self._ledger.group, self.topic)
        state = self._checkReady()
        try:
            tile, isEntries = parseTilePath(path)
        except Malformed as error:
            raise ParameterInvalid(str(error)) from None
        if isEntries or not tile.isIn(state.size):
            return None
        hashes = await self.tree.nodes(tile.level * TILE_HEIGHT, tile.first, tile.width)
        self._checkRoot(len(hashes) == tile.width)
        return b"".join(hashes)

    @asDeferred
    async def growth(self, principal: Principal, older: int) -> bytes | None:
        """
        A receipt that the tree has everything that an older one of it has.

        @param older: the size of the older one.
        @return: C{None} where the tree is not larger.
        @raise ParameterInvalid: no receipt is of a tree of this size.
        """
        principal.require(Action.SUBSCRIBE, self._ledger.group, self.topic)
        key, state = await self._key(), self._checkReady()
        _, path = await self._earlier(older, state)
        if older == state.size:
            return None
        self.tree.signed(state)
        claims = self._claims(self.topic)
        return key.consistency(claims, older, state.size, path, state.root)

    async def _earlier(self, size: int, state: TreeState) -> tuple[TreeState, Sequence[bytes]]:
        """
        The tree when it had a size, and the path from there.

        @param state: the tree as it is now.
        @raise ParameterInvalid: no receipt is of a tree of this size.
        """
        if not 2 <= size <= state.size:
            raise ParameterInvalid(f"size: trees with receipts have 2 to {state.size} entries")
        if size == state.size:
            return state, ()
        path = await self.tree.growth(size, state.size)
        older = await self.tree.rootAt(size)
        try:
            root = rootOfGrowth(size, older, state.size, path)
        except Malformed:
            root = b""
        self._checkRoot(root == state.root)
        return TreeState(size, older), path

    @asDeferred
    async def checkpointLines(self) -> Sequence[str]:
        """
        The line for a checkpoint of the group's log: the tree of all statements that there are; an
        earlier one where its file takes longer than L{TREE_TIMEOUT}, and no line where there is no
        tree.
        """
        topic = self._ledger.topicState(self.topic)
        if topic is None:
            return ()
        with suppress(TimeoutError, LedgerUnavailable):
            await self.tree.reach(topic.height).addTimeout(TREE_TIMEOUT, self._reactor)
        try:
            state = self._checkReady()
        except LedgerUnavailable:
            return ()
        self.tree.signed(state)
        return (TreeLine(self.topic, state.size, state.root).text,)

    def _checkRoot(self, isRight: bool) -> None:
        """
        Look whether what was read of the file leads to the root in memory.

        @raise LedgerUnavailable: it does not: the file is made again.
        """
        if not isRight:
            self.tree.damaged()
            raise LedgerUnavailable("the tree of the statements is made again: try again")

    def publicKeys(self) -> Sequence[CoseKey]:
        """The keys that sign receipts, or did, in the order of their certification."""
        return [*self.tree.registration.keys.values()]

    def _claims(self, subject: str) -> Claims:
        return Claims(issuer=self.name, subject=subject, issuedAt=int(self._now()))

    def _checkReady(self) -> TreeState:
        """
        The tree that receipts are of.

        @raise LedgerUnavailable: there is none yet.
        """
        tree = self.tree
        if tree.isForked:
            raise LedgerUnavailable("the log does not have the tree that was signed")
        # There is no receipt of a tree of one leaf (RFC 9942).
        if not tree.height or tree.state.size < 2 or not tree.registration.documents:
            raise LedgerUnavailable("the service is being made ready: try again")
        return tree.state

    # What the service itself registers

    @asDeferred
    async def _prepare(self) -> None:
        while True:
            try:
                await self.tree.reach(1)
                await self._key()
                await self._registerPolicy()
                return
            except BrokerError as error:
                self._log.warn(
                    "the transparency service of {topic} is not ready, it is tried again: {reason}",
                    topic=self.topic,
                    reason=error.message,
                )
                await deferLater(self._reactor, RETRY)

    async def _key(self) -> ServiceKey:
        """The key that signs, once the chain certifies it."""
        origin = self._ledger.deriveKey(_PURPOSE), self._wanted.receipts
        if self._current is not None and self._current[:2] == origin:
            return self._current[2]
        async with self._lock:
            key = ServiceKey.derive(*origin)
            if key.public.kid not in self.tree.registration.keys:
                record = msgspec.json.encode(KeyRecord.of(self.name, key.public))
                eventId = await self._chain.publish(record)
                self.tree.registration.addKey(record)
                self._log.info(
                    "group {group}: the chain certifies the key of the transparency service of "
                    "{topic}, event {eventId}",
                    group=self._ledger.group,
                    topic=self.topic,
                    eventId=eventId,
                )
            self._current = *origin, key
            return key

    async def _registerPolicy(self) -> None:
        """Register the policy and the trust anchors, where other ones are in force."""
        wanted = self._wanted.documents()
        inForce = self.tree.registration.documents
        if [*wanted] == [*inForce]:
            return
        key = await self._key()
        requests: list[Any] = []
        topic = self._ledger.topicState(self.topic)
        if topic is None or not topic.isOpen:
            requests.append(OpenTopic(topic=self.topic))
        for kind, document in wanted:
            if (kind, document) not in inForce:
                content = key.statement(self._claims(f"{self.name}/policy"), kind, document)
                requests.append(PublishEvent(topic=self.topic, content=content, extensions={}))
        submission = await self._ledger.submitMany(requests).done
        last = submission.outcomes[-1]
        if isinstance(last, BrokerError):
            raise last
        if not isinstance(last, Receipt) or last.eventId is None:
            raise LedgerUnavailable("the chain did not register the policy")
        await self.tree.reach(last.eventId.height)
        if [*wanted] != [*self.tree.registration.documents]:
            raise LedgerUnavailable("the policy that was registered is not in force")
        self._log.info(
            "the policy of the transparency service of {topic} is in force, event {eventId}",
            topic=self.topic,
            eventId=last.eventId,
        )
