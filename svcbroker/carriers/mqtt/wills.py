"""
Will messages (section 3.1.2.5): published when a connection ends without a DISCONNECT.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from attrs import define
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...access import Principal
from ...broker import checkTopic
from ...errors import BrokerError, ContentTooLarge
from ...interfaces import Action
from ...model import checkExtensions
from ...net.addresses import storedKey
from ...net.budgets import ENTRY_BYTES, ByteCount, TimedWork
from ...net.deferreds import asDeferred
from .codec import Decoder, encode
from .context import Context, policyOf
from .fields import MqttError, ReasonCode, publishReason
from .messages import publicationOf
from .mqttsession import Session
from .packets import MQTT_5, Publish, Will

WILL: Final = "mqtt-will"
"""The kind of L{KeptWill} on disk."""
FULL: Final = "sessions, subscriptions and wills take as much memory as they may: end some"
_COPIES: Final = 3
"""A will that waits for its delay is in memory as it is and in Base64."""
_MAX_FRAME: Final = 2**28 + 5
"""The largest packet of the protocol. The will was bounded when the client sent it."""


class KeptWill(Struct, frozen=True, kw_only=True):
    """
    A will as it stands on disk.

    @ivar account: the name of the client's account; empty where there were no credentials.
    @ivar delay: the will delay interval, in seconds.
    @ivar due: when it is to be published, in seconds since the epoch; C{None} while the client
        is connected.
    @ivar mark: the mark of the client, where it subscribes with No Local.
    @ivar frame: the message as a PUBLISH of MQTT 5.
    """

    group: str
    delay: int
    due: float | None = None
    mark: str | None = None
    frame: bytes
    account: str = ""


@define(eq=False)
class _Waiting:
    """
    A will that waits for its delay.

    @ivar principal: the client's account; C{None} where it has not connected since the start.
    """

    kept: KeptWill
    principal: Principal | None
    call: TimedWork


class Wills:
    """
    The wills of all clients, connected or absent. They are on disk, so that the will of a client
    that was connected during a crash is published after the restart.
    """

    _log = Logger()

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[str, _Waiting] = {}
        self._publishing: dict[Deferred[None], None] = {}
        self._counted: dict[str, ByteCount] = {}

    def check(self, principal: Principal, group: str, will: Will, owner: str) -> None:
        """
        Check that a will can be published, that the account may do so, and that there is room.

        @param owner: whose bytes it counts as; see L{ownerKey<svcbroker.net.addresses.ownerKey>}.
        @raise MqttError: it cannot, for a reason that is known by now.
        """
        context = self._context
        try:
            checkTopic(context.broker.groups.find(principal, group)[1], will.topic)
            context.broker.require(principal, Action.PUBLISH, group, will.topic)
            if len(will.payload) > context.settings.maxContent:
                raise ContentTooLarge()
            checkExtensions(publicationOf(will, group, context.now).extensions)
        except BrokerError as error:
            text = f"the will cannot be published: {error}"
            raise MqttError(publishReason(error), text) from None
        counted = context.broker.budgets.subscriptions.count(owner)
        if not counted.fits(ENTRY_BYTES + _COPIES * len(will.payload)):
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, FULL)

    def start(self, expiries: Mapping[str, int]) -> None:
        """
        Load the wills. Clients that were connected count as absent from now on.

        @param expiries: the session expiry interval of each session that was loaded, by its name.
            Other sessions have ended with their connection.
        """
        for name, value in self._context.store.items(WILL):
            try:
                kept = msgspec.json.decode(value, type=KeptWill)
                if kept.group in self._context.retained:
                    self._count(name, len(kept.frame), storedKey(kept.account, ""))
                    self._wait(name, kept, None, atMost=expiries.get(name, 0))
            except ValueError:
                # A damaged will must not keep the broker from starting.
                self._log.failure("the will of {name} cannot be read", name=name)
                self._context.store.remove(WILL, name)

    def clientConnected(self, session: Session, will: Will) -> None:
        """Store the will of a client that connects [MQTT-3.1.2-8] [MQTT5-3.1.2-7]."""
        properties = msgspec.structs.replace(will.properties, willDelayInterval=None)
        packetId = 1 if will.qos else 0
        message = Publish(
            will.topic, will.payload, will.qos, will.retain, False, packetId, properties
        )
        kept = KeptWill(
            group=session.group,
            delay=will.properties.willDelayInterval or 0,
            frame=encode(message, MQTT_5),
            account=session.account,
        )
        self._forget(session.name)
        self._context.store.put(WILL, session.name, msgspec.json.encode(kept))
        self._count(session.name, len(kept.frame), storedKey(session.account, session.owner))
        session.awaitDisk()

    def clientLeft(self, session: Session) -> None:
        """Discard the will of a client that disconnects."""
        self._forget(session.name)

    def clientGone(self, session: Session) -> None:
        """
        Publish the will of a lost connection, after its delay or at the end of the session,
        whichever comes first [MQTT-3.1.2-8] [MQTT5-3.1.2-8].
        """
        value = self._context.store.get(WILL, session.name)
        if value is None:
            return
        kept = msgspec.structs.replace(
            msgspec.json.decode(value, type=KeptWill),
            mark=session.mark if session.hasNoLocal else None,
        )
        self._wait(session.name, kept, session.principal, atMost=session.expiry)

    def _wait(self, name: str, kept: KeptWill, principal: Principal | None, atMost: int) -> None:
        """Publish a will after its delay, or after C{atMost} seconds if that is earlier."""
        now = self._context.now()
        if kept.due is None:
            kept = msgspec.structs.replace(kept, due=now + min(kept.delay, atMost))
        assert kept.due is not None
        if kept.due <= now:
            self._publish(name, kept, principal)
            return
        self._context.store.put(WILL, name, msgspec.json.encode(kept))
        call = self._context.later(kept.due - now, partial(self._due, name), isWrite=True)
        self._waiting[name] = _Waiting(kept, principal, call)

    def clientReturned(self, session: Session) -> None:
        """Discard the delayed will of a session that is resumed [MQTT5-3.1.2-26]."""
        waiting = self._waiting.pop(session.name, None)
        if waiting is not None:
            waiting.call.cancel()
            self._forget(session.name)

    def sessionEnded(self, session: Session) -> None:
        """Publish the delayed will of a session that ends."""
        if session.name in self._waiting:
            self._waiting[session.name].call.cancel()
            self._due(session.name)

    def _due(self, name: str) -> None:
        waiting = self._waiting.pop(name)
        self._publish(name, waiting.kept, waiting.principal)

    def _publish(self, name: str, kept: KeptWill, principal: Principal | None) -> None:
        # [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT5-3.1.2-16] [MQTT5-3.1.2-17]: its RETAIN flag is
        # that of any publish. [MQTT-3.1.2-10] [MQTT5-3.1.2-10]: it is published once.
        self._forget(name)
        if principal is None or principal.isRevoked:
            principal = self._principalOf(name, kept)
        if principal is None:
            self._log.warn("The will of {name} was not published: its account is gone", name=name)
            return
        (message,) = Decoder(_MAX_FRAME, MQTT_5).receive(kept.frame)
        assert isinstance(message, Publish)
        published: Deferred[None] = Deferred()
        self._publishing[published] = None

        def done(result: Failure | None) -> None:
            del self._publishing[published]
            if isinstance(result, Failure):
                level = self._log.warn if result.check(BrokerError) else self._log.error
                level("The will of a client was not published: {error}", error=result.value)
            published.callback(None)

        publishOne(self._context, principal, kept.group, message, kept.mark).addBoth(done)

    def _count(self, name: str, size: int, owner: str) -> None:
        counted = self._context.broker.budgets.subscriptions.count(owner)
        counted.add(ENTRY_BYTES + _COPIES * size)
        self._counted[name] = counted

    def _forget(self, name: str) -> None:
        self._context.store.remove(WILL, name)
        counted = self._counted.pop(name, None)
        if counted is not None:
            counted.close()

    def _principalOf(self, name: str, kept: KeptWill) -> Principal | None:
        access = self._context.access
        principal = access.find(kept.account)
        _, clientId = msgspec.json.decode(name, type=tuple[str, str])
        return None if principal is None else access.forClient(principal, clientId)

    def stop(self) -> None:
        """Cancel the timers. Delayed wills stay on disk."""
        for waiting in self._waiting.values():
            waiting.call.cancel()
        self._waiting.clear()

    @asDeferred
    async def published(self) -> None:
        """Fires when all due wills are in the log or refused."""
        while self._publishing:
            await next(iter(self._publishing))


def publishOne(
    context: Context, principal: Principal, group: str, message: Publish, mark: str | None
) -> Deferred[None]:
    """
    Publish a message that no client waits for.

    @param principal: in whose name it is published.
    @param mark: the mark of the publisher, if it subscribes with No Local.
    @return: fires when the event is final and on stable storage; fails with a L{BrokerError}
        when it is not going to be.
    """

    async def publish() -> None:
        index, settings = context.retained[group], context.settings
        if message.retain and message.payload:
            index.checkRoom(principal, message.topic, context.maxRetained(group))
        publication = publicationOf(message, group, context.now, mark)
        policy = policyOf(settings, stopsAtRefusal=False)
        (error,) = await context.broker.publish(principal, (publication,), policy)
        if isinstance(error, BrokerError):
            raise error

    return Deferred.fromCoroutine(publish())
