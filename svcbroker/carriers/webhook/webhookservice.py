"""
The webhooks of this broker: they are made, listed, paused and removed as clients and operators ask
for it. Each has its entry in the metadata store and its delivery, and may give up events as dead
letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
from attrs import frozen
from msgspec.structs import replace
from twisted.internet.defer import Deferred, TimeoutError, fail, gatherResults, succeed
from twisted.internet.interfaces import IHostnameResolver, IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from ...access import ANYBODY, Access, Principal
from ...broker import (
    IWebhooks,
    MetadataStore,
    Outcome,
    Publication,
    PublishPolicy,
    ReadPage,
    ReadRequest,
    SendStatus,
    TimeoutQueue,
    WebhookRequest,
)
from ...broker.subscriptions import Holder, Subscriptions
from ...errors import (
    BrokerError,
    EventNotFound,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    SubscriptionExists,
    SubscriptionNotFound,
    TransactionFailed,
    TransactionTimeout,
    UrlInvalid,
)
from ...interfaces import Action, ISubscriber, ISubscription
from ...model import (
    MAX_EXTENSIONS_SIZE,
    RESERVED_NAMES,
    TAG,
    Event,
    EventFormat,
    EventId,
    Offset,
    Position,
    SubscribeRequest,
    WebhookKey,
    WebhookPage,
    WebhookStatus,
    eventSize,
    filterMatches,
)
from ...net.deferreds import asDeferred
from ...net.endpoints import hasPermittedAddress
from .delivery import KIND, DeliveryContext, WebhookDelivery, WebhookRecord, decodeRecord
from .posting import WebhookSettings, WebhookTarget, checkHeaders, parseUrl
from .signing import Secrets, WebhookKeys

TIMEOUT: Final = 30.0
"""The time that a call may take, in seconds. What it asked for may still happen later."""

DEFAULT_BATCH_SECONDS: Final = 1
"""The time that the first event of a batch waits for others where nothing else is asked for."""

DEFAULT_LIMIT: Final = 100
"""The number of webhooks on a page where nothing else is asked for."""


MAX_LOOKUPS: Final = 16
"""The most host names that are resolved at the same time for C{subscribe}."""

MAX_REASON: Final = 256
"""The longest reason, in characters."""
MAX_WEBHOOKS: Final = 16
"""The most webhooks that may give up an event, one the dead letter of the other."""
GIVEN_UP_BY: Final = "svc-given-up-by"
"""The extension with the webhooks that have given up an event, with commas between them."""

_ID_LENGTH = 36

_POLICY: Final = PublishPolicy(carrier="webhook", opensTopics=True, mayBeEmpty=True)


class IPublisher(Protocol):
    """
    The part of the broker that webhooks use: L{svcbroker.broker.Broker}.

    @ivar source: what the C{source} of CloudEvents begins with: the base path.
    """

    source: str

    def publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
    ) -> Deferred[Sequence[Outcome]]:
        """Publish dead letters."""

    def getEvent(
        self, principal: Principal, groupId: str | None, eventId: EventId
    ) -> Deferred[Event]:
        """Read a dead letter, or the event that it is of."""

    def readEvents(self, principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        """Read the time of its block."""

    def require(self, principal: Principal, action: Action, group: str, topic: str) -> None:
        """Refuse a topic for dead letters that may not be published to."""


@frozen(kw_only=True)
class WebhookContext:
    """
    The dependencies of all webhooks.

    @ivar access: finds the principals of the accounts that have made webhooks.
    """

    subscriptions: Subscriptions
    metadata: MetadataStore
    access: Access
    delivery: DeliveryContext


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
        keys: WebhookKeys,
        closeConnections: Callable[[], Deferred[Any]] = lambda: succeed(None),
    ) -> None:
        """
        @param publisher: publishes dead letters.
        @param keys: sign requests.
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
        self._keys = keys
        self._webhooks: dict[str, Webhook] = {}
        self._isStopped = False
        self._coming = 0

    def states(self) -> Mapping[str, int]:
        """The numbers of webhooks that are paused, fail, or deliver."""
        states = Counter(webhook.state for webhook in self._webhooks.values())
        return {each: states[each] for each in ("delivering", "failing", "paused")}

    def failing(self, least: int) -> Iterator[tuple[str, str, str]]:
        """
        The webhooks whose requests fail: group, id and last error.

        @param least: how often in a row they have failed.
        """
        for id, webhook in self._webhooks.items():
            sender = webhook.delivery.sender
            if sender.failures >= least and not webhook.record.isPaused:
                yield webhook.record.group, id, sender.lastError

    # Starting and stopping.

    @asDeferred
    async def start(self) -> None:
        """
        Resume all webhooks of the metadata store. Called once, when subscriptions can be made.
        Does not fail: a webhook that cannot start now is tried again.
        """
        self._keys.load()
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
        stopped: Deferred[Any] = gatherResults(stopping, consumeErrors=True)
        return stopped.addBoth(self._stopped)

    def _stopped(self, _: object) -> Deferred[Any]:
        for webhook in self._webhooks.values():
            webhook.delivery.close(forget=False)
        self._webhooks.clear()
        self._timeouts.stop()
        return self._closeConnections()

    # Calls of clients.

    def subscribe(self, principal: Principal, request: WebhookRequest) -> Deferred[str]:
        """See L{IWebhooks.subscribe}."""
        if self._access.find(principal.name) is None:
            return fail(
                NotAuthorized(
                    "a webhook needs an account that the broker knows without its credentials"
                )
            )
        subscriptionId = request.subscriptionId
        if subscriptionId is None:
            subscriptionId = str(UUID(bytes=self._entropy(16), version=4))
        try:
            target = parseUrl(request.url)
            record = WebhookRecord(
                interfaceType=request.interfaceType,
                group=request.groupId,
                filters=request.topic,
                tag=request.tag,
                url=target.url,
                start=(0, 0),
                account=principal.name,
                headers=checkHeaders(request.headers),
                secret=request.secret or "",
                certificate=request.certificate or "",
                batch=request.batch or 0,
                batchSeconds=_batchSeconds(request.batch, request.batchSeconds),
                maxAttempts=request.maxAttempts or 0,
                deadLetter=request.deadLetter or "",
                format=request.format,
                hasTombstones=request.hasTombstones,
            )
            checkOptions(record, self._settings.signer.secrets)
            self._checkDeadLetter(principal, subscriptionId, record)
        except BrokerError as error:
            return fail(error)
        subscribing = self._subscribe(principal, subscriptionId, record, target, request.offset)
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
        target: WebhookTarget,
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
        await self._certifyKey(record.group)
        await self._metadata.flush()
        webhook.delivery.run()
        return subscriptionId

    async def _certifyKey(self, group: str) -> None:
        """Have a key for the first webhook of a group, so that its receiver can know it."""
        if not self._settings.signer.hasPublic:
            return
        try:
            await self._keys.current(group)
        except BrokerError as error:
            self._log.warn(
                "group {group}: the key of webhooks is not certified yet, and will be before the "
                "first request: {reason}",
                group=group,
                reason=error.message,
            )

    def _newWebhook(
        self,
        subscriptionId: str,
        record: WebhookRecord,
        target: WebhookTarget,
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

    @asDeferred
    async def replayDeadLetter(
        self, principal: Principal, subscriptionId: str, eventId: EventId
    ) -> bool:
        """See L{IWebhooks.replayDeadLetter}."""
        return await self._find(principal, subscriptionId).replay(eventId)

    def publicKeys(self) -> Sequence[WebhookKey]:
        """See L{IWebhooks.publicKeys}."""
        return self._keys.published()

    def rotateKey(
        self, principal: Principal, groupId: str, overlap: int
    ) -> Deferred[Sequence[WebhookKey]]:
        """See L{IWebhooks.rotateKey}."""
        return self._timeouts.wait(Deferred.fromCoroutine(self._keys.rotate(groupId, overlap)))

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
    The time that the first event of a batch waits for others.

    @raise ParameterInvalid: it is given without a batch.
    """
    if batch is None:
        if seconds is not None:
            raise ParameterInvalid("batchSeconds: it needs batch")
        return 0
    return DEFAULT_BATCH_SECONDS if seconds is None else seconds


class Webhook:
    """
    A webhook that is kept, and its delivery.

    @ivar subscriptionId: its id.
    @ivar record: it, as it is kept.
    @ivar delivery: sends its events.
    """

    _log = Logger()

    def __init__(
        self,
        subscriptionId: str,
        record: WebhookRecord,
        target: WebhookTarget,
        offset: Offset,
        context: WebhookContext,
        publisher: IPublisher,
        *,
        mustExist: bool,
    ) -> None:
        """
        @param offset: where it starts, if it does not resume.
        @param publisher: publishes dead letters.
        @param mustExist: whether topics named without wildcards must be open.
        """
        self.subscriptionId = subscriptionId
        self.record = record
        self._remote = target.authority
        self._context = context
        self._publisher = publisher
        self.delivery = WebhookDelivery(
            record.request(subscriptionId, target, offset, mustExist=mustExist),
            record.receiver(subscriptionId, target, publisher.source),
            context.delivery,
            self,
        )

    def keep(self, record: WebhookRecord) -> None:
        """Keep what has changed. It is on stable storage some moments later."""
        self.record = record
        self._context.metadata.put(KIND, self.subscriptionId, msgspec.json.encode(record))

    @property
    def holder(self) -> Holder:
        """The holder of its position."""
        return Holder("webhook", self.subscriptionId, lambda: self.record.filters)

    # What its delivery asks for.

    def subscribe(
        self, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.delivery.IDeliveryOwner>}."""
        try:
            principal = self._principal()
        except BrokerError as error:
            return fail(error)
        return self._context.subscriptions.subscribe(principal, request, subscriber)

    def keepFailed(self, position: Position, count: int) -> None:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.delivery.IDeliveryOwner>}."""
        self.keep(replace(self.record, failed=(position.height, position.index, count)))

    @asDeferred
    async def publishDeadLetter(self, event: Event, attempts: int, reason: str) -> None:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.delivery.IDeliveryOwner>}."""
        record = self.record
        if isGivenUpForGood(event, self.subscriptionId):
            self._log.warn(
                "Webhook {id} does not publish a dead letter of event {event}, which is one itself "
                "that was given up before",
                id=self.subscriptionId,
                event=str(event.eventId),
            )
            return
        topic = record.deadLetterTopic(self.subscriptionId)
        publication = makeDeadLetter(
            event, record.group, topic, self.subscriptionId, attempts, reason
        )
        principal = self._principal()
        if record.deadLetter:
            publishing = self._publisher.publish(principal, [publication], _POLICY)
        else:
            # The account needs no grant there, but has the log grow.
            usage = principal.usage
            usage.spendOne(eventSize(publication))
            publishing = self._publisher.publish(ANYBODY, [publication], _POLICY)
            if usage.quotas.inflight is not None:
                publishing.addBoth(usage.answered, 1)
        [answer] = await publishing
        if isinstance(answer, BrokerError):
            raise answer
        if answer.status is SendStatus.TIMEOUT:
            raise TransactionTimeout()
        if answer.status is not SendStatus.SUCCESS:
            raise TransactionFailed()

    def _principal(self) -> Principal:
        """
        The account that made it.

        @raise NotAuthenticated: there is no such account now.
        """
        account = self.record.account
        principal = self._context.access.find(account)
        if principal is None:
            raise NotAuthenticated(
                f"there is no account {account}" if account else "credentials are needed"
            )
        return principal

    # What clients ask for.

    def isManagedBy(self, principal: Principal) -> bool:
        """Whether a principal may know of it, change it and end it."""
        record = self.record
        return principal.name == record.account or principal.may(Action.OPERATE, record.group)

    @property
    def state(self) -> str:
        """C{paused}, C{failing} while the last request has failed, or C{delivering}."""
        if self.record.isPaused:
            return "paused"
        return "failing" if self.delivery.sender.failures else "delivering"

    @property
    def status(self) -> WebhookStatus:
        """Its status."""
        record, sender = self.record, self.delivery.sender
        oldest = sender.oldest
        isLimited = record.maxAttempts > 0
        return WebhookStatus(
            subscriptionId=self.subscriptionId,
            interfaceType=record.interfaceType,
            group=record.group,
            filters=record.filters,
            tag=record.tag,
            remote=self._remote,
            owner=record.account,
            secret=record.secret,
            certificate=record.certificate,
            batch=record.batch,
            batchSeconds=record.batchSeconds,
            maxAttempts=record.maxAttempts,
            format=record.format,
            hasTombstones=record.hasTombstones,
            deadLetter=record.deadLetterTopic(self.subscriptionId) if isLimited else "",
            isPaused=record.isPaused,
            failures=sender.failures,
            lastError=sender.lastError,
            lastErrorAt=sender.lastErrorAt or None,
            answers=tuple(sender.answers),
            nextAttemptAt=sender.nextAttemptAt,
            oldest=None if oldest is None else oldest.event.eventId,
            oldestAt=None if oldest is None else oldest.timestamp,
            readAt=int(self._context.delivery.now() * 1000),
        )

    def pause(self) -> None:
        """Send nothing more after the request under way."""
        self.keep(replace(self.record, isPaused=True))

    def resume(self) -> None:
        """Send again."""
        self.keep(replace(self.record, isPaused=False))
        self.delivery.resume()

    async def replay(self, eventId: EventId) -> bool:
        """See L{IWebhooks.replayDeadLetter<svcbroker.broker.IWebhooks.replayDeadLetter>}."""
        group, publisher = self.record.group, self._publisher
        dead = await publisher.getEvent(ANYBODY, group, eventId)
        told = dead.extensions
        isOwn = dead.topic == self.record.deadLetterTopic(self.subscriptionId)
        if not isOwn or told.get("svc-subscription-id") != self.subscriptionId:
            raise EventNotFound("this is no dead letter of the webhook")
        # As the account of the webhook may read it now.
        principal, id = self._principal(), EventId.parse(told["svc-original-id"])
        event = await publisher.getEvent(principal, group, id)
        before = Position(id.height, event.index - 1)
        request = ReadRequest(group=group, filter=event.topic, offset=before, limit=1)
        [batch] = (await publisher.readEvents(principal, request)).batches
        return await self.delivery.sender.sendAgain(batch)


def _webhooksOf(event: Event) -> list[str]:
    ids = event.extensions.get(GIVEN_UP_BY, "").split(",")
    return [each for each in ids if len(each) == _ID_LENGTH]


def isGivenUpForGood(event: Event, subscriptionId: str) -> bool:
    """
    Whether an event has no further dead letter: it is one that comes back to the webhook which has
    given it up before, or of too many webhooks. So webhooks that are sent the dead letters of each
    other come to an end.
    """
    webhooks = _webhooksOf(event)
    return subscriptionId in webhooks or len(webhooks) >= MAX_WEBHOOKS


def makeDeadLetter(
    event: Event, group: str, topic: str, subscriptionId: str, attempts: int, reason: str
) -> Publication:
    """
    The dead letter of an event: the same content and extensions, and more extensions that say
    where it is from. Where there is no room for all, the extensions of the event but its tag are
    left out: the event is in the log, by its id.

    @param topic: where it is published.
    @param attempts: how often the event was sent.
    @param reason: what came of the last attempt.
    """
    why = {
        "svc-reason": reason[:MAX_REASON],
        "svc-attempts": str(attempts),
        "svc-original-id": str(event.eventId),
        "svc-original-topic": event.topic,
        "svc-subscription-id": subscriptionId,
        GIVEN_UP_BY: ",".join([*_webhooksOf(event), subscriptionId]),
    }
    # An earlier release has let names in that are reserved now.
    kept = {key: text for key, text in event.extensions.items() if key not in RESERVED_NAMES}
    extensions = {**kept, **why}
    if _size(extensions) > MAX_EXTENSIONS_SIZE:
        tag = {TAG: event.extensions[TAG]} if TAG in event.extensions else {}
        extensions = {**tag, **why}
        if _size(extensions) > MAX_EXTENSIONS_SIZE:
            extensions = why
    return Publication(groupId=group, topic=topic, content=event.content, extensions=extensions)


def _size(extensions: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in extensions.items())


def checkOptions(record: WebhookRecord, secrets: Secrets) -> None:
    """
    Check that options fit together, and that the account may use the names that they have.

    @raise ParameterInvalid: they do not.
    """
    if record.secret and not secrets.mayUse(record.secret, record.account):
        raise ParameterInvalid("secret: the operator has set no such secret for this account")
    if record.batch and record.format is EventFormat.BINARY_CLOUD_EVENTS:
        raise ParameterInvalid(
            "format: cloudevents-binary has one event in a request; with batch use cloudevents"
        )
    if not record.certificate:
        return
    if not record.url.startswith("https:"):
        raise ParameterInvalid("certificate: it needs a url with https")
    allowed = secrets.certificatesOf(record.account)
    if record.certificate not in allowed:
        names = ", ".join(sorted(allowed)) or "none"
        raise ParameterInvalid(f"certificate: those that this account may use are {names}")


class TargetChecker:
    """
    Checks the hosts of URLs. Connections check the addresses again.
    """

    def __init__(
        self, resolver: IHostnameResolver, settings: WebhookSettings, clock: IReactorTime
    ) -> None:
        self._resolver = resolver
        self._settings = settings
        self._clock = clock
        self._lookups = 0

    async def check(self, target: WebhookTarget) -> None:
        """
        Check a target before a webhook is made.

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
            return await found.addTimeout(self._settings.timeout, self._clock)
        except TimeoutError:
            return False
        finally:
            self._lookups -= 1
