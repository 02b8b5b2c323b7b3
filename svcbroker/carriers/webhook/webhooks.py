"""
All webhooks of a broker: subscribing, unsubscribing, and resuming after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, TimeoutError, fail, gatherResults, succeed
from twisted.internet.interfaces import IHostnameResolver
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Access, Principal
from ...broker import IWebhooks, MetadataStore, TimeoutQueue
from ...broker.subscriptions import Subscriptions
from ...errors import (
    BrokerError,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    SubscriptionExists,
    SubscriptionNotFound,
    UrlInvalid,
)
from ...interfaces import Action, ISubscriber, ISubscription
from ...model import InterfaceType, Offset, Position, SubscribeRequest
from ...net.deferreds import asDeferred
from ...net.endpoints import hasPermittedAddress
from ...net.http import makeClient
from ...net.slots import Slots
from .delivery import Delivery, DeliveryContext
from .posting import MAX_ANSWER, Poster
from .settings import WebhookSettings
from .targets import Target, parseUrl

MAX_LOOKUPS: Final = 16
"""The most host names that are resolved at the same time for C{subscribe}."""

TIMEOUT: Final = 30.0
"""How long a call may take, in seconds. What it asked for may still happen later."""

_KIND = "webhook"
_IDLE_PER_HOST = 2


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A webhook in the metadata store.

    @ivar account: the name of the account that made it; empty where there were no credentials.
    """

    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    tag: str | None
    url: str
    start: tuple[int, int]
    account: str = ""


_form = msgspec.json.Decoder(_Record)


def webhookGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return _form.decode(value).group


@frozen
class _Webhook:
    """A webhook and its delivery."""

    kept: _Record
    delivery: Delivery


@implementer(IWebhooks)
class Webhooks:
    """
    Subscriptions whose events are sent to URLs.

    Each is in the metadata store from before C{subscribe} is answered until C{unSubscribe} is
    called, and so is its position. It sends what the account that made it may read at that time;
    while there is no such account, it sends nothing.
    """

    _log = Logger()

    def __init__(
        self,
        subscriptions: Subscriptions,
        metadata: MetadataStore,
        access: Access,
        resolver: IHostnameResolver,
        context: DeliveryContext,
        entropy: Callable[[int], bytes],
        closeConnections: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        """
        @param access: finds the principals of the accounts that have made webhooks.
        @param resolver: resolves the hosts of URLs when C{subscribe} is called.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param closeConnections: closes the poster's idle connections. Called once, at the end.
        """
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._access = access
        self._resolver = resolver
        self._context = context
        self._settings = context.settings
        self._entropy = entropy
        self._closeConnections = closeConnections
        self._timeouts = TimeoutQueue(context.clock, TIMEOUT)
        self._webhooks: dict[str, _Webhook] = {}
        self._isStopped = False
        self._coming = 0
        self._lookups = 0

    # Starting and stopping.

    @asDeferred
    async def start(self) -> None:
        """
        Resume all webhooks of the metadata store. Called once, when subscriptions can be made.
        Does not fail: a webhook that cannot start now is tried again.
        """
        for subscriptionId, value in self._metadata.items(_KIND):
            try:
                kept = _form.decode(value)
                target = parseUrl(kept.url)
            except (msgspec.MsgspecError, UrlInvalid):
                self._log.failure("Webhook {id} cannot be read, and rests", id=subscriptionId)
                continue
            request = _request(subscriptionId, kept, target, Position(*kept.start), mustExist=False)
            delivery = self._newDelivery(kept.account, request, target)
            self._webhooks[subscriptionId] = _Webhook(kept, delivery)
            self._subscriptions.hold(subscriptionId)
            try:
                await delivery.attach()
            except BrokerError as error:
                self._log.warn(
                    "Webhook {id} cannot start, and will try again: {reason}",
                    id=subscriptionId,
                    reason=error.message,
                )
            delivery.run()

    def stop(self) -> Deferred[None]:
        """
        Send nothing more, wait for the answers to requests under way, and close. Called once,
        while subscriptions can still be closed.

        @return: fires when no request is under way. Cancelling cancels those.
        """
        self._isStopped = True
        stopping = [webhook.delivery.stop() for webhook in self._webhooks.values()]
        stopped: Deferred[Any] = gatherResults(stopping)
        return stopped.addBoth(self._stopped)

    def _stopped(self, _: object) -> Deferred[Any]:
        for webhook in self._webhooks.values():
            webhook.delivery.close(forget=False)
        self._webhooks.clear()
        self._timeouts.stop()
        return self._closeConnections()

    # Calls of clients.

    def subscribe(
        self,
        principal: Principal,
        interfaceType: InterfaceType,
        topic: tuple[str, ...],
        groupId: str,
        subscriptionId: str | None,
        url: str,
        offset: Offset,
        tag: str | None,
    ) -> Deferred[str]:
        """See L{IWebhooks.subscribe}."""
        if self._access.find(principal.name) is None:
            return fail(
                NotAuthorized(
                    "a webhook needs an account that the broker knows without its credentials"
                )
            )
        if subscriptionId is None:
            subscriptionId = str(UUID(bytes=self._entropy(16), version=4))
        subscribing = self._subscribe(
            principal, subscriptionId, interfaceType, topic, groupId, url, offset, tag
        )
        return self._timeouts.wait(subscribing)

    @asDeferred
    async def _subscribe(
        self,
        principal: Principal,
        subscriptionId: str,
        interfaceType: InterfaceType,
        topic: tuple[str, ...],
        groupId: str,
        url: str,
        offset: Offset,
        tag: str | None,
    ) -> str:
        target = parseUrl(url)
        kept = _Record(
            interfaceType=interfaceType,
            group=groupId,
            filters=topic,
            tag=tag,
            url=target.url,
            start=(0, 0),
            account=principal.name,
        )
        known = self._webhooks.get(subscriptionId)
        if known is not None:
            if msgspec.structs.replace(known.kept, start=kept.start) != kept:
                raise SubscriptionExists()
            await self._metadata.flush()
            return subscriptionId
        if len(self._webhooks) + self._coming >= self._settings.maxWebhooks:
            raise Overloaded("there are too many webhooks")
        self._coming += 1
        try:
            await self._checkTarget(target)
            request = _request(subscriptionId, kept, target, offset, mustExist=True)
            delivery = self._newDelivery(principal.name, request, target)
            position = await delivery.attach()
            if self._isStopped:
                delivery.close(forget=True)
                raise Overloaded("the broker is stopping")
        finally:
            self._coming -= 1
        kept = msgspec.structs.replace(kept, start=tuple(position))
        self._webhooks[subscriptionId] = _Webhook(kept, delivery)
        self._subscriptions.hold(subscriptionId)
        self._metadata.put(_KIND, subscriptionId, msgspec.json.encode(kept))
        await self._metadata.flush()
        delivery.run()
        return subscriptionId

    async def _checkTarget(self, target: Target) -> None:
        """
        @raise UrlInvalid: events may not be sent there.
        """
        policy = self._settings.policy
        if target.isAddress:
            isPermitted = policy.permits(target.host, target.host, target.port)
        elif target.host in policy.hosts:
            isPermitted = True
        elif self._lookups >= MAX_LOOKUPS:
            raise Overloaded()
        else:
            isPermitted = await self._lookUp(target.host, target.port)
        if not isPermitted:
            # The same words for a name that does not exist: the answer must not tell which
            # names exist inside.
            raise UrlInvalid(
                "url's host has no address that events may be sent to at its port: an operator "
                "permits private addresses, and ports below 1024 beside 80 and 443, with "
                "--webhook-allow"
            )

    async def _lookUp(self, host: str, port: int) -> bool:
        self._lookups += 1
        try:
            found = hasPermittedAddress(self._resolver, self._settings.policy, host, port)
            return await found.addTimeout(self._settings.timeout, self._context.clock)
        except TimeoutError:
            return False
        finally:
            self._lookups -= 1

    def unSubscribe(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """See L{IWebhooks.unSubscribe}."""
        return self._timeouts.wait(self._unSubscribe(principal, subscriptionId))

    @asDeferred
    async def _unSubscribe(self, principal: Principal, subscriptionId: str) -> bool:
        webhook = self._webhooks.get(subscriptionId)
        if webhook is None or not _mayEnd(principal, webhook.kept):
            raise SubscriptionNotFound()
        del self._webhooks[subscriptionId]
        webhook.delivery.close(forget=True)
        # It may not have been live.
        self._subscriptions.forget(subscriptionId)
        self._metadata.remove(_KIND, subscriptionId)
        await self._metadata.flush()
        return True

    def _newDelivery(self, account: str, request: SubscribeRequest, target: Target) -> Delivery:
        def subscribe(
            request: SubscribeRequest, subscriber: ISubscriber
        ) -> Deferred[ISubscription]:
            principal = self._access.find(account)
            if principal is None:
                error = f"there is no account {account}" if account else "credentials are needed"
                return fail(NotAuthenticated(error))
            return self._subscriptions.subscribe(principal, request, subscriber)

        return Delivery(request, target, self._context, subscribe)


def _mayEnd(principal: Principal, kept: _Record) -> bool:
    return principal.name == kept.account or principal.may(Action.OPERATE, kept.group)


def _request(
    subscriptionId: str, kept: _Record, target: Target, offset: Offset, *, mustExist: bool
) -> SubscribeRequest:
    return SubscribeRequest(
        interfaceType=kept.interfaceType,
        group=kept.group,
        filters=kept.filters,
        offset=offset,
        tag=kept.tag,
        subscriptionId=subscriptionId,
        remote=target.authority,
        mustExist=mustExist,
        isResumed=not mustExist,
        isDurable=True,
        isAcknowledged=True,
    )


def makeWebhooks(
    reactor: Any,
    subscriptions: Subscriptions,
    metadata: MetadataStore,
    access: Access,
    settings: WebhookSettings,
    *,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    random: Callable[[], float],
) -> Webhooks:
    """
    Webhooks that send by HTTP, and by HTTPS with the trust roots of the system. Not started.

    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @param random: gives a number of [0, 1).
    """
    client = makeClient(
        reactor,
        maxBody=MAX_ANSWER,
        keep=_IDLE_PER_HOST,
        connectTimeout=settings.timeout,
        policy=settings.policy,
    )
    context = DeliveryContext(
        clock=reactor,
        random=random,
        poster=Poster(client, now, settings),
        slots=Slots(settings.connections, settings.connectionsPerHost),
        settings=settings,
    )
    return Webhooks(
        subscriptions, metadata, access, reactor.nameResolver, context, entropy, client.close
    )
