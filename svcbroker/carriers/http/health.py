"""
Liveness and readiness: whether the process answers, and whether it can be given work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.server import Request

from ...access import Access, Principal
from ...broker import Calls
from ...model import Health
from ...net.alarms import Alarm
from ...operations import AlarmResult, alarmResults
from .logins import Credentials
from .routes import Route, encode, respond


class GroupHealth(Struct, frozen=True):
    """Whether a group's ledger makes progress, and if not, why."""

    ready: bool
    reason: str


class Alive(Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Readiness(Struct, frozen=True):
    """Whether the broker can be given work, and what is wrong with it."""

    status: Literal["ready", "unavailable"]
    groups: dict[str, GroupHealth]
    alarms: list[AlarmResult]


_ALIVE = encode(Alive())


def readiness(
    groups: Mapping[str, Health], principal: Principal | None, alarms: Sequence[Alarm] = ()
) -> tuple[int, bytes]:
    """
    The HTTP status and the JSON text that tell of the groups' health, and of alarms.

    @param principal: who asks.
    """
    isReady = all(health.isReady for health in groups.values())
    record = Readiness(
        "ready" if isReady else "unavailable",
        {
            group: GroupHealth(health.isReady, health.reason)
            for group, health in groups.items()
            if principal is not None and principal.seesGroup(group)
        },
        alarmResults(alarms),
    )
    return http.OK if isReady else http.SERVICE_UNAVAILABLE, encode(record)


def healthRoutes(calls: Calls, access: Access) -> Iterator[Route]:
    """
    The routes C{/healthz} and C{/readyz}. Clients need no credentials; those who give some are told
    of the groups in which they may do something.
    """

    def healthz(request: Request) -> bytes:
        return respond(request, _ALIVE)

    async def answerReady(request: Any) -> bytes:
        principal = request.principal or access.anonymous
        groups = await calls.admin.getHealth()
        alarms = () if principal is None else await calls.admin.alarmsFor(principal)
        code, body = readiness(groups, principal, alarms)
        return respond(request, body, code)

    def readyz(request: Request) -> Deferred[bytes]:
        return Deferred.fromCoroutine(answerReady(request))

    for path, handler, credentials in (
        ("/healthz", healthz, Credentials.IGNORED),
        ("/readyz", readyz, Credentials.OPTIONAL),
    ):
        yield Route(path=path, methods=("GET",), handler=handler, credentials=credentials)
