"""
C{console/bundle}: an evidence bundle of some events, for the page of the console. Made in a thread,
one at a time and of bounded size; C{svcbroker proof bundle} makes larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.web import http

from ..access import Principal
from ..broker import Calls
from ..carriers.http import Route
from ..carriers.http.plain import parseFields
from ..carriers.http.routes import encodeError, explain, principalOf, respond
from ..errors import (
    BrokerError,
    EventErased,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    GroupUnknown,
    HeightUnknown,
    LedgerUnavailable,
    Overloaded,
    ParameterInvalid,
)
from ..model import EventId
from ..net.deferreds import asDeferred
from ..proofs.bundle import Bundle, ErasureNote

MAX_EVENTS: Final = 50
"""The most events of a bundle for the page, which says so too."""
MAX_PROOFS: Final = 8 * 1024 * 1024
"""The most bytes of their proofs."""
COPIES: Final = 6
"""The copies of the proofs in memory meanwhile: in the page as Base64 of them, and in the file."""

_STATUS: Final[dict[type[BrokerError], int]] = {
    ParameterInvalid: http.BAD_REQUEST,
    EventIdInvalid: http.BAD_REQUEST,
    EventIdTooLong: http.BAD_REQUEST,
    EventNotFound: http.NOT_FOUND,
    GroupUnknown: http.NOT_FOUND,
    HeightUnknown: http.NOT_FOUND,
    LedgerUnavailable: http.SERVICE_UNAVAILABLE,
    Overloaded: http.SERVICE_UNAVAILABLE,
}


@define(eq=False)
class BundleMaker:
    """
    Makes bundles by the grants of those who ask.

    @ivar _run: runs work in a thread.
    """

    _calls: Calls
    _run: Callable[..., Deferred[bytes]]
    _isBusy: bool = field(default=False, init=False)

    def route(self, path: str) -> Route:
        """The route."""
        return Route(path=path, methods=("GET",), handler=self._respond)

    @asDeferred
    async def _respond(self, request: Any) -> bytes:
        principal = principalOf(request)
        try:
            fields = parseFields(request.uri.partition(b"?")[2])
            group = self._calls.broker.groups.resolve(
                principal, fields.get(b"groupId", b"").decode("utf-8", "replace")
            )
            data = await self.make(principal, group, _readIds(fields.get(b"events", b"")))
        except BrokerError as error:
            code = _STATUS.get(type(error), http.INTERNAL_SERVER_ERROR)
            return respond(request, explain(error, principal, encodeError), code)
        request.setHeader(b"Content-Type", b"application/zip")
        request.setHeader(b"Cache-Control", b"no-store")
        request.setHeader(b"Content-Length", b"%d" % len(data))
        return data

    async def make(self, principal: Principal, group: str, ids: Sequence[EventId]) -> bytes:
        """
        Make the bundle of some events.

        @raise Overloaded: another one is being made.
        @raise ParameterInvalid: the proofs are larger than L{MAX_PROOFS}.
        @raise EventNotFound: there is no such event, or the principal may not read it.
        """
        if self._isBusy:
            raise Overloaded("another bundle is being made")
        self._isBusy = True
        try:
            key = await self._calls.transparency.key(principal, group)
            proofs, erasures = await self._gather(principal, group, ids)
            policy = f"log {key.key}\nquorum none\n".encode()
            bundle = Bundle(proofs=proofs, policy=policy, erasures=erasures)
            return await self._run(bundle.encode)
        finally:
            self._isBusy = False

    async def _gather(
        self, principal: Principal, group: str, ids: Sequence[EventId]
    ) -> tuple[Mapping[str, bytes], Mapping[str, ErasureNote]]:
        """The proofs of events, and what is known of the erasure of some."""
        proofs: dict[str, bytes] = {}
        erasures: dict[str, ErasureNote] = {}
        size = 0
        lane = self._calls.broker.budgets.work.lane()
        for eventId in ids:
            # Each is a unit of work: fifty proofs take 150 ms.
            if not lane.begin(isWrite=False):
                await lane.turn(isWrite=False)
            proof = await self._calls.transparency.prove(principal, group, eventId)
            proofs[str(eventId)] = data = proof.encode()
            size += len(data)
            if size > MAX_PROOFS:
                raise ParameterInvalid(
                    f"events: their proofs have more than {MAX_PROOFS} bytes; svcbroker proof "
                    "bundle makes larger bundles"
                )
            try:
                await self._calls.broker.getEvent(principal, group, eventId)
            except EventErased as error:
                erasures[str(eventId)] = ErasureNote(
                    timestamp=error.time,
                    account=error.account,
                    reason=error.reason,
                    transHash=f"0x{error.transaction.hex()}",
                )
        lane.end()
        return proofs, erasures


def _readIds(text: bytes) -> Sequence[EventId]:
    """
    Read ids with commas between them.

    @raise ParameterInvalid: there are none, or too many.
    """
    ids = list(dict.fromkeys(filter(None, text.split(b","))))
    if not 1 <= len(ids) <= MAX_EVENTS:
        raise ParameterInvalid(f"events: give 1 to {MAX_EVENTS} ids, with commas between them")
    return [EventId.parse(each.decode("utf-8", "replace")) for each in ids]
