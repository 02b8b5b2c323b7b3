"""
C{svcbroker bench}: measures how many events a broker takes in, and how long each publish waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import click

from ..arguments import Decimal, Whole, jsonOption, options
from ..clientcommand import brokerOf, connected, connectedCommand
from ..terminal import CommandError, Console, Exit, progressBar
from .load import PORTS, PROTOCOLS, Broken, LoadTarget, Measured, drive, makeShape, percentile

WARM_UP: Final = 0.3
"""Seconds of load before the measurement, at most a quarter of it."""

_OWN_PORTS: Final = " and ".join(PORTS)
_MAX_WINDOW: Final = 1024
_BUSY: Final = 0.8
_MAX_CONTENT: Final = 10_000_000


@contextmanager
def _targeted(given: Mapping[str, Any]) -> Iterator[LoadTarget]:
    from ...client._httpx import makeContext
    from ...client._requests import authorization

    urls, settings = brokerOf(given, os.environ)
    if len(urls) > 1:
        raise CommandError("one broker is measured: give one --url")
    user, password, token = (settings.get(name) for name in ("user", "password", "token"))
    with connected(urls, settings) as client:
        yield LoadTarget(
            client=client,
            url=urls[0].rstrip("/"),
            headers=authorization(user, password, token),
            login=(str(user), str(password)) if user else (),
            group=settings["group"],
            context=makeContext(settings) if urls[0].startswith("https:") else None,  # type: ignore[arg-type]
        )


@connectedCommand(
    """\
    Measure how fast a broker takes events in.

    Publishes for some seconds over some connections, each of which waits for the answers to what it
    has under way, and shows the rate and the latency of the publishes.

    IT WRITES TO THE CHAIN, and what is written stays: the events are in the log, in backups, and on
    every node. A broker that is not on this machine is measured only with --yes.

    \b
    svcbroker bench --seconds 10 --connections 64
    svcbroker bench --over jsonrpc --batch 100 --size 1000
    """,
    _targeted,
)
@options(
    click.argument("topic", default="bench/publish"),
    click.option(
        "--over",
        type=click.Choice(PROTOCOLS),
        default="rest",
        show_default=True,
        help="The protocol.",
    ),
    click.option(
        "--seconds",
        type=Decimal(0.1, 3600),
        default=5.0,
        show_default=True,
        metavar="NUMBER",
        help="How long.",
    ),
    click.option(
        "--connections",
        type=Whole(1, 10_000),
        default=32,
        show_default=True,
        metavar="NUMBER",
        help="How many connections publish.",
    ),
    click.option(
        "--window",
        type=Whole(1, _MAX_WINDOW),
        metavar="NUMBER",
        help=f"How many publishes are under way on each connection of {_OWN_PORTS}. [default: 32]",
    ),
    click.option(
        "--batch",
        type=Whole(1, 1000),
        metavar="NUMBER",
        help="How many events each request of jsonrpc has. [default: 1]",
    ),
    click.option(
        "--size",
        type=Whole(0, _MAX_CONTENT),
        default=300,
        show_default=True,
        metavar="BYTES",
        help="The size of each event's content.",
    ),
    click.option(
        "--port",
        type=Whole(1, 65535),
        metavar="PORT",
        help="The port of "
        + " or ".join(f"{each} ({plain}, with https {tls})" for each, (plain, tls) in PORTS.items())
        + ".",
    ),
    click.option("--yes", is_flag=True, help="Do not ask, wherever the broker is."),
    jsonOption("Show the result as a line of JSON."),
)
def command(
    console: Console,
    target: LoadTarget,
    topic: str,
    over: str,
    seconds: float,
    connections: int,
    window: int | None,
    batch: int | None,
    size: int,
    port: int | None,
    yes: bool,
    asJson: bool,
) -> None:
    """Load the broker, and show what came of it."""
    if window is not None and over not in PORTS:
        raise CommandError(f"--window is for {_OWN_PORTS}")
    if port is not None and over not in PORTS:
        raise CommandError(f"--port is for {_OWN_PORTS}: others have that of the URL")
    if batch is not None and over != "jsonrpc":
        raise CommandError("--batch is for jsonrpc")
    if over in PORTS and "Authorization" in target.headers and not target.login:
        raise CommandError(f"{_OWN_PORTS} need --user, not a token alone")
    if target.group is not None and over == "mqtt":
        raise CommandError("--group is for the other protocols")
    if not yes:
        _ask(console, target, topic)
    target.client.open(topic)
    shape = makeShape(target, over, topic, b"x" * size, window or 32, batch or 1)
    place = port or _port(target, over)
    try:
        drive(
            place,
            shape,
            connections,
            min(WARM_UP, seconds / 4),
            host=target.host,
            context=target.context,
        )
        with progressBar(console, "measuring", "seconds") as report:
            measured = drive(
                place,
                shape,
                connections,
                seconds,
                host=target.host,
                context=target.context,
                report=lambda now: report(int(now), int(seconds)),
            )
    except Broken as error:
        raise CommandError(str(error), Exit.BAD) from None
    except OSError as error:
        where = f"{target.host}:{place}"
        raise CommandError(f"no connection to {where}: {error.strerror or error}") from None
    found = _figures(measured)
    if asJson:
        fields = {"over": over, "connections": connections, "topic": topic, "size": size}
        console.sayJson({**fields, "batch": batch or 1, **found})
        return
    for label, text in (
        ("events/s", f"{found['rate']:,.0f}"),
        ("p50", f"{found['p50']:.2f} ms"),
        ("p99", f"{found['p99']:.2f} ms"),
        ("events", f"{found['events']:,} in {found['seconds']:.1f} s, in the topic {topic}"),
        ("client CPU", f"{found['clientCpu']:.0%} of a core"),
    ):
        console.say(f"{label:12}{text}")
    if measured.clientShare > _BUSY:
        console.warn("this command was as busy as it can be: the broker may be faster")


def _ask(console: Console, target: LoadTarget, topic: str) -> None:
    what = f"events are written to the chain of {target.url}, topic {topic}, and stay there"
    if target.isLocal:
        console.warn(what)
    elif not (console.errors.isatty() and os.isatty(0)):
        raise CommandError(f"{what}: give --yes if you want that")
    else:
        click.confirm(f"{what}. Go on?", abort=True, err=True)


def _port(target: LoadTarget, over: str) -> int:
    if over in PORTS:
        return PORTS[over][target.context is not None]
    parts = urlsplit(target.url)
    return parts.port or (80 if target.context is None else 443)


def _figures(measured: Measured) -> dict[str, Any]:
    """The results: latencies in milliseconds, the client's processor time as a share."""
    ordered = sorted(measured.latencies)
    return {
        "events": measured.events,
        "seconds": round(measured.seconds, 3),
        "rate": round(measured.events / measured.seconds, 1),
        "p50": round(percentile(ordered, 50) * 1000, 3),
        "p99": round(percentile(ordered, 99) * 1000, 3),
        "clientCpu": round(measured.clientShare, 3),
    }
