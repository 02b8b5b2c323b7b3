"""
The audit trail: log-ins, refusals, operator calls and reloads as events of a topic.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ..errors import BrokerError
from ..interfaces import Action, ILedger, Submission
from ..model import TAG, Execution, OpenTopic, PublishEvent, Receipt, Request

LOGIN: Final = "login"
"""A client has logged in, or tried to."""
REFUSAL: Final = "refusal"
"""Something was not granted."""
QUOTA: Final = "quota"
"""An account was over a quota."""
OPERATOR: Final = "operator"
"""An operator call was made."""
RELOAD: Final = "reload"
"""Accounts and the rest that may change were read again."""
LOST: Final = "lost"
"""Records could not be written."""

SUCCESS: Final = "success"
FAILURE: Final = "failure"

HTTP: Final = "http"

PERIOD: Final = 10.0
"""The time for which repetitions are counted before the count is written, in seconds."""

MAX_SINGLE: Final = 100
"""The number of records of a kind that are written at once in a L{PERIOD}, and of counts. An attack
from any number of addresses adds no more to the log; the rest is one count."""

MAX_PENDING: Final = 1000
"""The number of records that may wait for the ledgers. Further ones are lost."""

LOGIN_MEMORY: Final = 3600.0
"""The time for which a log-in by HTTP, which sends the credentials with each request, is written
once for an
account and address, in seconds."""

MAX_LOGINS: Final = 10_000
"""The number of such log-ins that are remembered."""


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The content of an event of the audit topic, as JSON. What does not apply is left out.

    @ivar time: when it was written: milliseconds since the epoch.
    @ivar what: L{LOGIN}, L{REFUSAL}, L{QUOTA}, L{OPERATOR}, L{RELOAD} or L{LOST}.
    @ivar outcome: L{SUCCESS} or L{FAILURE}.
    @ivar account: the name of an account that exists.
    @ivar address: the client's IP address.
    @ivar carrier: L{HTTP}, C{mqtt} or C{stomp}.
    @ivar group: the group's id.
    @ivar action: the action that was not granted. Where nothing is granted in the group that was
        named, there is neither an action nor a group.
    @ivar topic: the topic, or the filter, for which it was not granted.
    @ivar quota: the quota that was used up.
    @ivar call: the name of an operator call.
    @ivar error: the code of the error of a failure.
    @ivar count: how many more there were since the record before. Only a count has it.
    @ivar others: whether the count is of all that were not written or counted singly.
    """

    time: int
    what: str
    outcome: str = ""
    account: str = ""
    address: str = ""
    carrier: str = ""
    group: str = ""
    action: str = ""
    topic: str = ""
    quota: str = ""
    call: str = ""
    error: int = 0
    count: int = 0
    others: bool = False


class _Kind(NamedTuple):
    """Records that share a bound."""

    what: str
    outcome: str
    group: str


class _Key(NamedTuple):
    """Records that are counted together."""

    kind: _Kind
    account: str
    address: str
    carrier: str
    quota: str


class AuditTrail:
    """
    Publishes records to the audit topic. Those of a group go to the group's log, all others to that
    of the first group.

    Clients never wait for it, and no call fails by it. What is repeated is counted, so that a storm
    of refusals or of failing log-ins adds little to the log. Records that the ledger refuses are
    counted too, and the count is written when it takes records again.
    """

    _log = Logger()

    def __init__(
        self,
        topic: str,
        ledgers: Mapping[str, ILedger],
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        """
        @param topic: the audit topic.
        @param ledgers: the ledgers by the id of their group, in the operator's order.
        @param now: the wall clock: seconds since the epoch.
        """
        self._topic = topic
        self._ledgers = ledgers
        self._first = next(iter(ledgers))
        self._clock = clock
        self._now = now
        self._counts: dict[_Key, int] = {}
        self._others: Counter[_Kind] = Counter()
        self._single: Counter[_Kind] = Counter()
        self._logins: OrderedDict[_Key, float] = OrderedDict()
        self._pending = 0
        self._lost = 0
        self._isLosing = False
        self._call: IDelayedCall | None = None
        self._isStopped = False

    def stop(self) -> None:
        """Write the counts, and nothing after them. The ledgers still run."""
        self._isStopped = True
        if self._call is not None:
            self._call.cancel()
            self._sumUp()

    def loggedIn(self, account: str, address: str, carrier: str) -> None:
        """
        A client has logged in.

        @param address: its IP address; empty where it has none.
        @param carrier: L{HTTP}, C{mqtt} or C{stomp}.
        """
        self._add(LOGIN, SUCCESS, account=account, address=address, carrier=carrier)

    def loginFailed(self, account: str, address: str, carrier: str, error: BrokerError) -> None:
        """
        A client was not logged in.

        @param account: the account that it named, where there is such an account; else empty. A
            password that was typed in the place of a name must not get into the log.
        """
        self._add(
            LOGIN, FAILURE, account=account, address=address, carrier=carrier, error=error.code
        )

    def refused(self, account: str, action: Action | None, group: str, topic: str) -> None:
        """
        Something was not granted.

        @param action: C{None} where nothing is granted in the group that was named.
        @param group: empty then, so that the logs do not show whether there is one.
        """
        asked = "" if action is None else action.value
        self._add(REFUSAL, account=account, group=group, action=asked, topic=topic)

    def exceeded(self, account: str, quota: str) -> None:
        """Something was refused by a quota."""
        self._add(QUOTA, account=account, quota=quota)

    def operatorCalled(
        self, account: str, group: str, call: str, error: BrokerError | None
    ) -> None:
        """
        An operator call was made.

        @param account: empty for an operator of this machine.
        @param group: empty where the call named a group that there is not.
        @param call: its name.
        @param error: why it has failed; C{None} where it has not.
        """
        outcome, code = (SUCCESS, 0) if error is None else (FAILURE, error.code)
        self._add(OPERATOR, outcome, account=account, group=group, call=call, error=code)

    def reloaded(self, isGood: bool) -> None:
        """Accounts and the rest that may change were read again."""
        self._add(RELOAD, SUCCESS if isGood else FAILURE)

    def _add(
        self,
        what: str,
        outcome: str = "",
        *,
        account: str = "",
        address: str = "",
        carrier: str = "",
        group: str = "",
        quota: str = "",
        **details: Any,
    ) -> None:
        """
        Write a record, or count it. Never fails. For the parameters see L{AuditRecord}.
        """
        if self._isStopped:
            return
        kind = _Kind(what, outcome, group)
        key = _Key(kind, account, address, carrier, quota)
        if carrier == HTTP and outcome == SUCCESS and self._isRepeated(key):
            return
        if key in self._counts:
            self._counts[key] += 1
        elif self._single[kind] >= MAX_SINGLE:
            self._others[kind] += 1
        else:
            self._single[kind] += 1
            # Each operator call and reload matters.
            if what not in (OPERATOR, RELOAD):
                self._counts[key] = 0
            self._write(_record(self._now(), key, **details))
        self._schedule()

    def _isRepeated(self, key: _Key) -> bool:
        """Whether a log-in was written a short time ago."""
        now, before = self._clock.seconds(), self._logins.get(key)
        # A clock that was set back does not make it a long time.
        if before is not None and 0 <= now - before < LOGIN_MEMORY:
            return True
        self._logins[key] = now
        self._logins.move_to_end(key)
        if len(self._logins) > MAX_LOGINS:
            self._logins.popitem(last=False)
        return False

    def _schedule(self) -> None:
        if self._call is None and not self._isStopped:
            self._call = self._clock.callLater(PERIOD, self._sumUp)

    def _sumUp(self) -> None:
        """Write the counts of a period. Refusals that continue are counted in the next one, too."""
        self._call = None
        counts, self._counts = self._counts, {}
        others, self._others = self._others, Counter()
        self._single.clear()
        for key, count in counts.items():
            if count:
                self._counts[key] = 0
                self._single[key.kind] += 1
                self._write(_record(self._now(), key, count=count))
        for kind, count in others.items():
            self._write(_record(self._now(), _Key(kind, "", "", "", ""), count=count, others=True))
        if self._lost:
            lost, self._lost = self._lost, 0
            self._write(AuditRecord(time=int(self._now() * 1000), what=LOST, count=lost))
        if self._counts or self._lost:
            self._schedule()

    def _write(self, record: AuditRecord) -> None:
        if self._pending >= MAX_PENDING:
            self._lose(record)
            return
        ledger = self._ledgers.get(record.group) or self._ledgers[self._first]
        requests: list[Request] = [
            PublishEvent(
                topic=self._topic,
                content=msgspec.json.encode(record),
                extensions={TAG: record.what},
            )
        ]
        try:
            state = ledger.topicState(self._topic)
            if state is None or not state.isOpen:
                requests.insert(0, OpenTopic(topic=self._topic))
            submission = ledger.submitMany(requests)
        except BrokerError:
            self._lose(record)
        except Exception:
            self._log.failure("An audit record could not be submitted")
            self._lose(record)
        else:
            self._pending += 1
            submission.done.addCallback(self._written, record)

    def _written(self, submission: Submission, record: AuditRecord) -> None:
        self._pending -= 1
        outcomes: Sequence[Receipt | BrokerError | None] = submission.outcomes
        outcome = outcomes[-1]
        if isinstance(outcome, Receipt) and outcome.execution is Execution.DONE:
            self._isLosing = False
        else:
            self._lose(record)

    def _lose(self, record: AuditRecord) -> None:
        self._lost += record.count or 1
        if not self._isLosing:
            self._isLosing = True
            self._log.error(
                "Audit records are lost, because the ledger of group {group} does not take them; "
                "how many is written when it does",
                group=record.group or self._first,
            )
        self._schedule()


def _record(now: float, key: _Key, **details: Any) -> AuditRecord:
    kind = key.kind
    return AuditRecord(
        time=int(now * 1000),
        what=kind.what,
        outcome=kind.outcome,
        account=key.account,
        address=key.address,
        carrier=key.carrier,
        group=kind.group,
        quota=key.quota,
        **details,
    )
