"""
The invariants, and the judge that checks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, field, frozen
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Genesis,
    Header,
    InvalidBlock,
    Kind,
    Phase,
    Transaction,
    ValidatorSet,
    checkBlock,
    votePayload,
)
from svcbroker.ledgers.pbft._keys import SignatureVerifier
from svcbroker.ledgers.pbft._protocol import Message, PhaseVote, Proposal, RoundChange
from svcbroker.ledgers.pbft._replica import Replica
from svcbroker.ledgers.pbft._votes import MESSAGES_KEPT, ROUNDS_AHEAD
from svcbroker.model import Event, Execution

from .trace import short

AGREEMENT = "agreement"
"""No two different blocks are ever final at one height."""
VALIDITY = "validity"
"""Blocks follow from their parents and hold what clients sent, each once, numbered without gaps."""
CERTIFICATE = "certificate"
"""A decided block is signed by a quorum of distinct replicas, in one round."""
VIEW = "view"
"""
A block's view is its parent's view plus the round in which it was first proposed, and its proposer
is the leader of that view.
"""
SIGNATURE = "signature"
"""No correct replica signs two values for one height, round and phase."""
DURABILITY = "durability"
"""A transaction answered SUCCESS is in every later chain."""
DELIVERY = "delivery"
"""A reader gets each final event once, in the order of its topic, and no other."""
LIVENESS = "liveness"
"""Once all faults are over, blocks are decided within a bounded time."""
MEMORY = "memory"
"""A Byzantine replica cannot fill a correct one's memory."""
ERROR = "error"
"""No unexpected exception is raised."""

INVARIANTS = (
    AGREEMENT,
    VALIDITY,
    CERTIFICATE,
    VIEW,
    SIGNATURE,
    DURABILITY,
    DELIVERY,
    LIVENESS,
    MEMORY,
    ERROR,
)


class Violation(Exception):
    """
    An invariant does not hold.

    @ivar invariant: one of L{INVARIANTS}.
    """

    def __init__(self, invariant: str, message: str) -> None:
        # The arguments with which it is unpickled in another process.
        super().__init__(invariant, message)
        self.invariant = invariant

    def __str__(self) -> str:
        return ": ".join(self.args)


@frozen
class Executed:
    """
    The result of a transaction.

    @ivar sequence: the sequence number of its event, or 0.
    """

    height: int
    sequence: int


@define
class _TopicModel:
    """A topic, as modelled by the judge independently of the chain."""

    isOpen: bool = False
    sequence: int = 0


@define
class Judge:
    """
    Observes everything that correct replicas do, and raises L{Violation} at once.

    It executes every block on its own state, verifies every certificate with its own code, and
    counts sequence numbers itself.

    @ivar genesis: the chain's genesis.
    @ivar verifier: verifies signatures faster, if the validator set does not change.
    @ivar chain: the headers of the final blocks; the genesis is the first.
    @ivar executed: the results of transactions, by hash.
    @ivar verdict: the first violation found, kept in case its exception is lost.
    """

    genesis: Genesis
    verifier: SignatureVerifier | None = None
    chain: list[Header] = field(init=False)
    executed: dict[bytes, Executed] = field(init=False, factory=dict)
    verdict: Violation | None = field(init=False, default=None)
    _known: set[bytes] = field(init=False, factory=set)
    _sets: list[ValidatorSet] = field(init=False)
    _state: ChainState = field(init=False)
    _topics: dict[str, _TopicModel] = field(init=False, factory=dict)
    _signed: dict[tuple[int, int, int, Phase], bytes] = field(init=False, factory=dict)
    # The first round in which a correct replica prepared a block, by its hash.
    _prepared: dict[bytes, int] = field(init=False, factory=dict)
    _decided: dict[int, Candidate] = field(init=False, factory=dict)
    _verified: set[tuple[bytes, bytes, bytes]] = field(init=False, factory=set)
    _acknowledged: dict[bytes, Executed] = field(init=False, factory=dict)
    _refused: set[bytes] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        self.chain = [self.genesis.header()]
        self._state = self.genesis.state()
        self._sets = [self._state.validators, self._state.validators]

    @property
    def height(self) -> int:
        """The height of the last final block."""
        return self.chain[-1].height

    def submitted(self, transaction: Transaction) -> None:
        """Record a transaction sent by a client."""
        self._known.add(transaction.hash)

    def sent(self, index: int, message: Message) -> None:
        """Check a message sent by a correct replica."""
        if not isinstance(message, Proposal | PhaseVote | RoundChange):
            return
        phase = Phase.ROUND_CHANGE if isinstance(message, RoundChange) else message.phase
        if phase is Phase.PROPOSE:
            phase = Phase.PREPARE  # a leader's proposal is its prepare
        place = (index, message.height, message.round, phase)
        if self._signed.setdefault(place, message.digest) != message.digest:
            raise self._verdict(
                SIGNATURE,
                f"node {index} signed two {phase.name} at height {message.height}, round "
                f"{message.round}: {short(self._signed[place])} and {short(message.digest)}",
            )
        if phase is Phase.PREPARE:
            first = self._prepared.setdefault(message.digest, message.round)
            self._prepared[message.digest] = min(first, message.round)

    def decided(
        self,
        index: int,
        header: Header,
        certificate: Certificate,
        transactions: Sequence[Transaction],
    ) -> None:
        """Check a block that a correct replica has decided or adopted."""
        self._checkCertificate(index, header, certificate)
        height = header.height
        if height <= self.height:
            known = self.chain[height]
        elif height in self._decided:
            known = self._decided[height].header
        else:
            self._decided[height] = self._checkNew(index, header, transactions)
            self._checkView(index, header)
            return
        if known.hash != header.hash:
            raise self._verdict(
                AGREEMENT,
                f"node {index} decided {short(header.hash)} at height {height}, where "
                f"{short(known.hash)} was decided",
            )

    def isNew(self, header: Header) -> bool:
        """Whether no block was decided at this height before."""
        return header.height > self.height and header.height not in self._decided

    def final(self, height: int) -> None:
        """Record that the block decided at a height can no longer be lost."""
        if height <= self.height:
            return
        block = self._decided.pop(height)
        header, outcome = block.header, block.outcome
        self._state.apply(outcome, block.history)
        if self._state.root != header.stateRoot:
            raise self._verdict(
                VALIDITY, f"block {height} has another state root than its execution"
            )
        for transaction, receipt in zip(block.transactions, outcome.receipts, strict=True):
            self._count(height, transaction, receipt.execution, receipt.sequence)
        self.chain.append(header)
        self._sets.append(self._state.validators)

    def found(self, header: Header) -> None:
        """
        Check the last block on disk after a crash. A decided block that is not there was lost.

        @param header: the header of the last block on disk.
        """
        pending = self._decided.get(header.height)
        if pending is not None and pending.header.hash == header.hash:
            self.final(header.height)
        self.gaveUp()

    def gaveUp(self) -> None:
        """Record that decided blocks that are not final were lost without a trace."""
        self._decided.clear()

    def refused(self, hash: bytes) -> None:
        """Record an answer to a client that its transaction was not executed and will not be."""
        self._refused.add(hash)

    def acknowledged(self, index: int, hash: bytes, sequence: int) -> None:
        """Check an answer to a client that its transaction is final and on disk."""
        executed = self.executed.get(hash)
        if executed is None:
            raise self._verdict(
                DURABILITY, f"node {index} acknowledged {short(hash)}, which is not final"
            )
        if executed.sequence != sequence:
            raise self._verdict(
                VALIDITY,
                f"node {index} gave {short(hash)} the number {sequence}, not {executed.sequence}",
            )
        self._acknowledged[hash] = executed

    def delivered(self, event: Event, sequence: int) -> None:
        """
        Check an event that a reader got.

        @param sequence: the sequence number that comes next in its topic.
        """
        last = self._topics[event.topic].sequence if event.topic in self._topics else 0
        if event.eventId.sequence != sequence or sequence > last:
            raise self._verdict(
                DELIVERY,
                f"a reader of {event.topic} got event {event.eventId.sequence}, not {sequence} of "
                f"{last}",
            )

    def sequences(self) -> Mapping[str, int]:
        """The sequence numbers of the last events that are final, by topic."""
        return {name: topic.sequence for name, topic in self._topics.items()}

    def read(self, sequences: Mapping[str, int], final: Mapping[str, int]) -> None:
        """
        Check that a reader has got everything.

        @param sequences: the sequence numbers of the last events that it got, by topic.
        @param final: those of the last events that it must have got.
        """
        for name, sequence in final.items():
            if sequences.get(name, 0) < sequence:
                got = sequences.get(name, 0)
                raise self._verdict(DELIVERY, f"a reader of {name} got {got} of {sequence} events")

    def loaded(self, index: int, chain: Sequence[Header], least: int) -> None:
        """
        Check the chain that a correct replica has read from disk.

        @param chain: its headers; the genesis is the first.
        @param least: the height up to which it has told others that blocks are on its disk.
        """
        if len(chain) <= least:
            raise self._verdict(
                DURABILITY,
                f"node {index} answered SUCCESS at height {least} and has {len(chain) - 1} "
                "blocks on its disk",
            )
        for header in chain:
            if header.height > self.height or self.chain[header.height].hash != header.hash:
                raise self._verdict(
                    AGREEMENT, f"node {index} has another block {header.height} on its disk"
                )

    def measured(self, index: int, replica: Replica) -> None:
        """Check how many messages a correct replica stores."""
        future = replica._future._kept.values()
        # One message of each kind from each sender, for past rounds and for those ahead.
        most = 3 * (replica.round + ROUNDS_AHEAD + 1)
        tallies = replica._rounds.values()
        kept = sum(len(t.prepares) + len(t.commits) + len(t.changes) for t in tallies)
        if kept > most:
            senders = Counter(
                sender
                for t in tallies
                for votes in (t.prepares, t.commits, t.changes)
                for sender in votes
            )
            kept = max(senders.values())
        if kept > most or any(len(messages) > MESSAGES_KEPT for messages in future):
            raise self._verdict(MEMORY, f"node {index} keeps {kept} messages of one sender")

    def finish(self, chains: Sequence[tuple[int, Sequence[Header]]], height: int) -> None:
        """
        Check at the end of a run that every acknowledged transaction is in every chain.

        @param chains: the chains of the correct replicas, with their indexes.
        @param height: the height that all of them have reached.
        """
        told = (executed.height for executed in self._acknowledged.values())
        last = max((known for known in told if known <= height), default=0)
        for index, chain in chains:
            self.loaded(index, chain, last)

    def _checkNew(
        self, index: int, header: Header, transactions: Sequence[Transaction]
    ) -> Candidate:
        head = self.chain[-1]
        if header.height != head.height + 1 or header.parent != head.hash:
            raise self._verdict(
                VALIDITY, f"node {index} decided block {header.height}, which has no parent"
            )
        for transaction in transactions:
            if transaction.hash not in self._known:
                raise self._verdict(VALIDITY, f"no client sent {short(transaction.hash)}")
        try:
            return checkBlock(self._state, head, header, transactions)
        except InvalidBlock as error:
            raise self._verdict(
                VALIDITY, f"node {index} decided a block that is not valid: {error}"
            ) from None

    def _checkView(self, index: int, header: Header) -> None:
        # A quorum has prepared it, so a correct replica has: each accepts a new block only in the
        # round of its view, and thereafter the block of a lock.
        first = self._prepared.get(header.hash)
        round = header.view - self.chain[-1].view
        nodes = len(self._sets[header.height].keys)
        if first != round or header.proposer != (header.view + header.height) % nodes:
            raise self._verdict(
                VIEW,
                f"node {index} decided block {header.height} of view {header.view} and node "
                f"{header.proposer}, first prepared in round {first} after view "
                f"{self.chain[-1].view}",
            )

    def _checkCertificate(self, index: int, header: Header, certificate: Certificate) -> None:
        height = header.height
        if height >= len(self._sets):
            raise self._verdict(VALIDITY, f"node {index} decided block {height} too early")
        keys = self._sets[height].keys
        payload = votePayload(
            Phase.COMMIT, self.genesis.chain, height, certificate.round, header.hash
        )
        verify = self.verifier and self.verifier.verify
        signers = {
            signer
            for signer, signature in certificate.signatures
            if 0 <= signer < len(keys)
            and (
                verify(signer, payload, signature)
                if verify
                else self._isSigned(keys[signer], payload, signature)
            )
        }
        # More than two thirds of all replicas.
        if 3 * len(signers) <= 2 * len(keys):
            raise self._verdict(
                CERTIFICATE,
                f"node {index} decided block {height} with {len(signers)} good signatures",
            )

    def _isSigned(self, key: bytes, payload: bytes, signature: bytes) -> bool:
        entry = (key, payload, signature)
        if entry not in self._verified:
            try:
                crypto_sign_open(signature + payload, key)
            except BadSignatureError:
                return False
            self._verified.add(entry)
        return True

    def _verdict(self, invariant: str, message: str) -> Violation:
        violation = Violation(invariant, message)
        self.verdict = self.verdict or violation
        return violation

    def _count(
        self, height: int, transaction: Transaction, execution: Execution, sequence: int
    ) -> None:
        """Execute one transaction by the judge's own rules, and compare the result."""
        topic = self._topics.setdefault(transaction.topic, _TopicModel())
        expected = 0
        if transaction.hash in self.executed:
            outcome = Execution.REPEATED
        elif transaction.kind is Kind.VALIDATORS:
            # The next certificate shows whether the change took effect.
            outcome = Execution.REFUSED if execution is Execution.REFUSED else Execution.DONE
        elif transaction.kind is Kind.OPEN:
            outcome, topic.isOpen = Execution.DONE, True
        elif not topic.isOpen:
            outcome = Execution.TOPIC_NOT_FOUND
        elif transaction.kind is Kind.CLOSE:
            outcome, topic.isOpen = Execution.DONE, False
        else:
            topic.sequence += 1
            outcome, expected = Execution.DONE, topic.sequence
        if (execution, sequence) != (outcome, expected):
            raise self._verdict(
                VALIDITY,
                f"{short(transaction.hash)} at height {height} ended {execution.name} with "
                f"number {sequence}, not {outcome.name} with {expected}",
            )
        if transaction.hash in self._refused:
            raise self._verdict(DURABILITY, f"{short(transaction.hash)} was executed after all")
        self.executed.setdefault(transaction.hash, Executed(height, expected))
