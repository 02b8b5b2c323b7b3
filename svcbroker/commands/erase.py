"""
C{svcbroker erase}: erasing the content of events, by a running daemon.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.python import usage

from ..errors import BrokerError
from ..model import EventId, parseOffset
from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon
from ._words import counted

_AT_ONCE: Final = 500
"""How many ids a call has: its body is bounded."""
_TIME: Final = "OFFSET_TIME:"


class Options(DaemonOptions):
    """
    The options of C{svcbroker erase}. After parsing, C{self["events"]} are the ids of events, and
    C{self["part"]} the parameters for a part of a topic.
    """

    synopsis = (
        "[options] DATA-DIR|URL --reason TEXT EVENT-ID... | "
        "DATA-DIR|URL --reason TEXT --topic TOPIC [--first NUMBER] --last NUMBER | --before PLACE"
    )
    longdesc = (
        "Content, signature and private extensions of the events are removed for good, on all "
        "nodes. The chain keeps that they were erased, when, by whom and why, and all proofs stay. "
        "Of a topic, the events from --first up to --last are erased, which are numbers in the "
        "topic, or those before a PLACE: an event's id, or a time as in RFC 3339. Copies elsewhere "
        "are not reached: backups, exports, and what readers have read."
    )
    optParameters: list[list[Any]] = [
        ["reason", None, None, "Why, as the chain keeps it and readers are shown it."],
        ["topic", None, None, "Erase events of this topic, which may be closed."],
        ["first", None, None, "The number of the first event. [default: 1]", int],
        ["last", None, None, "The number of the last event.", int],
        ["before", None, None, "Erase the events before this event or this time."],
    ]

    def parseArgs(self, dataDir: str, *events: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["events"] = events

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        if not (self["reason"] or "").strip():
            raise usage.UsageError("why? --reason TEXT")
        names = ("topic", "first", "last", "before")
        part = {name: self[name] for name in names if self[name] is not None}
        if bool(self["events"]) == bool(part) or (part and self["topic"] is None):
            raise usage.UsageError(f"which events? {self.synopsis}")
        if part and (self["last"] is None) == (self["before"] is None):
            raise usage.UsageError("up to which event of the topic? Either --last or --before")
        if self["before"] is not None:
            part["before"] = _place(self["before"])
        self["part"] = part


def _place(text: str) -> str:
    """A place in a topic as the daemon takes it: an event's id, or a time."""
    try:
        if isinstance(parseOffset(text), EventId):
            return text
    except BrokerError:
        pass
    place = _TIME + text.removeprefix(_TIME)
    try:
        parseOffset(place)
    except BrokerError:
        raise usage.UsageError("--before is an event's id, or a time as in RFC 3339") from None
    return place


def run(options: Options, console: Console) -> int:
    """Have the events erased, and say how many they are."""

    async def ask(daemon: DaemonClient) -> int:
        return await _erase(daemon, options)

    count = askDaemon(options, ask)
    console.say(f"{counted(count, 'event')} erased")
    return Exit.GOOD


async def _erase(daemon: DaemonClient, options: Options) -> int:
    given = {"groupId": options["group"], "reason": options["reason"]}
    if options["part"]:
        return int(await daemon.call("erase", **given, **options["part"]))
    events, count = options["events"], 0
    for start in range(0, len(events), _AT_ONCE):
        some = list(events[start : start + _AT_ONCE])
        count += int(await daemon.call("erase", **given, events=some))
    return count
