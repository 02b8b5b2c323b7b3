"""
C{svcbroker top}: a live view of a broker, from samples of two scrapes of the metrics and from
operator calls.
"""

from __future__ import annotations

import math
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import click
from attrs import asdict, evolve, field, frozen

from ..histogram import quantile
from ..net.history import DAY
from .arguments import Decimal, Whole, jsonOption, options
from .clientcommand import connectedCommand
from .operatorcommand import Daemon, operated, operatorCommand
from .terminal import (
    CommandError,
    Console,
    counted,
    isPlain,
    quoted,
    showRecord,
    showTable,
    timeText,
)

SHOWN: Final = 10
"""The most subscriptions and webhooks that are kept: those that are furthest behind."""
PAUSE: Final = 5.0
"""Seconds between two lists of webhooks."""

_PAGE: Final = 1000
_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

Labels = Mapping[str, str]

Buckets = Sequence[tuple[float, float]]
"""The upper bounds of a histogram's buckets, and how many values are not above each."""


class Scrape:
    """
    The metrics at one time.
    """

    def __init__(self, text: str) -> None:
        """
        @param text: as Prometheus has it.
        """
        self._values: dict[str, list[tuple[Labels, float]]] = {}
        for line in text.splitlines():
            found = _LINE.fullmatch(line)
            if found is not None:
                labels = dict(_LABEL.findall(found[2] or ""))
                self._values.setdefault(found[1], []).append((labels, float(found[3])))

    def all(self, name: str, **wanted: str) -> Iterator[tuple[Labels, float]]:
        """The labels and values of a metric that has these labels, among others."""
        for labels, value in self._values.get(name, ()):
            if wanted.items() <= labels.items():
                yield labels, value

    def value(self, name: str, **wanted: str) -> float:
        """The sum of the values of a metric; 0 where there are none."""
        return sum(value for _, value in self.all(name, **wanted))

    def buckets(self, name: str, **wanted: str) -> Buckets:
        """The buckets of a histogram."""
        found = self.all(f"{name}_bucket", **wanted)
        return sorted((float(labels["le"]), value) for labels, value in found)


@frozen(kw_only=True)
class GroupSample:
    """
    A group. Rates, intervals and latencies are those since the sample before; C{None} where nothing
    has happened. Times are in seconds.

    @ivar blockAge: the age of the last block; C{None} without one.
    @ivar blockInterval: the median time between two blocks, from the buckets of a histogram.
    @ivar p50: the median of how long publishes waited, likewise.
    @ivar waiting: how many transactions wait, with so many bytes, the oldest one for so long.
    @ivar nodes: the state of each node, where they are known.
    """

    id: str
    isReady: bool
    height: int
    blockAge: float | None
    eventRate: float
    blockRate: float
    blockInterval: float | None
    p50: float | None
    p99: float | None
    waiting: int
    waitingBytes: int
    oldestWaiting: float
    nodes: Sequence[str]
    running: int
    total: int


@frozen(kw_only=True)
class Behind:
    """
    A durable subscription for which events wait.

    @ivar kind: what it is: of STOMP, MQTT or a webhook.
    @ivar events: how many wait.
    @ivar age: that of the oldest one, in seconds.
    """

    group: str
    kind: str
    name: str
    events: int
    age: float


@frozen(kw_only=True)
class Sample:
    """
    A daemon at one time.

    @ivar time: in seconds since the epoch.
    @ivar cpu: the share of a processor that it used since the sample before.
    @ivar memory: bytes.
    @ivar connections: how many there are, by carrier.
    @ivar refusals: publishes a second that did not succeed.
    @ivar subscriptions: durable subscriptions for which events wait, the longest first.
    @ivar webhooks: webhooks that fail or are paused, as operators list them.
    @ivar remarks: what could not be asked, and why.
    """

    time: float
    url: str
    version: str
    cpu: float | None
    memory: int
    connections: Mapping[str, int]
    refusals: float
    groups: Sequence[GroupSample]
    subscriptions: Sequence[Behind] = ()
    webhooks: Sequence[Mapping[str, Any]] = ()
    remarks: Sequence[str] = field(factory=tuple)


class Sampler:
    """
    Asks a daemon, and compares what it answers with what it answered before.
    """

    def __init__(self, daemon: Daemon, metrics: str | None, now: Callable[[], float]) -> None:
        """
        Ask it for the first time.

        @param metrics: the URL of the metrics; C{None} for C{/metrics} at the daemon's port.
        @param now: the time in seconds since the epoch.
        @raise CommandError: it does not answer with metrics.
        """
        self._daemon, self._url, self._now = daemon, metrics, now
        self._before, self._time = self._scrape(), now()
        self._asked = float("-inf")
        self._webhooks: list[Mapping[str, Any]] = []
        self._remarks: list[str] = []

    def _scrape(self) -> Scrape:
        return Scrape(self._daemon.metrics(self._url))

    def sample(self) -> Sample:
        """
        Ask it again.

        @raise CommandError: it does not answer with metrics.
        """
        before, then = self._before, self._time
        scrape, now = self._scrape(), self._now()
        self._before, self._time = scrape, now
        elapsed = max(now - then, 1e-6)
        ids = [labels["group"] for labels, _ in scrape.all("svcbroker_ledger_height")]
        if self._daemon.group is not None:
            ids = [each for each in ids if each == self._daemon.group]
        if now - self._asked >= PAUSE:
            self._asked, self._remarks = now, []
            self._listWebhooks(ids)
        cpu = scrape.value("process_cpu_seconds_total") - before.value("process_cpu_seconds_total")
        info = next(scrape.all("svcbroker_build_info"), ({}, 0.0))[0]
        refused = _notSuccessful(scrape) - _notSuccessful(before)
        return Sample(
            time=now,
            url=self._daemon.url,
            version=info.get("version", ""),
            cpu=max(0.0, cpu / elapsed),
            memory=int(scrape.value("process_resident_memory_bytes")),
            connections={
                labels["carrier"]: int(value)
                for labels, value in scrape.all("svcbroker_connections")
            },
            refusals=max(0.0, refused / elapsed),
            groups=[self._group(id, before, scrape, now, elapsed) for id in ids],
            subscriptions=self._behind(scrape, ids),
            webhooks=self._webhooks,
            remarks=self._remarks,
        )

    def _group(
        self, id: str, before: Scrape, scrape: Scrape, now: float, elapsed: float
    ) -> GroupSample:
        def grown(name: str) -> float:
            # A daemon that was started again begins with 0.
            return max(0.0, scrape.value(name, group=id) - before.value(name, group=id))

        def since(name: str, share: float) -> float | None:
            return quantile(before.buckets(name, group=id), scrape.buckets(name, group=id), share)

        last = scrape.value("svcbroker_ledger_last_block_timestamp_seconds", group=id)
        running = int(scrape.value("svcbroker_ledger_replicas_running", group=id))
        return GroupSample(
            id=id,
            isReady=scrape.value("svcbroker_ledger_ready", group=id) == 1,
            height=int(scrape.value("svcbroker_ledger_height", group=id)),
            blockAge=max(0.0, now - last) if last else None,
            eventRate=grown("svcbroker_ledger_block_events_sum") / elapsed,
            blockRate=grown("svcbroker_ledger_block_events_count") / elapsed,
            blockInterval=since("svcbroker_ledger_block_interval_seconds", 0.5),
            p50=since("svcbroker_ledger_latency_seconds", 0.5),
            p99=since("svcbroker_ledger_latency_seconds", 0.99),
            waiting=int(scrape.value("svcbroker_ledger_waiting_transactions", group=id)),
            waitingBytes=int(scrape.value("svcbroker_ledger_waiting_bytes", group=id)),
            oldestWaiting=scrape.value("svcbroker_ledger_oldest_waiting_seconds", group=id),
            nodes=self._nodes(id),
            running=running,
            total=int(scrape.value("svcbroker_ledger_replicas", group=id)),
        )

    def _nodes(self, id: str) -> Sequence[str]:
        try:
            page = self._daemon.query("admin/node/nodeList", groupId=id, pageSize="99")
        except CommandError:
            return ()
        return ["runs" if node["nodeActive"] == 1 else "stopped" for node in page["pageData"]]

    def _behind(self, scrape: Scrape, ids: Sequence[str]) -> Sequence[Behind]:
        """The subscriptions for which events wait. The daemon names those that wait longest."""
        ages = {
            tuple(labels.values()): age
            for labels, age in scrape.all("svcbroker_subscription_oldest_seconds")
        }
        found = [
            Behind(
                group=labels["group"],
                kind=labels["kind"],
                name=labels["name"],
                events=int(events),
                age=ages.get(tuple(labels.values()), 0.0),
            )
            for labels, events in scrape.all("svcbroker_subscription_backlog_events")
            if labels["group"] in ids
        ]
        return sorted(found, key=lambda each: -each.age)[:SHOWN]

    def _listWebhooks(self, ids: Sequence[str]) -> None:
        """Ask for webhooks that fail or are paused."""
        try:
            found: list[Mapping[str, Any]] = [
                each
                for id in ids
                for each in self._daemon.call("webhooks/list", groupId=id, limit=_PAGE)["webhooks"]
                if each["paused"] or each["failures"]
            ]
        except CommandError as error:
            self._remarks = [f"webhooks: {error}"]
            return
        found.sort(key=lambda each: -(each["oldestEventAge"] or 0))
        self._webhooks = found[:SHOWN]


def _notSuccessful(scrape: Scrape) -> float:
    name = "svcbroker_publishes_total"
    return scrape.value(name) - scrape.value(name, status="success")


_COLUMNS: Final = (
    *("group", "height", "events/s", "blocks/s", "interval", "p50", "p99", "pool", "nodes"),
    "last block",
)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    if value < 1:
        return f"{value * 1000:.1f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"


def _bytes(value: int) -> str:
    size, unit = float(value), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}"


def _cells(group: GroupSample) -> Sequence[str]:
    pool = "empty"
    if group.waiting:
        pool = f"{group.waiting}, {_bytes(group.waitingBytes)}, {_seconds(group.oldestWaiting)}"
    nodes = f"{group.running}/{group.total}" if group.total else "-"
    stopped = [str(index) for index, state in enumerate(group.nodes) if state != "runs"]
    if stopped:
        nodes += f", stopped: {','.join(stopped)}"
    return (
        group.id if group.isReady else f"{group.id} (not ready)",
        f"{group.height:,}",
        f"{group.eventRate:,.0f}",
        f"{group.blockRate:,.1f}",
        _seconds(group.blockInterval),
        _seconds(group.p50),
        _seconds(group.p99),
        pool,
        nodes,
        "none" if group.blockAge is None else f"{_seconds(group.blockAge)} ago",
    )


def _head(sample: Sample) -> str:
    connections = ", ".join(f"{count} {name}" for name, count in sample.connections.items())
    cpu = "" if sample.cpu is None else f"  CPU {sample.cpu:.0%}"
    refusals = f"  {sample.refusals:,.0f} publishes/s refused" if sample.refusals else ""
    return (
        f"{sample.url}  {sample.version}  {timeText(int(sample.time * 1000))}  "
        f"connections: {connections or '-'}{cpu}  {_bytes(sample.memory)}{refusals}"
    )


def lines(sample: Sample) -> Iterator[str]:
    """A sample in lines: one for each group, each subscription that is behind, and each webhook."""
    yield _head(sample)
    for group in sample.groups:
        words = zip(_COLUMNS, _cells(group), strict=True)
        yield "  ".join(f"{name} {cell}" for name, cell in words)
    for each in sample.subscriptions:
        yield (
            f"{each.kind} {quoted(each.name)}: {counted(each.events, 'event')} wait, "
            f"the oldest for {_seconds(each.age)}"
        )
    for webhook in sample.webhooks:
        yield f"webhook {webhook['subscriptionId']}: {_problem(webhook)}"
    yield from sample.remarks


def _problem(webhook: Any) -> str:
    if webhook["paused"]:
        return "paused"
    return f"{counted(webhook['failures'], 'failure')}: {quoted(webhook['lastError'])}"


def render(sample: Sample) -> Any:
    """A sample as rich shows it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        made = Table(*columns, expand=True, header_style="bold")
        for row in rows:
            made.add_row(*map(Text, row))
        return made

    parts: list[Any] = [
        Text(_head(sample)),
        table(_COLUMNS, [_cells(group) for group in sample.groups]),
    ]
    if sample.subscriptions:
        rows = [
            (each.kind, quoted(each.name), f"{each.events:,}", _seconds(each.age))
            for each in sample.subscriptions
        ]
        parts.append(table(("subscription", "name", "events wait", "the oldest for"), rows))
    if sample.webhooks:
        hooks = [
            (each["subscriptionId"], quoted(each["receiver"]), _problem(each))
            for each in sample.webhooks
        ]
        parts.append(table(("webhook", "receiver", "problem"), hooks))
    parts += [Text(remark, style="dim") for remark in sample.remarks]
    parts.append(Text("q: quit", style="dim"))
    return Group(*parts)


HOUR: Final = 3600
"""The seconds of history that are shown where no number is given."""

_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDTH: Final = 60

_UNITS: Final[Mapping[str, tuple[str, Callable[[Any], str]]]] = {
    "events": ("events/s", lambda value: f"{value:,.1f}"),
    "refusals": ("refusals/s", lambda value: f"{value:,.1f}"),
    "p50": ("latency p50", _seconds),
    "p99": ("latency p99", _seconds),
    "waiting": ("waiting", lambda value: f"{value:,.0f}"),
    "connections": ("connections", lambda value: f"{value:,.0f}"),
    "stored": ("stored", _bytes),
    "free": ("disk free", _bytes),
}
"""The titles of the series of the history, and how their values are written."""


def historyLines(told: Mapping[str, Any]) -> Iterator[str]:
    """A line for each series: the latest value, the range of all, and a bar for each step."""
    end = timeText(told["end"])
    yield f"until {end}, a bar for each {_seconds(max(1, _joined(told)) * told['step'])}"
    for name, values in told["series"].items():
        title, write = _UNITS.get(name, (name, str))
        known = [each for each in values if each is not None]
        if not known:
            yield f"{title:12} -"
            continue
        latest = "-" if values[-1] is None else write(values[-1])
        bars = _bars(values, max(1, _joined(told)))
        range = f"{write(min(known))} to {write(max(known))}"
        yield f"{title:12} {latest:>10}  {range:20}  {bars}"


def _joined(told: Mapping[str, Any]) -> int:
    """The number of values in a bar."""
    return math.ceil(max(map(len, told["series"].values()), default=0) / _WIDTH)


def _bars(values: Sequence[float | None], joined: int) -> str:
    """The largest value of each few, between 0 and the largest of all; a gap where none is."""
    most = max((each for each in values if each is not None), default=0.0) or 1.0
    bars = []
    for start in range(0, len(values), joined):
        known = [each for each in values[start : start + joined] if each is not None]
        share = max(known) / most if known else None
        bars.append(" " if share is None else _BARS[round(share * (len(_BARS) - 1))])
    return "".join(bars)


_QUIT = (b"q", b"Q", b"\x03", b"\x04")


def _connect(given: Mapping[str, Any]) -> AbstractContextManager[Daemon]:
    # A broker without accounts shows its metrics to everybody.
    return operated(given, os.environ, None, isAnonymous=True)


@connectedCommand(
    """\
    Show what a broker does, live: press q to quit.

    For each group: its height, events and blocks a second, how long publishes wait, what waits in
    its pool, its nodes; and the durable subscriptions that are furthest behind.

    It asks the daemon for its metrics and, as an operator, for the webhooks that fail. Output that
    is no terminal gets lines. With --history it shows the last minutes or hours.
    """,
    _connect,
)
@options(
    click.option(
        "--interval",
        type=Decimal(0.1, 3600),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="How often it is asked.",
    ),
    click.option("--once", is_flag=True, help="Show one interval, and end."),
    click.option(
        "--metrics",
        metavar="URL",
        help="Where the daemon serves its metrics, if not at its port of HTTP.",
    ),
    click.option(
        "--history",
        type=Whole(60, DAY),
        is_flag=False,
        flag_value=HOUR,
        metavar="[SECONDS]",
        help="Show what was measured in so many seconds before now, up to a day, and end; without "
        "a number, in the last hour.",
    ),
    jsonOption("Show each interval as a line of JSON."),
)
def command(
    console: Console,
    daemon: Daemon,
    interval: float,
    once: bool,
    metrics: str | None,
    history: int | None,
    asJson: bool,
) -> None:
    """Sample and show, until the user quits."""
    if history is not None:
        told = daemon.call("history/show", seconds=history)
        showRecord(console, told, historyLines(told), asJson)
        return
    sampler = Sampler(daemon, metrics, time.time)
    if once or asJson or not _isTerminal(console):
        while True:
            time.sleep(interval)
            found = sampler.sample()
            showRecord(console, asdict(found), lines(found), asJson)
            console.output.flush()
            if once:
                return
    with _keys() as isQuit, _screen(console) as show:
        found = sampler.sample()
        while True:
            show(found)
            if isQuit is None:
                time.sleep(interval)
            elif isQuit(interval):
                return
            try:
                found = sampler.sample()
            except CommandError as error:
                # The daemon may be about to start again.
                found = evolve(found, remarks=[str(error)])


def _isTerminal(console: Console) -> bool:
    isDumb = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return not (isDumb or isPlain(console.output))


@contextmanager
def _keys() -> Iterator[Callable[[float], bool] | None]:
    """Waits for so many seconds; whether a key to quit was pressed. C{None} without a keyboard."""
    if not sys.stdin.isatty():
        yield None
        return
    number = sys.stdin.fileno()
    kept = termios.tcgetattr(number)

    def isQuit(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([number], [], [], left)[0]:
                keys = os.read(number, 100)
                # No bytes: the terminal is gone.
                if not keys or any(key in keys for key in _QUIT):
                    return True
        return False

    try:
        tty.setcbreak(number)
        yield isQuit
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, kept)


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[Sample], None]]:
    """Shows samples, each in the place of the one before."""
    from rich.console import Console as Terminal
    from rich.live import Live

    terminal = Terminal(file=console.output)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        yield lambda shown: live.update(render(shown), refresh=True)


@operatorCommand(
    """\
    List the files with what came before alarms.

    When an alarm begins, the daemon writes the lines of its log of the minute before, finer ones
    than the log has, and what was measured in it, to a file below its data directory. It keeps 20
    of them. They have no contents of events.
    """
)
@options(jsonOption("Show the daemon's answer as it is."))
def incidentsCommand(console: Console, daemon: Daemon, asJson: bool) -> None:
    """Show the daemon's list."""
    found = daemon.call("incidents/list")
    if asJson:
        console.sayJson(found)
        return
    rows = [
        (timeText(each["at"]), each["name"], each["groupId"] or "-", each["file"], each["text"])
        for each in found
    ]
    shown = [tuple(map(quoted, row)) for row in rows]
    lines = ["  ".join(row) for row in shown]
    showTable(console, ("time", "alarm", "group", "file", "text"), shown, lines)
