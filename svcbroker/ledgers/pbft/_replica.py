"""
A PBFT replica as a state machine without input or output.

Inputs are messages, timeouts and requests to produce a block; outputs are effects. The same inputs
always give the same effects. One instance of the protocol runs for each height:

 - the leader of a round proposes a block (pre-prepare);
 - a replica that accepts it sends a prepare; a quorum of prepares locks the replica on the block,
   and it sends a commit; a quorum of commits decides the block;
 - a replica whose round times out enters the next round and reports its lock; the leader of that
   round proposes the block of the highest lock in a quorum of such round changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import evolve, frozen

from ...chain import (
    Candidate,
    Certificate,
    Header,
    InvalidBlock,
    Phase,
    faultsTolerated,
    leaderIndex,
)
from ...probes import probe
from ._keys import ReplicaSigner
from ._protocol import (
    BlockRequest,
    Decide,
    DecidedBlock,
    Effect,
    Evidence,
    Message,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Send,
    StartTimer,
    Timer,
)
from ._votes import ROUNDS_AHEAD, FutureMessages, MessageRefused, Rules, VoteSet, quorumOf


class ReplicaApplication(Protocol):
    """
    The application that replicas run.
    """

    def propose(self, view: int) -> Candidate | None:
        """
        Make a new block on top of the last stored one.

        @param view: the view in which it is proposed.
        @return: the block, or C{None} if there is nothing to propose.
        """

    def check(self, block: ProposedBlock) -> Candidate | None:
        """
        Execute another replica's block.

        @return: the block executed, or C{None} if it cannot be checked now because the state has
            moved on.
        @raise InvalidBlock: the block is not valid.
        """

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """
        The decided block of a height, for a replica that is behind; C{None} if it is not known.
        """

    def reserve(self, height: int, round: int) -> bool:
        """
        Ensure that no later run of the set uses this round again, with a write to disk if
        necessary.

        @return: whether that succeeded. If not, the replica does not enter the round now.
        """


@frozen(kw_only=True)
class Timing:
    """
    The timeouts of a replica, in seconds.

    @ivar round: the timeout of the first round of a height. Each further round doubles it.
    @ivar longest: the maximum timeout of a round.
    @ivar resend: the interval of retransmissions.
    """

    round: float = 1.0
    longest: float = 60.0
    resend: float = 0.5

    @classmethod
    def forNetwork(cls, round: float, longestDelay: float) -> Timing:
        """
        Timeouts that leave enough time for the three messages of a round and a retransmission.

        @param round: the timeout of the first round on a network without delay.
        @param longestDelay: the longest time that a message takes.
        """
        usual = cls(round=round + 4 * longestDelay)
        return evolve(
            usual,
            longest=max(usual.longest, 2 * usual.round),
            resend=max(usual.resend, 2 * longestDelay),
        )

    def roundTimeout(self, round: int) -> float:
        """The timeout of the C{round}-th round tried at a height, from 0."""
        return min(self.longest, self.round * float(1 << min(round, 16)))


_PREPARE, _COMMIT = Phase.PREPARE, Phase.COMMIT  # attribute access on an Enum is slow


class Replica:
    """
    A PBFT replica.

    @ivar index: its index in the replica set.
    @ivar head: the header of the last block it has decided or adopted.
    @ivar height: the height it is deciding.
    @ivar round: its round at that height.
    """

    def __init__(
        self,
        signer: ReplicaSigner,
        rules: Rules,
        application: ReplicaApplication,
        timing: Timing,
        head: Header,
    ) -> None:
        self.index = signer.index
        self.head = head
        self.round = 0
        self._signer = signer
        self._rules = rules
        self._verified = rules.verifier.verified
        self._replicas = rules.replicas
        self._quorum = rules.quorum
        self._application = application
        self._timing = timing
        self._effects: list[Effect] = []
        self._own: list[Message] = []
        self._future = FutureMessages()
        self._due = 0
        self._firstRoundTimer = StartTimer(Timer.ROUND, timing.roundTimeout(0))
        self._resendTimer = StartTimer(Timer.RESEND, timing.resend)
        self._handlers: dict[type[Message], Callable[..., None]] = {
            Proposal: self._onProposal,
            PhaseVote: self._onVote,
            RoundChange: self._onRoundChange,
            BlockRequest: self._onBlockRequest,
            DecidedBlock: self._onDecidedBlock,
        }
        self._beginHeight()

    def _beginHeight(self) -> None:
        self.height = self.head.height + 1
        self.round = self._firstRound = 0
        self._rounds: dict[int, VoteSet] = {}
        self._reached: dict[int, int] = {}
        self._candidates: dict[bytes, Candidate] = {}
        self._prepared: PreparedCertificate | None = None
        self._preparedBlock: ProposedBlock | None = None
        self._toPrepare: bytes | None = None
        self._toCommit: bytes | None = None
        self._isActive = self._isTimed = False
        self._broadcasts: list[Message] = []

    @property
    def view(self) -> int:
        """The view: the view of the last block plus the round."""
        return self.head.view + self.round

    @property
    def leader(self) -> int:
        """The index of the replica that leads its current round."""
        return leaderIndex(self.view, self.height, self._replicas)

    # Inputs. Each returns its effects, in order.

    def start(self, round: int) -> Sequence[Effect]:
        """Start in the first round of this height in which this replica never signed anything."""
        self._requestBlock()
        if round:
            self._firstRound = round
            self._enterRound(round)
        return self._finish()

    def resume(self) -> Sequence[Effect]:
        """Continue after a pause: request missed blocks and retransmit the last messages."""
        self._requestBlock()
        self._retransmit()
        if self._isActive:
            self._startTimers()
        return self._finish()

    def propose(self, height: int) -> Sequence[Effect]:
        """
        Produce the block of a height, or wait for the leader to propose it. A replica that is
        behind remembers the request until it reaches that height.
        """
        self._due = height
        self._begin()
        return self._finish()

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        """
        Handle the messages that have arrived together. Those that a correct replica would not send
        are ignored. The replica votes when it has handled all, since one of them may make a vote
        unnecessary.
        """
        self._handle(messages)
        return self._finish()

    def timeOut(self, timer: Timer) -> Sequence[Effect]:
        """Handle a timeout."""
        if timer is Timer.ROUND:
            if self._isTimed:  # else it was started in an earlier round
                self._enterRound(self.round + 1)
            else:
                probe("replica: timeout of an earlier round")
        elif self._isActive:
            self._retransmit()
            self._effects.append(self._resendTimer)
        return self._finish()

    def _handle(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.height > self.height:
                self._future.add(message, self.height)
                if not isinstance(message, BlockRequest):
                    self._requestBlock(message.sender)
                continue
            try:
                self._handlers[type(message)](message)
            except MessageRefused:
                continue  # not logged, so that a faulty replica cannot fill the log
            if self._own:
                self._handleOwn()

    def _handleOwn(self) -> None:
        """Handle the messages that it has sent to itself, before any other input."""
        while self._own:
            self._handle([self._own.pop(0)])

    def _finish(self) -> Sequence[Effect]:
        """Send the votes that are due. Once prepared, the own prepare waits for L{_retransmit}."""
        while True:
            if self._own:
                self._handleOwn()
            if self._toCommit is not None:
                self._vote(_COMMIT, self._toCommit)
            elif self._toPrepare is not None and not self._isPrepared:
                self._vote(_PREPARE, self._toPrepare)
            else:
                break
        effects, self._effects = self._effects, []
        return effects

    def _send(self, message: Message, target: int | None = None) -> None:
        self._effects.append(Send(message, target))

    def _broadcast(self, message: Message) -> None:
        """Send a message to all replicas, this one included, and keep it for retransmission."""
        self._send(message)
        self._broadcasts.append(message)
        self._own.append(message)

    def _retransmit(self) -> None:
        """Send this round's messages again, since messages may have been lost."""
        self._effects += map(Send, self._broadcasts)
        if self._toPrepare is not None:
            self._vote(_PREPARE, self._toPrepare)

    def _activate(self) -> None:
        if not self._isActive:
            self._isActive = True
            self._startTimers()

    def _startTimers(self) -> None:
        self._isTimed = False
        self._startRoundTimer()
        self._effects.append(self._resendTimer)

    def _startRoundTimer(self) -> None:
        """
        Start the round timer once a quorum has reached this round. A replica that is ahead waits
        for the others (Castro and Liskov, 1999, 4.5.2): timeouts are bounded, so otherwise it could
        stay ahead for ever.
        """
        if not self.round:
            self._isTimed = True
            self._effects.append(self._firstRoundTimer)
        elif sum(round >= self.round for round in self._reached.values()) >= self._quorum:
            self._isTimed = True
            timeout = self._timing.roundTimeout(self.round - self._firstRound)
            self._effects.append(StartTimer(Timer.ROUND, timeout))

    def _roundOf(self, number: int) -> VoteSet:
        voteSet = self._rounds.get(number)
        if voteSet is None:
            if not 0 <= number <= self.round + ROUNDS_AHEAD:
                probe("replica: message of a far round")
                raise MessageRefused("the round is too far away")
            voteSet = self._rounds[number] = VoteSet()
        return voteSet

    # The normal case.

    def _begin(self) -> None:
        if self._due >= self.height:
            self._activate()
            self._proposeIfDue()

    def _proposeIfDue(self) -> None:
        hasProposed = any(isinstance(sent, Proposal) for sent in self._broadcasts)
        if hasProposed or self.leader != self.index:
            return
        voteSet = self._roundOf(self.round)
        justification: Sequence[RoundChange] = ()
        block: ProposedBlock | None = None
        if self.round:
            if len(voteSet.changes) < self._quorum:
                return
            justification = tuple(voteSet.changes.values())
            highest = self._rules.highestPrepared(justification)
            if highest is not None:
                probe("replica: leader proposes the block of a lock")
                block = highest.block
        if block is None:
            if self._due != self.height:
                return
            candidate = self._application.propose(self.view)
            # If others have already decided this height, there is nothing to propose.
            if candidate is None or candidate.header.parent != self.head.hash:
                probe("replica: leader with nothing to propose")
                return
            block = ProposedBlock.of(candidate)
        self._broadcast(self._signer.propose(self.height, self.round, block, justification))

    def _onProposal(self, proposal: Proposal) -> None:
        if proposal.height < self.height or proposal.round < self.round:
            return
        leader = leaderIndex(self.head.view + proposal.round, self.height, self._replicas)
        voteSet = self._roundOf(proposal.round)
        if proposal.sender != leader:
            raise MessageRefused("the sender does not lead this round")
        if voteSet.proposal is not None:
            self._compare(voteSet, voteSet.proposal, proposal)
            return
        self._rules.checkProposal(proposal, self.head)
        try:
            candidate = self._application.check(proposal.block)
        except InvalidBlock as error:
            probe("replica: invalid block proposed")
            raise MessageRefused(str(error)) from None
        if candidate is None:
            probe("replica: proposed block cannot be checked now")
            return
        # The justification proves that a quorum has entered that round.
        if proposal.round > self.round:
            probe("replica: proposal of a later round")
            if not self._enterRound(proposal.round):
                return
            for change in proposal.justification:
                self._recordRound(change)
        voteSet.proposal, voteSet.accepted = proposal, candidate
        self._compare(voteSet, voteSet.prepares.setdefault(leader, proposal), proposal)
        digest = candidate.header.hash
        self._candidates[digest] = candidate
        self._activate()
        self._toPrepare = None if leader == self.index else digest
        if len(voteSet.prepares) >= self._quorum:
            probe("replica: prepares before the proposal")
            self._commitIfPrepared(voteSet)
        if len(voteSet.commits) >= self._quorum:
            probe("replica: commits before the proposal")
            self._decideIfCommitted(voteSet, proposal.round, digest)

    @property
    def _isPrepared(self) -> bool:
        """Whether this replica is locked on a block by the prepares of its current round."""
        return self._prepared is not None and self._prepared.round == self.round

    def _vote(self, phase: Phase, digest: bytes) -> None:
        if phase is _PREPARE:
            self._toPrepare = None
        else:
            self._toCommit = None
        vote = self._signer.vote(phase, self.height, self.round, digest)
        self._effects.append(Send(vote))
        self._broadcasts.append(vote)
        self._onVote(vote)

    def _onVote(self, vote: PhaseVote) -> None:
        round, isPrepare = vote.round, vote.phase is _PREPARE
        isLate = vote.height < self.height or (isPrepare and round < self.round)
        if isLate or not (isPrepare or vote.phase is _COMMIT):
            return
        voteSet = self._rounds.get(round) or self._roundOf(round)
        votes = voteSet.prepares if isPrepare else voteSet.commits
        sender = vote.sender
        first = votes.get(sender)
        if first is not None:
            self._compare(voteSet, first, vote)
            return
        if vote not in self._verified:
            self._rules.checkVote(vote)
        votes[sender] = vote
        if len(votes) < self._quorum:
            return
        if not isPrepare:
            self._decideIfCommitted(voteSet, round, vote.digest)
        elif round == self.round:
            self._commitIfPrepared(voteSet)

    def _compare(
        self, voteSet: VoteSet, first: PhaseVote | Proposal, second: PhaseVote | Proposal
    ) -> None:
        """Compare two messages of which a correct replica sends only one. The first one counts."""
        if first is not second and first.digest != second.digest and voteSet.mayAccuse(second):
            self._rules.checkVote(second)
            probe("replica: contradiction")
            voteSet.accuse(second)
            self._effects.append(Evidence(first, second))

    def _commitIfPrepared(self, voteSet: VoteSet) -> None:
        """Lock on the block that a quorum has prepared in the current round."""
        candidate = voteSet.accepted
        if candidate is None or self._isPrepared:
            return
        digest = candidate.header.hash
        signatures = quorumOf(voteSet.prepares, digest, self._quorum)
        if signatures is None:
            return
        self._prepared = PreparedCertificate(round=self.round, digest=digest, signatures=signatures)
        self._preparedBlock = ProposedBlock.of(candidate)
        self._toCommit = digest

    def _decideIfCommitted(self, voteSet: VoteSet, round: int, digest: bytes) -> None:
        """Decide a block if a quorum has committed to it in a round, even in an earlier one."""
        candidate = self._candidates.get(digest)
        signatures = quorumOf(voteSet.commits, digest, self._quorum)
        if candidate is not None and signatures is not None:
            if round != self.round:
                probe("replica: decision of another round")
            certificate = Certificate(round=round, signatures=signatures)
            self._effects.append(Decide(candidate, certificate))
            self._advance(candidate.header)

    def _advance(self, head: Header) -> None:
        self.head = head
        self._beginHeight()
        self._own.clear()
        self._begin()
        self._handle(self._future.pop(self.height))

    # Round changes.

    def _enterRound(self, round: int) -> bool:
        """
        Enter a round and broadcast the round change.

        @return: whether the round could be entered.
        """
        if not self._application.reserve(self.height, round):
            probe("replica: round not reserved")
            self._startRoundTimer()
            return False
        self.round = round
        self._isTimed = False
        self._toPrepare = self._toCommit = None
        self._broadcasts.clear()
        self._rounds = {
            number: voteSet if number >= round else voteSet.onlyCommits()
            for number, voteSet in self._rounds.items()
        }
        self._broadcast(
            self._signer.changeRound(self.height, round, self._prepared, self._preparedBlock)
        )
        return True

    def _onRoundChange(self, change: RoundChange) -> None:
        if change.height < self.height:
            self._answer(change.sender, change.height)
            return
        known = self._rounds.get(change.round)
        if change.round < max(1, self.round) or (known and change.sender in known.changes):
            return
        self._rules.checkRoundChange(change)
        # Of a round far ahead only the number is stored, which is enough to follow it.
        self._recordRound(change)
        if change.round <= self.round + ROUNDS_AHEAD:
            self._roundOf(change.round).changes[change.sender] = change
        else:
            probe("replica: round change to a far round")
        self._followOthers()
        if self._isActive and not self._isTimed:
            self._startRoundTimer()
        if change.round == self.round:
            self._proposeIfDue()

    def _recordRound(self, change: RoundChange) -> None:
        self._reached[change.sender] = max(change.round, self._reached.get(change.sender, 0))

    def _followOthers(self) -> None:
        """Enter the lowest round that more than f others have entered: one of them is correct."""
        ahead = [round for round in self._reached.values() if round > self.round]
        if len(ahead) > faultsTolerated(self._replicas):
            probe("replica: others followed")
            self._activate()
            self._enterRound(min(ahead))

    # Catching up.

    def _requestBlock(self, target: int | None = None) -> None:
        self._send(BlockRequest(sender=self.index, height=self.height), target)

    def _onBlockRequest(self, request: BlockRequest) -> None:
        if request.height < self.height:
            self._answer(request.sender, request.height)

    def _answer(self, target: int, height: int) -> None:
        decided = self._application.decided(height)
        if decided is not None and target != self.index:
            header, certificate = decided
            answer = DecidedBlock(sender=self.index, header=header, certificate=certificate)
            self._send(answer, target)

    def _onDecidedBlock(self, decided: DecidedBlock) -> None:
        header = decided.header
        if header.height != self.height or header.parent != self.head.hash:
            return
        self._rules.checkDecided(decided)
        candidate = self._candidates.get(header.hash)
        if candidate is not None:
            self._effects.append(Decide(candidate, decided.certificate))
        elif self._application.decided(header.height) is None:
            # Its transactions are not known here, so it could not be stored.
            probe("replica: decided block without transactions")
            return
        else:
            probe("replica: decided block that another has stored")
        self._advance(header)
        self._requestBlock(decided.sender)
