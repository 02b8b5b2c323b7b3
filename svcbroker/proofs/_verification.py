"""
Verification of proofs, offline, against a trusted genesis or checkpoint: of an event, of how many
events a topic has, of a chain's growth, and of an entry in a transparency log that witnesses watch.
L{HeaderVerifier} checks the headers below all of them: validator sets, certificates, and order.

B{Frozen}: what holds, and what does not, is pinned by C{docs/vectors/proofs.json}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from struct import error as StructError

from attrs import evolve, field, frozen

from ..chain import (
    CertificateInvalid,
    Genesis,
    Header,
    Malformed,
    TopicPath,
    TransactionReceipt,
    ValidatorSet,
    leafHash,
    receiptLeaf,
    rootOfPath,
)
from ..errors import BrokerError
from ..model import ENCRYPTED, AuthorSet, Authorship, Execution
from ._age import AgeIdentity, NotOpened, openContent
from ._certificates import AnyCertificate, CometCertificate, checkFinal, engineSet, kindOf, unhex
from ._documents import Checkpoint, ProofInvalid, checkChain, checkTrusted, readFields
from ._format import (
    CERTIFIED,
    VERSIONED,
    ConsistencyProof,
    EventProof,
    FinalHeader,
    HeaderFields,
    NodeChange,
    TopicProof,
    checkMembers,
    checkSignature,
    transactionOf,
)
from .cometbft import EngineHeader, headerHash
from .tlog import LogProof, Policy, SignatureRefused, Witnessed

_NANOSECONDS = 1_000_000
"""In a millisecond."""


@frozen(kw_only=True)
class SignedHeader:
    """
    A header that a quorum has signed.

    @ivar validators: the set that decided it.
    @ivar signers: the public keys of those that signed, by their indexes.
    """

    header: Header
    validators: ValidatorSet
    signers: Mapping[int, bytes]
    certificate: AnyCertificate

    @property
    def block(self) -> Checkpoint:
        """Its block."""
        return Checkpoint.of(self.header)

    @property
    def round(self) -> int:
        """The round of its validators' votes."""
        if isinstance(self.certificate, CometCertificate):
            return self.certificate.block().round
        return self.certificate.round


class HeaderVerifier:
    """
    Verifies the headers of one proof, by the validator sets that follow from its genesis.

    @ivar signed: the headers of which a certificate was verified, in this order.
    """

    def __init__(self, genesis: Genesis, changes: Sequence[NodeChange]) -> None:
        """
        @raise Malformed: the changes do not follow from genesis, or from each other.
        @raise CertificateInvalid: one is not final.
        """
        self.signed: list[SignedHeader] = []
        self._genesis = genesis
        self._sets: list[tuple[int, ValidatorSet]] = [(0, genesis.validatorSet)]
        self._kinds: set[type] = set()
        self._engine: list[EngineHeader] = []
        for change in changes:
            self._follow(change)

    def _follow(self, change: NodeChange) -> None:
        header = self.check(change).header
        since, current = self._sets[-1]
        following = ValidatorSet.decode(
            ValidatorSet(
                current.generation + 1, tuple(unhex(key, 32) for key in change.nodes)
            ).encoded
        )
        if header.height <= since or header.nextValidators != following.hash:
            raise Malformed(f"block {header.height} does not bring that validator set")
        if isinstance(change.certificate, CometCertificate):
            power = change.certificate.block().power
            if self._engine[-1].nextValidatorsHash != engineSet(following, power):
                raise Malformed(f"the engine does not have the change in block {header.height}")
        self._sets.append((header.height, following))

    def read(self, fields: HeaderFields) -> Header:
        """
        The header that some fields are of.

        @raise Malformed: it is not of this chain, or it is the genesis header.
        """
        header = fields.header()
        if header.chain != self._genesis.chain or not header.height:
            raise Malformed(f"block {header.height} is not of this chain")
        return header

    def check(self, final: FinalHeader) -> SignedHeader:
        """
        Make sure that a header is final.

        @raise Malformed: it is not of this chain and of the validator set of its height, or there
            is no certificate.
        @raise CertificateInvalid: a quorum of them has not signed it.
        """
        header, certificate = self.read(final.header), final.certificate
        if certificate is None:
            raise Malformed(f"there is no certificate of block {header.height}")
        validators = next(
            validators for since, validators in reversed(self._sets) if since < header.height
        )
        if header.validators != validators.hash:
            raise Malformed(f"block {header.height} is decided by another validator set")
        signers = checkFinal(certificate, header, validators, self._genesis.group)
        self._kinds.add(type(certificate))
        if isinstance(certificate, CometCertificate):
            self._engine.append(certificate.block().header)
        signed = SignedHeader(
            header=header,
            validators=validators,
            signers={index: validators.keys[index] for index in signers},
            certificate=certificate,
        )
        self.signed.append(signed)
        return signed

    def finish(self, last: Header) -> None:
        """
        Make sure that there are no more changes than it takes, and that the proof's headers
        do not contradict each other.

        @param last: the last header of the proof.
        @raise Malformed: there are, or they do.
        @raise CertificateInvalid: the blocks of an engine are not those of one chain.
        """
        if self._sets[-1][0] >= last.height:
            raise Malformed(f"a change of the validators is not below block {last.height}")
        if len(self._kinds) > 1:
            raise Malformed("the headers are not final by the rules of one ledger")
        self._checkEngine()

    def _checkEngine(self) -> None:
        """An engine's headers that several have signed may still be of several chains."""
        blocks = sorted(self._engine, key=lambda header: header.height)
        if blocks and blocks[0].time < self._genesis.created * _NANOSECONDS:
            raise CertificateInvalid("a block of the engine is older than the genesis")
        for one, other in pairwise(blocks):
            hash, distance = headerHash(one), other.height - one.height
            if (
                (distance == 0 and hash != headerHash(other))
                or (distance == 1 and hash != other.lastBlockId.hash)
                or (distance > 0 and one.time >= other.time)
            ):
                raise CertificateInvalid(
                    f"blocks {one.height} and {other.height} of the engine are not of one chain"
                )


@frozen(kw_only=True)
class ProvedEvent:
    """
    The facts that a valid event proof proves.

    @ivar group: the id of the group whose log the event is in.
    @ivar chain: the id of the chain: the hash of its genesis.
    @ivar eventId: the event's id.
    @ivar topic: the topic that it was published to.
    @ivar content: what was published; C{None} where the proof does not have it, because it was
        erased or left out.
    @ivar extensions: what it was published with; without C{content} the public ones.
    @ivar author: who has signed it, and when by the author's own clock; C{None} where it is
        unsigned. Without C{content} it has no signature: the validators have checked it.
    @ivar idempotencyKey: the key by which it was published once, if it has one.
    @ivar expectedSequence: the sequence number that its topic had to have, if it was published with
        one.
    @ivar sequence: its number in its topic, from 1.
    @ivar submitted: when its transaction was submitted, by the broker's clock, in milliseconds
        since the epoch.
    @ivar timestamp: the time of its block, which a quorum of validators accepted, in
        milliseconds since the epoch.
    @ivar block: its block.
    @ivar signed: the block that validators signed: the event's, or the later one where the event's
        has no certificate; C{None} where the proof has no signatures.
    @ivar ledger: the kind of the certificates; C{None} where there are none.
    @ivar signers: the public keys of the validators that signed it, by their indexes.
    @ivar nodes: the size of the validator set, of which a quorum had to sign.
    @ivar changes: how often the validator set had changed since the genesis.
    @ivar checkpoint: the later block that the proof leads to, where it has one.
    @ivar transaction: the hash of the event's transaction.
    @ivar headers: the headers with certificates: those of changes first, that of C{signed} among
        the others.
    @ivar opened: what an identity has opened of a closed content, or why it has not; C{None} where
        none has tried. It is proved as the content is.
    """

    group: str
    chain: bytes
    eventId: str
    topic: str
    content: bytes | None
    extensions: Mapping[str, str]
    author: Authorship | None
    idempotencyKey: str | None
    expectedSequence: int | None
    sequence: int
    submitted: int
    timestamp: int
    block: Checkpoint
    signed: Checkpoint | None
    ledger: str | None
    signers: Mapping[int, bytes]
    nodes: int
    changes: int
    checkpoint: Checkpoint | None
    transaction: bytes
    headers: Sequence[SignedHeader] = field(eq=False, repr=False)
    opened: bytes | NotOpened | None = None

    @property
    def isClosed(self) -> bool:
        """Whether the content that is here is closed."""
        return self.content is not None and ENCRYPTED in self.extensions

    def openedBy(self, identities: Sequence[AgeIdentity]) -> ProvedEvent:
        """The same with its content opened, if it is closed; or with the reason why it is not."""
        if self.content is None or not self.isClosed:
            return self
        try:
            return evolve(self, opened=openContent(self.content, self.extensions, identities))
        except NotOpened as error:
            return evolve(self, opened=error)


@frozen(kw_only=True)
class ProvedGrowth:
    """
    The facts that a valid consistency proof proves: the chain up to one checkpoint is the beginning
    of the chain up to another.

    @ivar chain: the id of the chain, as the newer checkpoint's header has it.
    @ivar older: the older checkpoint.
    @ivar newer: the newer one.
    @ivar timestamp: the time of the newer one's block, in milliseconds since the epoch.
    """

    chain: bytes
    older: Checkpoint
    newer: Checkpoint
    timestamp: int


def verifyProof(
    data: bytes, *, chain: bytes | None = None, checkpoint: Checkpoint | None = None
) -> ProvedEvent:
    """
    Check an event proof against a trusted chain id, a trusted checkpoint, or both. All of the proof
    is checked in each case.

    @param data: the proof: JSON.
    @param chain: the id of the chain: the hash of its genesis.
    @param checkpoint: a block of the chain: the event's own, or the proof's checkpoint.
    @raise ProofInvalid: it does not prove its event, or does not lead to the trusted chain or
        checkpoint.
    """
    checkTrusted(chain, checkpoint)
    return verifyEvent(readFields(EventProof, data, "an event proof"), chain, checkpoint)


def verifyEvent(
    proof: EventProof, chain: bytes | None, checkpoint: Checkpoint | None
) -> ProvedEvent:
    """
    Check the fields of an event proof, as L{verifyProof} does with what is trusted.
    """
    try:
        proved = checkedEvent(proof)
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    except BrokerError as error:
        raise ProofInvalid(error.message) from None
    checkChain(proved.chain, chain)
    if checkpoint is None and proved.signed is None:
        raise ProofInvalid("it has no signatures: it needs a checkpoint that is trusted")
    if checkpoint is not None and checkpoint not in (proved.block, proved.checkpoint):
        raise ProofInvalid(_leadsElsewhere(proved, checkpoint))
    return proved


def verifyConsistency(
    data: bytes, *, older: Checkpoint, newer: Checkpoint, chain: bytes | None = None
) -> ProvedGrowth:
    """
    Check that the chain up to one checkpoint is the beginning of the chain up to another. Both
    checkpoints are the verifier's own, and not taken from the proof.

    @param data: the proof: JSON.
    @param chain: the id of the chain, if that is trusted too.
    @raise ProofInvalid: it does not prove that, or is of another chain.
    """
    proof = readFields(ConsistencyProof, data, "a consistency proof")
    try:
        header = proof.newer.header()
        for said, trusted in ((proof.older, older), (str(Checkpoint.of(header)), newer)):
            if said != str(trusted):
                raise ProofInvalid(f"it is about {said[:100]}, not about {trusted}")
        checkHistory(older.hash, older.height, header, proof.path)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    checkChain(header.chain, chain)
    return ProvedGrowth(chain=header.chain, older=older, newer=newer, timestamp=header.timestamp)


def checkedEvent(proof: EventProof) -> ProvedEvent:
    """
    Check an event proof, but not whether it leads to what is trusted.

    @raise Malformed, CertificateInvalid, BrokerError: it does not prove its event.
    """
    genesis = proof.genesis.genesis()
    headers = HeaderVerifier(genesis, proof.changes)
    header = headers.read(proof.block.header)
    signed = _signedBlock(proof, headers)
    eventId = proof.event.id()
    if eventId.height != header.height:
        raise Malformed("the event's id names another block")
    checkMembers(proof.event, proof.format == VERSIONED)
    transaction = transactionOf(proof.event)
    author = checkSignature(transaction, genesis.chain)
    receipt = TransactionReceipt(Execution.DONE, eventId.sequence)
    for what, leaf, path, root in (
        ("transaction", transaction.hash, proof.transactionPath, header.transactionRoot),
        (
            "receipt",
            receiptLeaf(transaction.hash, receipt),
            proof.receiptPath,
            header.receiptRoot,
        ),
    ):
        siblings = [unhex(sibling, 32) for sibling in path]
        if rootOfPath(leaf, proof.index, header.transactionCount, siblings) != root:
            raise Malformed(f"the event's {what} is not in its block")
    last = header
    if proof.checkpoint is not None:
        last = headers.read(proof.checkpoint.header)
        checkHistory(header.hash, header.height, last, proof.checkpoint.path)
    headers.finish(last)
    claims = transaction.claims
    return ProvedEvent(
        group=genesis.group,
        chain=genesis.chain,
        eventId=str(eventId),
        topic=transaction.topic,
        content=None if transaction.isErased else transaction.content,
        extensions=transaction.extensions,
        author=author,
        idempotencyKey=None if claims is None else claims.key,
        expectedSequence=None if claims is None else claims.expected,
        sequence=eventId.sequence,
        submitted=transaction.timestamp,
        timestamp=header.timestamp,
        block=Checkpoint.of(header),
        signed=None if signed is None else Checkpoint.of(signed.header),
        ledger=None if signed is None else kindOf(signed.certificate),
        signers={} if signed is None else signed.signers,
        nodes=0 if signed is None else len(signed.validators.keys),
        changes=0 if signed is None else signed.validators.generation,
        checkpoint=None if proof.checkpoint is None else Checkpoint.of(last),
        transaction=transaction.hash,
        headers=headers.signed,
    )


def _signedBlock(proof: EventProof, headers: HeaderVerifier) -> SignedHeader | None:
    """
    Check the certificates of a proof's headers.

    @return: the event's block, or the later one; C{None} where there are no certificates.
    @raise Malformed: a certificate is missing, or is there where the format has none.
    """
    later = proof.checkpoint
    hasCertificate = proof.block.certificate is not None
    if proof.format == CERTIFIED or (proof.format == VERSIONED and hasCertificate):
        signed = headers.check(proof.block)
        if later is not None:
            headers.check(later)
        return signed
    if hasCertificate:
        raise Malformed("the event's block has a certificate, which this format does not have")
    if later is not None and later.certificate is not None:
        return headers.check(later)
    if proof.changes:
        raise Malformed("there are changes of the validators, and nothing that they sign")
    return None


def checkHistory(hash: bytes, height: int, later: Header, path: Sequence[str]) -> None:
    """
    Check that a block is in the history of a later header.

    @raise Malformed: it is not.
    """
    siblings = [unhex(sibling, 32) for sibling in path]
    if rootOfPath(leafHash(hash), height, later.height, siblings) != later.history:
        raise Malformed(f"block {height} is not in the history of block {later.height}")


def _leadsElsewhere(proved: ProvedEvent, checkpoint: Checkpoint) -> str:
    for block in (proved.block, proved.checkpoint):
        if block is not None and block.height == checkpoint.height:
            return f"block {block.height} has another hash than checkpoint {checkpoint}"
    if checkpoint.height < proved.block.height:
        return (
            f"the checkpoint is of block {checkpoint.height}, the event is in block "
            f"{proved.block.height}: it cannot cover it"
        )
    return f"it does not lead to checkpoint {checkpoint}: ask for a proof that does"


@frozen(kw_only=True)
class ProvedTopic:
    """
    The facts that a valid topic proof proves.

    @ivar group: the id of the group whose log the topic is in.
    @ivar chain: the id of the chain: the hash of its genesis.
    @ivar topic: the topic's name.
    @ivar isOpen: whether it was open after the block.
    @ivar count: how many events were published to it up to the block.
    @ivar latest: the height of the block of the latest of them; 0 if there is none.
    @ivar authors: who may publish to it; C{None} where events need no signature.
    @ivar block: the block.
    @ivar timestamp: its time, in milliseconds since the epoch.
    @ivar ledger: the kind of the block's certificate.
    @ivar signers: the public keys of the validators that signed the block, by their indexes.
    @ivar nodes: the size of the validator set, of which a quorum had to sign.
    @ivar changes: how often the validator set had changed since the genesis.
    @ivar headers: the headers with certificates: those of changes, and the block's.
    """

    group: str
    chain: bytes
    topic: str
    isOpen: bool
    count: int
    latest: int
    authors: AuthorSet | None
    block: Checkpoint
    timestamp: int
    ledger: str
    signers: Mapping[int, bytes]
    nodes: int
    changes: int
    headers: Sequence[SignedHeader] = field(eq=False, repr=False)

    @property
    def signed(self) -> Checkpoint:
        """The block that validators signed."""
        return self.block


def verifyTopic(
    data: bytes, *, chain: bytes | None = None, checkpoint: Checkpoint | None = None
) -> ProvedTopic:
    """
    Check a topic proof against a trusted chain id, a trusted checkpoint, or both.

    @param data: the proof: JSON.
    @param chain: the id of the chain: the hash of its genesis.
    @param checkpoint: the proof's block.
    @raise ProofInvalid: it does not prove its topic, or does not lead to the trusted chain or
        checkpoint.
    """
    checkTrusted(chain, checkpoint)
    proof = readFields(TopicProof, data, "a topic proof")
    try:
        proved = checkedTopic(proof)
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    checkChain(proved.chain, chain)
    if checkpoint is not None and checkpoint != proved.block:
        raise ProofInvalid(f"it is of block {proved.block}, not of checkpoint {checkpoint}")
    return proved


def verifyComplete(topic: ProvedTopic, proofs: Iterable[bytes]) -> Sequence[ProvedEvent]:
    """
    Check that some event proofs are of all events that a topic has, and prove each of them.

    Each proof has to lead to the block of the topic proof, so that all of them are of one history.

    @return: the events, by their numbers.
    @raise ProofInvalid: a proof does not hold, is of another topic, or one is missing.
    """
    found: dict[int, ProvedEvent] = {}
    for number, data in enumerate(proofs, start=1):
        try:
            event = verifyProof(data, chain=topic.chain, checkpoint=topic.block)
        except ProofInvalid as error:
            raise ProofInvalid(f"event proof {number}: {error}") from None
        if event.topic != topic.topic:
            raise ProofInvalid(f"event proof {number} is of another topic")
        found[event.sequence] = event
    if found and max(found) > topic.count:
        raise ProofInvalid(f"event number {max(found)} is beyond the topic's {topic.count} events")
    if len(found) < topic.count:
        first = next(number for number in range(1, topic.count + 1) if number not in found)
        raise ProofInvalid(
            f"{topic.count - len(found)} of the topic's {topic.count} events are missing, the "
            f"first of them is number {first}"
        )
    return [found[number] for number in sorted(found)]


def checkedTopic(proof: TopicProof) -> ProvedTopic:
    """
    Check a topic proof, but not whether it leads to what is trusted.

    @raise Malformed, CertificateInvalid: it does not prove its topic.
    """
    genesis = proof.genesis.genesis()
    headers = HeaderVerifier(genesis, proof.changes)
    signed = headers.check(proof.block)
    header, topic = signed.header, proof.topic.topic()
    path = TopicPath(
        index=proof.index,
        path=[unhex(sibling, 32) for sibling in proof.topicPath],
        topics=proof.topicCount,
        senderRoot=unhex(proof.accountRoot, 32),
        senders=proof.accountCount,
    )
    try:
        root = path.rootWith(topic)
    except StructError as error:
        raise Malformed(f"the topic is not one: {error}") from None
    if root != header.stateRoot:
        raise Malformed(f"the topic is not in the state after block {header.height}")
    headers.finish(header)
    return ProvedTopic(
        group=genesis.group,
        chain=genesis.chain,
        topic=topic.name,
        isOpen=topic.isOpen,
        count=topic.sequence,
        latest=topic.height,
        authors=topic.authors,
        block=Checkpoint.of(header),
        timestamp=header.timestamp,
        ledger=kindOf(signed.certificate),
        signers=signed.signers,
        nodes=len(signed.validators.keys),
        changes=signed.validators.generation,
        headers=headers.signed,
    )


@frozen
class WitnessedEvent:
    """
    The facts that the proof of a logged event proves.

    @ivar event: the event.
    @ivar witnessed: the log's checkpoint, and the witnesses that have cosigned it.
    """

    event: ProvedEvent
    witnessed: Witnessed


@frozen
class WitnessedTopic:
    """
    The facts that the proof of a topic proves, whose block is in a log.

    @ivar topic: the topic.
    @ivar witnessed: the log's checkpoint, and the witnesses that have cosigned it.
    """

    topic: ProvedTopic
    witnessed: Witnessed


def verifyWitnessed(data: bytes, policy: Policy) -> WitnessedEvent:
    """
    Check the proof that an event is in a log: a C{tlog-proof} whose extra data is an event proof.
    The entry is the hash of the header of the event's block. Validators are not trusted: the log's
    key and the witnesses are.

    @param data: the proof: the text of the file.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it does not prove an event, or the policy does not accept its checkpoint.
    """
    proof, witnessed = _accepted(data, policy)
    block = readFields(EventProof, proof.extra, "an event proof").block
    entry = checkEntry(proof, block.header)
    return WitnessedEvent(verifyProof(proof.extra, checkpoint=entry), witnessed)


def verifyWitnessedTopic(data: bytes, policy: Policy) -> WitnessedTopic:
    """
    Check the proof that the block of a topic proof is in a log: a C{tlog-proof} whose extra data is
    that topic proof.

    @param data: the proof: the text of the file.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it does not prove a topic, or the policy does not accept its checkpoint.
    """
    proof, witnessed = _accepted(data, policy)
    block = readFields(TopicProof, proof.extra, "a topic proof").block
    entry = checkEntry(proof, block.header)
    return WitnessedTopic(verifyTopic(proof.extra, checkpoint=entry), witnessed)


def extraOf(data: bytes) -> bytes:
    """
    The event proof or topic proof in a C{tlog-proof}. Nothing is checked.

    @raise ProofInvalid: it is no C{tlog-proof}.
    """
    try:
        return LogProof.decode(data).extra
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def blockOfTopic(data: bytes) -> Checkpoint:
    """
    The block of a topic proof. Nothing is checked.

    @raise ProofInvalid: it is no topic proof.
    """
    try:
        fields = readFields(TopicProof, data, "a topic proof").block.header
        return Checkpoint.of(fields.header())
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def checkEntry(proof: LogProof, fields: HeaderFields) -> Checkpoint:
    """
    Check that the entry of a proof is a header.

    @return: its block.
    @raise ProofInvalid: it is not.
    """
    try:
        entry = Checkpoint.of(fields.header())
        proof.check(entry.hash)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    if entry.height != proof.index:
        raise ProofInvalid(f"block {entry.height} is entry {proof.index} of the log")
    return entry


def _accepted(data: bytes, policy: Policy) -> tuple[LogProof, Witnessed]:
    try:
        proof = LogProof.decode(data)
        return proof, policy.check(proof.checkpoint)
    except (Malformed, SignatureRefused) as error:
        raise ProofInvalid(str(error)) from None
