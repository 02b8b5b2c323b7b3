"""
C{svcbroker subscription}: the durable subscriptions and MQTT sessions of a running daemon.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from twisted.python import usage

from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon
from ._words import counted, quoted

TYPES: Final = ("STOMP", "MQTT")

_PAGE: Final = 1000
_DELETED_AT_ONCE: Final = 50
"""How many ids a call has: a client id may be long, and the body of a call is bounded."""


class Options(DaemonOptions):
    """
    The options of C{svcbroker subscription}. After parsing, C{self["action"]} is the action,
    C{self["type"]} the protocol, and C{self["ids"]} the ids.
    """

    synopsis = (
        "[options] DATA-DIR|URL [list | reset TYPE ID OFFSET | delete TYPE ID... | "
        "delete --owner OWNER]"
    )
    longdesc = (
        "TYPE is STOMP, and an ID that of a durable subscription; or it is MQTT, and an ID the "
        "client id of a session. list shows those with and without a client. reset has one resume "
        "at an OFFSET: OFFSET_FIRST, OFFSET_LAST, after an event id, or with a block's height. "
        "delete ends them; with --owner all that one account or address has made. One that a "
        "client uses is neither reset nor deleted. For webhooks see: svcbroker webhook."
    )
    optParameters: list[list[Any]] = [
        ["owner", None, None, "Only those that this account or address has made."],
    ]
    optFlags = [["json", None, "Show the daemon's answers as they are."]]

    def parseArgs(  # type: ignore[override]
        self, dataDir: str, action: str = "list", type: str = "", *values: str
    ) -> None:
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["action"], self["type"], self["ids"] = action, type.upper(), values
        self["offset"] = None
        if action == "reset" and type and len(values) == 2 and self["owner"] is None:
            self["ids"], self["offset"] = values[:1], values[1]
        elif action == "delete" and bool(values) != (self["owner"] is not None):
            pass
        elif action != "list" or type:
            raise usage.UsageError(f"what shall be done? {self.synopsis}")
        if type and self["type"] not in TYPES:
            raise usage.UsageError(f"{type!r} is neither STOMP nor MQTT")


def run(options: Options, console: Console) -> int:
    """Carry out the action, and say what came of it."""
    actions = {"list": _list, "reset": _reset, "delete": _delete}

    async def ask(daemon: DaemonClient) -> Any:
        return await actions[options["action"]](daemon, options)

    answer = askDaemon(options, ask)
    for line in [json.dumps(answer)] if options["json"] else describe(options["action"], answer):
        console.say(line)
    return Exit.GOOD


async def _records(daemon: DaemonClient, options: Options) -> AsyncIterator[Mapping[str, Any]]:
    """All that are asked for, page by page."""
    for type in [options["type"]] if options["type"] else TYPES:
        after: str | None = ""
        while after is not None:
            page = await daemon.call(
                "subscriptions/list",
                groupId=options["group"],
                interfaceType=type,
                after=after,
                limit=_PAGE,
            )
            for each in page["subscriptions"]:
                if options["owner"] in (None, each["owner"]):
                    yield each
            after = page.get("next")


async def _list(daemon: DaemonClient, options: Options) -> Any:
    return [each async for each in _records(daemon, options)]


async def _reset(daemon: DaemonClient, options: Options) -> Any:
    return await daemon.call(
        "subscriptions/reset",
        groupId=options["group"],
        interfaceType=options["type"],
        id=options["ids"][0],
        offset=options["offset"],
    )


async def _delete(daemon: DaemonClient, options: Options) -> Any:
    ids: dict[str, list[str]] = {options["type"]: list(options["ids"])}
    if options["owner"] is not None:
        ids = {type: [] for type in TYPES}
        async for each in _records(daemon, options):
            if not each["live"]:
                ids[each["interfaceType"]].append(each["id"])
    count = 0
    for type, those in ids.items():
        for first in range(0, len(those), _DELETED_AT_ONCE):
            count += await daemon.call(
                "subscriptions/delete",
                groupId=options["group"],
                interfaceType=type,
                ids=those[first : first + _DELETED_AT_ONCE],
            )
    return count


def describe(action: str, answer: Any) -> Sequence[str]:
    """What came of an action, in lines for people."""
    if action == "reset":
        return ["reset"]
    if action == "delete":
        return [f"deleted: {answer}"]
    return [_describe(each) for each in answer] or ["no durable subscriptions"]


def _describe(record: Mapping[str, Any]) -> str:
    state = "live" if record["live"] else f"last used {record['usedTimeStamp']} UTC"
    block = "" if record["blockNumber"] is None else f", resumes in block {record['blockNumber']}"
    owner = f", of {quoted(record['owner'])}" if record["owner"] else ""
    count = counted(record["subscriptions"], "subscription")
    many = f", {count}" if record["interfaceType"] == "MQTT" else ""
    return f"{record['interfaceType']} {quoted(record['id'])}: {state}{many}{block}{owner}"
