"""
The messages between replicas, the effects of a replica's inputs, for the caller to carry out, and
the simulated network between the replicas of one process.

Messages are values; the simulated network passes them on as they are. Each is authenticated by the
signature over L{votePayload<svcbroker.chain.votePayload>}. In the literature's terms they are:
pre-prepare (L{Proposal}), prepare and commit (L{PhaseVote}), view change (L{RoundChange}).

They are C{msgspec} structures because many are made for each block, and these are made in a
fraction of the time of attrs classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import sha256
from random import Random
from typing import TypeAlias

from attrs import evolve, frozen
from msgspec import Struct
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from ...chain import Candidate, Certificate, Header, Phase, Transaction

_NOT_PREPARED = sha256(b"svcbroker/not-prepared").digest()


class ProposedBlock(Struct, frozen=True, kw_only=True):
    """
    A block as it is sent: its header and its transactions. The header's hash identifies both.
    """

    header: Header
    transactions: Sequence[Transaction]

    @classmethod
    def of(cls, candidate: Candidate) -> ProposedBlock:
        """A block that was executed."""
        return cls(header=candidate.header, transactions=candidate.transactions)


class PhaseVote(Struct, frozen=True, kw_only=True, cache_hash=True, gc=False):
    """
    A prepare or a commit.

    @ivar phase: C{PREPARE} or C{COMMIT}.
    @ivar sender: the index of the voting replica.
    @ivar digest: the hash of the header voted for.
    """

    phase: Phase
    sender: int
    height: int
    round: int
    digest: bytes
    signature: bytes


class PreparedCertificate(Struct, frozen=True, kw_only=True):
    """
    A quorum's prepares for one header in one round. It proves that no other block can have been
    decided in that round.

    @ivar signatures: pairs of a replica's index and the signature of its prepare, by ascending
        index.
    """

    round: int
    digest: bytes
    signatures: Sequence[tuple[int, bytes]]


class RoundChange(Struct, frozen=True, kw_only=True):
    """
    A replica's announcement that it has entered a round, with its lock.

    @ivar round: the round entered.
    @ivar prepared: the replica's prepared certificate of the highest round, if it has one.
    @ivar block: the block of that certificate.
    """

    sender: int
    height: int
    round: int
    prepared: PreparedCertificate | None
    block: ProposedBlock | None
    signature: bytes

    @property
    def digest(self) -> bytes:
        """The digest of the lock, which the signature covers."""
        return roundChangeDigest(self.prepared)


class Proposal(Struct, frozen=True, kw_only=True):
    """
    A leader's block for a round.

    @ivar justification: in rounds after the first, a quorum's round changes to this round.
    """

    sender: int
    height: int
    round: int
    block: ProposedBlock
    justification: Sequence[RoundChange]
    signature: bytes

    @property
    def phase(self) -> Phase:
        """The phase that its signature covers."""
        return Phase.PROPOSE

    @property
    def digest(self) -> bytes:
        """The hash of the proposed header, which its signature covers."""
        return self.block.header.hash


class BlockRequest(Struct, frozen=True, kw_only=True):
    """
    A request for the decided block of a height, from a replica that may be behind.
    """

    sender: int
    height: int


class DecidedBlock(Struct, frozen=True, kw_only=True):
    """
    A decided block with its certificate, for a replica that is behind.
    """

    sender: int
    header: Header
    certificate: Certificate

    @property
    def height(self) -> int:
        """The height of the block."""
        return self.header.height


Message: TypeAlias = Proposal | PhaseVote | RoundChange | BlockRequest | DecidedBlock
"""Any message between replicas."""


def roundChangeDigest(prepared: PreparedCertificate | None) -> bytes:
    """
    The digest that a round change signs in place of a header's hash: of the round and the block of
    its lock, or of the fact that it has none.
    """
    if prepared is None:
        return _NOT_PREPARED
    return sha256(
        b"svcbroker/prepared" + prepared.round.to_bytes(8, "big") + prepared.digest
    ).digest()


class Timer(IntEnum):
    """The two timers of a replica."""

    ROUND = 0
    """The round has timed out."""
    RESEND = 1
    """It is time to retransmit."""


class Send(Struct, frozen=True):
    """
    Send a message.

    @ivar target: a replica's index, or C{None} for all others.
    """

    message: Message
    target: int | None = None


class StartTimer(Struct, frozen=True):
    """
    Start a timer: call L{timeOut<svcbroker.ledgers.pbft._replica.Replica.timeOut>} with C{timer}
    after C{delay} seconds. Replaces a running timer of the same kind. A timer that is no
    longer needed is not stopped: the replica ignores it.
    """

    timer: Timer
    delay: float


class Decide(Struct, frozen=True):
    """Store a decided block."""

    candidate: Candidate
    certificate: Certificate


class Evidence(Struct, frozen=True):
    """
    Report that a replica has signed two different values for one height, round and phase.

    @ivar first: the message received first; it is the one that counts.
    @ivar second: the contradicting message.
    """

    first: PhaseVote | Proposal
    second: PhaseVote | Proposal


Effect: TypeAlias = Send | StartTimer | Decide | Evidence
"""Any effect of a replica."""


MAX_IN_FLIGHT = 100_000
"""The most messages in flight. Further ones are lost, as on a real network."""

DELIVERIES_PER_TURN = 500
"""The number of messages that are delivered before control returns to the reactor."""


@frozen(kw_only=True)
class Conditions:
    """
    The faults of the network. By default there are none.

    @ivar delay: the minimum and maximum time that a message takes, in seconds. If they differ,
        messages overtake each other.
    @ivar loss: the share of messages that are lost, 0 to 1.
    @ivar duplication: the share of messages that arrive twice, 0 to 1.
    @ivar cut: pairs (from, to) of replicas; no message passes from the first to the second.
    """

    delay: tuple[float, float] = (0.0, 0.0)
    loss: float = 0.0
    duplication: float = 0.0
    cut: frozenset[tuple[int, int]] = frozenset()

    def partition(self, *islands: set[int]) -> Conditions:
        """These conditions, with all links between different islands cut."""
        cut = {
            (sender, target)
            for island in islands
            for other in islands
            if other is not island
            for sender in island
            for target in other
        }
        return evolve(self, cut=self.cut | cut)

    @property
    def arePerfect(self) -> bool:
        """Whether every message arrives exactly once and without delay."""
        return not (self.delay[1] or self.loss or self.duplication or self.cut)


class SimulatedNetwork:
    """
    Carries messages between replicas: undelayed ones with the next L{flush}, the others as the
    conditions say.

    All messages that have arrived for one replica are delivered together, in order of arrival, so a
    replica has seen them all before it votes. Replicas are served in the order of their first
    waiting message.

    Links are authenticated, as links between separate machines are: a message that names another
    sender is not sent.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        random: Random,
        deliver: Callable[[int, Sequence[Message]], None],
        conditions: Conditions | None = None,
    ) -> None:
        """
        @param random: the source of delays and losses.
        @param deliver: C{deliver(target, messages)} is called with the messages that have arrived.
        """
        self.conditions = Conditions() if conditions is None else conditions
        self._reactor = reactor
        self._random = random
        self._deliver = deliver
        # Undelivered messages by target. The keys are in the order of the first arrivals.
        self._arrived: dict[int, list[Message]] = {}
        self._arrivedCount = 0
        self._isDelivering = False
        self._inFlight: set[IDelayedCall] = set()
        self._nextTurn: IDelayedCall | None = None

    @property
    def conditions(self) -> Conditions:
        """The current faults; may be set at any time."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: Conditions) -> None:
        self._conditions = conditions
        # Cached, since it is read for each message.
        self._isPerfect = conditions.arePerfect

    def send(self, sender: int, targets: Sequence[int], message: Message) -> None:
        """
        Send a message to some replicas. It is not delivered before the next L{flush}.
        """
        if message.sender != sender:
            return
        if self._isPerfect:
            self._enqueue(targets, message)
            return
        for target in targets:
            self._sendTo(target, sender, message)

    def _sendTo(self, target: int, sender: int, message: Message) -> None:
        conditions = self._conditions
        if (sender, target) in conditions.cut:
            return
        if conditions.loss and self._random.random() < conditions.loss:
            return
        copies = 1
        if conditions.duplication and self._random.random() < conditions.duplication:
            copies = 2
        for _ in range(copies):
            self._transmit(target, message)

    def _transmit(self, target: int, message: Message) -> None:
        shortest, longest = self._conditions.delay
        if not longest:
            self._enqueue((target,), message)
        elif self._arrivedCount + len(self._inFlight) < MAX_IN_FLIGHT:
            delay = self._random.uniform(shortest, longest)
            arrival = self._reactor.callLater(delay, lambda: self._arrive(arrival, target, message))
            self._inFlight.add(arrival)

    def _enqueue(self, targets: Sequence[int], message: Message) -> None:
        arrived, count = self._arrived, self._arrivedCount + len(targets)
        tooMany = count + len(self._inFlight) - MAX_IN_FLIGHT
        if tooMany > 0:
            targets = targets[:-tooMany]
            count -= tooMany
        self._arrivedCount = count
        for target in targets:
            if target in arrived:
                arrived[target].append(message)
            else:
                arrived[target] = [message]

    def _arrive(self, arrival: IDelayedCall, target: int, message: Message) -> None:
        self._inFlight.discard(arrival)
        if (message.sender, target) not in self._conditions.cut:
            self._enqueue((target,), message)
            self.flush()

    def stop(self) -> None:
        """
        Drop all messages in flight.
        """
        self._arrived.clear()
        self._arrivedCount = 0
        for arrival in self._inFlight:
            arrival.cancel()
        self._inFlight.clear()
        if self._nextTurn is not None:
            self._nextTurn.cancel()
            self._nextTurn = None

    def flush(self) -> None:
        """
        Deliver all undelayed messages. Messages sent during a delivery wait for their target's
        turn.
        """
        if self._isDelivering or self._nextTurn is not None:
            return
        self._isDelivering = True
        try:
            left = DELIVERIES_PER_TURN
            while left > 0:
                if not self._arrived:
                    return
                target = next(iter(self._arrived))
                messages = self._arrived.pop(target)
                if len(messages) > left:
                    self._arrived[target] = messages[left:]
                    del messages[left:]
                self._arrivedCount -= len(messages)
                left -= len(messages)
                self._deliver(target, messages)
        finally:
            self._isDelivering = False
        # A replica that catches up over many blocks must not block the reactor.
        self._nextTurn = self._reactor.callLater(0, self._continue)

    def _continue(self) -> None:
        self._nextTurn = None
        self.flush()
