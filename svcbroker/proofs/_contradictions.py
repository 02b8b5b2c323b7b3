"""
Contradictions: two statements that were signed for one chain, and of which not both can be true.

Validators that keep the rules never sign such statements, so a contradiction is evidence against
those that signed both. It can be checked by anybody, because both statements are in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen

from ..chain import CertificateInvalid, Header, Malformed
from ..errors import BrokerError
from ._documents import Checkpoint, ProofInvalid, formatOf, readCheckpoint, readDocument, readFields
from ._format import ContradictionFields, EventProof, HeaderProof, TopicProof
from ._verification import (
    HeaderVerifier,
    ProvedEvent,
    ProvedTopic,
    SignedHeader,
    checkedEvent,
    checkedTopic,
    checkEntry,
    checkHistory,
)
from .tlog import KeyType, LogProof, Note, SignatureRefused, TreeHead, VerifierKey

_LOG_PROOF: Final = b"c2sp.org/tlog-proof@v1\n"
_SIGNATURE: Final = "\n\n\N{EM DASH} ".encode()


@frozen(kw_only=True)
class SignedTree:
    """
    A checkpoint of a transparency log, whose signatures were verified.

    @ivar log: the key of the log.
    @ivar witnesses: the keys of the witnesses that have cosigned it.
    """

    head: TreeHead
    log: VerifierKey
    witnesses: Sequence[VerifierKey]

    @property
    def keys(self) -> Sequence[bytes]:
        """The public keys that have signed it."""
        return [each.key for each in (self.log, *self.witnesses)]


@frozen(kw_only=True)
class Claim:
    """
    That a block is in a chain.

    @ivar block: the block.
    @ivar signed: the header that says so: the block's own, the next one, or one that has it in its
        history; or the log that has it; C{None} where nothing is signed.
    """

    block: Checkpoint
    signed: SignedHeader | SignedTree | None

    @property
    def isDirect(self) -> bool:
        """Whether the block itself was signed."""
        return isinstance(self.signed, SignedHeader) and self.signed.block == self.block


@frozen(kw_only=True)
class RootClaim:
    """
    That the tree over the first blocks of a chain has a root.

    @ivar size: how many blocks these are, the genesis included.
    """

    size: int
    root: bytes
    signed: SignedHeader | SignedTree


@frozen(kw_only=True)
class Statement:
    """
    A document that was verified, and what it says of its chain.

    @ivar document: the document, as JSON has it.
    @ivar group: the id of the chain's group; empty for a checkpoint.
    @ivar chain: the chain's id; C{None} for a checkpoint, which names none.
    @ivar claims: the blocks that it says are in the chain.
    @ivar proved: the event or topic that it proves.
    @ivar roots: the roots that it says the chain's history has.
    @ivar tree: the checkpoint of a log that it is, or is in; C{None} for others.
    """

    document: Mapping[str, Any] | str
    group: str = ""
    chain: bytes | None = None
    claims: Sequence[Claim] = ()
    proved: ProvedEvent | ProvedTopic | None = None
    roots: Sequence[RootClaim] = ()
    tree: SignedTree | None = None

    @property
    def origin(self) -> str:
        """The origin of its log; empty where it is of none."""
        return "" if self.tree is None else self.tree.head.origin


@frozen(kw_only=True)
class Side:
    """
    One side of a contradiction.

    @ivar says: what was signed, in words, or the block.
    @ivar signed: the header that says so, or the log; C{None} where nothing is signed.
    """

    says: str
    signed: SignedHeader | SignedTree | None

    @property
    def keys(self) -> Sequence[bytes]:
        """The public keys that have signed it."""
        if isinstance(self.signed, SignedTree):
            return self.signed.keys
        return [] if self.signed is None else [*self.signed.signers.values()]

    def fields(self) -> Mapping[str, Any]:
        """The side as JSON values."""
        signed = self.signed
        if isinstance(signed, SignedTree):
            return {
                "says": self.says,
                "log": signed.log.text,
                "size": signed.head.size,
                "root": signed.head.root.hex(),
                "witnesses": [each.text for each in signed.witnesses],
            }
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
    A contradiction of two statements.

    @ivar kind: C{block}: two hashes of one height; C{event}: two events of one id or number, or
        numbers out of order; C{topic}: another number of events than was proved; C{root}: two
        histories of one size.
    @ivar group: the id of the chain's group; empty where neither side names it.
    @ivar chain: the chain's id; likewise.
    """

    kind: str
    group: str
    chain: bytes
    first: Side
    second: Side

    @property
    def keys(self) -> Sequence[bytes]:
        """The public keys that signed both sides."""
        return tuple(key for key in self.first.keys if key in self.second.keys)

    @property
    def isDoubleSigning(self) -> bool:
        """
        Whether each of the L{keys} has signed two blocks in one round of one height, which no
        correct validator does, or two trees of one size, which no correct log or witness does.
        """
        one, other = self.first.signed, self.second.signed
        if isinstance(one, SignedTree) and isinstance(other, SignedTree):
            return one.head.size == other.head.size and one.head.root != other.head.root
        return (
            isinstance(one, SignedHeader)
            and isinstance(other, SignedHeader)
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


def readStatement(data: bytes, keys: Collection[VerifierKey] = ()) -> Statement:
    """
    Read an event proof, a topic proof, a header proof or a checkpoint, or a C{tlog-proof} or a
    checkpoint of a transparency log, and verify all signatures that are in it.

    @param keys: those of logs and witnesses.
    @raise ProofInvalid: it is none, does not hold by itself, or is a proof without signatures.
    """
    if data.startswith(_LOG_PROOF):
        return _ofLogProof(data, keys)
    if _SIGNATURE in data and not data.lstrip().startswith(b"{"):
        return _ofTree(data, keys)
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
    Find the contradiction of two statements, if there is one.
    """
    if not _isOneChain(first, second):
        return None
    found = _blocks(first, second) or _numbers(first, second) or _histories(first, second)
    if found is None:
        return None
    kind, one, other = found
    chain = first.chain or second.chain or b""
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
    trees = [each.tree for each in (first, second) if each.tree is not None]
    if trees:
        keys = [key.text for tree in trees for key in (tree.log, *tree.witnesses)]
        return ContradictionFields(
            format="svcbroker/contradiction/2",
            first=first.document,
            second=second.document,
            keys=list(dict.fromkeys(keys)),
            contradiction=found.fields(),
        )
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
    try:
        keys = [VerifierKey.parse(each) for each in fields.keys or ()]
    except Malformed as error:
        raise ProofInvalid(f"keys: {error}") from None
    first, second = (
        readStatement(
            each.encode("utf-8") if isinstance(each, str) else msgspec.json.encode(each), keys
        )
        for each in (fields.first, fields.second)
    )
    found, document = findContradiction(first, second), contradictionDocument(first, second)
    if found is None or document is None:
        raise ProofInvalid("the two statements do not contradict each other")
    if (document.format, document.keys) != (fields.format, fields.keys):
        raise ProofInvalid("its keys are not those that have signed the statements")
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
        roots=[*_rootsOf(proved.headers)],
    )


def _ofLogProof(data: bytes, keys: Collection[VerifierKey]) -> Statement:
    """A C{tlog-proof}, with the event or topic that it proves."""
    try:
        proof = LogProof.decode(data)
        tree = _signedTree(proof.checkpoint, keys)
        proved: ProvedEvent | ProvedTopic
        if formatOf(proof.extra).startswith("svcbroker/topic-proof"):
            topic = readFields(TopicProof, proof.extra, "a topic proof")
            fields, proved = topic.block.header, checkedTopic(topic)
        else:
            event = readFields(EventProof, proof.extra, "an event proof")
            fields, proved = event.block.header, checkedEvent(event)
        header = fields.header()
        checkEntry(proof, fields)
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    except BrokerError as error:
        raise ProofInvalid(error.message) from None
    return Statement(
        document=data.decode("utf-8"),
        group=proved.group,
        chain=proved.chain,
        claims=[
            *_claims(proved.headers),
            *(Claim(block=each, signed=tree) for each in _blocksOf(header)),
        ],
        proved=proved,
        roots=[
            *_rootsOf(proved.headers),
            RootClaim(size=tree.head.size, root=tree.head.root, signed=tree),
            RootClaim(size=header.height, root=header.history, signed=tree),
        ],
        tree=tree,
    )


def _ofTree(data: bytes, keys: Collection[VerifierKey]) -> Statement:
    """A checkpoint of a transparency log."""
    try:
        tree = _signedTree(Note.decode(data), keys)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    root = RootClaim(size=tree.head.size, root=tree.head.root, signed=tree)
    return Statement(document=data.decode("utf-8"), roots=[root], tree=tree)


def _signedTree(note: Note, keys: Collection[VerifierKey]) -> SignedTree:
    """
    Verify the signatures of a checkpoint.

    @raise Malformed: it is no checkpoint.
    @raise ProofInvalid: no key of its log has signed it, or a signature does not hold.
    """
    head = TreeHead.parse(note.text)
    try:
        signed = [key for key, _ in note.verified(keys)]
    except SignatureRefused as error:
        raise ProofInvalid(str(error)) from None
    for key in signed:
        if key.type is KeyType.ED25519 and key.name == head.origin:
            witnesses = [each for each in signed if each.isWitness]
            return SignedTree(head=head, log=key, witnesses=list(dict.fromkeys(witnesses)))
    raise ProofInvalid(f"no known key of the log {head.origin} has signed it: see --policy")


def _rootsOf(headers: Sequence[SignedHeader]) -> Iterator[RootClaim]:
    for each in headers:
        yield RootClaim(size=each.header.height, root=each.header.history, signed=each)


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
    return Statement(
        document=document,
        group=genesis.group,
        chain=genesis.chain,
        claims=claims,
        roots=[*_rootsOf(headers.signed)],
    )


def _claims(headers: Sequence[SignedHeader]) -> Iterator[Claim]:
    for signed in headers:
        for block in _blocksOf(signed.header):
            yield Claim(block=block, signed=signed)


def _blocksOf(header: Header) -> Sequence[Checkpoint]:
    """The blocks that a header names: its own, and its parent."""
    return Checkpoint.of(header), Checkpoint(header.height - 1, header.parent)


# Comparing.


def _isOneChain(first: Statement, second: Statement) -> bool:
    """Whether two statements are of one chain, as far as they say it."""
    if first.chain and second.chain:
        return first.chain == second.chain
    if first.origin and second.origin:
        return first.origin == second.origin
    origin, chain = first.origin or second.origin, first.chain or second.chain
    if origin and (first.tree is None or second.tree is None):
        isNamed = chain is not None and origin == f"svcbroker/{chain.hex()}"
        # A proof in a log names its chain. Of another checkpoint nothing shows whose it is.
        return isNamed or any(each.tree is not None and each.chain for each in (first, second))
    return chain is not None


def _histories(first: Statement, second: Statement) -> tuple[str, Side, Side] | None:
    """Two roots of one size, of which a log has signed one at least."""
    others: dict[int, list[RootClaim]] = defaultdict(list)
    for claim in second.roots:
        others[claim.size].append(claim)
    for one in first.roots:
        for other in others[one.size]:
            isOfLog = isinstance(one.signed, SignedTree) or isinstance(other.signed, SignedTree)
            if one.root != other.root and isOfLog:
                sides = [
                    Side(
                        says=f"the history of size {each.size} has the root {each.root.hex()}",
                        signed=each.signed,
                    )
                    for each in (one, other)
                ]
                return "root", sides[0], sides[1]
    return None


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


def _numbers(first: Statement, second: Statement) -> tuple[str, Side, Side] | None:
    """Numbers of events that cannot be in one log."""
    one, other = first.proved, second.proved
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
    assert one is not None and other is not None
    return kind, _side(first, one), _side(second, other)


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


def _side(statement: Statement, proved: ProvedEvent | ProvedTopic) -> Side:
    if isinstance(proved, ProvedTopic):
        says = f"a topic has {proved.count} events up to block {proved.block}"
    else:
        says = (
            f"event {proved.eventId} is transaction {proved.transaction.hex()} in block "
            f"{proved.block}"
        )
    if statement.tree is not None:
        return Side(says=says, signed=statement.tree)
    signed = next(header for header in proved.headers if header.block == proved.signed)
    return Side(says=says, signed=signed)
