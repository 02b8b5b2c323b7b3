"""
The node list and the health of a network, from what one engine reports.

An engine reports validators by their votes and peers by their connections, but not which peer is
which validator: a node votes with one key and connects with another. They are matched by name:
provisioning gives a validator in the genesis the name of its engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from ...model import Health, NodeRecord, NodeType
from ...proofs.cometbft import Commit, Flag, Instant, Validator
from . import _calls as calls
from ._calls import ConsensusState, NetInfo, NodeInfo, RoundState, Status
from ._home import Genesis
from ._rpc import EngineRpc

RECENT: Final = 60 * 10**9
"""Nanoseconds for which a vote shows that a validator is active."""

LOST: Final = 2 * 10**9
"""The same while a persistent peer is not connected: it may be that validator."""

LAG: Final = 2
"""Blocks by which an engine may be behind its peers: their states are not read all at once."""


@frozen(kw_only=True)
class Picture:
    """
    One engine's view of the network, at about one time.

    @ivar status: the engine's own status.
    @ivar network: its connected peers.
    @ivar state: the consensus state of the engine and of its peers.
    @ivar commit: the votes for its newest block; C{None} before the first block.
    @ivar time: the time of that block.
    @ivar voters: the validators of that block.
    @ivar validators: the validators of the next block, in the engine's order.
    """

    status: Status
    network: NetInfo
    state: ConsensusState
    commit: Commit | None
    time: Instant
    voters: Sequence[Validator]
    validators: Sequence[Validator]

    @property
    def height(self) -> int:
        """The height of the engine's newest block."""
        return self.status.syncInfo.latestBlockHeight


async def takePicture(rpc: EngineRpc) -> Picture:
    """
    Query an engine.

    @raise EngineError: it does not answer.
    """
    status, network, state = await rpc.askAll(
        [calls.status(), calls.netInfo(), calls.consensusState()]
    )
    validators = voters = await rpc.validators()
    commit, time = None, Instant(0)
    if status.syncInfo.latestBlockHeight:
        signed = (await rpc.commit()).signedHeader
        commit, time = signed.commit, signed.header.time
        if signed.header.validatorsHash != signed.header.nextValidatorsHash:
            voters = await rpc.validators(commit.height)
    return Picture(
        status=status,
        network=network,
        state=state,
        commit=commit,
        time=time,
        voters=voters,
        validators=validators,
    )


def namesOf(genesis: Genesis) -> Mapping[str, bytes]:
    """
    The public keys of the first validators, by their names. Duplicate names are left out.
    """
    names = [validator.name for validator in genesis.validators]
    return {
        validator.name: validator.pubKey.value
        for validator in genesis.validators
        if validator.name and names.count(validator.name) == 1
    }


@frozen(kw_only=True)
class _Known:
    """A connected node: the engine itself, or one of its peers."""

    info: NodeInfo
    round: int
    height: int


def nodeRecords(
    picture: Picture,
    now: float,
    names: Mapping[str, bytes],
    order: Sequence[bytes] = (),
    wanted: Collection[str] | None = None,
) -> Sequence[NodeRecord]:
    """
    The node list: validators as sealers, other connected nodes as observers.

    C{view} is the round that a node is in. A validator is active if it is connected, or if it
    has voted for the newest block and that block is recent. Height and round of a validator that
    is not connected are those of its vote.

    @param now: the wall clock: seconds since the epoch.
    @param names: what L{namesOf} gives.
    @param order: public keys of validators, in the order in which to list them first.
    @param wanted: the ids of the engine's persistent peers; C{None} if unknown.
    """
    known = dict(_connected(picture, names))
    voted = _voters(picture)
    # A clock that is behind makes no vote recent.
    isRecent = abs(now * 10**9 - picture.time) <= (LOST if _missing(picture, wanted) else RECENT)
    places = {key: index for index, key in enumerate(order)}
    validators = sorted(
        picture.validators, key=lambda each: places.get(each.pubKey.value, len(places))
    )
    called = {key: name for name, key in names.items()}
    records = []
    for validator in validators:
        key = validator.pubKey.value
        node = known.pop(key, None)
        hasVoted = key in voted
        record = NodeRecord(
            nodeId=key,
            name=called.get(key) if node is None else node.info.moniker,
            view=voted.get(key, 0) if node is None else node.round,
            nodeType=NodeType.SEALER,
            height=(picture.height if hasVoted else 0) if node is None else node.height,
            isActive=node is not None or (hasVoted and isRecent),
        )
        records.append(record)
    records.extend(
        NodeRecord(
            nodeId=key,
            name=node.info.moniker,
            view=node.round,
            nodeType=NodeType.OBSERVER,
            height=node.height,
            isActive=True,
        )
        for key, node in sorted(known.items(), key=lambda item: item[1].info.id)
    )
    return records


def _missing(picture: Picture, wanted: Collection[str] | None) -> int:
    """The number of persistent peers that are not connected."""
    return len(set(wanted or ()).difference(peer.nodeInfo.id for peer in picture.network.peers))


def _connected(picture: Picture, names: Mapping[str, bytes]) -> Iterator[tuple[bytes, _Known]]:
    """
    The connected nodes, by their keys as validators, or by their ids where those are unknown.
    """
    status = picture.status
    own = status.validatorInfo.pubKey.value
    deciding = {validator.pubKey.value for validator in picture.validators}
    # A name that two nodes claim, or that is the engine's own, matches no validator.
    monikers = [peer.nodeInfo.moniker for peer in picture.network.peers]
    monikers.append(status.nodeInfo.moniker)
    states = {
        peer.nodeAddress.partition("@")[0]: peer.peerState.roundState
        for peer in picture.state.peers
        if peer.peerState is not None
    }
    matched: set[bytes] = {own}
    for peer in picture.network.peers:
        info = peer.nodeInfo
        key = names.get(info.moniker) if monikers.count(info.moniker) == 1 else None
        if key is None or key in matched or key not in deciding:
            key = _idOf(info)
        matched.add(key)
        state = states.get(info.id)
        yield (
            key,
            _Known(
                info=info,
                round=_roundOf(state),
                # It is deciding the height after its newest block.
                height=0 if state is None else max(0, state.height - 1),
            ),
        )
    isValidator = own in deciding
    yield (
        own if isValidator else _idOf(status.nodeInfo),
        _Known(
            info=status.nodeInfo,
            round=_roundOf(picture.state.roundState),
            height=picture.height,
        ),
    )


def _idOf(info: NodeInfo) -> bytes:
    try:
        return bytes.fromhex(info.id)
    except ValueError:
        return info.id.encode("utf-8")


def _roundOf(state: RoundState | None) -> int:
    return 0 if state is None else max(0, state.round)


def _voters(picture: Picture) -> Mapping[bytes, int]:
    """The validators that have voted on the newest block, with the round of their votes."""
    if picture.commit is None:
        return {}
    round = picture.commit.round
    return {
        validator.pubKey.value: round
        for validator, entry in zip(picture.voters, picture.commit.signatures, strict=False)
        if entry.flag != Flag.ABSENT and entry.validatorAddress == validator.address
    }


def nodeCount(network: NetInfo) -> int:
    """The number of nodes: an engine and its connected peers."""
    return network.nPeers + 1


def healthOf(
    picture: Picture, records: Sequence[NodeRecord], wanted: Collection[str] | None = None
) -> Health:
    """
    Whether a transaction that is submitted to this engine can be decided, and whether the engine
    has the blocks of its peers.

    @param records: the result of L{nodeRecords}.
    @param wanted: the ids of the engine's persistent peers; C{None} if unknown: all others then.
        A validator that is reached through other nodes is silent while nothing is decided, and
        is not counted as missing.
    """
    ahead = _ahead(picture, records)
    if picture.status.syncInfo.catchingUp:
        highest = max((each.height for each in ahead), default=0)
        of = f" of {highest}" if highest else ""
        return Health(
            isReady=False,
            reason=f"the engine is catching up: it is at height {picture.height}{of}",
        )
    power, total = _powers(picture)
    # A minority of the power cannot make a node unready. An unknown peer counts as one validator.
    claimed = sum(power.get(each.nodeId, total // max(1, len(power))) for each in ahead)
    if 3 * claimed > total or 0 < len(ahead) == len(picture.network.peers):
        return Health(
            isReady=False,
            reason=f"the engine is behind: it is at height {picture.height}, and its peers are "
            f"at {min(each.height for each in ahead)}",
        )
    lack = lackOfQuorum(picture, records, wanted)
    return Health(isReady=not lack, reason=lack)


def lackOfQuorum(
    picture: Picture, records: Sequence[NodeRecord], wanted: Collection[str] | None = None
) -> str:
    """
    Why a transaction that is submitted to this engine cannot be decided; empty if it can. For the
    parameters see L{healthOf}.
    """
    power, total = _powers(picture)
    active = sum(power[each.nodeId] for each in records if each.isActive and each.nodeId in power)
    # A peer that matches no validator may still be one.
    unknown = sum(each.nodeType is NodeType.OBSERVER for each in records)
    silent = sorted(power[each.nodeId] for each in records if not each.isActive)
    reached = unknown
    if wanted is not None:
        reached = max(unknown, len(silent) - _missing(picture, wanted))
    possible = active + sum(silent[len(silent) - min(reached, len(silent)) :])
    if 3 * possible <= 2 * total:
        count = sum(each.isActive and each.nodeId in power for each in records)
        return f"{count} of {len(power)} validators are active, and more than two thirds must agree"
    return ""


def _powers(picture: Picture) -> tuple[dict[bytes, int], int]:
    """The power of each validator by its key, and of all."""
    power: dict[bytes, int] = {each.pubKey.value: each.power for each in picture.validators}
    return power, sum(power.values())


def _ahead(picture: Picture, records: Sequence[NodeRecord]) -> Sequence[NodeRecord]:
    """The connected nodes that have more blocks than the engine."""
    # The engine's own state is read together with those of its peers, its status is not.
    own = max(picture.height, picture.state.roundState.height - 1)
    return [each for each in records if each.height > own + LAG]
