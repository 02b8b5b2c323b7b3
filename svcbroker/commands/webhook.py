"""
C{svcbroker webhook}: the webhooks of a running daemon.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from twisted.python import usage

from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon
from ._words import counted, quoted, timeText

ACTIONS: Final = ("pause", "resume", "retry", "delete")
"""The actions that need nothing but ids."""

_DONE: Final = {
    "pause": "paused",
    "resume": "resumed",
    "retry": "tried again",
    "skip": "skipped",
    "delete": "deleted",
}
_PAGE: Final = 1000


class Options(DaemonOptions):
    """
    The options of C{svcbroker webhook}. After parsing, C{self["action"]} is the action,
    C{self["ids"]} the ids, and C{self["event"]} the event to skip.
    """

    synopsis = (
        "[options] DATA-DIR|URL [list [ID...] | pause ID... | resume ID... | retry ID... | "
        "skip ID EVENT-ID | delete ID...]"
    )
    longdesc = (
        "An ID is that of a webhook's subscription. list shows the last error of each, and the "
        "oldest event that waits. pause stops sending, also after restarts, until resume. retry "
        "makes the next attempt now. skip has a webhook go on after an event, which must be the "
        "oldest that waits: it stays in the log, and the receiver does not get it. delete ends "
        "webhooks for good."
    )
    optFlags = [["json", None, "Show the daemon's answers as they are."]]

    def parseArgs(  # type: ignore[override]
        self, dataDir: str, action: str = "list", *values: str
    ) -> None:
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["action"], self["ids"], self["event"] = action, values, None
        if action == "skip" and len(values) == 2:
            self["ids"], self["event"] = values[:1], values[1]
        elif action != "list" and not (action in ACTIONS and values):
            raise usage.UsageError(f"what shall be done? {self.synopsis}")


def run(options: Options, console: Console) -> int:
    """Carry out the action, and say what came of it."""
    act = _list if options["action"] == "list" else _change

    async def ask(daemon: DaemonClient) -> Any:
        return await act(daemon, options)

    answer = askDaemon(options, ask)
    for line in [json.dumps(answer)] if options["json"] else describe(options["action"], answer):
        console.say(line)
    return Exit.GOOD


async def _list(daemon: DaemonClient, options: Options) -> Any:
    found: list[Any] = []
    for id in options["ids"] or (None,):
        after: str | None = ""
        while after is not None:
            page = await daemon.call(
                "webhooks/list",
                groupId=options["group"],
                subscriptionId=id,
                after=after,
                limit=_PAGE,
            )
            found += page["webhooks"]
            after = page["next"]
    return found


async def _change(daemon: DaemonClient, options: Options) -> Any:
    for id in options["ids"]:
        await daemon.call(
            f"webhooks/{options['action']}", subscriptionId=id, eventId=options["event"]
        )
    return options["ids"]


def describe(action: str, answer: Any) -> Sequence[str]:
    """What came of an action, in lines for people."""
    if action == "list":
        return [_describe(each) for each in answer] or ["no webhooks"]
    return [f"{_DONE[action]}: {id}" for id in answer]


def _describe(record: Mapping[str, Any]) -> str:
    owner = f", of {quoted(record['owner'])}" if record["owner"] else ""
    parts = [
        f"{record['subscriptionId']}: {quoted(','.join(record['topics']))} "
        f"to {quoted(record['receiver'])}{owner}"
    ]
    if record["paused"]:
        parts.append("paused")
    if record["failures"]:
        parts.append(
            f"{counted(record['failures'], 'failure')}, the last at "
            f"{timeText(record['lastErrorTimestamp'])}: {quoted(record['lastError'])}"
        )
    if record["oldestEventId"] is not None:
        age = counted(record["oldestEventAge"], "second")
        parts.append(f"event {record['oldestEventId']} waits for {age}")
    return "; ".join(parts)
