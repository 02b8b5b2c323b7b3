"""
The calls of the interface: the use cases of clients, those of operators, and what features answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from twisted.internet.defer import Deferred, succeed

from ..access import Access, AuditTrail
from ..model import ConfigurationReport, Disk, InterfaceType, ReloadDifference
from ..net.alarms import Alarms
from ..net.history import MeasureHistory
from ..version import VersionRecord
from ._administration import AccountQueries, Administration
from ._broker import Broker
from ._collaborators import IJobs, IRetention, IWebhooks
from ._eventerasure import EventErasing
from ._eventholds import EventHolding
from ._operator import ClientConnection, Operator
from ._proving import Proving
from ._topicauthors import TopicAuthors
from .find import EventSearch
from .transparency import Transparency

Answers = Mapping[Any, Any]
"""
The objects of features that answer calls, by interface or class: L{IWebhooks}, L{Transparency}, and
by L{InterfaceType} an L{IDurableSubscriptions<svcbroker.broker.IDurableSubscriptions>}.
"""


class Calls:
    """
    The objects that answer the calls of the interface. Made when all features are made.

    @ivar broker: the use cases of clients.
    @ivar answers: what features answer.
    @ivar accounts: what tells of accounts and their grants.
    @ivar admin: what operators may ask.
    @ivar operator: what operators may change.
    @ivar erasing: what erases events, for operators.
    @ivar holding: what keeps events from being erased.
    @ivar proving: what proves something.
    @ivar search: what finds events by the index.
    @ivar authors: what changes the authors of topics.
    @ivar transparency: what serves the transparency logs.
    @ivar webhooks: who sends events to URLs.
    @ivar audit: records operator calls; C{None} where nothing is recorded.
    """

    def __init__(
        self,
        broker: Broker,
        answers: Answers,
        *,
        nodeAddress: str,
        version: VersionRecord,
        hasFaults: bool = False,
        access: Access | None = None,
        audit: AuditTrail | None = None,
        reload: Callable[[], Deferred[Sequence[str]]] = lambda: succeed(()),
        preview: Callable[[], Deferred[ReloadDifference]] | None = None,
        configuration: Callable[[], ConfigurationReport] | None = None,
        metadataLoss: Callable[[], str] = lambda: "",
        measureDisk: Callable[[], Deferred[Disk | None]] = lambda: succeed(None),
        connections: Callable[[], Iterable[ClientConnection]] = tuple,
        alarms: Alarms | None = None,
        history: MeasureHistory | None = None,
    ) -> None:
        """
        @param nodeAddress: what this node is called, C{host:port}.
        @param version: what C{getVersion} tells.
        @param hasFaults: whether operators may make faults.
        @param access: knows the accounts; C{None} where there are none.
        @param audit: records the operator calls.
        @param reload: reads accounts, secrets and certificates again; gives a line for each file
            that cannot be used.
        @param preview: tells what that would change; C{None} where the broker is not configured by
            settings.
        @param configuration: tells all settings that are in force; C{None} where the broker is not
            configured by settings.
        @param metadataLoss: tells what the metadata store has lost, in one line.
        @param measureDisk: measures the disk of the data directory.
        @param connections: all connections of clients.
        @param alarms: what is wrong; C{None} where nothing looks.
        @param history: what was measured; C{None} where nothing is.
        """
        groups, timeouts, reserved = broker.groups, broker.timeouts, broker.limits.reservedTopics
        self.broker = broker
        self.answers = answers
        self.audit = audit
        self.webhooks: IWebhooks = answers[IWebhooks]
        self.admin = Administration(
            groups,
            timeouts,
            version=version,
            nodeAddress=nodeAddress,
            subscriptions=broker.subscriptions,
            listTopics=broker.list,
            work=broker.budgets.work,
            metadataLoss=metadataLoss,
            measureDisk=measureDisk,
            alarms=alarms,
            history=history,
        )
        self.accounts = AccountQueries(groups, access, reserved)
        self.operator = Operator(
            groups,
            timeouts,
            hasFaults=hasFaults,
            durable={each: answers[each] for each in InterfaceType if each in answers},
            reload=reload,
            preview=preview,
            configuration=configuration,
            connections=connections,
            jobs=answers.get(IJobs),
            retention=answers.get(IRetention),
            work=broker.budgets.work,
        )
        self.erasing = EventErasing(
            groups, timeouts, broker.budgets.work, broker.subscriptions, reserved
        )
        self.holding = EventHolding(groups, timeouts, broker.budgets.work)
        self.proving = Proving(groups, timeouts)
        self.search = answers.get(EventSearch) or EventSearch(groups, {})
        self.authors = TopicAuthors(groups, timeouts)
        self.transparency = answers.get(Transparency) or Transparency(
            *(groups, timeouts, self.proving, MappingProxyType({}), MappingProxyType({}))
        )
