"""
The watch over the network: whether the engine answers, and whether a quorum of the validators does.

Lost packets do not end a connection, and engines send nothing while nothing is decided. So, while
no block shows that the others are there, their engines are asked for the beginning of a handshake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from attrs import evolve
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from ...model import Health
from ...net.deferreds import asDeferred
from ._admin import Picture, healthOf, lackOfQuorum, nodeRecords, takePicture
from ._calls import EngineError, Reason
from ._parts import EngineParts

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

    def __init__(self, parts: EngineParts, clock: IReactorTime, now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._parts = parts
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
        """Why nothing that is submitted now would be decided; empty where that is not known."""
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
        if self._parts.engine.reason:
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
            self._looking = looking = Deferred.fromCoroutine(takePicture(self._parts.rpc))
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
        wanted = self._parts.peers() or {}
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
        probe = self._parts.probe(node).addTimeout(SILENCE, self._clock)
        self._probes.add(probe)

        def answered(result: Any) -> None:
            self._heard[node] = self._clock.seconds()

        probe.addCallbacks(answered, lambda failure: None)
        probe.addBoth(lambda result: self._probes.discard(probe))

    # What it shows.

    def _judge(self, picture: Picture) -> Health:
        now, wanted = self._clock.seconds(), self._parts.peers()
        records = nodeRecords(picture, self._now(), self._parts.names(), (), wanted)
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
