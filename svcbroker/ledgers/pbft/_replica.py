"""
One replica: a state machine without input or output.

In go messages, time-outs and the word that it is time for a block; out come effects. Inputs are
taken one after the other, the replica's own messages among them, so feeding the same inputs
again gives the same effects. One instance of the protocol runs for each height:

 - the leader of a round proposes a block (pre-prepare);
 - who accepts it sends a prepare; a quorum of prepares binds the replica to the block, and it
   sends a commit; a quorum of commits decides the block;
 - who waits too long goes on to the next round and says what it is bound to; the next leader
   proposes what the highest bound in a quorum of such round changes demands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...chain import (
    Candidate,
    Certificate,
    Header,
    InvalidBlock,
    Phase,
    faultsTolerated,
    leaderIndex,
)
from ._early import EarlyMessages
from ._effects import Decide, Effect, Evidence, Send, StartTimer, StopTimers, Timer
from ._keys import Signer
from ._messages import (
    BlockRequest,
    DecidedBlock,
    Message,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)
from ._ports import Application, Timing
from ._rounds import Refused, Rules, highestPrepared
from ._tally import Tally

_PREPARE, _COMMIT = Phase.PREPARE, Phase.COMMIT  # Python looks a member up anew each time

ROUNDS_AHEAD = 32
"""How far above its own a replica keeps messages of other rounds."""


class Replica:
    """
    One replica of the set.

    @ivar index: its index.
    @ivar head: the header of the last block it has decided or taken over.
    @ivar height: the height it is deciding.
    @ivar round: the round it is in at that height.
    """

    def __init__(
        self, signer: Signer, rules: Rules, application: Application, timing: Timing, head: Header
    ) -> None:
        self.index = signer.index
        self.head = head
        self.round = 0
        self._signer = signer
        self._rules = rules
        self._quorum = rules.quorum
        self._application = application
        self._timing = timing
        self._effects: list[Effect] = []
        self._own: list[Message] = []
        self._early = EarlyMessages()
        self._due = 0
        self._handlers: dict[type[Message], Callable[..., None]] = {
            Proposal: self._onProposal,
            Vote: self._onVote,
            RoundChange: self._onRoundChange,
            BlockRequest: self._onBlockRequest,
            DecidedBlock: self._onDecidedBlock,
        }
        self._beginHeight()

    def _beginHeight(self) -> None:
        self.height = self.head.height + 1
        self.round = self._firstRound = 0
        self._rounds: dict[int, Tally] = {}
        self._ahead: dict[int, int] = {}
        self._candidates: dict[bytes, Candidate] = {}
        self._prepared: PreparedCertificate | None = None
        self._preparedBlock: ProposedBlock | None = None
        self._toPrepare: bytes | None = None
        self._toCommit: bytes | None = None
        self._isActive = self._isTimed = False
        self._said: list[Message] = []

    @property
    def view(self) -> int:
        """The view it is in."""
        return self.head.view + self.round

    @property
    def isLeader(self) -> bool:
        """Whether it is the leader of its round."""
        return leaderIndex(self.view, self.height, self._rules.nodes) == self.index

    # Inputs. Each gives the effects wanted, in order.

    def start(self, round: int) -> Sequence[Effect]:
        """Begin in the first round of its height in which it has signed nothing, ever."""
        self._askForBlock()
        if round:
            self._firstRound = round
            self._enterRound(round)
        return self._finish()

    def resume(self) -> Sequence[Effect]:
        """Go on after a pause: ask for what was decided meanwhile, say again what was said last."""
        self._askForBlock()
        self._sayAgain()
        if self._isActive:
            self._startTimers()
        return self._finish()

    def propose(self, height: int) -> Sequence[Effect]:
        """
        It is time for the block of a height: propose it, or wait for whose turn it is. A replica
        that is behind remembers it until it gets there.
        """
        self._due = height
        self._begin()
        return self._finish()

    def receive(self, message: Message, isLast: bool = True) -> Sequence[Effect]:
        """
        A message has arrived. What a correct replica would not send is passed over.

        @param isLast: whether no other has arrived with it, which may make a vote needless.
        """
        self._take(message)
        return self._finish(isLast)

    def timeOut(self, timer: Timer) -> Sequence[Effect]:
        """A time that was waited for has passed."""
        if timer is Timer.ROUND:
            if self._isTimed:  # else it was begun in an earlier round
                self._enterRound(self.round + 1)
        elif self._isActive:
            self._sayAgain()
            self._effects.append(StartTimer(Timer.RESEND, self._timing.resend))
        return self._finish()

    # The order of inputs: what it says itself it also hears, before anything else.

    def _finish(self, mayVote: bool = True) -> Sequence[Effect]:
        while True:
            while self._own:
                self._take(self._own.pop(0))
            if not (mayVote and self._voteIfNeeded()):
                break
        effects, self._effects = self._effects, []
        return effects

    def _take(self, message: Message) -> None:
        if message.height > self.height:
            self._early.keep(message, self.height)
            if not isinstance(message, BlockRequest):
                self._askForBlock(message.sender)
            return
        try:
            self._handlers[type(message)](message)
        except Refused:
            return  # only a faulty replica sends it; it must not be able to fill the log

    def _send(self, message: Message, target: int | None = None) -> None:
        self._effects.append(Send(message, target))

    def _say(self, message: Message) -> None:
        """Send to all, oneself included, and again when it may have been lost."""
        self._send(message)
        self._said.append(message)
        self._own.append(message)

    def _sayAgain(self) -> None:
        """What was said last may have been lost, or what others said, so that this is missing."""
        for message in self._said:
            self._send(message)
        self._prepareIfDue()

    def _activate(self) -> None:
        if not self._isActive:
            self._isActive = True
            self._startTimers()

    def _startTimers(self) -> None:
        self._isTimed = False
        self._timeRound()
        self._effects.append(StartTimer(Timer.RESEND, self._timing.resend))

    def _timeRound(self) -> None:
        """
        Begin to lose patience with a round, once a quorum has got as far. Who is ahead waits for
        the others (Castro and Liskov, 1999, 4.5.2); or else, as time-outs are bounded, it might
        be ahead for ever.
        """
        reached = sum(round >= self.round for round in self._ahead.values())
        if not self.round or reached >= self._rules.quorum:
            self._isTimed = True
            timeout = self._timing.roundTimeout(self.round - self._firstRound)
            self._effects.append(StartTimer(Timer.ROUND, timeout))

    def _roundOf(self, number: int) -> Tally:
        if not 0 <= number <= self.round + ROUNDS_AHEAD:
            raise Refused("the round is too far away")
        tally = self._rounds.get(number)
        if tally is None:
            tally = self._rounds[number] = Tally()
        return tally

    # The normal case.

    def _begin(self) -> None:
        if self._due >= self.height:
            self._activate()
            self._proposeIfDue()

    def _proposeIfDue(self) -> None:
        if not self.isLeader or any(isinstance(said, Proposal) for said in self._said):
            return
        tally = self._roundOf(self.round)
        justification: Sequence[RoundChange] = ()
        block: ProposedBlock | None = None
        if self.round:
            if len(tally.changes) < self._rules.quorum:
                return
            justification = tuple(tally.changes.values())
            bound = highestPrepared(justification)
            block = None if bound is None else bound.block
        if block is None:
            if self._due != self.height:
                return
            candidate = self._application.propose(self.view)
            # Where others have decided this height already, there is nothing to propose here.
            if candidate is None or candidate.header.parent != self.head.hash:
                return
            block = ProposedBlock(header=candidate.header, transactions=candidate.transactions)
        self._say(self._signer.propose(self.height, self.round, block, justification))

    def _onProposal(self, proposal: Proposal) -> None:
        if proposal.height < self.height or proposal.round < self.round:
            return
        leader = leaderIndex(self.head.view + proposal.round, self.height, self._rules.nodes)
        tally = self._roundOf(proposal.round)
        if proposal.sender != leader:
            raise Refused("it is not its sender's turn")
        if tally.proposal is not None:
            self._compare(tally, tally.proposal, proposal)
            return
        self._rules.checkProposal(proposal, self.head)
        try:
            candidate = self._application.check(proposal.block)
        except InvalidBlock as error:
            raise Refused(str(error)) from None
        if candidate is None:
            return
        # A quorum has gone on to that round, so it is right to follow.
        if proposal.round > self.round:
            if not self._enterRound(proposal.round):
                return
            for change in proposal.justification:
                self._noteRound(change)
        tally.proposal, tally.accepted = proposal, candidate
        tally.votes(_PREPARE).setdefault(leader, proposal)
        self._candidates[candidate.header.hash] = candidate
        self._activate()
        self._toPrepare = None if leader == self.index else candidate.header.hash
        self._commitIfPrepared()
        self._decideIfCommitted(proposal.round)

    def _voteIfNeeded(self) -> bool:
        """Say the vote that is due. A prepare after a quorum's waits for L{_sayAgain}."""
        if self._toCommit is not None:
            digest, self._toCommit = self._toCommit, None
            self._vote(_COMMIT, digest)
            return True
        return not self._isPrepared and self._prepareIfDue()

    def _prepareIfDue(self) -> bool:
        digest, self._toPrepare = self._toPrepare, None
        if digest is not None:
            self._vote(_PREPARE, digest)
        return digest is not None

    @property
    def _isPrepared(self) -> bool:
        """Whether it is bound to a block by the prepares of this very round."""
        return self._prepared is not None and self._prepared.round == self.round

    def _vote(self, phase: Phase, digest: bytes) -> None:
        self._say(self._signer.vote(phase, self.height, self.round, digest))

    def _onVote(self, vote: Vote) -> None:
        isPrepare = vote.phase is _PREPARE
        if vote.height < self.height or not (isPrepare or vote.phase is _COMMIT):
            return
        if isPrepare and vote.round < self.round:
            return
        tally = self._roundOf(vote.round)
        votes = tally.votes(vote.phase)
        first = votes.get(vote.sender)
        if first is not None:
            self._compare(tally, first, vote)
            return
        self._rules.checkVote(vote)
        votes[vote.sender] = vote
        if len(votes) < self._quorum:
            return
        if isPrepare:
            self._commitIfPrepared()
        else:
            self._decideIfCommitted(vote.round)

    def _compare(self, tally: Tally, first: Vote | Proposal, second: Vote | Proposal) -> None:
        """Two messages where there may be one: the first one counts."""
        if first.digest != second.digest and tally.mayAccuse(second):
            self._rules.checkVote(second)
            tally.accuse(second)
            self._effects.append(Evidence(first, second))

    def _commitIfPrepared(self) -> None:
        """A quorum of prepares binds this replica to the block."""
        tally = self._roundOf(self.round)
        candidate = tally.accepted
        if candidate is None or self._isPrepared:
            return
        digest = candidate.header.hash
        signatures = tally.signatures(_PREPARE, digest, self._quorum)
        if signatures is None:
            return
        self._prepared = PreparedCertificate(round=self.round, digest=digest, signatures=signatures)
        self._preparedBlock = ProposedBlock(
            header=candidate.header, transactions=candidate.transactions
        )
        self._toCommit = digest

    def _decideIfCommitted(self, round: int) -> None:
        """A quorum of commits of one round decides the block, whatever round it is now."""
        tally = self._roundOf(round)
        for digest in tally.committed():
            signatures = tally.signatures(_COMMIT, digest, self._quorum)
            candidate = self._candidates.get(digest)
            if signatures is not None and candidate is not None:
                certificate = Certificate(round=round, signatures=signatures)
                self._effects.append(Decide(candidate, certificate))
                self._advance(candidate.header)
                return

    def _advance(self, head: Header) -> None:
        self.head = head
        self._beginHeight()
        self._own.clear()
        self._effects.append(StopTimers())
        self._begin()
        for message in self._early.take(self.height):
            self._take(message)

    # Round changes.

    def _enterRound(self, round: int) -> bool:
        """
        Go on to a round and say so.

        @return: whether the round could be entered.
        """
        if not self._application.reserve(self.height, round):
            self._timeRound()
            return False
        self.round = round
        self._isTimed = False
        self._toPrepare = self._toCommit = None
        self._said.clear()
        self._rounds = {
            number: tally if number >= round else tally.onlyCommits()
            for number, tally in self._rounds.items()
        }
        self._say(self._signer.changeRound(self.height, round, self._prepared, self._preparedBlock))
        return True

    def _onRoundChange(self, change: RoundChange) -> None:
        if change.height < self.height:
            self._answer(change.sender, change.height)
            return
        known = self._rounds.get(change.round)
        if change.round < max(1, self.round) or (known and change.sender in known.changes):
            return
        self._rules.checkRoundChange(change)
        # Of one that is far ahead only its round is kept, so that it can still be followed.
        self._noteRound(change)
        if change.round <= self.round + ROUNDS_AHEAD:
            self._roundOf(change.round).changes[change.sender] = change
        self._followOthers()
        if self._isActive and not self._isTimed:
            self._timeRound()
        if change.round == self.round:
            self._proposeIfDue()

    def _noteRound(self, change: RoundChange) -> None:
        self._ahead[change.sender] = max(change.round, self._ahead.get(change.sender, 0))

    def _followOthers(self) -> None:
        """
        When more than f others have gone on, at least one correct replica has: join the lowest
        of their rounds. Fewer are not followed.
        """
        ahead = [round for round in self._ahead.values() if round > self.round]
        if len(ahead) > faultsTolerated(self._rules.nodes):
            self._activate()
            self._enterRound(min(ahead))

    # Catching up.

    def _askForBlock(self, target: int | None = None) -> None:
        self._send(BlockRequest(sender=self.index, height=self.height), target)

    def _onBlockRequest(self, request: BlockRequest) -> None:
        if request.height < self.height:
            self._answer(request.sender, request.height)

    def _answer(self, target: int, height: int) -> None:
        decided = self._application.decided(height)
        if decided is not None and target != self.index:
            header, certificate = decided
            self._send(
                DecidedBlock(sender=self.index, header=header, certificate=certificate), target
            )

    def _onDecidedBlock(self, decided: DecidedBlock) -> None:
        header = decided.header
        if header.height != self.height or header.parent != self.head.hash:
            return
        self._rules.checkDecided(decided)
        candidate = self._candidates.get(header.hash)
        if candidate is not None:
            self._effects.append(Decide(candidate, decided.certificate))
        elif self._application.decided(header.height) is None:
            # Nobody has it but the sender: it could be agreed upon, but not stored.
            return
        self._advance(header)
        self._askForBlock(decided.sender)
