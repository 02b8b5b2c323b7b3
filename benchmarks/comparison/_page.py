"""
The report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..found import MARKS, Found, marks
from ..report import Bar, Bars, Picture, Section, amount, markdownTable
from ._cases import CASES, Case, Subject, Table
from ._run import NOT_ASKED_FOR, Comparison
from ._targets import judge

_OURS = "svcbroker"
_DURABLE = "others, on disk before the answer"
_IN_MEMORY = "in memory only"
_NOTHING = "no broker behind it"
_COLOURS = (_OURS, _DURABLE, _IN_MEMORY, _NOTHING)
_GROUPS = {
    Subject.MOSQUITTO: _IN_MEMORY,
    **dict.fromkeys(
        (Subject.NODE, Subject.GO, Subject.KLEIN_HELLO, Subject.RESOURCE_HELLO), _NOTHING
    ),
}

_METHOD = """Every row is one server pinned to one processor, and the load program, in C, pinned to
another. Rounds are interleaved, there and back; a cell is the median of the rounds. Every answer is
checked, and after each row a broker must have exactly what it has acknowledged. Events are of
300 bytes. A latency is that of a request (of a batch: of all of it; of a fan-out: from a publish to
a delivery). CPU is the processor time of all of a server's processes, the kernel's work for them
included; what it has to do with wall-clock time is the last column: events for a second of it.

svcbroker has every publish on disk, in a block that its replicas have signed, before it answers.
Redis, NATS and RabbitMQ are set up to sync before they answer, mosquitto keeps everything in
memory, and the bare HTTP servers do nothing at all. What is fanned out RabbitMQ has in memory, too;
svcbroker has it on disk before it delivers it."""


def comparisonSections(comparison: Comparison, machine: Mapping[str, object]) -> Sequence[Section]:
    """What was found, with plots."""
    verdicts = markdownTable(
        ["target", "measured", "outcome"],
        [[each.name, each.measured, each.outcome] for each in judge(comparison)],
        words=3,
    )
    return [
        Section(title="Targets", text=verdicts),
        Section(title="How it was measured", text=f"{_METHOD}\n\n{MARKS}"),
        Section(title="Acknowledged publishes a second", text=_overview(comparison)),
        *(_section(comparison, table) for table in Table),
        Section(title="What was measured, and where", text=_where(comparison, machine)),
    ]


_SHAPES = {
    Table.ONE: "1 x 1",
    Table.MANY: "32 x 1",
    Table.CROWD: "256 x 1",
    Table.WINDOW: "1 x 256",
    Table.FULL: "32 x 32",
}


def _overview(comparison: Comparison) -> str:
    """One row for all shapes of a load."""
    rates: dict[tuple[Subject, str], dict[Table, str]] = {}
    for case in CASES:
        if case.table in _SHAPES and (found := comparison.median(case)):
            row = rates.setdefault((case.who, case.load), {})
            row[case.table] = amount(found.events) + marks(found)
    rows = [
        [who.value, load, *(row.get(table, "") for table in _SHAPES)]
        for (who, load), row in rates.items()
    ]
    header = ["connections x under way on each", "", *_SHAPES.values()]
    return markdownTable(header, rows, words=2)


def _section(comparison: Comparison, table: Table) -> Section:
    cases = [
        case
        for case in CASES
        if case.table is table and comparison.missing.get(case.who) != NOT_ASKED_FOR
    ]
    found = {case: comparison.median(case) for case in cases}
    measured = [case for case in cases if found[case]]
    header = [
        *("server", "load", "connections x under way", "events/s"),
        *("p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "CPU µs an event", "events a CPU second"),
    ]
    rows = [_row(comparison, case, found[case]) for case in cases]
    pictures: list[Picture] = []
    if measured:
        name = table.name.lower()
        pictures = [
            _bars(f"{name}-rate", f"{table.value}: events/s", measured, found, "events/s"),
            _bars(f"{name}-cpu", f"{table.value}: processor time", measured, found, "cpu"),
        ]
        if table is Table.ONE:
            pictures[0] = _bars("one-latency", f"{table.value}: latency", measured, found, "p50")
    return Section(title=table.value, text=markdownTable(header, rows, words=2), pictures=pictures)


_LABELS = {
    "events/s": "events a second",
    "cpu": "µs of the server's processor time for an event",
    "p50": "median latency, ms",
}


def _bars(
    name: str,
    title: str,
    cases: Sequence[Case],
    found: Mapping[Case, Found | None],
    what: str,
) -> Bars:
    def value(one: Found) -> float:
        return {"events/s": one.events, "cpu": one.cpu, "p50": one.p50}[what]

    known = [(case, one) for case in cases if (one := found[case])]
    known.sort(key=lambda pair: value(pair[1]), reverse=what == "events/s")
    bars = [
        Bar(
            f"{_shortName(case)}, {case.load}"
            + ("" if case.table is not Table.BATCH else f", {case.connections} conn."),
            value(one),
            _groupOf(case),
            marks(one).strip() if what == "events/s" else "",
        )
        for case, one in known
    ]
    return Bars(name=name, title=title, label=_LABELS[what], bars=bars, groups=_COLOURS)


def _shortName(case: Case) -> str:
    name: str = case.who.value
    return name.partition(",")[0].removesuffix(" Streams").removesuffix(" JetStream")


def _groupOf(case: Case) -> str:
    who = case.who
    if who is Subject.SVCBROKER:
        return _OURS
    if case.table is Table.FAN_OUT:
        return _IN_MEMORY
    return _GROUPS.get(who, _DURABLE)


def _row(comparison: Comparison, case: Case, found: Found | None) -> Sequence[str]:
    shape = f"{case.connections} x {case.window}"
    if case.table is Table.FAN_OUT:
        shape = f"1 x {case.window}, to {case.subscribers}"
    words = [case.who.value, case.load, shape]
    if found is None:
        reason = comparison.missing.get(case.who, "not measured")
        return [*words, reason, *["-"] * 6]
    latencies = (found.p50, found.p90, found.p99, found.p999)
    return [
        *words,
        amount(found.events) + marks(found),
        *(f"{each:.2f}" for each in latencies),
        amount(found.cpu),
        amount(found.eventsOfCpu),
    ]


def _where(comparison: Comparison, machine: Mapping[str, object]) -> str:
    rows = [
        [who.value, comparison.versions.get(who, comparison.missing.get(who, "not measured"))]
        for who in Subject
    ]
    facts = {**machine, "processor time of all servers while idle": f"{comparison.idle:.1%}"}
    words = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return f"{markdownTable(['server', 'version'], rows, words=2)}\n\n{words}"
