"""
One webhook: its entry in the metadata store, its delivery, and what may be done with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from attrs import frozen
from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger

from ...access import ANYBODY, Access, Principal
from ...broker import Answer, MetadataStore, Publication, PublishPolicy, SendStatus
from ...broker.subscriptions import Holder, Subscriptions
from ...errors import BrokerError, NotAuthenticated, TransactionFailed, TransactionTimeout
from ...interfaces import Action, ISubscriber, ISubscription
from ...model import Event, Offset, Position, SubscribeRequest, WebhookStatus, eventSize
from ...net.deferreds import asDeferred
from .deadletters import isGivenUpForGood, makeDeadLetter
from .delivery import Delivery
from .records import KIND, WebhookRecord
from .sending import DeliveryContext
from .targets import Target

_POLICY: Final = PublishPolicy(carrier="webhook", opensTopics=True, mayBeEmpty=True)


class IPublisher(Protocol):
    """
    What webhooks ask of the broker: L{svcbroker.broker.Broker}.

    @ivar source: what the C{source} of CloudEvents begins with: the base path.
    """

    source: str

    def publish(
        self,
        principal: Principal,
        publications: Sequence[Publication],
        policy: PublishPolicy,
    ) -> Deferred[Sequence[Answer]]:
        """Publish dead letters."""

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
        target: Target,
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
        self.delivery = Delivery(
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
        """What keeps its position."""
        return Holder("webhook", self.subscriptionId, lambda: self.record.filters)

    # What its delivery asks for.

    def subscribe(
        self, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.sending.IDeliveryOwner>}."""
        try:
            principal = self._principal()
        except BrokerError as error:
            return fail(error)
        return self._context.subscriptions.subscribe(principal, request, subscriber)

    def keepFailed(self, position: Position, count: int) -> None:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.sending.IDeliveryOwner>}."""
        self.keep(replace(self.record, failed=(position.height, position.index, count)))

    @asDeferred
    async def publishDeadLetter(self, event: Event, attempts: int, reason: str) -> None:
        """See L{IDeliveryOwner<svcbroker.carriers.webhook.sending.IDeliveryOwner>}."""
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
        """How it is."""
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
