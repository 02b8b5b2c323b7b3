"""
The state of one session (section 4.1), with or without a connection.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

import msgspec
from twisted.internet.defer import Deferred

from ...access import Principal
from ...broker import MetadataStore
from ...errors import BrokerError, LedgerUnavailable, Overloaded, TransactionTimeout
from ...model import Owner, Position
from ...net.budgets import ByteCount
from .context import NEVER
from .delivery import Delivery, InFlight, Source
from .kept import (
    NO_EXCHANGES,
    QOS_2,
    SESSION,
    SUBSCRIPTION,
    KeptExchanges,
    KeptPacketIds,
    KeptSession,
    KeptSubscription,
    Key,
)
from .messages import publisherMark
from .subscription import LogReader, SessionSubscription

_TIME_BYTES: Final = 5
_RANDOM_BYTES: Final = 10
_KEY_LENGTH: Final = 20
"""Characters that encode the time and the random bytes of a key."""


class Incoming:
    """
    The exchanges with QoS 2 in which the client is the sender (section 4.3.3).

    In a session that outlives its connections each publish has an I{idempotency key}, of which the
    chain executes one publish only. The key is unguessable, and is on disk by packet identifier
    before the publish is submitted. It is removed with the exchange: before PUBCOMP, or the PUBREC
    of a refusal, is sent. So a crash of the broker at any point leaves one event:

     1. Before the key is on disk: nothing was submitted. What the client sends again is new.
     2. Before the block is on disk: the publish was not executed, or will be (a CometBFT network
        has it). What the client sends again has the same key.
     3. Before PUBREC is sent: the same, and the chain answers with the first event.
     4. Before the release is on disk: the client sends PUBREL again (it has PUBREC), or the PUBLISH
        (it has not): then this is case 3.
     5. Before PUBCOMP is sent: the client sends PUBREL again, which is answered as an unknown one.
     6. After that: the client may use the packet identifier for another message, which gets another
        key: the disk has none for this packet identifier.

    That a publish is in the log is on disk too, soon after PUBREC (25 ms): from then on the
    publish is not submitted again, however many keys the account has used since.

    There is no key of the broker's where the client gives one of its own, nor where the author has
    signed, because the key is in the signed statement. There that the publish is in the log is on
    disk before PUBREC is sent, and what is submitted again after a crash in between has the
    client's key, or is published twice.

    @ivar submitted: packet identifiers of publishes that are on their way to the log.
    @ivar published: packet identifiers of those that are in the log and not released.
    @ivar keys: the keys of those that are not known to be in the log, by packet identifier.
    """

    def __init__(self, storeNow: Callable[[], None], storeSoon: Callable[[], None]) -> None:
        """
        @param storeNow: has this on disk before the client is sent anything more.
        @param storeSoon: has this on disk a little later.
        """
        self.submitted: set[int] = set()
        self.published: set[int] = set()
        self.keys: dict[int, str] = {}
        # Those that may be in the log by an earlier submission.
        self._resubmitted: set[int] = set()
        self._storeNow = storeNow
        self._storeSoon = storeSoon

    def begin(
        self, packetIds: Sequence[int], payloads: Sequence[bytes], most: int
    ) -> tuple[dict[int, bytes], list[int]]:
        """
        Begin exchanges, up to the one that would be the first above a bound.

        @param most: how many may be begun.
        @return: the payloads of the messages that are to be published, by packet identifier, and
            the packet identifiers of repetitions.
        """
        begun: dict[int, bytes] = {}
        repeated = []
        for packetId, payload in zip(packetIds, payloads, strict=True):
            if packetId in self.published or packetId in self.submitted:
                repeated.append(packetId)
            elif len(begun) == most:
                break
            else:
                self.submitted.add(packetId)
                begun[packetId] = payload
        return begun, repeated

    def keysOf(
        self, packetIds: Sequence[int], now: float, entropy: Callable[[int], bytes]
    ) -> Sequence[str]:
        """
        The idempotency keys of some PUBLISHes, new ones for those that were not sent before. The
        caller stores the session before it submits the publishes.

        A key is the time in milliseconds, which its transaction tells as well, and random bytes.
        Keys of the same time are neighbours in the index of a store, so that a block changes few of
        its pages.

        @param now: seconds since the epoch.
        """
        keys = self.keys
        self._resubmitted.update(keys.keys() & packetIds)
        new = [packetId for packetId in packetIds if packetId not in keys]
        time = (int(now * 1000) % 256**_TIME_BYTES).to_bytes(_TIME_BYTES, "big")
        random = entropy(_RANDOM_BYTES * len(new))
        parts = [random[at : at + _RANDOM_BYTES] for at in range(0, len(random), _RANDOM_BYTES)]
        encoded = urlsafe_b64encode(b"".join([time + part for part in parts])).decode("ascii")
        for at, packetId in enumerate(new):
            keys[packetId] = encoded[at * _KEY_LENGTH : (at + 1) * _KEY_LENGTH]
        return [keys[packetId] for packetId in packetIds]

    def _forgetKey(self, packetId: int) -> None:
        self._resubmitted.discard(packetId)
        if self.keys.pop(packetId, None) is not None:
            self._storeNow()

    def accepted(self, packetIds: Sequence[int]) -> None:
        """Record that publishes are in the log. The caller sends PUBREC for each."""
        self.submitted.difference_update(packetIds)
        self.published.update(packetIds)
        self._resubmitted.difference_update(packetIds)
        keys = [self.keys.pop(packetId, None) for packetId in packetIds]
        if None in keys:
            self._storeNow()
        if any(keys):
            self._storeSoon()

    def refused(self, packetId: int, error: BrokerError) -> bool:
        """
        Record that a publish was refused.

        @return: whether it is not in the log, so that the caller sends PUBREC with the reason.
            Otherwise the caller closes the connection, and the client sends the publish again.
        """
        self.submitted.discard(packetId)
        isTemporary = isinstance(error, (Overloaded, LedgerUnavailable))
        if packetId in self.keys and (
            isinstance(error, TransactionTimeout) or (isTemporary and packetId in self._resubmitted)
        ):
            return False
        self._forgetKey(packetId)
        return True

    def interrupted(self, packetId: int) -> None:
        """Record that a publish is not answered: the connection ends, the client sends it again."""
        self.submitted.discard(packetId)

    def release(self, packetIds: Sequence[int]) -> list[bool]:
        """Record PUBRELs; return which publishes were known. The caller sends PUBCOMP for each."""
        known = []
        for packetId in packetIds:
            isKnown = packetId in self.published
            self.published.discard(packetId)
            if packetId not in self.submitted:
                isKnown = isKnown or packetId in self.keys
                self._forgetKey(packetId)
            known.append(isKnown)
        # Also for an unknown one: that of an earlier connection may not be on disk yet.
        self._storeNow()
        return known


SESSION_BYTES = 5 * 1024
"""The bytes of memory of a session beside its filters, about."""

FILTER_BYTES = 2 * 1024
"""The most bytes of memory of a session's subscription beside its filter, about."""


# Most sessions have none: one object for all of them.
_NO_KEYS: Final[AbstractSet[Key]] = frozenset()
_NO_IDS: Final[AbstractSet[str]] = frozenset()


class IClient(Protocol):
    """The connection, as its session sees it."""

    def subscriptionLost(self, error: BrokerError) -> None:
        """Close, since the log cannot be read any further. The client reconnects and resumes."""

    def replaced(self) -> None:
        """Close, since the same client has connected again."""

    def accepted(self, packetIds: Sequence[int]) -> None:
        """Send PUBREC: a publish with QoS 2 is in the log."""


class Session:
    """
    One session. Without a connection it stores no messages: the log delivers them again, from the
    last acknowledged one on. The session stores their packet identifiers.

    @ivar group: the group whose log it uses.
    @ivar name: its name on disk.
    @ivar owner: who made it, for the bound of sessions.
    @ivar account: the account that it belongs to; empty where there were no credentials.
    @ivar principal: the account, once the client has connected.
    @ivar expiry: the session expiry interval in seconds.
    @ivar isPersistent: whether it outlives connections. Fixed when it is created.
    @ivar mark: the L{publisherMark} of its client.
    @ivar hasNoLocal: whether a subscription has the No Local option.
    @ivar subscriptions: by topic filter, as the client wrote it.
    @ivar readers: what reads the log for them, by the id of their subscription of the log.
    @ivar filterBytes: the bytes of all topic filters.
    @ivar counted: counts the bytes of the session and its subscriptions with those of all.
    @ivar client: its connection; C{None} while the client is absent.
    @ivar delivery: sends to the client; C{None} while it is absent.
    @ivar released: deliveries with PUBREC and without PUBCOMP, by packet identifier.
    @ivar hasChanged: whether exchanges with QoS 2 have changed since L{takeChange}.
    @ivar wantsDisk: whether the client is sent nothing more before the disk has what was stored.
    """

    # More attributes than the dictionaries of instances share between them.
    __slots__ = (
        "_advanced",
        "_changed",
        "_completed",
        "_incoming",
        "_isOver",
        "_keptIds",
        "_orphans",
        "_reserved",
        "_sent",
        "_settled",
        "_sources",
        "_store",
        "_unacknowledged",
        "absentSince",
        "account",
        "client",
        "clientId",
        "counted",
        "delivery",
        "expiry",
        "filterBytes",
        "group",
        "hasChanged",
        "hasNoLocal",
        "isPersistent",
        "mark",
        "name",
        "owner",
        "principal",
        "readers",
        "released",
        "subscriptions",
        "wantsDisk",
    )

    def __init__(
        self,
        group: str,
        clientId: str,
        expiry: int,
        store: MetadataStore,
        *,
        owner: str,
        counted: ByteCount,
    ) -> None:
        self.group = group
        self.owner = owner
        self.clientId = clientId
        self.account = ""
        self.principal: Principal
        self.expiry = expiry
        self.isPersistent = expiry > 0
        self.mark = publisherMark(clientId)
        self.hasNoLocal = False
        self.subscriptions: dict[str, SessionSubscription] = {}
        self.readers: dict[str, LogReader] = {}
        # Readers, and subscriptions that are shared.
        self._sources: dict[Source, None] = {}
        self.filterBytes = 0
        self.counted = counted
        self.client: IClient | None = None
        self.delivery: Delivery | None = None
        self.absentSince: float | None = None
        self._incoming: Incoming | None = None
        self.released: dict[int, Key | None] = {}
        self._sent: dict[int, Key] = {}
        self._unacknowledged: dict[Key, int] = {}
        # The same by packet identifier.
        self._reserved: dict[int, Key | None] = {}
        self._keptIds: KeptPacketIds | None = None
        # Keys of messages that the client has released on an earlier connection, and that the log
        # may hand over once more; and those of them that are completed meanwhile.
        self._settled: AbstractSet[Key] = _NO_KEYS
        self._completed: AbstractSet[Key] = _NO_KEYS
        # Ids of subscriptions whose position must be on disk before their exchanges are forgotten.
        self._advanced: AbstractSet[str] = _NO_IDS
        self._orphans: dict[int, InFlight] = {}
        self._store = store
        self.name = msgspec.json.encode((group, clientId)).decode("utf-8")
        # Topic filters whose subscriptions are not stored as they are.
        self._changed: dict[str, None] = {}
        self.hasChanged = False
        self.wantsDisk = False
        self._isOver = False

    @property
    def incoming(self) -> Incoming:
        """The exchanges with QoS 2 in which the client publishes."""
        if self._incoming is None:
            self._incoming = Incoming(self._exchangesChanged, self._storeSoon)
        return self._incoming

    @property
    def _packetIds(self) -> KeptPacketIds:
        if self._keptIds is None:
            find = self._findInFlight
            self._keptIds = KeptPacketIds(self._store, self.group, self.clientId, find)
        return self._keptIds

    @property
    def isExpiring(self) -> bool:
        """Whether it expires some time after its connection has ended."""
        return self.expiry != NEVER

    # Subscriptions.

    @property
    def joinable(self) -> LogReader | None:
        """The reader that subscriptions without an offset or a tag of their own join."""
        return next((each for each in self.readers.values() if each.isJoinable), None)

    def resumeSubscriptions(self) -> None:
        """Have the subscriptions deliver events."""
        for source in tuple(self._sources):
            if self.delivery is None or not self.delivery.isFlowing:
                break
            source.resume()

    def pauseSubscriptions(self) -> None:
        """Pause the subscriptions."""
        for source in self._sources:
            source.pause()

    def subscriptionLost(self, error: BrokerError) -> None:
        """Close the connection, since the log cannot be read any further."""
        if self.client is not None:
            self.client.subscriptionLost(error)

    def add(self, subscription: SessionSubscription) -> None:
        """Add a subscription to a topic filter that has none."""
        topicFilter, reader = subscription.kept.topicFilter, subscription.reader
        self.subscriptions[topicFilter] = subscription
        if reader is None:
            self._sources[subscription] = None
        else:
            self.readers[reader.subscriptionId] = reader
            self._sources[reader] = None
            reader.add(subscription)
        self._changed[topicFilter] = None
        self.filterBytes += len(topicFilter)
        self.counted.add(FILTER_BYTES + len(topicFilter))

    def change(self, subscription: SessionSubscription, kept: KeptSubscription) -> None:
        """Replace the options of a subscription [MQTT-3.8.4-3] [MQTT5-3.8.4-3]."""
        subscription.change(kept)
        self._changed[kept.topicFilter] = None

    def remove(self, subscription: SessionSubscription) -> None:
        """Remove a subscription. Its messages may still be acknowledged."""
        topicFilter = subscription.kept.topicFilter
        del self.subscriptions[topicFilter]
        self._changed[topicFilter] = None
        self.filterBytes -= len(topicFilter)
        self.counted.add(-FILTER_BYTES - len(topicFilter))
        subscription.isRemoved = True
        reader = subscription.reader
        isOver = True
        if reader is not None:
            reader.remove(subscription)
            isOver = not reader.members
        source = subscription if reader is None else reader
        if self.delivery is not None:
            self.delivery.orphan(source, isOver=isOver)
        if isOver:
            self._end(source)

    def _end(self, source: Source) -> None:
        """End what read the log for subscriptions of this session."""
        del self._sources[source]
        subscriptionId = source.subscriptionId
        for key in [key for key in self._unacknowledged if key[0] == subscriptionId]:
            self.takeUnacknowledged(key, 0)
        self._settled = {key for key in self._settled if key[0] != subscriptionId}
        self._completed = {key for key in self._completed if key[0] != subscriptionId}
        reader = self.readers.pop(subscriptionId, None)
        if reader is not None:
            reader.close(forget=True)

    # Packet identifiers.

    def usesId(self, packetId: int) -> bool:
        """Whether a packet identifier is in use for a message of an earlier connection."""
        return packetId in self.released or packetId in self._reserved

    def usesAny(self, packetIds: Iterable[int]) -> bool:
        """Whether any of these packet identifiers is."""
        return not (
            self._reserved.keys().isdisjoint(packetIds)
            and self.released.keys().isdisjoint(packetIds)
        )

    @property
    def isRedelivering(self) -> bool:
        """Whether messages from the log may have been sent before."""
        return bool(self._unacknowledged) or bool(self._settled)

    def takeUnacknowledged(self, key: Key, qos: int) -> int:
        """
        Remove and return the packet identifier of an earlier sending.

        @param qos: with which the message is sent again; 0 where it is not, or need not be
            acknowledged.
        @return: 0 where there was none, or where it must not be used again.
        """
        packetId = self._unacknowledged.pop(key, 0)
        self._reserved.pop(packetId, None)
        if packetId in self._sent and qos != 2:
            self.abandon(packetId)
            return 0
        return packetId if qos else 0

    def abandon(self, packetId: int) -> None:
        """
        Give up a delivery with QoS 2 that was begun: send PUBREL. The client may have received the
        message, and until PUBREL it takes each other one with this packet identifier for a
        repetition.
        """
        self._sent.pop(packetId, None)
        self.released[packetId] = None
        self.hasChanged = True
        if self.delivery is not None:
            self.delivery.release(packetId)

    def takeReleased(self, key: Key) -> bool:
        """
        Whether the client has released a message on an earlier connection. The caller acknowledges
        it to the log then, instead of sending it.
        """
        if key not in self._settled:
            return False
        self._settled -= {key}
        if key in self._completed:
            self._completed -= {key}
            self._forget(key)
        return True

    def forgetAcknowledged(
        self, subscriptionId: str, isAcknowledged: Callable[[Position], bool]
    ) -> None:
        """
        Forget messages that a subscription of the log will not hand over. After a crash that may be
        such as the client has answered with PUBREC: a position can be on disk before that is.
        """

        def isDone(key: Key) -> bool:
            return key[0] == subscriptionId and isAcknowledged(Position(key[1], key[2]))

        done = set(filter(isDone, self._settled))
        if done:
            self._settled -= done
            self._completed -= done
            self.hasChanged = True
        for key in [key for key in self._unacknowledged if isDone(key)]:
            self.takeUnacknowledged(key, 0)

    def forgetDeliveries(self, subscriptionIds: Container[str]) -> None:
        """
        Forget the messages that these subscriptions have sent to an absent client: their positions
        are others now. What the client has received of QoS 2 is still completed.
        """

        def isKept(key: Key | None) -> bool:
            return key is None or key[0] not in subscriptionIds

        for key in [key for key in self._unacknowledged if not isKept(key)]:
            self.takeUnacknowledged(key, 0)
        self.released = {each: key if isKept(key) else None for each, key in self.released.items()}
        self._completed = set(filter(isKept, self._completed))
        self._settle()
        self._packetIds.ended()
        self.hasChanged = True

    def takeOrphans(self) -> dict[int, InFlight]:
        """Remove and return sent messages that the log does not deliver again."""
        orphans, self._orphans = self._orphans, {}
        for packetId in orphans:
            del self._reserved[packetId]
        return orphans

    def keepInFlight(self, inFlight: dict[int, InFlight]) -> None:
        """Remember the unacknowledged messages of a connection that has ended."""
        self._settle()
        for packetId, flight in inFlight.items():
            key = flight.key
            self._reserved[packetId] = key
            if key is None:
                self._orphans[packetId] = flight
            else:
                self._unacknowledged[key] = packetId
        self._packetIds.ended()

    def isOf(self, owner: Owner | None) -> bool:
        """Whether it outlives connections, and an owner has made it; C{None} stands for all."""
        return self.isPersistent and owner in (None, Owner(self.owner, self.account))

    def sentOnce(self, first: int, count: int) -> None:
        """Record the consecutive packet identifiers of messages that are sent with QoS 1."""
        if self.isPersistent:
            self._packetIds.sent(first, count)

    def _findInFlight(self, packetIds: range) -> Mapping[int, Key]:
        """The keys of messages in flight, but for QoS 2, which is stored apart."""
        found = {} if self.delivery is None else self.delivery.keysOf(packetIds)
        for packetId in self._reserved.keys() & packetIds:
            key = self._reserved[packetId]
            if key is not None:
                found[packetId] = key
        return {packetId: key for packetId, key in found.items() if packetId not in self._sent}

    # Exchanges with QoS 2.

    def sent(self, packetId: int, key: Key) -> None:
        """Record a message that is sent with QoS 2."""
        self._sent[packetId] = key
        self.hasChanged = True

    def release(self, packetId: int) -> None:
        """Record a PUBREC; PUBREL is sent."""
        self.released[packetId] = self._sent.pop(packetId, None)
        self.hasChanged = True

    def completed(self, packetId: int) -> None:
        """Record a PUBCOMP, or a refusal."""
        key = self.released.pop(packetId, None) or self._sent.pop(packetId, None)
        if key is not None and key in self._settled and not self._isShared(key):
            if not self._completed:
                self._completed = set()  # One that grows in its place.
            self._completed |= {key}
        elif key is not None:
            self._forget(key)
        self.hasChanged = True

    def _forget(self, key: Key) -> None:
        """
        Forget an exchange. A crash must not leave the log's position before its event, or the
        event would be delivered again.
        """
        if not self._advanced:
            self._advanced = set()
        self._advanced |= {key[0]}
        self.hasChanged = True

    def _isShared(self, key: Key) -> bool:
        return any(each.isShared and each.subscriptionId == key[0] for each in self._sources)

    def _exchangesChanged(self) -> None:
        self.hasChanged = True

    def _storeSoon(self) -> None:
        if self.isPersistent:
            self._store.beforeWrite(self._storeExchanges)

    # On disk.

    def takeChange(self) -> bool:
        """
        Store the exchanges with QoS 2 if they have changed.

        @return: whether the disk must be waited for before the client is sent anything more.
        """
        hasChanged, self.hasChanged = self.hasChanged, False
        wantsDisk, self.wantsDisk = self.wantsDisk, False
        if not (hasChanged and self.isPersistent):
            return wantsDisk
        self._storeExchanges()
        return True

    def storeExchanges(self) -> Deferred[None]:
        """Store the exchanges with QoS 2; fires when they are on disk."""
        return self._store.writeWith(self._storeExchanges)

    def _storeExchanges(self) -> None:
        if self._isOver:
            return
        if self._advanced:
            self._storePositions()
        kept = KeptExchanges(
            received=sorted(self.incoming.published),
            keys=self.incoming.keys,
            sent=self._sent,
            released=self.released,
            completed=sorted(self._completed),
        )
        if kept == NO_EXCHANGES:
            self._store.remove(QOS_2, self.name)
        else:
            self._store.put(QOS_2, self.name, msgspec.json.encode(kept))

    def _storePositions(self) -> None:
        if self.delivery is not None:
            self.delivery.acknowledgeEvents()
        for source in self._sources:
            if source.subscriptionId in self._advanced:
                source.storePosition()
        self._advanced = _NO_IDS

    def keep(self) -> None:
        """
        Store everything but the exchanges. Called after every change; the client is sent nothing
        more before it is on disk.
        """
        if self._changed:
            self.hasNoLocal = any(each.noLocal for each in self.subscriptions.values())
        if self.isPersistent:
            self.wantsDisk = True
            kept = KeptSession(
                group=self.group,
                clientId=self.clientId,
                expiry=self.expiry,
                absentSince=self.absentSince,
                owner=self.owner,
                account=self.account,
            )
            self._store.put(SESSION, self.name, msgspec.json.encode(kept))
            self._keepSubscriptions()
        self._changed.clear()

    def _keepSubscriptions(self) -> None:
        """Store each subscription that has changed, as an entry of its own."""
        for topicFilter in self._changed:
            key = (self.group, self.clientId, topicFilter)
            name = msgspec.json.encode(key).decode("utf-8")
            subscription = self.subscriptions.get(topicFilter)
            if subscription is None:
                self._store.remove(SUBSCRIPTION, name)
            else:
                self._store.put(SUBSCRIPTION, name, msgspec.json.encode(subscription.kept))

    def awaitDisk(self) -> None:
        """Send the client nothing more before the disk has what was stored until now."""
        self.wantsDisk = True

    def discard(self) -> None:
        """Remove it from the disk. Its subscriptions were removed before."""
        self._isOver = True
        self._keepSubscriptions()
        self._store.remove(SESSION, self.name)
        self._store.remove(QOS_2, self.name)
        self._packetIds.discard()

    def restore(self, pages: Mapping[int, bytes]) -> None:
        """
        Load the exchanges from the disk. The subscriptions were loaded before.

        @param pages: those of its packet identifiers with QoS 1, by their number.
        """
        self.hasNoLocal = any(each.noLocal for each in self.subscriptions.values())
        self._changed.clear()
        value = self._store.get(QOS_2, self.name) or b"{}"
        kept = msgspec.json.decode(value, type=KeptExchanges)
        # A page may be older than what is stored of QoS 2, and than the end of a subscription.
        known = {each.subscriptionId for each in self._sources}
        for key, packetId in self._packetIds.restore(pages).items():
            if key[0] in known and packetId not in kept.sent and packetId not in kept.released:
                self._unacknowledged[key] = packetId
                self._reserved[packetId] = key
        self.incoming.published = set(kept.received)
        self.incoming.keys = kept.keys
        self.released = kept.released
        self._completed = set(kept.completed)
        self._sent = kept.sent
        for packetId, key in tuple(kept.sent.items()):
            if key[0] in known:
                self._unacknowledged[key] = packetId
                self._reserved[packetId] = key
            else:
                self.abandon(packetId)
        self._settle()

    def _settle(self) -> None:
        """Expect from the log again what the client has released or completed."""
        if self.released or self._completed:
            known = {each.subscriptionId for each in self._sources}
            self._completed = {key for key in self._completed if key[0] in known}
            released = {key for key in self.released.values() if key and key[0] in known}
            self._settled = released | self._completed
        else:
            self._settled = _NO_KEYS
