"""
Contradictions: two statements that were signed for one chain, and of which not both can be true.

Validators that keep the rules never sign such statements, so a contradiction is evidence against
those that signed both. It can be checked by anybody, because both statements are in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from attrs import frozen

from ..chain import CertificateInvalid, Header, Malformed
from ..errors import BrokerError
from ._checkpoint import Checkpoint
from ._format import ContradictionFields, EventProof, HeaderProof, TopicProof
from ._headers import HeaderVerifier, SignedHeader
from ._reading import ProofInvalid, formatOf, readCheckpoint, readDocument, readFields
from ._topics import ProvedTopic, checkedTopic
from ._verify import ProvedEvent, checkedEvent, checkHistory


@frozen(kw_only=True)
class Claim:
    """
    That a block is in a chain.

    @ivar block: the block.
    @ivar signed: the header that says so: the block's own, the next one, or one that has it in its
        history; C{None} where nothing is signed.
    """

    block: Checkpoint
    signed: SignedHeader | None

    @property
    def isDirect(self) -> bool:
        """Whether the block itself was signed."""
        return self.signed is not None and self.signed.block == self.block


@frozen(kw_only=True)
class Statement:
    """
    A document that was verified, and what it says of its chain.

    @ivar document: the document, as JSON has it.
    @ivar group: the id of the chain's group; empty for a checkpoint.
    @ivar chain: the chain's id; C{None} for a checkpoint, which names none.
    @ivar claims: the blocks that it says are in the chain.
    @ivar proved: the event or topic that it proves.
    """

    document: Mapping[str, Any] | str
    group: str = ""
    chain: bytes | None = None
    claims: Sequence[Claim] = ()
    proved: ProvedEvent | ProvedTopic | None = None


@frozen(kw_only=True)
class Side:
    """
    One side of a contradiction.

    @ivar says: what was signed, in words, or the block.
    @ivar signed: the header that says so; C{None} where nothing is signed.
    """

    says: str
    signed: SignedHeader | None

    def fields(self) -> Mapping[str, Any]:
        """The side as JSON values."""
        signed = self.signed
        return {
            "says": self.says,
            "signed": None if signed is None else str(signed.block),
            "round": None if signed is None else signed.round,
            "nodes": 0 if signed is None else len(signed.validators.keys),
            "signers": [] if signed is None else [key.hex() for key in signed.signers.values()],
        }


@frozen(kw_only=True)
class Contradiction:
    """
    What two statements contradict each other in.

    @ivar kind: C{block}: two hashes of one height; C{event}: two events of one id or number, or
        numbers out of order; C{topic}: another number of events than was proved.
    @ivar group: the id of the chain's group.
    @ivar chain: the chain's id.
    """

    kind: str
    group: str
    chain: bytes
    first: Side
    second: Side

    @property
    def keys(self) -> Sequence[bytes]:
        """The public keys that signed both sides."""
        one, other = self.first.signed, self.second.signed
        if one is None or other is None:
            return ()
        return [key for key in one.signers.values() if key in other.signers.values()]

    @property
    def isDoubleSigning(self) -> bool:
        """
        Whether each of the L{keys} has signed two blocks in one round of one height, which no
        correct validator does.
        """
        one, other = self.first.signed, self.second.signed
        return (
            one is not None
            and other is not None
            and one.block != other.block
            and (one.header.height, one.round) == (other.header.height, other.round)
        )

    def fields(self) -> Mapping[str, Any]:
        """The contradiction as JSON values."""
        return {
            "kind": self.kind,
            "group": self.group,
            "chain": self.chain.hex(),
            "first": self.first.fields(),
            "second": self.second.fields(),
            "keys": [key.hex() for key in self.keys],
            "isDoubleSigning": self.isDoubleSigning,
        }


def readStatement(data: bytes) -> Statement:
    """
    Read an event proof, a topic proof, a header proof or a checkpoint, and verify all signatures
    that are in it.

    @raise ProofInvalid: it is none, does not hold by itself, or is a proof without signatures.
    """
    try:
        kind = formatOf(data).partition("-proof/")[0]
    except ProofInvalid:
        checkpoint = readCheckpoint(data)
        claims = [Claim(block=checkpoint, signed=None)]
        return Statement(document=str(checkpoint), claims=claims)
    document = readDocument(data, "a proof")
    try:
        match kind:
            case "svcbroker/event":
                return _ofEvent(document, readFields(EventProof, data, "an event proof"))
            case "svcbroker/topic":
                topic = checkedTopic(readFields(TopicProof, data, "a topic proof"))
                return _proved(document, topic)
            case "svcbroker/header":
                return _ofHeader(document, readFields(HeaderProof, data, "a header proof"))
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    except BrokerError as error:
        raise ProofInvalid(error.message) from None
    raise ProofInvalid("this is not an event proof, a topic proof, a header proof or a checkpoint")


def findContradiction(first: Statement, second: Statement) -> Contradiction | None:
    """
    What two statements contradict each other in, if they do.
    """
    chain = first.chain or second.chain
    if chain is None or (first.chain and second.chain and first.chain != second.chain):
        return None
    found = _blocks(first, second) or _numbers(first.proved, second.proved)
    if found is None:
        return None
    kind, one, other = found
    group = first.group or second.group
    return Contradiction(kind=kind, group=group, chain=chain, first=one, second=other)


def contradictionDocument(first: Statement, second: Statement) -> ContradictionFields | None:
    """
    A document of a contradiction that others can check.

    @return: C{None} where the statements do not contradict each other.
    """
    found = findContradiction(first, second)
    if found is None:
        return None
    return ContradictionFields(
        format="svcbroker/contradiction/1",
        first=first.document,
        second=second.document,
        contradiction=found.fields(),
    )


def verifyContradiction(data: bytes) -> Contradiction:
    """
    Check a document of a contradiction: all signatures, and that it is one.

    @raise ProofInvalid: it does not hold.
    """
    fields = readFields(ContradictionFields, data, "a contradiction")
    first, second = (
        readStatement(each.encode("utf-8") if isinstance(each, str) else msgspec.json.encode(each))
        for each in (fields.first, fields.second)
    )
    found = findContradiction(first, second)
    if found is None:
        raise ProofInvalid("the two statements do not contradict each other")
    # Written, because a number equals a truth value in Python, and not in JSON.
    if _written(found.fields()) != _written(fields.contradiction):
        raise ProofInvalid("the statements contradict each other in something else than it says")
    return found


def _written(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value, order="sorted")


# Reading.


def _ofEvent(document: Mapping[str, Any], proof: EventProof) -> Statement:
    event = checkedEvent(proof)
    if event.signed is None:
        raise ProofInvalid("it has no signatures, so nobody can be held to it")
    return _proved(document, event)


def _proved(document: Mapping[str, Any], proved: ProvedEvent | ProvedTopic) -> Statement:
    claims = list(_claims(proved.headers))
    last = proved.headers[-1]
    if proved.block != last.block:
        claims.append(Claim(block=proved.block, signed=last))
    return Statement(
        document=document,
        group=proved.group,
        chain=proved.chain,
        claims=claims,
        proved=proved,
    )


def _ofHeader(document: Mapping[str, Any], proof: HeaderProof) -> Statement:
    genesis = proof.genesis.genesis()
    headers = HeaderVerifier(genesis, proof.changes)
    last = headers.check(proof.block)
    claims = list(_claims(headers.signed))
    if proof.earlier is not None:
        earlier = headers.read(proof.earlier.header)
        checkHistory(earlier.hash, earlier.height, last.header, proof.earlier.path)
        claims += [Claim(block=each, signed=last) for each in _blocksOf(earlier)]
    headers.finish(last.header)
    return Statement(document=document, group=genesis.group, chain=genesis.chain, claims=claims)


def _claims(headers: Sequence[SignedHeader]) -> Iterator[Claim]:
    for signed in headers:
        for block in _blocksOf(signed.header):
            yield Claim(block=block, signed=signed)


def _blocksOf(header: Header) -> Sequence[Checkpoint]:
    """The blocks that a header names: its own, and its parent."""
    return Checkpoint.of(header), Checkpoint(header.height - 1, header.parent)


# Comparing.


def _blocks(first: Statement, second: Statement) -> tuple[str, Side, Side] | None:
    """Two hashes of one height: if possible two headers that were signed, the lowest ones."""
    others: dict[int, list[Claim]] = defaultdict(list)
    for claim in second.claims:
        others[claim.block.height].append(claim)
    pairs = [
        (one, other)
        for one in first.claims
        for other in others[one.block.height]
        if one.block.hash != other.block.hash
    ]
    if not pairs:
        return None
    one, other = min(
        pairs,
        key=lambda pair: (not (pair[0].isDirect and pair[1].isDirect), pair[0].block.height),
    )
    sides = [Side(says=str(each.block), signed=each.signed) for each in (one, other)]
    return "block", sides[0], sides[1]


def _numbers(
    one: ProvedEvent | ProvedTopic | None, other: ProvedEvent | ProvedTopic | None
) -> tuple[str, Side, Side] | None:
    """Numbers of events that cannot be in one log."""
    match one, other:
        case ProvedEvent(), ProvedEvent():
            kind, clash = "event", _eventsClash(one, other)
        case ProvedTopic(), ProvedTopic() if one.topic == other.topic:
            kind = "topic"
            lower, higher = sorted((one, other), key=lambda each: (each.block.height, each.count))
            isSame = lower.block.height == higher.block.height
            clash = lower.count > higher.count or (isSame and lower.count < higher.count)
        case ProvedTopic(), ProvedEvent() if one.topic == other.topic:
            kind, clash = "topic", _countClashes(one, other)
        case ProvedEvent(), ProvedTopic() if one.topic == other.topic:
            kind, clash = "topic", _countClashes(other, one)
        case _:
            return None
    if not clash:
        return None
    return kind, _side(one), _side(other)


def _eventsClash(one: ProvedEvent, other: ProvedEvent) -> bool:
    if one.eventId == other.eventId:
        return one.transaction != other.transaction
    if one.topic != other.topic:
        return False
    earlier, later = sorted((one, other), key=lambda each: each.sequence)
    isSame = earlier.sequence == later.sequence
    return isSame or earlier.block.height > later.block.height


def _countClashes(topic: ProvedTopic, event: ProvedEvent) -> bool:
    """The events up to the topic's block are those with the numbers up to its count."""
    return (event.sequence <= topic.count) != (event.block.height <= topic.block.height)


def _side(proved: ProvedEvent | ProvedTopic) -> Side:
    if isinstance(proved, ProvedTopic):
        says = f"a topic has {proved.count} events up to block {proved.block}"
    else:
        says = (
            f"event {proved.eventId} is transaction {proved.transaction.hex()} in block "
            f"{proved.block}"
        )
    signed = next(header for header in proved.headers if header.block == proved.signed)
    return Side(says=says, signed=signed)
