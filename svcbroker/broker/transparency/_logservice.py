"""
The use cases of transparency logs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from attrs import frozen

from ...access import Principal
from ...chain import Malformed
from ...errors import NoSuchCall, ParameterInvalid
from ...interfaces import Action
from ...model import EventId
from ...net.deferreds import asDeferred
from ...proofs.tlog import LogProof, parseTilePath
from .._groups import Groups, TimeoutQueue
from .._proving import Proving
from ._cosigning import Witnessing
from ._transparencylog import LOG_TOPIC, TransparencyLog


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


@frozen(kw_only=True)
class WitnessAnswer:
    """
    The part of a log that a witness has cosigned.

    @ivar name: its name in the policy.
    @ivar key: its public key: a vkey.
    @ivar url: where it is asked.
    @ivar size: the size of the log that it has cosigned last; 0 for none.
    @ivar time: when that was, by its clock, in milliseconds since the epoch; 0 for never.
    @ivar isRefusing: whether it says that the log has not only grown.
    @ivar refusals: how often it has said so since the broker started.
    @ivar lastError: why it has not cosigned since; empty where it has.
    """

    name: str
    key: str
    url: str
    size: int
    time: int
    isRefusing: bool
    refusals: int
    lastError: str


@frozen(kw_only=True)
class WitnessesAnswer:
    """
    The witnesses of a log.

    @ivar group: the id of the group.
    @ivar size: how many entries the log has now.
    @ivar cosigned: the size of the newest checkpoint that a quorum has cosigned; 0 for none.
    @ivar quorum: the name of the quorum in the policy; empty where there is no policy.
    @ivar witnesses: the witnesses.
    """

    group: str
    size: int
    cosigned: int
    quorum: str
    witnesses: Sequence[WitnessAnswer]


class Transparency:
    """
    The logs of groups, as clients may read them. A principal needs the right to read
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
        witnessings: Mapping[str, Witnessing],
    ) -> None:
        """
        @param logs: the logs by the id of their group.
        @param witnessings: those that have witnesses.
        """
        self._groups = groups
        self._timeouts = timeouts
        self._proving = proving
        self._logs = logs
        self._witnessings = witnessings

    @asDeferred
    async def checkpoint(self, principal: Principal, groupId: str) -> bytes:
        """The newest checkpoint: a signed note of C{c2sp.org/tlog-checkpoint}."""
        log = self._find(principal, groupId)
        return (await self._timeouts.wait(log.serve())).note.encode()

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
        checkpoint = await self._timeouts.wait(log.serveFor(height))
        path = await self._timeouts.wait(log.path(height, checkpoint.head.size))
        return LogProof(
            index=height,
            path=tuple(path),
            checkpoint=checkpoint.note,
            extra=msgspec.json.encode(proof),
        )

    @asDeferred
    async def witnesses(self, principal: Principal, groupId: str | None) -> WitnessesAnswer:
        """
        The witnesses of a log, and what they have cosigned of it.

        @raise ParameterInvalid: the ledger of the group has no log.
        """
        try:
            log = self._find(principal, groupId)
        except NoSuchCall as error:
            raise ParameterInvalid(f"groupId: {error.message}") from None
        size = await self._timeouts.wait(log.size())
        witnessing = self._witnessings.get(log.group)
        if witnessing is None:
            return WitnessesAnswer(group=log.group, size=size, cosigned=0, quorum="", witnesses=())
        newest = witnessing.cosigned.newest
        return WitnessesAnswer(
            group=log.group,
            size=size,
            cosigned=0 if newest is None else newest.head.size,
            quorum=witnessing.cosigned.policy.quorum,
            witnesses=[
                WitnessAnswer(
                    name=each.party.name,
                    key=each.party.key.text,
                    url=each.party.url,
                    size=each.size,
                    time=each.time * 1000,
                    isRefusing=each.isRefusing,
                    refusals=each.refusals,
                    lastError=each.lastError,
                )
                for each in witnessing.witnesses
            ],
        )

    def _find(self, principal: Principal, groupId: str | None) -> TransparencyLog:
        """
        @raise NotAuthorized: it is not granted.
        """
        group = self._groups.resolve(principal, groupId)
        principal.require(Action.SUBSCRIBE, group, LOG_TOPIC)
        log = self._logs.get(group)
        if log is None:
            raise NoSuchCall("the ledger of this group has no chain, and so no log")
        return log
