"""
The alarms as a feature of the daemon: the conditions of the process, the disk, the clock, the
ledgers, log-ins and budgets. Those of other features are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed

from ..broker.features import Feature, RunningFeature, Services
from ..errors import BrokerError
from ..files import writeNew
from ..interfaces import ILedger, IMeasuredLedger
from ..model import Disk, Health
from ..net.alarms import Alarm, Condition, RecentCount
from ..net.bounds import Bound, Sizing, amountText
from ..net.deferreds import asDeferred
from ..net.findings import DAY, Level, date, span
from ..net.metrics import Metric, gauge
from ..net.settings import NoSettings
from .directory import measureDisk
from .ports import PortPlan

_RUN: Final = "{running} of {total} run, not: {names}"
_LACKS: Final = "it lacks {blocks} blocks; the original has answered {silence} ago"
_GAS: Final = "{balance} wei are left, for {batches} batches of the largest kind"
_FREE: Final = "{free} of {size} are free"
_ENOUGH: Final = "at the rate of the last day that is enough for {time}"
_EXPIRES: Final = "that of the port {port} expires on {date}"
_EXPIRED: Final = "that of the port {port} has expired on {date}"
_FORWARD: Final = "it has jumped forward by {time} while the broker ran"
_BACK: Final = "it has jumped back by {time} while the broker ran"
_EARLY: Final = "it is {time} before the latest block"
_LOGINS: Final = "{count} log-ins have failed in the last {minutes} minutes"
_BUDGET: Final = "{budget}: {count} refusals in the last {minutes} minutes"
_PUBLISHES: Final = "{count} publishes were refused in the last {minutes} minutes"
_STARTED: Final = "the broker was started again on {date}"

NOT_READY: Final = Condition(
    name="not-ready",
    level=Level.PROBLEM,
    title="A group makes no progress",
    meaning="Publishes to the group wait, and end in TIMEOUT. What was published is still read.",
    remedy="Do what the reason asks for: start nodes until a quorum runs, make room on the disk, "
    "or look at the engine and its log.",
    page="replicas",
)
NODE_DOWN: Final = Condition(
    name="node-down",
    level=Level.WARNING,
    title="A node does not run",
    meaning="The group goes on with the other nodes. It stops when so many are down that there is "
    "no quorum.",
    remedy="Start the node again: svcbroker net nodes shows each, svcbroker net fault start N "
    "starts one that was stopped on purpose.",
    page="replicas",
    phrases=(_RUN,),
)
COPY_FORKED: Final = Condition(
    name="copy-forked",
    level=Level.PROBLEM,
    title="A copy refuses what its original sends",
    meaning="The original has another history than the copy, or sends what does not hold. Nothing "
    "more is copied.",
    remedy="Keep both as they are, and compare their checkpoints; docs/replication says how to go "
    "on.",
)
COPY_BEHIND: Final = Condition(
    name="copy-behind",
    level=Level.WARNING,
    title="A copy is behind its original",
    meaning="What the copy lacks would be lost with the original.",
    remedy="Look at the network to the original, and at its health.",
    phrases=(_LACKS,),
)
GAS_LOW: Final = Condition(
    name="gas-low",
    level=Level.WARNING,
    title="Little money for gas",
    meaning="Without any, nothing can be published to the group. What was published is still read.",
    remedy="Send the account money: svcbroker net evm doctor tells its address.",
    phrases=(_GAS,),
)
DISK_FULL: Final = Condition(
    name="disk-full",
    level=Level.PROBLEM,
    title="The disk is full",
    meaning="On a full disk every publish is refused. Nothing that was acknowledged is lost, and "
    "the broker goes on by itself when there is room.",
    remedy="Make room on the disk of the data directory, or have old contents erased with "
    "--retain: see docs/sizing.",
    phrases=(_FREE, _ENOUGH),
)
DISK_FILLS_UP: Final = Condition(
    name="disk-fills-up",
    level=Level.WARNING,
    title="The disk fills up",
    meaning="Less than a tenth is free, or at the rate of the last day it is full in a day. Then "
    "every publish is refused.",
    remedy="Make room, move the data to a larger disk, or have old contents erased with --retain: "
    "see docs/sizing.",
    phrases=(_FREE, _ENOUGH),
)
CERTIFICATE_EXPIRES: Final = Condition(
    name="certificate-expires",
    level=Level.WARNING,
    title="A certificate expires soon",
    meaning="From then on clients refuse to connect to the port.",
    remedy="Renew its files. The broker reads them again by itself.",
    page="configuration",
    phrases=(_EXPIRES, _EXPIRED),
)
CLOCK_OFF: Final = Condition(
    name="clock-off",
    level=Level.WARNING,
    title="The clock is wrong",
    meaning="Times of events, tokens and certificates are checked against a wrong time.",
    remedy="Have the clock of the machine kept by NTP: timedatectl shows its state.",
    phrases=(_FORWARD, _BACK, _EARLY),
)
LOGINS_FAIL: Final = Condition(
    name="logins-fail",
    level=Level.WARNING,
    title="Many log-ins are refused",
    meaning="Somebody guesses passwords, or a client has an old one.",
    remedy="The topic $svc/audit tells names and addresses. Block the address, or give the client "
    "its new password.",
    page="accounts",
    phrases=(_LOGINS,),
)
BUDGET_USED_UP: Final = Condition(
    name="budget-used-up",
    level=Level.WARNING,
    title="A budget of memory is used up",
    meaning="Clients do not read what they ask for, or do not finish what they send, or connect "
    "and do not log in. They are refused; others are served.",
    remedy="Find the client among the connections. Where all mean well, raise max-unsent, or give "
    "the broker more memory.",
    page="subscriptions",
    phrases=(_BUDGET,),
)
OVERLOADED: Final = Condition(
    name="overloaded",
    level=Level.WARNING,
    title="Publishes are refused as there are too many",
    meaning="Clients publish more than the machine and its disk take.",
    remedy="Have clients publish less, or several events at once, or give the broker a faster "
    "disk: see docs/sizing.",
    phrases=(_PUBLISHES,),
)
UNCLEAN_STOP: Final = Condition(
    name="unclean-stop",
    level=Level.WARNING,
    title="The last stop was not in order",
    meaning="The process was killed, or the machine lost its power. What was acknowledged is in "
    "the log; answers that were under way were lost.",
    remedy="Find the reason with journalctl or dmesg. svcbroker chain audit DATA-DIR reads all "
    "chains. The alarm ends after a day.",
    phrases=(_STARTED,),
)

RUNNING: Final = ".running"
"""The name of the empty file in the data directory that is there while a daemon runs."""

LITTLE: Final = 500_000_000
"""Bytes below which a disk is said to be full: a start needs some room, too."""

FEW: Final = 0.1
"""The part of a disk below which it is said to fill up."""

EXPIRES_SOON: Final = 14 * DAY
"""Seconds before the end of a certificate at which it is told of."""

SILENT: Final = 120.0
"""Seconds without an answer of the original after which a copy is behind."""

BEHIND: Final = 1000
"""Blocks that a copy may lack."""

FEW_BATCHES: Final = 1000
"""Batches of the largest kind that an account on a chain can at least pay for."""

BATCH_GAS: Final = 5_000_000
"""The gas of a batch of the largest kind."""

RECENT: Final = 300.0
"""The seconds in which refusals are counted."""

MANY_LOGINS: Final = 20
"""Refused log-ins in L{RECENT} seconds that are told of."""

JUMP: Final = 10.0
"""Seconds by which the wall clock may move against the one that nobody sets."""

_HOUR: Final = 3600.0
_MAX_NODES: Final = 99


def healthAlarms(groups: Mapping[str, Health]) -> Iterator[Alarm]:
    """The groups that make no progress, as C{/readyz} tells."""
    for group, health in groups.items():
        if not health.isReady:
            yield Alarm(condition=NOT_READY, text=health.reason, group=group)


async def ledgerAlarms(ledgers: Mapping[str, ILedger]) -> Iterable[Alarm]:
    """
    The nodes that do not run, the copies that are behind or refuse, and the accounts on chains of
    others that have little money.
    """
    found: list[Alarm] = []
    for group, ledger in ledgers.items():
        measured: IMeasuredLedger | None = IMeasuredLedger(ledger, None)
        measures = None if measured is None else measured.measure()
        if measures is not None and measures.silence is not None:
            behind = measures.behind or 0
            if measures.refused:
                found.append(Alarm(condition=COPY_FORKED, text=measures.refused, group=group))
            elif measures.silence > SILENT or behind > BEHIND:
                text = _LACKS.format(blocks=f"{behind:,}", silence=span(measures.silence))
                found.append(Alarm(condition=COPY_BEHIND, text=text, group=group))
            continue
        chain = None if measures is None else measures.chain
        if chain is not None and chain.balance is not None:
            batches = chain.balance // (BATCH_GAS * chain.gasPrice) if chain.gasPrice else None
            if batches is not None and batches < FEW_BATCHES:
                text = _GAS.format(balance=chain.balance, batches=batches)
                found.append(Alarm(condition=GAS_LOW, text=text, group=group))
        try:
            page = await ledger.listNodes(0, _MAX_NODES)
        except BrokerError:
            continue  # Its health says why.
        down = [each.name or each.nodeId.hex()[:16] for each in page.items if not each.isActive]
        if down:
            running = page.total - len(down)
            text = _RUN.format(running=running, total=page.total, names=", ".join(down))
            found.append(Alarm(condition=NODE_DOWN, text=text, group=group))
    return found


@frozen
class DiskRoom:
    """
    The room on the disk of the data directory, and for how long it lasts.

    @ivar measure: measures the disk.
    @ivar oldest: how many seconds ago the free bytes were measured first in the last day, and what
        they were; C{None} where they were not.
    """

    measure: Callable[[], Deferred[Disk]]
    oldest: Callable[[], tuple[float, float] | None]

    @asDeferred
    async def alarms(self) -> Iterable[Alarm]:
        """See L{Source<svcbroker.net.alarms.Source>}."""
        disk = await self.measure()
        text = _FREE.format(free=amountText(disk.free), size=amountText(disk.size))
        left = self._secondsLeft(disk.free)
        if left is not None:
            text += f"; {_ENOUGH.format(time=span(left))}"
        if disk.free < LITTLE:
            return [Alarm(condition=DISK_FULL, text=text)]
        if disk.free < FEW * disk.size or (left is not None and left < DAY):
            return [Alarm(condition=DISK_FILLS_UP, text=text)]
        return []

    def _secondsLeft(self, free: int) -> float | None:
        """
        The seconds until it is full; C{None} where it does not fill, or was not looked at for an
        hour: what one test publishes is no rate.
        """
        age, then = self.oldest() or (0.0, 0.0)
        return free * age / (then - free) if then > free and age >= _HOUR else None


class ClockWatch:
    """
    Compares the wall clock with the clock that nobody sets, and with the latest blocks.
    """

    def __init__(
        self,
        now: Callable[[], float],
        steady: Callable[[], float],
        ledgers: Mapping[str, ILedger],
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        @param steady: the clock that nobody sets, in seconds.
        """
        self._now = now
        self._steady = steady
        self._ledgers = ledgers
        self._ahead = now() - steady()
        self._jumpedAt: float | None = None

    @asDeferred
    async def alarms(self) -> Iterable[Alarm]:
        """See L{Source<svcbroker.net.alarms.Source>}. A jump is told for an hour."""
        found = []
        at = self._steady()
        ahead = self._now() - at
        jump = ahead - self._ahead
        if abs(jump) > JUMP:
            self._jumpedAt = at if self._jumpedAt is None else self._jumpedAt
            if at - self._jumpedAt < _HOUR:
                text = (_FORWARD if jump > 0 else _BACK).format(time=span(abs(jump)))
                found.append(Alarm(condition=CLOCK_OFF, text=text))
        if self._jumpedAt is not None and (abs(jump) <= JUMP or at - self._jumpedAt >= _HOUR):
            self._ahead, self._jumpedAt = ahead, None
        for group, ledger in self._ledgers.items():
            try:
                blocks = (await ledger.listBlocks(0, 1)).items
            except BrokerError:
                continue
            early = blocks[0].timestamp / 1000 - self._now() if blocks else 0.0
            if early > JUMP:
                text = _EARLY.format(time=span(early))
                found.append(Alarm(condition=CLOCK_OFF, text=text, group=group))
        return found


def certificateAlarms(ports: Iterable[PortPlan], now: Callable[[], float]) -> Iterator[Alarm]:
    """The certificates of ports that expire soon, or have."""
    for port in ports:
        if port.certificates is not None:
            end = port.certificates.validUntil
            if end - now() < EXPIRES_SOON:
                words = _EXPIRES if end > now() else _EXPIRED
                text = words.format(port=port.name, date=date(end))
                yield Alarm(condition=CERTIFICATE_EXPIRES, text=text)


class AlarmFeature(RunningFeature):
    """
    Looks at all sources of alarms from time to time, the last of all features to start.
    """

    def __init__(self, options: NoSettings, services: Services) -> None:
        reactor, now = services.reactor, services.now
        self._services = services
        self._marker = services.dataDir / RUNNING
        self._isMarked = False
        self._uncleanUntil = 0.0
        self._failedLogins = RecentCount(reactor, RECENT)
        self._refused: dict[str, RecentCount] = {}
        self._overloaded = RecentCount(reactor, RECENT)
        disk = DiskRoom(
            lambda: services.runInThread(measureDisk, services.dataDir),
            lambda: services.history.oldest("free"),
        )
        ledgers = services.ledgers
        self._clockWatch = ClockWatch(now, services.steady, ledgers)
        for name, source in (
            ("nodes", lambda: Deferred.fromCoroutine(ledgerAlarms(ledgers))),
            ("disk", disk.alarms),
            ("clock", self._clockWatch.alarms),
            ("the process", self._ownAlarms),
        ):
            services.alarms.add(name, source)

    def _ownAlarms(self) -> Iterator[Alarm]:
        """The alarms of what is counted in this process."""
        services, minutes = self._services, round(RECENT / 60)
        logins = services.access.logins
        failed = sum(count for (_, outcome), count in logins.items() if outcome == "failed")
        recent = self._failedLogins.grown(failed)
        if recent > MANY_LOGINS:
            text = _LOGINS.format(count=round(recent), minutes=minutes)
            yield Alarm(condition=LOGINS_FAIL, text=text)
        for name, refused in services.budgets.refusals().items():
            counted = self._refused.setdefault(name, RecentCount(services.reactor, RECENT))
            recent = counted.grown(refused)
            if recent:
                text = _BUDGET.format(budget=name, count=round(recent), minutes=minutes)
                yield Alarm(condition=BUDGET_USED_UP, text=text)
        others = services.broker.meter.others
        recent = self._overloaded.grown(
            sum(count for (_, status), count in others.items() if status == "overloaded")
        )
        if recent:
            text = _PUBLISHES.format(count=round(recent), minutes=minutes)
            yield Alarm(condition=OVERLOADED, text=text)
        if services.now() < self._uncleanUntil:
            text = _STARTED.format(date=date(self._uncleanUntil - DAY))
            yield Alarm(condition=UNCLEAN_STOP, text=text)

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        alarms = self._services.alarms
        raised = {each.condition.name for each in alarms.raised}
        yield gauge(
            "svcbroker_alarm",
            "Whether something is wrong, by the name of the alarm.",
            ["name"],
            [((each.name,), each.name in raised) for each in alarms.conditions],
        )

    def start(self) -> Deferred[Any]:
        """Note that the daemon runs, and begin to look."""
        self._isMarked = True
        try:
            writeNew(self._marker, b"")
        except FileExistsError:
            self._uncleanUntil = self._services.now() + DAY
        self._services.alarms.start()
        return succeed(None)

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        self._services.alarms.stop()
        return succeed(None)

    def release(self) -> None:
        """Note that the stop was in order: the ledgers have stopped."""
        if self._isMarked:
            self._marker.unlink(missing_ok=True)


def alarmBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of the counts of the last minutes."""
    yield Bound(
        name="alarms",
        bytes=64 * 1024 * (1 + sizing.groups),
        how="what is wrong, and the counts of the last hour, one every five seconds",
        holders=[
            "svcbroker.net.alarms.RecentCount._counts",
        ],
    )


FEATURE: Final = Feature(
    name="alarms",
    make=AlarmFeature,
    bounds=alarmBounds,
    conditions=(
        *(NOT_READY, NODE_DOWN, COPY_FORKED, COPY_BEHIND, GAS_LOW, DISK_FULL, DISK_FILLS_UP),
        *(CERTIFICATE_EXPIRES, CLOCK_OFF, LOGINS_FAIL, BUDGET_USED_UP, OVERLOADED, UNCLEAN_STOP),
    ),
)
