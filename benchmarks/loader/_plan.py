"""
What the load program is to do, and how it is told.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import accumulate
from socket import socket

from attrs import frozen

from svcbroker.commands.bench import Measured

UNLIMITED = (1 << 64) - 1
_MOST_FRAMES = 1 << 16


class Protocol(IntEnum):
    """
    How answers are told apart; the numbers are those of C{loader.h}.
    """

    HTTP = 0
    RESP = 1
    NATS = 2
    AMQP = 3
    MQTT = 4
    STOMP = 5
    FAN = 6


def _nothing(opened: socket, number: int) -> None:
    """No greeting."""


@frozen(kw_only=True)
class Load:
    """
    What is sent over each connection, and what must come back.

    @ivar frames: gives the requests of a connection, by its number: they are sent in turn. Where
        answers say what they answer, they say it with the place among these, so that there are at
        least C{window}.
    @ivar isOwn: whether each connection has frames of its own; else those of the first are for all.
    @ivar window: how many are under way on each connection.
    @ivar greet: done first on each connection, which blocks.
    @ivar events: what an answer stands for.
    @ivar wanted: what is in each answer, C{wantedTimes} times (HTTP, NATS); what each delivery is
        (FAN).
    @ivar unwanted: what is in none.
    @ivar lead: how far the slowest subscriber may be behind (FAN).
    @ivar place: where the packet identifier of a delivery is, if it has one (FAN).
    """

    protocol: Protocol
    frames: Callable[[int], Sequence[bytes]]
    isOwn: bool = False
    window: int = 1
    greet: Callable[[socket, int], None] = _nothing
    events: int = 1
    wanted: bytes = b""
    wantedTimes: int = 0
    unwanted: bytes = b""
    lead: int = 0
    place: int = 0


def encodePlan(load: Load, sockets: Sequence[int], seconds: float, limit: int | None) -> bytes:
    """
    What the program reads.

    @param sockets: file descriptors that it inherits.
    @param limit: how many requests there are at most.
    """
    owners = len(sockets) if load.isOwn else 1
    each = [load.frames(number) for number in range(owners)]
    count = len(each[0])
    if not load.window <= count <= _MOST_FRAMES or any(len(frames) != count for frames in each):
        raise ValueError(f"{count} frames for a window of {load.window}")
    frames = [frame for some in each for frame in some]
    numbers = (
        *(load.protocol, len(sockets), load.window, count, load.isOwn, load.events),
        *(load.wantedTimes, load.lead, load.place),
    )
    return b"".join(
        [
            struct.pack("<9IdQ", *numbers, seconds, UNLIMITED if limit is None else limit),
            *map(_text, (load.wanted, load.unwanted, b"".join(frames))),
            array("Q", accumulate(map(len, frames), initial=0)).tobytes(),
            array("i", sockets).tobytes(),
        ]
    )


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


_FOUND = struct.Struct("<dQQdQ")


def decodeFound(found: bytes) -> Measured:
    """What the program writes."""
    seconds, events, _, computed, count = _FOUND.unpack_from(found)
    latencies = array("f", found[_FOUND.size :])
    if len(latencies) != count:
        raise ValueError("what was found is cut off")
    return Measured(
        seconds=seconds, events=events, latencies=latencies, clientShare=computed / seconds
    )
