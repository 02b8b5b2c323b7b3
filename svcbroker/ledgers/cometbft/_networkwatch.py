"""
The watch over the network: whether the engine answers, and whether a quorum of the validators does;
and the node list and the health that follow from what one engine reports. And the ports of an
engine: the RPC, the child process, the listener and the home that the ledger beside it uses; tests
have their own.

Lost packets do not end a connection, and engines send nothing while nothing is decided. So, while
no block shows that the others are there, their engines are asked for the beginning of a handshake.

An engine reports validators by their votes and peers by their connections, but not which peer is
which validator: a node votes with one key and connects with another. They are matched by name:
provisioning gives a validator in the genesis the name of its engine.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve, field, frozen
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IListeningPort, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from ...interfaces import LedgerContext
from ...model import Health, NodeRecord, NodeType
from ...net.deferreds import asDeferred
from ...proofs.cometbft import BlockFlag, Commit, Instant, Validator
from . import _rpc as calls
from ._cometsettings import CometSettings
from ._engine import CONNECTIONS, Engine
from ._home import LayoutError, namesOf, readGenesis, readPeers, readSignedHeight
from ._rpc import (
    ConsensusState,
    EngineError,
    EngineRpc,
    NetInfo,
    NodeInfo,
    Reason,
    RoundState,
    Status,
    connectEngine,
)
from .abci import AbciFactory, listenUnix

DIALS: Final = 8
"""The number of times that an engine dials each of its peers after its start."""


class EngineSupervisor(typing.Protocol):
    """
    A supervisor of the engine: L{Engine<svcbroker.ledgers.cometbft._engine.Engine>} or
    L{ForeignEngine}.
    """

    @property
    def reason(self) -> str:
        """The reason for which the engine is not running; empty while it is."""

    @property
    def failure(self) -> str:
        """
        The reason for which the engine does not come back by itself; empty if it runs or may come
        back.
        """

    def start(self) -> None:
        """Start the engine."""

    def stop(self) -> Deferred[None]:
        """Stop the engine."""

    def connectionsChanged(self, count: int) -> None:
        """The number of the application's connections has changed."""


class ForeignEngine:
    """
    An engine that runs outside of this daemon.
    """

    def __init__(self, socket: Path) -> None:
        """
        @param socket: the application's socket.
        """
        self._socket = socket
        self._connections = 0

    @property
    def reason(self) -> str:
        """See L{EngineSupervisor}."""
        if self._connections < CONNECTIONS:
            return f"no engine is connected to {self._socket}"
        return ""

    @property
    def failure(self) -> str:
        """See L{EngineSupervisor}."""
        return ""

    def start(self) -> None:
        """See L{EngineSupervisor}."""

    def stop(self) -> Deferred[None]:
        """See L{EngineSupervisor}."""
        return succeed(None)

    def connectionsChanged(self, count: int) -> None:
        """See L{EngineSupervisor}."""
        self._connections = count


def startCommand(engine: Path, home: Path) -> Sequence[str]:
    """
    The command that starts an engine.

    An engine waits up to three seconds, at random, before it dials a persistent peer, and seconds
    more after a dial that failed, or that met one of the peer's own. So each is listed several
    times, and the first of its dials counts.
    """
    command = [str(engine), "start", "--home", str(home)]
    peers = readPeers(home) or {}
    if peers:
        places = [
            f"{node}@[{host}]:{port}" if ":" in host else f"{node}@{host}:{port}"
            for node, (host, port) in peers.items()
        ]
        command += ["--p2p.persistent_peers", ",".join(places * DIALS)]
    return command


class _Knock(Protocol):
    """
    Waits for the first bytes of a handshake, which an engine sends to everybody who connects, and
    hangs up.
    """

    def __init__(self) -> None:
        self.heard: Deferred[None] = Deferred(lambda heard: self._hangUp())

    def _hangUp(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Something has come."""
        self._hangUp()
        if not self.heard.called:
            self.heard.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Nothing more comes."""
        if not self.heard.called:
            self.heard.errback(reason)


@asDeferred
async def knock(place: IStreamClientEndpoint) -> None:
    """
    Connect to an engine as its peers do, and wait for its first bytes. An operating system may
    accept connections for an engine that is stopped.
    """
    factory = Factory.forProtocol(_Knock)
    factory.noisy = False
    connection: Any = await place.connect(factory)
    await connection.heard


@define
class EnginePorts:
    """
    The parts of one ledger.

    @ivar socket: the application's socket.
    @ivar rpc: the client of the engine's RPC.
    @ivar engine: the engine's supervisor.
    """

    socket: Path
    rpc: EngineRpc
    engine: EngineSupervisor
    _home: Path
    _listen: Callable[[AbciFactory], IListeningPort]
    _knock: Callable[[str, int], Deferred[None]]
    _port: IListeningPort | None = field(default=None, init=False)
    _names: Mapping[str, bytes] | None = field(default=None, init=False)
    _peers: Mapping[str, tuple[str, int]] | None = field(default=None, init=False)
    _isRead: bool = field(default=False, init=False)

    @classmethod
    def real(cls, context: LedgerContext, settings: CometSettings) -> EnginePorts:
        """
        The parts of a daemon.
        """
        reactor: Any = context.reactor
        socket = settings.socket
        engine: EngineSupervisor = ForeignEngine(socket)
        if settings.engine is not None:
            engine = Engine(
                startCommand(settings.engine, settings.home),
                reactor=reactor,
                entropy=lambda: int.from_bytes(context.entropy(4), "big") / 2**32,
                sockets=[settings.rpc] if isinstance(settings.rpc, Path) else [],
            )
        return cls(
            socket=socket,
            rpc=connectEngine(reactor, settings.rpc, settings.timeout),
            engine=engine,
            home=settings.home,
            listen=lambda factory: listenUnix(reactor, socket, factory),
            knock=lambda host, port: knock(HostnameEndpoint(reactor, host, port)),
        )

    def listen(self, factory: AbciFactory) -> None:
        """
        Listen for the engine.

        @raise ValueError: the socket's path is invalid or in use.
        @raise OSError: the operating system refuses.
        """
        self._port = self._listen(factory)

    def stopListening(self) -> Deferred[Any]:
        """Stop listening. Fires when the socket is removed."""
        port, self._port = self._port, None
        return succeed(None) if port is None else maybeDeferred(port.stopListening)

    def names(self) -> Mapping[str, bytes]:
        """The public keys of the first validators, by the names of their engines."""
        if self._names is None:
            try:
                self._names = namesOf(readGenesis(self._home))
            except LayoutError:
                # The engine is on another machine: only votes tell which validators are active.
                self._names = {}
        return self._names

    def peers(self) -> Collection[str] | None:
        """The ids of the engine's persistent peers; C{None} if unknown."""
        if not self._isRead:
            self._isRead, self._peers = True, readPeers(self._home)
        return self._peers

    def probe(self, node: str) -> Deferred[None]:
        """
        Ask one of the L{peers} for a sign of life. Fires when it has sent something.
        """
        assert self._peers is not None
        host, port = self._peers[node]
        return self._knock(host, port)

    def signedHeight(self) -> int:
        """The last height that the engine's validator has signed; 0 if it is unknown."""
        return readSignedHeight(self._home)

    def close(self) -> Deferred[Any]:
        """Close the connections to the engine."""
        return self.rpc.close()


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
        [calls.statusCall(), calls.netInfoCall(), calls.consensusStateCall()]
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
    @param names: what L{namesOf<svcbroker.ledgers.cometbft._home.namesOf>} gives.
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
        if entry.flag != BlockFlag.ABSENT and entry.validatorAddress == validator.address
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
    The reason for which a transaction that is submitted to this engine cannot be decided; empty if
    it can. For the parameters see L{healthOf}.
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


LOOK: Final = 1.0
"""Seconds from one look at the engine and its peers to the next."""

LOOK_TIMEOUT: Final = 1.0
"""Seconds that a caller waits for the engine's answer."""

SILENCE: Final = 2.0
"""Seconds without a sign of life after which a peer, or the engine, counts as gone."""

GRACE: Final = 5.0
"""Seconds after its start that an engine may take to find a quorum; publishes wait meanwhile. They
wait as long where the engine or a quorum is silent: the machine may just be too slow."""

MAX_TRIES: Final = 5
"""Probes without an answer after which a connected peer is not asked: it cannot be dialled."""


class NetworkWatch:
    """
    Looks at the engine and its peers all the time, and tells what that shows.
    """

    def __init__(self, parts: EnginePorts, clock: IReactorTime, now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._ports = parts
        self._clock = clock
        self._now = now
        self._loop = LoopingCall(self._tick)
        self._loop.clock = clock
        self._lookAt = 0.0
        self._looking: Deferred[Picture] | None = None
        self._waiters: list[Deferred[Picture]] = []
        self._last = Health(isReady=True)
        # When the connected peers have answered last, and how often they have not.
        self._heard: dict[str, float] = {}
        self._tries: Counter[str] = Counter()
        self._connected: frozenset[str] = frozenset()
        self._probes: set[Deferred[None]] = set()
        self._decidedAt = float("-inf")
        self._startedAt = self._reachedAt = self._levelAt = clock.seconds()
        self._alone = ""

    def start(self) -> None:
        """Begin to look, unless that was done."""
        if not self._loop.running:
            self._startedAt = self._reachedAt = self._levelAt = self._clock.seconds()
            self._loop.start(LOOK, now=False)

    def stop(self) -> None:
        """Look no more."""
        if self._loop.running:
            self._loop.stop()
        for probe in list(self._probes):
            probe.cancel()
        if self._looking is not None:
            self._looking.cancel()

    def decided(self) -> None:
        """A block was decided just now: a quorum is there, and this node has what it has."""
        self._decidedAt = self._reachedAt = self._levelAt = self._clock.seconds()
        self._alone = ""

    @property
    def age(self) -> float:
        """Seconds since this node had, for all it knows, what the network has decided."""
        return max(0.0, self._clock.seconds() - self._levelAt)

    @property
    def refusal(self) -> str:
        """
        The reason for which nothing that is submitted now would be decided; empty where that is not
        known.
        """
        now = self._clock.seconds()
        silence = now - max(self._lookAt, self._decidedAt)
        if self._looking is not None and silence > GRACE:
            return f"the engine has not answered for {silence:.0f} seconds"
        return self._alone if now - self._reachedAt > GRACE else ""

    @asDeferred
    async def health(self) -> Health:
        """
        Whether the network makes progress, and this engine with it, as it is now.

        @raise EngineError: the engine does not answer, or not at once.
        """
        try:
            picture = await self._wait()
        except (TimeoutError, CancelledError):
            if self._clock.seconds() - self._decidedAt <= SILENCE:
                # It is busy with blocks.
                return self._last
            silence = self._clock.seconds() - self._lookAt
            words = f"no answer for {silence:.0f} seconds"
            raise EngineError(Reason.TIMEOUT, words) from None
        return self._judge(picture)

    @asDeferred
    async def picture(self) -> Picture:
        """
        The engine's view of the network, without the peers that are connected but silent.

        @raise EngineError: the engine does not answer.
        """
        return await self._look()

    # Looking.

    def _tick(self) -> None:
        now = self._clock.seconds()
        isQuiet = now - self._decidedAt >= LOOK
        for node in self._connected:
            if node not in self._heard or isQuiet:
                self._probe(node)
        if self._ports.engine.reason:
            # It has to find the others anew.
            self._startedAt, self._alone = now, ""
        else:
            self._look().addCallbacks(self._judge, lambda failure: None)

    def _wait(self) -> Deferred[Picture]:
        looked = self._look()
        left = self._lookAt + LOOK_TIMEOUT - self._clock.seconds()
        if not looked.called:
            if left > 0:
                looked.addTimeout(left, self._clock)
            else:
                looked.cancel()
        return looked

    def _look(self) -> Deferred[Picture]:
        """Look, or wait for the look that is under way."""
        waiter: Deferred[Picture] = Deferred()
        self._waiters.append(waiter)
        if self._looking is None:
            self._lookAt = self._clock.seconds()
            self._looking = looking = Deferred.fromCoroutine(takePicture(self._ports.rpc))
            looking.addBoth(self._looked)
        return waiter

    def _looked(self, result: Picture | Failure) -> None:
        self._looking = None
        waiters, self._waiters = self._waiters, []
        if isinstance(result, Picture):
            result = self._withoutSilent(result)
        for waiter in waiters:
            if not waiter.called:
                waiter.callback(result)

    def _withoutSilent(self, picture: Picture) -> Picture:
        network = picture.network
        wanted = self._ports.peers() or {}
        connected = {peer.nodeInfo.id for peer in network.peers}
        self._connected = frozenset(connected.intersection(wanted))
        for node in {*self._tries} - connected:
            self._heard.pop(node, None)
            del self._tries[node]
        since = self._clock.seconds() - SILENCE
        silent = {node for node, heard in self._heard.items() if heard < since}
        if not silent or self._decidedAt >= since:
            return picture
        peers = tuple(peer for peer in network.peers if peer.nodeInfo.id not in silent)
        return evolve(picture, network=replace(network, peers=peers, nPeers=len(peers)))

    def _probe(self, node: str) -> None:
        if self._tries[node] >= MAX_TRIES and node not in self._heard:
            return
        self._tries[node] += 1
        probe = self._ports.probe(node).addTimeout(SILENCE, self._clock)
        self._probes.add(probe)

        def answered(result: Any) -> None:
            self._heard[node] = self._clock.seconds()

        probe.addCallbacks(answered, lambda failure: None)
        probe.addBoth(lambda result: self._probes.discard(probe))

    # What it shows.

    def _judge(self, picture: Picture) -> Health:
        now, wanted = self._clock.seconds(), self._ports.peers()
        records = nodeRecords(picture, self._now(), self._ports.names(), (), wanted)
        lack = lackOfQuorum(picture, records, wanted)
        if not lack:
            self._reachedAt, self._alone = now, ""
        elif self._reachedAt > self._startedAt or now - self._startedAt > GRACE:
            since = datetime.fromtimestamp(self._now() - (now - self._reachedAt), UTC)
            self._alone = f"alone since {since:%Y-%m-%d %H:%M:%S} UTC: {lack}"
            self._last = Health(isReady=False, reason=self._alone)
            return self._last
        self._last = healthOf(picture, records, wanted)
        if self._last.isReady:
            self._levelAt = now
        return self._last
