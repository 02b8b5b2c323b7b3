"""
All sessions of this broker: find, open, expire, end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from heapq import nsmallest
from uuid import UUID

import msgspec
from attrs import frozen
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Principal
from ...broker import IDurableSubscriptions
from ...errors import QuotaExceeded, SubscriptionExists, SubscriptionNotFound
from ...model import DurablePage, DurableRecord, InterfaceType, Offset, Owner
from ...net.addresses import ownerOf, storedKey
from ...net.budgets import TimedWork
from ...net.deferreds import asDeferred
from .context import Context
from .delivery import Delivery, InFlight
from .fields import MqttError, ReasonCode
from .handshake import Handshake
from .kept import SESSION, SUBSCRIPTION, KeptSession, KeptSubscription, pagesBySession
from .mqttsession import SESSION_BYTES, IClient, Session
from .packets import Connect
from .retained import FOLLOWED, RETAINED, RETAINERS
from .subscription import LogReader, SessionSubscription, ShareGroup, parseShare, shareKeyOf
from .wills import FULL, Wills

_SIZE_OF_ID = 16
_LOOKS_A_PAGE = 5000
"""Of how many subscriptions the positions are looked up for a page of sessions."""


@frozen
class OpenedSession:
    """
    The session that a CONNECT has opened.

    @ivar isPresent: whether it was resumed.
    """

    session: Session
    isPresent: bool


def entryGroup(kind: str, name: str, value: bytes) -> str:
    """
    The group of an MQTT entry of the metadata store. See L{GroupOf<svcbroker.broker.GroupOf>}.
    """
    if kind.startswith((RETAINED, RETAINERS)):
        return kind.partition("/")[2]
    if kind == FOLLOWED:
        return name
    # All others are named by their session.
    group: str = msgspec.json.decode(name, type=list)[0]
    return group


@implementer(IDurableSubscriptions)
class Sessions:
    """
    Finds the session of a client, and ends expired ones.

    A client identifier names one client in each group. A session belongs to the account that has
    made it.
    """

    _log = Logger()

    def __init__(self, context: Context) -> None:
        self.wills = Wills(context)
        self._context = context
        self._sessions: dict[tuple[str, str], Session] = {}
        self._expiring: dict[Session, TimedWork] = {}
        self._shares: dict[tuple[object, ...], ShareGroup] = {}
        # How many sessions that outlive connections each owner has made.
        self._counts: Counter[Owner] = Counter()

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    # Start and stop.

    def start(self) -> None:
        """
        Load the sessions from the disk. Clients that were connected count as absent from now on.
        """
        now, store = self._context.now(), self._context.store
        subscriptions: dict[tuple[str, str], list[KeptSubscription]] = {}
        for name, value in store.items(SUBSCRIPTION):
            group, clientId, _ = msgspec.json.decode(name, type=tuple[str, str, str])
            subscription = msgspec.json.decode(value, type=KeptSubscription)
            subscriptions.setdefault((group, clientId), []).append(subscription)
        pages = pagesBySession(store)
        for name, value in store.items(SESSION):
            kept = msgspec.json.decode(value, type=KeptSession)
            if kept.group not in self._context.retained:
                self._log.warn("Session {name} is of a group that is not served", name=name)
                continue
            # The bound may be lower than when the session began.
            expiry = min(kept.expiry, self._context.settings.maxSessionExpiry)
            session = self._make(kept.group, kept.clientId, expiry, kept.owner, kept.account)
            session.absentSince = now if kept.absentSince is None else kept.absentSince
            for each in (*kept.subscriptions, *subscriptions.get((kept.group, kept.clientId), ())):
                self.addSubscription(session, each)
            if kept.subscriptions:
                # From now on each has an entry of its own.
                session.keep()
            session.restore(pages.get((kept.group, kept.clientId), {}))
            self._add(session)
            self._expireLater(session)
        self.wills.start({each.name: each.expiry for each in self._sessions.values()})

    def stop(self) -> None:
        """Cancel the timers. The sessions stay on disk."""
        self.wills.stop()
        for call in self._expiring.values():
            call.cancel()
        self._expiring.clear()

    # Connections.

    def find(self, group: str, clientId: str) -> Session | None:
        """The session of a client."""
        return self._sessions.get((group, clientId))

    def connect(
        self, packet: Connect, handshake: Handshake, principal: Principal, remote: str
    ) -> OpenedSession:
        """
        Find or create the session for a CONNECT. Another connection of its client is closed.

        @param principal: the account that connects, which may use the session.
        @param remote: the client's address.
        @raise MqttError: there are too many sessions, or too many of this owner, or the session is
            another account's.
        """
        group, clientId = handshake.group, handshake.clientId
        expiry = handshake.sessionExpiry
        # [MQTT-3.1.3-2] [MQTT5-3.1.3-2]
        session = self.find(group, clientId)
        if session is not None and session.account not in ("", principal.name):
            raise MqttError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id is another account's"
            )
        if session is not None and session.client is not None:
            # [MQTT-3.1.4-2] [MQTT5-3.1.4-3]
            session.client.replaced()
            session = self.find(group, clientId)
        wasThere = session is not None
        if session is not None:
            call = self._expiring.pop(session, None)
            if call is not None:
                call.cancel()
            if packet.cleanStart:
                # [MQTT-3.1.2-6] [MQTT5-3.1.2-4]
                self.end(session)
                session = None
        isPresent = session is not None
        account = principal.name
        if session is None:
            # [MQTT5-3.1.2-6]
            owner = account or ownerOf(remote)
            session = self._make(group, clientId, expiry, owner, account)
            self._checkRoom(session, principal)
            self._add(session)
        else:
            if session.account != account:
                self._transfer(session, account)
            # [MQTT-3.1.2-4] [MQTT5-3.1.2-5]
            self.wills.clientReturned(session)
        session.principal = principal
        session.expiry = expiry
        session.absentSince = None
        session.keep()
        if wasThere and not isPresent:
            session.awaitDisk()
        if packet.will is not None:
            self.wills.clientConnected(session, packet.will)
        return OpenedSession(session, isPresent)

    def _make(self, group: str, clientId: str, expiry: int, owner: str, account: str) -> Session:
        counted = self._context.broker.budgets.subscriptions.count(storedKey(account, owner))
        store = self._context.store
        session = Session(group, clientId, expiry, store, owner=owner, counted=counted)
        session.account = account
        return session

    def _checkRoom(self, session: Session, principal: Principal) -> None:
        """
        @raise MqttError: a further session cannot be made.
        """
        settings = self._context.settings
        if len(self._sessions) >= settings.maxSessions:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, "there are too many sessions")
        if not session.counted.fits(SESSION_BYTES):
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, FULL)
        if not session.isPersistent:
            return
        count = self._counts[Owner(session.owner, session.account)]
        try:
            principal.usage.checkRoom("sessions", count)
        except QuotaExceeded as error:
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, error.message) from None
        if count >= settings.maxOwnSessions:
            raise MqttError(
                ReasonCode.QUOTA_EXCEEDED,
                f"{session.owner} has made {settings.maxOwnSessions} sessions, as many as one "
                "client may (--max-positions): end some (deleteDurableSubscription, or of all "
                "owners svcbroker admin subscription list, delete)",
            )

    def _add(self, session: Session) -> None:
        self._sessions[session.group, session.clientId] = session
        session.counted.add(SESSION_BYTES)
        if session.isPersistent:
            self._counts[Owner(session.owner, session.account)] += 1

    def _remove(self, session: Session) -> None:
        del self._sessions[session.group, session.clientId]
        session.counted.add(-SESSION_BYTES)
        if session.isPersistent:
            owner = Owner(session.owner, session.account)
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]

    def _transfer(self, session: Session, account: str) -> None:
        """Give a session that nobody's account has to an account."""
        shared = [each for each in session.subscriptions.values() if each.group is not None]
        for subscription in shared:
            self.removeSubscription(session, subscription)
        self._remove(session)
        session.owner = session.account = account
        session.counted.belongTo(storedKey(account, account))
        self._add(session)
        for subscription in shared:
            # Those of other accounts are other groups.
            kept = msgspec.structs.replace(
                subscription.kept, subscriptionId=self.newId(), start=None
            )
            self.addSubscription(session, kept)

    def attach(self, session: Session, client: IClient, delivery: Delivery) -> None:
        """Attach a connection to its session."""
        session.client = client
        session.delivery = delivery

    def disconnected(self, session: Session, *, isOrderly: bool) -> None:
        """
        Detach a connection that has ended.

        @param isOrderly: whether the client has discarded its will.
        """
        delivery, session.delivery, session.client = session.delivery, None, None
        inFlight = {} if delivery is None else delivery.end()
        isOver = session.expiry == 0
        self._leave(session, inFlight, isOver)
        if isOrderly:
            self.wills.clientLeft(session)
        else:
            self.wills.clientGone(session)
        if isOver:
            # [MQTT-3.1.2-6] [MQTT5-4.1.0-2]
            self.end(session)
            return
        session.keepInFlight(inFlight)
        session.absentSince = self._context.now()
        session.takeChange()
        session.keep()
        self._expireLater(session)

    def _leave(self, session: Session, inFlight: dict[int, InFlight], isOver: bool) -> None:
        """Close the subscriptions. Shared messages with QoS 1 go to other members."""
        for reader in session.readers.values():
            reader.close(forget=False)
        for subscription in session.subscriptions.values():
            group = subscription.group
            if group is None:
                continue
            unfinished = []
            for packetId, flight in list(inFlight.items()):
                if flight.source is subscription and flight.sent.qos == 1:
                    unfinished.append(flight.sent.message.event)
                    del inFlight[packetId]
                elif flight.source is subscription:
                    if isOver:
                        # [MQTT5-4.8.2-5]
                        group.acknowledge((flight.sent.message.event,))
                    else:
                        group.reserve(flight.sent.message.event)
            group.leave(subscription, unfinished)

    def _expireLater(self, session: Session) -> None:
        if session.isExpiring:
            assert session.absentSince is not None
            left = session.absentSince + session.expiry - self._context.now()
            self._expiring[session] = self._context.later(left, partial(self._expired, session))

    def _expired(self, session: Session) -> None:
        del self._expiring[session]
        self.end(session)

    def end(self, session: Session) -> None:
        """
        End a session, and remove all of it [MQTT5-4.1.0-2].
        """
        self._remove(session)
        self.wills.sessionEnded(session)
        for subscription in tuple(session.subscriptions.values()):
            self.removeSubscription(session, subscription)
        session.discard()

    # What operators do.

    def listDurable(self, group: str, after: str, limit: int, owner: Owner | None) -> DurablePage:
        """See L{IDurableSubscriptions}."""
        ids = nsmallest(
            limit + 1,
            (
                session.clientId
                for session in self._sessions.values()
                if session.group == group and session.clientId > after and session.isOf(owner)
            ),
        )
        items: list[DurableRecord] = []
        looks = 0
        for clientId in ids[:limit]:
            if looks >= _LOOKS_A_PAGE:
                break
            session = self._sessions[group, clientId]
            looks += len(session.subscriptions)
            items.append(self._describe(session))
        isLast = len(items) == len(ids)
        return DurablePage(items=items, next=None if isLast else items[-1].id)

    def _describe(self, session: Session) -> DurableRecord:
        find = self._context.subscriptions.findDurable
        ids = [each.kept.subscriptionId for each in session.subscriptions.values()]
        kept = [position for position in map(find, ids) if position is not None]
        now = self._context.now()
        return DurableRecord(
            id=session.clientId,
            interfaceType=InterfaceType.MQTT,
            group=session.group,
            owner=session.owner,
            isLive=session.client is not None,
            subscriptions=len(ids),
            usedAt=int((now if session.absentSince is None else session.absentSince) * 1000),
            position=min((each.position for each in kept), default=None),
        )

    @asDeferred
    async def resetDurable(self, group: str, id: str, offset: Offset, owner: Owner | None) -> None:
        """See L{IDurableSubscriptions}."""
        self._absent(group, id, owner)
        position = await self._context.subscriptions.locate(group, offset)
        session = self._absent(group, id, owner)
        for subscription in session.subscriptions.values():
            if subscription.group is None:
                kept = msgspec.structs.replace(subscription.kept, start=position)
                session.change(subscription, kept)
        for subscriptionId in session.readers:
            self._context.subscriptions.reset(subscriptionId, position)
        session.forgetDeliveries(session.readers.keys())
        session.keep()
        session.takeChange()
        await self._context.store.flush()

    @asDeferred
    async def deleteDurable(self, group: str, ids: Sequence[str], owner: Owner | None) -> int:
        """See L{IDurableSubscriptions}."""
        sessions = [self._absent(group, each, owner) for each in dict.fromkeys(ids)]
        count = 0
        lane = self._context.broker.budgets.work.lane()
        for session in sessions:
            if session.client is None and self.find(group, session.clientId) is session:
                call = self._expiring.pop(session, None)
                if call is not None:
                    call.cancel()
                self.end(session)
                count += 1
            # A session may have many subscriptions.
            await lane.turn(isWrite=False)
        lane.end()
        await self._context.store.flush()
        return count

    def _absent(self, group: str, clientId: str, owner: Owner | None) -> Session:
        """
        The session of a client that is not connected.

        @raise SubscriptionNotFound: there is none of this owner.
        @raise SubscriptionExists: the client is connected.
        """
        session = self.find(group, clientId)
        if session is None or not session.isOf(owner):
            raise SubscriptionNotFound(f"there is no session of client {clientId[:100]}")
        if session.client is not None:
            raise SubscriptionExists(f"client {clientId[:100]} is connected now")
        return session

    # Subscriptions.

    def newId(self) -> str:
        """A new id for a subscription."""
        return str(UUID(bytes=self._context.entropy(_SIZE_OF_ID), version=4))

    def addSubscription(self, session: Session, kept: KeptSubscription) -> SessionSubscription:
        """Add a subscription to a session. It is not opened yet."""
        group = None
        if parseShare(kept.topicFilter) is None:
            reader = session.readers.get(kept.subscriptionId)
            if reader is None:
                reader = LogReader(session, self._context.subscriptions, kept)
            subscription = SessionSubscription(session, kept, reader=reader)
        else:
            key = shareKeyOf(session, kept)
            group = self._shares.get(key)
            if group is None:
                group = ShareGroup(session.group, kept, self._context.subscriptions)
                self._shares[key] = group
            # All members name the same subscription of the log.
            kept = msgspec.structs.replace(
                kept, subscriptionId=group.kept.subscriptionId, start=group.kept.start
            )
            group.sessions += 1
            subscription = SessionSubscription(session, kept, group=group)
        session.add(subscription)
        if session.isPersistent or group is not None:
            # It ends with the session or the group, however long nobody is connected.
            self._context.subscriptions.hold(kept.subscriptionId, subscription.holder)
        return subscription

    def removeSubscription(self, session: Session, subscription: SessionSubscription) -> None:
        """Remove a subscription from its session [MQTT-3.10.4-2] [MQTT5-3.10.4-1]."""
        reader, group = subscription.reader, subscription.group
        isOpen = reader is not None and reader.isOpen
        session.remove(subscription)
        if group is None:
            if not isOpen and session.isPersistent and not (reader and reader.members):
                self._context.subscriptions.forget(subscription.subscriptionId)
            return
        group.leave(subscription, ())
        group.sessions -= 1
        if not group.sessions:
            del self._shares[shareKeyOf(session, subscription.kept)]
            group.end()
