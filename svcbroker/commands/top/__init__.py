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
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import click
from attrs import asdict, evolve

from .._arguments import Decimal, jsonOption, options
from .._command import CommandError, Console, Exit
from .._connection import NAMES, connectedCommand
from .._daemon import OPERATOR_OPTIONS, Daemon, operated
from .sampling import Sample, Sampler
from .view import lines

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
    OPERATOR_OPTIONS,
    ("data_dir", *NAMES),
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
    return console.output.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


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

    from .view import render

    terminal = Terminal(file=console.output)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        yield lambda shown: live.update(render(shown), refresh=True)
