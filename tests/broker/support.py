"""
A broker on a clock, over memory ledgers that do what a test says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from zope.interface import implementer

from svcbroker.access import Access, Principal
from svcbroker.broker import (
    Answers,
    Broker,
    Calls,
    ISubscriptionDirectory,
    IWebhooks,
    Limits,
    ReadPage,
    ReadRequest,
    SendResult,
    makePublication,
)
from svcbroker.broker._proving import Proving
from svcbroker.broker.transparency import Transparency
from svcbroker.broker.transparency._cosigning import Witnessing
from svcbroker.broker.transparency._transparencylog import TransparencyLog
from svcbroker.errors import BrokerError, NoSuchCall
from svcbroker.model import EventId, SubscriptionRecord, WebhookKey, WebhookPage
from svcbroker.net.deferreds import asDeferred
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger
from svcbroker.version import VersionRecord

NODE = "127.0.0.1:8080"
MAX_CONTENT = 1000
TIMEOUT = 10.0


def connected(call: Callable[[Principal, Any, Any], Deferred[Any]]) -> Callable[..., Any]:
    """What makes a bound call by a connection."""
    return lambda principal, given: call(principal, given, StringTransport())


@implementer(ISubscriptionDirectory)
class FakeDirectory:
    """A directory of subscriptions that a test gives, which reads no events."""

    def __init__(self, *records: SubscriptionRecord) -> None:
        self.records = records

    def listSubscriptions(
        self, principal: Principal, group: str | None
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        return succeed([each for each in self.records if group in (None, each.group)])

    def readEvents(self, principal: Principal, request: ReadRequest) -> Deferred[ReadPage]:
        return fail(NoSuchCall())

    def reach(
        self, principal: Principal, groupId: str | None, eventId: EventId, remote: str
    ) -> Deferred[None]:
        return succeed(None)


class MemoryMetadataFile:
    """A file of the metadata store in memory, which outlives brokers."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], bytes] = {}

    def load(self) -> dict[tuple[str, str], bytes]:
        return dict(self.kept)

    def write(self, changes: dict[tuple[str, str], bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                self.kept.pop(key, None)
            else:
                self.kept[key] = value

    def close(self) -> None:
        """Nothing to close."""


@implementer(IWebhooks)
class FailingWebhooks:
    """Fails every call."""

    def __init__(self, error: BrokerError) -> None:
        self.error = error

    def subscribe(self, *args: Any, **kwargs: Any) -> Deferred[str]:
        return fail(self.error)

    def unSubscribe(self, principal: Principal, subscriptionId: str) -> Deferred[bool]:
        return fail(self.error)

    def listWebhooks(self, *args: Any, **kwargs: Any) -> Deferred[WebhookPage]:
        return fail(self.error)

    pauseWebhook = resumeWebhook = retryWebhook = unSubscribe

    def skipEvent(
        self, principal: Principal, subscriptionId: str, eventId: EventId
    ) -> Deferred[bool]:
        return fail(self.error)

    replayDeadLetter = skipEvent

    def publicKeys(self) -> Sequence[WebhookKey]:
        return ()

    def rotateKey(self, *args: Any) -> Deferred[Sequence[WebhookKey]]:
        return fail(self.error)


@frozen
class Fixture:
    """
    @ivar ledger: the ledger of group 1.
    @ivar second: the ledger of group 2.
    """

    clock: Clock
    ledger: ScriptedLedger
    second: ScriptedLedger
    broker: Broker
    calls: Calls


def publishOne(
    broker: Broker,
    principal: Principal,
    groupId: str | None,
    topic: str,
    content: bytes,
    extensions: Mapping[str, str],
    *signed: Any,
    **more: Any,
) -> Deferred[SendResult]:
    """
    Publish an event as REST does.

    @param signed: author, signature and time.
    @param more: further parameters of a publish.
    @return: fires with the result; fails with the error of an event that has none.
    """

    @asDeferred
    async def publish() -> SendResult:
        publication = makePublication(topic, groupId, content, extensions, *signed, **more)
        [outcome] = await broker.publish(principal, (publication,))
        if isinstance(outcome, BrokerError):
            raise outcome
        assert isinstance(outcome, SendResult)
        return outcome

    return publish()


def idOf(result: SendResult) -> EventId:
    """The id of a published event."""
    assert result.eventId is not None
    return EventId.parse(result.eventId)


def makeCalls(
    broker: Broker, answers: Answers | None = None, nodeAddress: str = NODE, **given: Any
) -> Calls:
    """
    The calls of a broker.

    @param answers: what features answer; webhooks fail unless they are among it.
    @param given: further arguments of L{Calls}.
    """
    return Calls(
        broker,
        {IWebhooks: FailingWebhooks(NoSuchCall()), **(answers or {})},
        nodeAddress=nodeAddress,
        version=VersionRecord(version="9.8.7"),
        **given,
    )


def makeFixture(
    subscriptions: ISubscriptionDirectory | None = None,
    maxContent: int = MAX_CONTENT,
    ledgers: Mapping[str, Any] | None = None,
    hasFaults: bool = False,
    reservedTopics: Collection[str] = (),
    access: Callable[[Clock], Access] | None = None,
    logs: Mapping[str, TransparencyLog] | None = None,
    witnessings: Mapping[str, Witnessing] | None = None,
    answers: Answers | None = None,
    callAfterReads: Callable[[Callable[[], object]], object] | None = None,
    **given: Any,
) -> Fixture:
    """
    A broker of two groups.

    @param ledgers: what stands in the place of these groups' ledgers.
    @param reservedTopics: see L{Limits}.
    @param access: makes what knows the accounts.
    @param answers: what features answer.
    @param callAfterReads: makes calls at the end of a turn of the reactor, as the daemon's does.
    @param given: further arguments of L{Calls}.
    """
    clock: Any = Clock()
    clock.advance(1_700_000_000)
    if callAfterReads is not None:
        clock.callAfterReads = callAfterReads
    ledger, second = (
        ScriptedLedger(memoryLedger(clock, group, maxContent)) for group in ("1", "2")
    )
    broker = Broker(
        {"1": ledger, "2": second, **(ledgers or {})},
        clock,
        Limits(
            maxContent=maxContent,
            chainTimeout=TIMEOUT,
            reservedTopics=frozenset(reservedTopics),
        ),
        FakeDirectory() if subscriptions is None else subscriptions,
    )
    groups, timeouts = broker.groups, broker.timeouts
    serving = Transparency(
        *(groups, timeouts, Proving(groups, timeouts), logs or {}, witnessings or {})
    )
    calls = makeCalls(
        broker,
        {Transparency: serving, **(answers or {})},
        hasFaults=hasFaults,
        access=None if access is None else access(clock),
        **given,
    )
    return Fixture(clock, ledger, second, broker, calls)
