"""
C{replication}: the blocks of a group's chain with their certificates, for brokers that keep a copy.

An answer is an export of bounded size, so a copy takes blocks as fast as it verifies them, and no
connection holds what a slow one has not read. Where there is no further block, the answer waits for
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.web import http

from ...archive import MAX_PART
from ...broker import MAX_COPY_WAIT, Calls, Copies
from ...broker.features import Feature, RunningFeature, Services
from ...broker.subscriptions import Places
from ...errors import BrokerError, GroupUnknown, HeightUnknown, ParameterInvalid
from ...model import ChainPart
from ...net.addresses import peerText
from ...net.bounds import CONNECTIONS, Bound, Sizing, amountText
from ...net.deferreds import asDeferred
from ...net.settings import NoSettings
from ...operations import NumberType
from .connection import BrokerRequest
from .plain import parseFields
from .routes import Route, connectionOf, encodeError, explain, principalOf, respond

COPY_THREADS: Final = 2
"""The number of threads that read blocks for copies."""

MAX_COPIES: Final = 32
"""The most copies that may be answered at the same time; one account or address has a share."""

HEIGHT_HEADER: Final = b"Svcbroker-Height"
"""The header with the height up to which the chain can be copied."""

TIP_HEADER: Final = b"Svcbroker-Tip"
"""The header with the height of the chain: on an engine's chain some blocks more."""

_TYPE: Final = b"application/octet-stream"
_FIRST: Final = NumberType(ParameterInvalid, 1, 2**63 - 1)
_WAIT: Final = NumberType(ParameterInvalid, 0, int(MAX_COPY_WAIT))
_STATUS: Final[dict[type[BrokerError], int]] = {
    ParameterInvalid: http.BAD_REQUEST,
    GroupUnknown: http.NOT_FOUND,
    HeightUnknown: http.REQUESTED_RANGE_NOT_SATISFIABLE,
}


class Replication:
    """
    The route C{replication}.
    """

    def __init__(self, basePath: str, copies: Copies) -> None:
        self._copies = copies
        self._places = Places(MAX_COPIES, "copies")
        self.route = Route(
            path=f"{basePath}/replication/<group>", methods=("GET",), handler=self._handle
        )

    def drain(self) -> Deferred[None]:
        """Answer the copies that wait for a block."""
        self._copies.stop()
        return succeed(None)

    @asDeferred
    async def _handle(self, request: BrokerRequest, group: str) -> bytes:
        principal = principalOf(request)
        # A copy that leaves while it waits for a block has no use for it.
        request.isEndless = True
        try:
            place = self._places.take(principal, peerText(request.getClientAddress()))
            try:
                fields = parseFields(request.uri.partition(b"?")[2])
                part: ChainPart = await self._copies.read(
                    principal,
                    group,
                    _FIRST.fromText(fields.get(b"from", b"1")),
                    _WAIT.fromText(fields.get(b"wait", b"0")),
                )
            finally:
                # Also where the client has left, which cancels this.
                self._places.release(place)
            # Others may have been read meanwhile, and each may be large.
            connectionOf(request).unsent.check()
            request.setHeader(HEIGHT_HEADER, b"%d" % part.height)
            request.setHeader(TIP_HEADER, b"%d" % part.tip)
            if not part.stream:
                raise HeightUnknown(f"the chain ends at block {part.height}")
        except BrokerError as error:
            code = _STATUS.get(type(error), http.SERVICE_UNAVAILABLE)
            return respond(request, explain(error, principal, encodeError), code)
        request.setHeader(b"Content-Type", _TYPE)
        request.setHeader(b"Content-Length", b"%d" % len(part.stream))
        return part.stream


class ReplicationFeature(RunningFeature):
    """C{replication} on the site of HTTP."""

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._threads = services.makeThread(services.reactor, "copies", COPY_THREADS)
        copies = Copies(services.broker.groups, services.reactor, self._threads.run)
        self._replication = Replication(services.basePath, copies)

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [self._replication.route]

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._replication.drain()

    def release(self) -> None:
        """See L{RunningFeature}."""
        self._threads.stop()


def replicationBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of parts of chains that are being read."""
    yield Bound(name=CONNECTIONS, holders=["svcbroker.broker._proving.Copies._waiting"])
    yield Bound(
        name="parts of chains for copies",
        bytes=COPY_THREADS * MAX_PART,
        how=f"{COPY_THREADS} are read at a time, of at most {amountText(MAX_PART)}; then they are "
        "output",
    )


FEATURE: Final = Feature(name="replication", make=ReplicationFeature, bounds=replicationBounds)
