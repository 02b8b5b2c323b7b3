"""
Mutations: unsafe variants of the protocol, which the simulator has to find.

Each is a set of faulty L{Components}: subclasses of the replica, the rules, the application or the
disk of a host. Nothing is patched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from svcbroker.ledgers.pbft._replica import Replica

from .behaviours import (
    CertificateThief,
    DoubleVoter,
    Equivocator,
    FalseRoundChanges,
    Flooder,
    Forger,
    SilentLeader,
    Strategist,
    TransactionInventor,
    UnjustifiedProposer,
    ViewChooser,
    WrongRoot,
)
from .brokenledger import (
    EarlyProducer,
    EarlyTip,
    ForgetfulFollower,
    ForgetfulProducer,
    RepeatingFollower,
    RoundZeroProducer,
    TraceLeft,
    WrongCache,
)
from .brokenreplicas import (
    AnyDigest,
    AnyProposer,
    AnyProposerRules,
    AnyTransaction,
    CommitWithoutBlock,
    FirstLock,
    FollowsAnyone,
    FollowsFew,
    FollowsHighest,
    ForgottenLock,
    HastyLeader,
    LateCommit,
    LatePrepare,
    LeaderCountedTwice,
    LeaderIgnoresLocks,
    LockOfAllHeights,
    MixedCommits,
    NeverWaits,
    NoCatchUp,
    NoExecutionCheck,
    NoLateCommits,
    NoRetransmission,
    RememberedRounds,
    RoundReuser,
    SameRoundAgain,
    SecondProposal,
    SmallLock,
    StaleView,
    UnboundedFuture,
    UnboundedRounds,
    UnlockedLeader,
    UnreservedRounds,
    UnsortedCertificate,
    UnsyncedAcknowledgement,
    VolatilePromises,
)
from .brokenrules import (
    AnyNumber,
    BlindSync,
    CertificateOfAnyHeight,
    ChosenView,
    DuplicateSenders,
    DuplicateSigners,
    EarlierRoundChanges,
    EmptyRoundChanges,
    FewRoundChanges,
    HighestView,
    JustifiedByLeader,
    LastOfEqual,
    LaterRoundChanges,
    LeaderTwiceInCertificate,
    LockOfSameRound,
    LowestPrepared,
    MisledLeader,
    MostClaimed,
    ParentNotCompared,
    PreparedIsDecided,
    SmallLockRules,
    SmallQuorum,
    TwoFPlusOne,
    UnboundCertificate,
    UncheckedBinding,
    UncomparedBlock,
    UnjustifiedProposal,
    UnsignedCommits,
    UnsignedVotes,
)
from .cluster import Focus
from .faults import FAULTS, Faults, FullDisk, Obstructed, Planned, PowerCut
from .network import Starvation
from .replicas import Components


@frozen
class Mutation:
    """
    An unsafe variant of the protocol.

    @ivar components: its components.
    @ivar schedule: the name of the directed schedule that finds it; empty if there is none.
    @ivar focus: what random schedules must concentrate on to find it soon.
    @ivar replica: the class of the embedded ledger's replicas.
    @ivar isEmbedded: whether it can only be found in the embedded system.
    @ivar nodes: how many replicas random schedules have.
    @ivar constants: constants with wrong values, by full name.
    """

    components: Components
    schedule: str = ""
    focus: Focus | None = None
    replica: type[Replica] = Replica
    isEmbedded: bool = False
    nodes: int = 4
    constants: Mapping[str, Any] = field(factory=dict)


UNBROKEN = Mutation(Components())
"""The correct protocol."""


_AMBUSHES: Faults = [
    fault for fault in FAULTS if fault[0] in ("ambush", "late ambush", "starvation", "power cut")
]
_CRASHES: Faults = [fault for fault in FAULTS if fault[0] in ("crash at a write", "power cut")]

_SETTINGS = "svcbroker.storage._files._SETTINGS"
_APPLICATION = "svcbroker.ledgers.pbft._producer"
# A lock that is reported in a round which the disk could not reserve, and is lost in a crash.
_FULL_DISK = [
    Planned("full disk", 0.4, 4.0, FullDisk(0)),
    Planned("starvation", 0.4, 4.0, Obstructed(Starvation(("commit", "decided"), -1))),
    Planned("power cut", 3.9, 4.0, PowerCut([0], 0.5)),
]
_PRODUCER = "svcbroker.ledgers.pbft._pbftledger.BlockProducer"
_FOLLOWER = "svcbroker.broker.subscriptions._registry.Follower"


def _embedded(name: str, broken: type) -> Mutation:
    """The embedded ledger with a faulty class in place of another one."""
    return Mutation(Components(), isEmbedded=True, constants={name: broken})


_STOLEN = Focus(behaviours=[Strategist, UnjustifiedProposer, CertificateThief], faults=_AMBUSHES)
_LOCKS = Focus(behaviours=[Strategist, UnjustifiedProposer, FalseRoundChanges], faults=_AMBUSHES)

MUTATIONS: Mapping[str, Mutation] = {
    # Rules that accept too much.
    "quorum too small": Mutation(Components(rules=SmallQuorum), "too few signers"),
    "signers counted twice": Mutation(Components(rules=DuplicateSigners), "duplicate signers"),
    "decided block not checked": Mutation(
        Components(rules=BlindSync), "", Focus(behaviours=[Forger])
    ),
    "certificates not checked": Mutation(
        Components(rules=UncheckedBinding), "empty certificate", _LOCKS
    ),
    "certificate of any round": Mutation(
        Components(rules=UnboundCertificate), "unbound certificate"
    ),
    "proposal not justified": Mutation(
        Components(rules=UnjustifiedProposal), "unjustified", _LOCKS
    ),
    "senders counted twice": Mutation(
        Components(rules=DuplicateSenders), "duplicate senders", _LOCKS
    ),
    "signatures not checked": Mutation(Components(rules=UnsignedVotes), "forged senders"),
    "lowest, not highest": Mutation(Components(rules=LowestPrepared), "lowest prepared", _LOCKS),
    "highest by view": Mutation(Components(rules=HighestView), "highest view", _LOCKS),
    "justified by f+1": Mutation(Components(rules=FewRoundChanges), "few round changes", _LOCKS),
    "commits not verified": Mutation(Components(rules=UnsignedCommits), "unsigned commit"),
    "prepared is decided": Mutation(Components(rules=PreparedIsDecided), "prepares as commits"),
    # Replicas that forget, or act on past rounds.
    "commits mixed over rounds": Mutation(
        Components(replica=MixedCommits), "commits of two rounds"
    ),
    "first lock kept": Mutation(Components(replica=FirstLock), "first lock", _LOCKS),
    "forgotten lock": Mutation(Components(replica=ForgottenLock), "", Focus(faults=_AMBUSHES)),
    "lock lost in a crash": Mutation(
        Components(keep=lambda kept: evolve(kept, prepared=None, block=None)), "lost lock"
    ),
    "promises not written": Mutation(Components(disk=VolatilePromises), "", Focus(faults=_CRASHES)),
    "older round after a crash": Mutation(
        Components(keep=lambda kept: evolve(kept, round=kept.round - 1)), "", Focus(faults=_CRASHES)
    ),
    "stale view accepted": Mutation(Components(replica=StaleView)),
    "votes after a lost disk": Mutation(Components(wipedVotes=True), "", Focus(isWiped=True)),
    "rounds used again": Mutation(Components(), replica=RoundReuser, isEmbedded=True),
    "success before the sync": Mutation(
        Components(disk=UnsyncedAcknowledgement), "", Focus(faults=_CRASHES)
    ),
    # Replicas that trust others.
    "execution not checked": Mutation(
        Components(chain=NoExecutionCheck), "", Focus(behaviours=[WrongRoot])
    ),
    "unsent transactions": Mutation(
        Components(chain=AnyTransaction), "", Focus(behaviours=[TransactionInventor])
    ),
    "rounds without bound": Mutation(
        Components(replica=UnboundedRounds), "", Focus(behaviours=[Flooder])
    ),
    "one replica followed": Mutation(
        Components(replica=FollowsAnyone), "", Focus(behaviours=[Flooder])
    ),
    # Replicas that fail to agree on a round.
    "no catching up": Mutation(Components(replica=NoCatchUp)),
    "no retransmission": Mutation(Components(replica=NoRetransmission)),
    "no waiting for others": Mutation(Components(replica=NeverWaits)),
    "timeouts without bound": Mutation(
        Components(longest=1e9), "", Focus(behaviours=[SilentLeader], isLong=True)
    ),
    # Rules of round changes.
    "earlier round changes": Mutation(
        Components(rules=EarlierRoundChanges), "earlier round changes", _LOCKS
    ),
    "other block accepted": Mutation(Components(rules=UncomparedBlock), "other block", _STOLEN),
    "other block proposed": Mutation(Components(rules=MisledLeader), "misled leader", _STOLEN),
    "justified by the leader": Mutation(
        Components(rules=JustifiedByLeader), "few round changes", _LOCKS
    ),
    "empty changes unsigned": Mutation(
        Components(rules=EmptyRoundChanges), "forged senders", _LOCKS
    ),
    "senders modulo n": Mutation(Components(rules=AnyNumber), "numbered anew", _LOCKS),
    "certificate of a height before": Mutation(
        Components(rules=CertificateOfAnyHeight), "", _STOLEN
    ),
    "most claimed, not highest": Mutation(Components(rules=MostClaimed), "most claimed", _LOCKS),
    "chosen view": Mutation(
        Components(rules=ChosenView), "chosen view", Focus(behaviours=[ViewChooser])
    ),
    # Quorums.
    "2f+1 of 5": Mutation(Components(rules=TwoFPlusOne), "two quorums of 5", nodes=5),
    "2f+1 of 6": Mutation(Components(rules=TwoFPlusOne), "two quorums of 6", nodes=6),
    "2f+1 of 8": Mutation(Components(rules=TwoFPlusOne), "two quorums of 8", nodes=8),
    "leader counted twice": Mutation(
        Components(rules=LeaderTwiceInCertificate, replica=LeaderCountedTwice), "leader twice"
    ),
    "lock by one less": Mutation(
        Components(rules=SmallLockRules, replica=SmallLock), "leader twice"
    ),
    "votes for any block": Mutation(
        Components(replica=AnyDigest), "", Focus(behaviours=[DoubleVoter, Equivocator])
    ),
    # Replicas with wrong locks and votes.
    "commit without the block": Mutation(
        Components(replica=CommitWithoutBlock), "commit without block"
    ),
    "leader without a lock": Mutation(
        Components(replica=UnlockedLeader), "leader unlocked", _LOCKS
    ),
    "commit of the round before": Mutation(Components(replica=LateCommit), "late commit"),
    "prepare of the round before": Mutation(Components(replica=LatePrepare), "late prepare"),
    "lock of the height before": Mutation(Components(replica=LockOfAllHeights), ""),
    "block of the lock lost in a crash": Mutation(
        Components(keep=lambda kept: evolve(kept, block=None)), "", Focus(faults=_CRASHES)
    ),
    "signers not sorted": Mutation(Components(replica=UnsortedCertificate), "", _LOCKS),
    "same round after a crash": Mutation(
        Components(replica=SameRoundAgain), "", Focus(faults=_CRASHES)
    ),
    "second proposal accepted": Mutation(
        Components(replica=SecondProposal), "", Focus(behaviours=[Equivocator])
    ),
    "any proposer": Mutation(
        Components(replica=AnyProposer, rules=AnyProposerRules), "any proposer"
    ),
    "hasty leader": Mutation(Components(replica=HastyLeader), "hasty leader"),
    "leader ignores locks": Mutation(
        Components(replica=LeaderIgnoresLocks), "misled leader", _LOCKS
    ),
    # Replicas that others move, or fill.
    "f replicas followed": Mutation(
        Components(replica=FollowsFew), "", Focus(behaviours=[Flooder])
    ),
    "highest round followed": Mutation(
        Components(replica=FollowsHighest), "", Focus(behaviours=[Flooder])
    ),
    "later heights without bound": Mutation(
        Components(replica=UnboundedFuture), "", Focus(behaviours=[Flooder])
    ),
    # What is on the disk.
    "commits not synced": Mutation(
        Components(), isEmbedded=True, constants={_SETTINGS: ["PRAGMA synchronous = OFF"]}
    ),
    "only checkpoints synced": Mutation(
        Components(), isEmbedded=True, constants={_SETTINGS: ["PRAGMA synchronous = NORMAL"]}
    ),
    "no rounds reserved": Mutation(
        Components(), isEmbedded=True, constants={f"{_APPLICATION}.ROUNDS_RESERVED": 0}
    ),
    "commit not removed": _embedded("svcbroker.storage._store.Transactions", TraceLeft),
    "tip before the commit": _embedded("svcbroker.ledgers.pbft._pbftledger.Store", EarlyTip),
    # What the ledger does with decided blocks.
    "told before the sync": _embedded(_PRODUCER, EarlyProducer),
    "other block after a failure": _embedded(_PRODUCER, ForgetfulProducer),
    "first round after a failure": _embedded(_PRODUCER, RoundZeroProducer),
    "block lost by the follower": _embedded(_FOLLOWER, ForgetfulFollower),
    "block repeated by the follower": _embedded(_FOLLOWER, RepeatingFollower),
    "wrong block from the cache": _embedded(_FOLLOWER, WrongCache),
    "rounds not reserved": Mutation(
        Components(),
        replica=UnreservedRounds,
        focus=Focus(script=_FULL_DISK),
        isEmbedded=True,
        constants={f"{_APPLICATION}.ROUNDS_RESERVED": 1},
    ),
}
"""All mutations, by name."""


@frozen
class Equivalent:
    """
    A variant of the protocol that breaks no invariant.

    @ivar reason: the proof.
    """

    components: Components
    reason: str


EQUIVALENT: Mapping[str, Equivalent] = {
    "last of equal locks": Equivalent(
        Components(rules=LastOfEqual),
        "Two certificates of one round are of one block: two quorums share a correct replica, "
        "which prepares once in a round. So it does not matter which is taken.",
    ),
    "lock of the same round": Equivalent(
        Components(rules=LockOfSameRound),
        "A certificate of the round itself shows that a quorum has prepared its block there. "
        "Correct replicas accept one proposal in a round; to those who have accepted none, the "
        "leader can only propose that block.",
    ),
    "later round changes": Equivalent(
        Components(rules=LaterRoundChanges),
        "The locks of a replica only rise, so a later round change has at least the lock of the "
        "one that is asked for, and its sender votes in no earlier round any more.",
    ),
    "parent not compared": Equivalent(
        Components(rules=ParentNotCompared),
        "The application compares them again when it executes the block.",
    ),
    "no late commits": Equivalent(
        Components(replica=NoLateCommits),
        "Fewer blocks are decided in earlier rounds, none wrongly; the locks bring the same block "
        "into later rounds. It costs a round.",
    ),
    "rounds of earlier heights": Equivalent(
        Components(replica=RememberedRounds),
        "A replica only enters later rounds than it has to, where it waits for a quorum. It costs "
        "views.",
    ),
}
"""All variants that were tried and found to be as safe as the protocol, by name."""
