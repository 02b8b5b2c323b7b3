"""
The use cases of transparency logs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from attrs import frozen

from ...access import Principal
from ...chain import Malformed
from ...errors import NoSuchCall, ParameterInvalid
from ...interfaces import Action
from ...model import EventId
from ...net.deferreds import asDeferred
from ...tlog import LogProof, parseTilePath
from .._groups import Groups
from .._proving import Proving
from .._timeouts import TimeoutQueue
from ._certification import LOG_TOPIC
from ._log import TransparencyLog


@frozen(kw_only=True)
class LogKeyAnswer:
    """
    The key of a log, and how to verify it.

    @ivar group: the id of the group.
    @ivar origin: the origin of the log.
    @ivar key: the public key: a vkey.
    @ivar eventId: the event by which the chain certifies the key. Its proof proves the key to those
        who trust the chain.
    """

    group: str
    origin: str
    key: str
    eventId: str


class Transparency:
    """
    What clients may read of the logs of groups. A principal needs the right to read
    L{LOG_TOPIC} in the group; for the proof of an event also the right to read that event.

    All of it fails with L{NoSuchCall<svcbroker.errors.NoSuchCall>} where the ledger of the group
    has no log.
    """

    def __init__(
        self,
        groups: Groups,
        timeouts: TimeoutQueue,
        proving: Proving,
        logs: Mapping[str, TransparencyLog],
    ) -> None:
        """
        @param logs: the logs by the id of their group.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._proving = proving
        self._logs = logs

    @asDeferred
    async def checkpoint(self, principal: Principal, groupId: str) -> bytes:
        """The newest checkpoint: a signed note of C{c2sp.org/tlog-checkpoint}."""
        log = self._find(principal, groupId)
        return (await self._timeouts.wait(log.sign())).note.encode()

    @asDeferred
    async def tile(self, principal: Principal, groupId: str, path: str) -> bytes | None:
        """
        A tile, or a bundle of entries.

        @param path: what stands below C{tile/}.
        @return: C{None} where the log has not all of it.
        @raise ParameterInvalid: this is not the path of a tile.
        """
        log = self._find(principal, groupId)
        try:
            tile, isEntries = parseTilePath(path)
        except Malformed as error:
            raise ParameterInvalid(str(error)) from None
        return await self._timeouts.wait(log.entries(tile) if isEntries else log.tile(tile))

    @asDeferred
    async def key(self, principal: Principal, groupId: str) -> LogKeyAnswer:
        """The key of a log."""
        log = self._find(principal, groupId)
        certified = await self._timeouts.wait(log.certified())
        verifier = certified.key.verifier
        return LogKeyAnswer(
            group=log.group,
            origin=verifier.name,
            key=verifier.text,
            eventId=str(certified.eventId),
        )

    @asDeferred
    async def prove(self, principal: Principal, groupId: str, eventId: EventId) -> LogProof:
        """
        Prove an event: that the header of its block is in the log. The proof of the event from that
        header is the extra data, as L{verifyWitnessed<svcbroker.proofs.verifyWitnessed>} reads it.

        @raise EventNotFound: there is no such event, or the principal may not read it.
        @raise HeightUnknown: its block is above the chain's height.
        """
        log = self._find(principal, groupId)
        height = eventId.height
        proof = await self._proving.prove(principal, groupId, eventId, None, height)
        checkpoint = await self._timeouts.wait(log.sign(height))
        path = await self._timeouts.wait(log.path(height, checkpoint.head.size))
        return LogProof(
            index=height,
            path=tuple(path),
            checkpoint=checkpoint.note,
            extra=msgspec.json.encode(proof),
        )

    def _find(self, principal: Principal, groupId: str) -> TransparencyLog:
        """
        @raise NotAuthorized: it is not granted.
        """
        group = self._groups.resolve(principal, groupId)
        principal.require(Action.SUBSCRIBE, group, LOG_TOPIC)
        log = self._logs.get(group)
        if log is None:
            raise NoSuchCall("the ledger of this group has no chain, and so no log")
        return log
