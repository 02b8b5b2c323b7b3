"""
C{svcbroker top}: a live view of a broker.
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import click
from attrs import asdict, evolve

from ..arguments import Decimal, jsonOption, options
from ..clientcommand import connectedCommand
from ..operatorcommand import Daemon, operated
from ..terminal import CommandError, Console, Exit, counted, isPlain, quoted, timeText
from .sampling import GroupSample, Sample, Sampler

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
    is no terminal gets lines.
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
    jsonOption("Show each interval as a line of JSON."),
)
def command(
    console: Console,
    daemon: Daemon,
    interval: float,
    once: bool,
    metrics: str | None,
    asJson: bool,
) -> int:
    """Sample and show, until the user quits."""
    sampler = Sampler(daemon, metrics, time.time)
    if once or asJson or not _isTerminal(console):
        while True:
            time.sleep(interval)
            found = sampler.sample()
            for line in [json.dumps(asdict(found))] if asJson else lines(found):
                console.say(line)
            console.output.flush()
            if once:
                return Exit.GOOD
    with _keys() as isQuit, _screen(console) as show:
        found = sampler.sample()
        while True:
            show(found)
            if isQuit is None:
                time.sleep(interval)
            elif isQuit(interval):
                return Exit.GOOD
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

    from . import render

    terminal = Terminal(file=console.output)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        yield lambda shown: live.update(render(shown), refresh=True)
