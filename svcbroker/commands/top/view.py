"""
The view of C{svcbroker top}: tables for a terminal, else lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from .._words import counted, quoted, timeText
from .sampling import GroupSample, Sample

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
