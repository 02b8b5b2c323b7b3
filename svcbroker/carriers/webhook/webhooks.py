"""
All webhooks of a broker: subscribing, unsubscribing, and resuming after a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from heapq import nsmallest
from typing import Any, Final
from uuid import UUID

import msgspec
from twisted.internet.defer import Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IHostnameResolver
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Access, Principal
from ...broker import IWebhooks, MetadataStore, TimeoutQueue
from ...broker.subscriptions import Subscriptions
from ...errors import (
    BrokerError,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    SubscriptionExists,
    SubscriptionNotFound,
    UrlInvalid,
)
from ...interfaces import Action
from ...model import (
    EventFormat,
    EventId,
    InterfaceType,
    Offset,
    Position,
    WebhookPage,
    filterMatches,
)
from ...net.deferreds import asDeferred
from .checking import TargetChecker, checkOptions
from .headers import checkHeaders
from .records import KIND, WebhookRecord, decodeRecord
from .sending import DeliveryContext
from .targets import Target, parseUrl
from .webhook import IPublisher, Webhook, WebhookContext

TIMEOUT: Final = 30.0
"""How long a call may take, in seconds. What it asked for may still happen later."""

DEFAULT_BATCH_SECONDS: Final = 1
"""How long the first event of a batch waits for others where nothing else is asked for."""

DEFAULT_LIMIT: Final = 100
"""How many webhooks a page has where nothing else is asked for."""

NO_HEADERS: Final[Mapping[str, str]] = {}


@implementer(IWebhooks)
class Webhooks:
    """
    Subscriptions whose events are sent to URLs.

    Each is in the metadata store from before C{subscribe} is answered until C{unSubscribe} is
    called, and so is its position. It sends what the account that made it may read at that time;
    while there is no such account, it sends nothing.

    @ivar counts: counts the requests to all receivers.
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
        publisher: IPublisher,
        closeConnections: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        """
        @param publisher: publishes dead letters.
        @param access: finds the principals of the accounts that have made webhooks.
        @param resolver: resolves the hosts of URLs when C{subscribe} is called.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @param closeConnections: closes the poster's idle connections. Called once, at the end.
        """
        self.counts = context.counts
        self._subscriptions = subscriptions
        self._metadata = metadata
        self._access = access
        self._targets = TargetChecker(resolver, context.settings, context.clock)
        self._context = WebhookContext(
            subscriptions=subscriptions, metadata=metadata, access=access, delivery=context
        )
        self._settings = context.settings
        self._entropy = entropy
        self._closeConnections = closeConnections
        self._timeouts = TimeoutQueue(context.clock, TIMEOUT)
        self._publisher = publisher
        self._webhooks: dict[str, Webhook] = {}
        self._isStopped = False
        self._coming = 0

    def states(self) -> Mapping[str, int]:
        """How many webhooks are paused, fail, or deliver."""
        states = Counter(webhook.state for webhook in self._webhooks.values())
        return {each: states[each] for each in ("delivering", "failing", "paused")}

    # Starting and stopping.

    @asDeferred
    async def start(self) -> None:
        """
        Resume all webhooks of the metadata store. Called once, when subscriptions can be made.
        Does not fail: a webhook that cannot start now is tried again.
        """
        for subscriptionId, value in self._metadata.items(KIND):
            try:
                record = decodeRecord(value)
                target = parseUrl(record.url)
            except (msgspec.MsgspecError, UrlInvalid):
                self._log.failure("Webhook {id} cannot be read, and rests", id=subscriptionId)
                continue
            start = Position(*record.start)
            webhook = self._newWebhook(subscriptionId, record, target, start, mustExist=False)
            delivery = webhook.delivery
            self._webhooks[subscriptionId] = webhook
            self._subscriptions.hold(subscriptionId, webhook.holder)
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
        headers: Mapping[str, str] = NO_HEADERS,
        secret: str | None = None,
        batch: int | None = None,
        batchSeconds: int | None = None,
        maxAttempts: int | None = None,
        deadLetter: str | None = None,
        format: EventFormat = EventFormat.SVC,
        certificate: str | None = None,
        hasTombstones: bool = False,
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
        try:
            target = parseUrl(url)
            record = WebhookRecord(
                interfaceType=interfaceType,
                group=groupId,
                filters=topic,
                tag=tag,
                url=target.url,
                start=(0, 0),
                account=principal.name,
                headers=checkHeaders(headers),
                secret=secret or "",
                certificate=certificate or "",
                batch=batch or 0,
                batchSeconds=_batchSeconds(batch, batchSeconds),
                maxAttempts=maxAttempts or 0,
                deadLetter=deadLetter or "",
                format=format,
                hasTombstones=hasTombstones,
            )
            checkOptions(record, self._settings.signer.secrets)
            self._checkDeadLetter(principal, subscriptionId, record)
        except BrokerError as error:
            return fail(error)
        subscribing = self._subscribe(principal, subscriptionId, record, target, offset)
        return self._timeouts.wait(subscribing)

    def _checkDeadLetter(
        self, principal: Principal, subscriptionId: str, record: WebhookRecord
    ) -> None:
        """
        @raise ParameterInvalid: there are no dead letters, or they would be sent by this webhook.
        @raise NotAuthorized: the principal may not publish to their topic.
        """
        if not record.maxAttempts:
            if record.deadLetter:
                raise ParameterInvalid("deadLetter: it needs maxAttempts")
            return
        topic = record.deadLetterTopic(subscriptionId)
        if any(filterMatches(filter, topic) for filter in record.filters):
            raise ParameterInvalid("deadLetter: it is one of the topics that are subscribed to")
        if record.deadLetter:
            self._publisher.require(principal, Action.PUBLISH, record.group, topic)

    @asDeferred
    async def _subscribe(
        self,
        principal: Principal,
        subscriptionId: str,
        record: WebhookRecord,
        target: Target,
        offset: Offset,
    ) -> str:
        known = self._webhooks.get(subscriptionId)
        if known is not None:
            if not known.record.isSameAs(record):
                raise SubscriptionExists()
            await self._metadata.flush()
            return subscriptionId
        if len(self._webhooks) + self._coming >= self._settings.maxWebhooks:
            raise Overloaded(
                f"there are {self._settings.maxWebhooks} webhooks, and no more are taken: "
                "listWebhooks shows those of this account, and unSubscribe ends one"
            )
        self._coming += 1
        try:
            await self._targets.check(target)
            webhook = self._newWebhook(subscriptionId, record, target, offset, mustExist=True)
            position = await webhook.delivery.attach()
            if self._isStopped:
                webhook.delivery.close(forget=True)
                raise Overloaded("the broker is stopping")
        finally:
            self._coming -= 1
        self._webhooks[subscriptionId] = webhook
        self._subscriptions.hold(subscriptionId, webhook.holder)
        webhook.keep(msgspec.structs.replace(record, start=tuple(position)))
        await self._metadata.flush()
        webhook.delivery.run()
        return subscriptionId

    def _newWebhook(
        self,
        subscriptionId: str,
        record: WebhookRecord,
        target: Target,
        offset: Offset,
        *,
        mustExist: bool,
    ) -> Webhook:
        return Webhook(
            subscriptionId,
            record,
            target,
            offset,
            self._context,
            self._publisher,
            mustExist=mustExist,
        )

    def unSubscribe(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """See L{IWebhooks.unSubscribe}."""
        return self._timeouts.wait(self._unSubscribe(principal, subscriptionId))

    @asDeferred
    async def _unSubscribe(self, principal: Principal, subscriptionId: str) -> bool:
        webhook = self._find(principal, subscriptionId)
        del self._webhooks[subscriptionId]
        webhook.delivery.close(forget=True)
        # It may not have been live.
        self._subscriptions.forget(subscriptionId)
        self._metadata.remove(KIND, subscriptionId)
        await self._metadata.flush()
        return True

    @asDeferred
    async def listWebhooks(
        self,
        principal: Principal,
        groupId: str,
        subscriptionId: str | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> WebhookPage:
        """See L{IWebhooks.listWebhooks}."""
        visible = (
            id
            for id, webhook in self._webhooks.items()
            if webhook.record.group == groupId
            and id > (after or "")
            and subscriptionId in (None, id)
            and webhook.isManagedBy(principal)
        )
        ids = nsmallest(limit + 1, visible)
        return WebhookPage(
            items=[self._webhooks[id].status for id in ids[:limit]],
            next=ids[limit - 1] if len(ids) > limit else None,
        )

    def pauseWebhook(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """See L{IWebhooks.pauseWebhook}."""
        return self._manage(principal, subscriptionId, Webhook.pause)

    def resumeWebhook(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """See L{IWebhooks.resumeWebhook}."""
        return self._manage(principal, subscriptionId, Webhook.resume)

    def retryWebhook(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        """See L{IWebhooks.retryWebhook}."""
        return self._manage(principal, subscriptionId, lambda webhook: webhook.delivery.retry())

    def skipEvent(
        self, principal: Principal, subscriptionId: str, eventId: EventId
    ) -> Deferred[bool]:
        """See L{IWebhooks.skipEvent}."""
        return self._manage(
            principal, subscriptionId, lambda webhook: webhook.delivery.skip(eventId)
        )

    def _manage(
        self, principal: Principal, subscriptionId: str, change: Callable[[Webhook], None]
    ) -> Deferred[bool]:
        @asDeferred
        async def manage() -> bool:
            change(self._find(principal, subscriptionId))
            await self._metadata.flush()
            return True

        return self._timeouts.wait(manage())

    def _find(self, principal: Principal, subscriptionId: str) -> Webhook:
        """
        @raise SubscriptionNotFound: there is no such webhook that the principal may know of.
        """
        webhook = self._webhooks.get(subscriptionId)
        if webhook is None or not webhook.isManagedBy(principal):
            raise SubscriptionNotFound()
        return webhook


def _batchSeconds(batch: int | None, seconds: int | None) -> int:
    """
    How long the first event of a batch waits for others.

    @raise ParameterInvalid: it is given without a batch.
    """
    if batch is None:
        if seconds is not None:
            raise ParameterInvalid("batchSeconds: it needs batch")
        return 0
    return DEFAULT_BATCH_SECONDS if seconds is None else seconds
