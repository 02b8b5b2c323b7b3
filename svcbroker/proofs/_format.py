"""
The format of proofs: JSON that holds all that is needed to check it; the transaction that an event
proof speaks of, and the signature of its author.

B{Frozen}: names and forms of all fields, pinned by C{docs/vectors/proofs.json}: transactions by its
C{events} and C{badEvents}, of all formats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import error as StructError
from typing import Any, Final, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from ..chain import (
    OLD_FORMAT,
    SALT_SIZE,
    Claims,
    Genesis,
    Header,
    Kind,
    Malformed,
    Transaction,
    decodeAuthors,
    encodeAuthors,
)
from ..errors import BrokerError
from ..model import (
    AUTHOR_KEY_SIZE,
    PRIVATE_PREFIX,
    SIGNATURE_SIZE,
    AuthorSet,
    Authorship,
    EventId,
    Topic,
    TopicRule,
    checkExtensions,
    checkTopicName,
    isIdempotencyKey,
    topicPrefix,
)
from ._certificates import AnyCertificate, contentFields, unbase64, unhex


class GenesisFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The beginning of a chain.

    @ivar group: the id of its group.
    @ivar created: when it was made, in milliseconds since the epoch.
    @ivar nodes: the public keys of its first validators.
    @ivar chain: the chain's id, which follows from the rest.
    @ivar topics: the rule of its topics' names; absent for that of the published interface.
    """

    group: str
    created: int
    nodes: Sequence[str]
    chain: str
    topics: Literal["utf8"] | UnsetType = UNSET

    @classmethod
    def of(cls, genesis: Genesis) -> GenesisFields:
        """The fields of a genesis."""
        return cls(
            group=genesis.group,
            created=genesis.created,
            nodes=[key.hex() for key in genesis.validators],
            chain=genesis.chain.hex(),
            topics="utf8" if genesis.topics is TopicRule.UTF8 else UNSET,
        )

    def genesis(self) -> Genesis:
        """
        The genesis that they are of.

        @raise Malformed: they are not of one.
        """
        keys = tuple(unhex(key, 32) for key in self.nodes)
        topics = TopicRule.PUBLISHED if self.topics is UNSET else TopicRule.UTF8
        try:
            made = Genesis(group=self.group, created=self.created, validators=keys, topics=topics)
        except StructError as error:
            raise Malformed(f"the genesis is not one: {error}") from None
        # Reading checks what making takes for granted.
        genesis = Genesis.decode(made.encoded)
        if genesis.chain.hex() != self.chain:
            raise Malformed("the genesis is not that of the chain it names")
        return genesis


class HeaderFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A header; its fields are those of L{Header<svcbroker.chain.Header>}.

    @ivar version: the block's format, 3 or 4; absent for format 2.
    """

    version: Literal[3, 4] | UnsetType = UNSET

    chain: str
    height: int
    parent: str
    history: str
    view: int
    proposer: int
    timestamp: int
    transactionRoot: str
    receiptRoot: str
    stateRoot: str
    validators: str
    nextValidators: str
    transactionCount: int
    transactionTotal: int

    @classmethod
    def of(cls, header: Header) -> HeaderFields:
        """The fields of a header."""
        values: dict[str, Any] = {
            name: value.hex() if isinstance(value := getattr(header, name), bytes) else value
            for name in cls.__struct_fields__
            if name != "version" or header.version != OLD_FORMAT
        }
        return cls(**values)

    def header(self) -> Header:
        """
        The header that they are of.

        @raise Malformed: they are not of one.
        """
        values: dict[str, Any] = {
            name: unhex(value, 32) if isinstance(value := getattr(self, name), str) else value
            for name in self.__struct_fields__
            if name != "version" or self.version is not UNSET
        }
        try:
            return Header(**values)
        except StructError as error:
            raise Malformed(f"a header is not one: {error}") from None


class FinalHeader(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    A header, and what makes it final.

    @ivar certificate: C{None} where something else shows that the header is in the chain: a later
        header with a certificate and a path, or a checkpoint that the verifier trusts.
    """

    header: HeaderFields
    certificate: AnyCertificate | None = None


class NodeChange(FinalHeader, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The header of a block that changed the validator set, signed by the set before.

    @ivar nodes: the public keys of the set that decides from the next block on.
    """

    nodes: Sequence[str]


class EventFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    An event, and the transaction that published it. The members from C{version} on are those of
    L{VERSIONED} proofs.

    @ivar content: the content where it is UTF-8, and otherwise C{contentBase64} has it.
    @ivar sender: the address of the account that sent the transaction.
    @ivar nonce: the sender's number for it.
    @ivar timestamp: when it was submitted, in milliseconds since the epoch.
    @ivar version: the version of the transaction.
    @ivar commitment: what the head has for the content, where that was erased or is left out.
    @ivar salt: the salt of the commitment.
    @ivar author: the public key of the author.
    @ivar signedAt: the author's own time in milliseconds since the epoch.
    @ivar signature: the author's signature of the statement.
    @ivar statement: 2 where the author has signed the statement's version 2.
    @ivar owner: the address that owns the idempotency key of an event without author.
    @ivar expectedSequence: the sequence number that the topic had to have.
    @ivar hasPrivateExtensions: whether an event without its content had private extensions.
    """

    eventId: str
    topicName: str
    content: str | UnsetType = UNSET
    contentBase64: str | UnsetType = UNSET
    extensions: Mapping[str, str]
    sender: str
    nonce: int
    timestamp: int
    version: Literal[1, 2, 3] | UnsetType = UNSET
    commitment: str | UnsetType = UNSET
    salt: str | UnsetType = UNSET
    author: str | UnsetType = UNSET
    signedAt: int | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    statement: Literal[2] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    idempotencyKey: str | UnsetType = UNSET
    expectedSequence: int | UnsetType = UNSET
    hasPrivateExtensions: bool | UnsetType = UNSET

    @property
    def contentBytes(self) -> bytes:
        """
        The content.

        @raise Malformed: there is none, or there are two.
        """
        match self.content, self.contentBase64:
            case str(text), UnsetType():
                return text.encode("utf-8")
            case UnsetType(), str(encoded):
                return unbase64(encoded)
            case _:
                raise Malformed("an event has one content")

    def id(self) -> EventId:
        """
        The event's id, which fits its topic.

        @raise Malformed: it does not.
        """
        eventId = EventId.parse(self.eventId)
        if str(eventId) != self.eventId or eventId.prefix != topicPrefix(self.topicName):
            raise Malformed("the event's id is not of its topic")
        return eventId


class CheckpointFields(FinalHeader, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A later header that has the event's block in its history.

    @ivar path: the way from the hash of the event's block to its C{history}.
    """

    path: Sequence[str]


CERTIFIED: Final = "svcbroker/event-proof/1"
"""The format of an event proof in which every header has a certificate."""

UNCERTIFIED: Final = "svcbroker/event-proof/2"
"""The format of an event proof whose event's block has no certificate."""

VERSIONED: Final = "svcbroker/event-proof/3"
"""The format of a proof of an event of version 2 or 3, or of one whose content was erased."""


class EventProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    An event, and everything that proves it.

    @ivar format: L{CERTIFIED}, L{UNCERTIFIED} or L{VERSIONED}. Verifiers refuse formats that they
        do not know by their names.
    @ivar genesis: the beginning of the chain.
    @ivar changes: every change of the validator set up to the last header of the proof; none where
        no header has a certificate.
    @ivar block: the header of the event's block.
    @ivar index: which transaction of the block the event's is, from 0.
    @ivar transactionPath: the way from the transaction to the header's C{transactionRoot}.
    @ivar receiptPath: the way from its receipt to the header's C{receiptRoot}.
    @ivar checkpoint: a later header that has the block in its history, if one was asked for, or
        if the block has no certificate.
    """

    format: Literal["svcbroker/event-proof/1", "svcbroker/event-proof/2", "svcbroker/event-proof/3"]
    event: EventFields
    index: int
    transactionPath: Sequence[str]
    receiptPath: Sequence[str]
    block: FinalHeader
    genesis: GenesisFields
    changes: Sequence[NodeChange] = ()
    checkpoint: CheckpointFields | None = None


class AuthorFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The authors of a topic; see L{AuthorSet<svcbroker.model.AuthorSet>}.
    """

    generation: int
    authors: Sequence[str]
    admins: Sequence[str]

    @classmethod
    def of(cls, authors: AuthorSet) -> AuthorFields:
        """The fields of a set of authors."""
        return cls(
            generation=authors.generation,
            authors=[key.hex() for key in authors.authors],
            admins=[key.hex() for key in authors.admins],
        )

    def authorSet(self) -> AuthorSet:
        """
        The set that they are of.

        @raise Malformed: they are not of one.
        """
        made = AuthorSet(
            generation=self.generation,
            authors=tuple(unhex(key, 32) for key in self.authors),
            admins=tuple(unhex(key, 32) for key in self.admins),
        )
        try:
            return decodeAuthors(encodeAuthors(made))
        except (StructError, ValueError) as error:
            raise Malformed(f"the authors are not a set: {error}") from None


class TopicFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A topic in the state after a block; see L{Topic<svcbroker.model.Topic>}.

    @ivar address: the topic's address.
    @ivar sender: the address of the account that created it.
    @ivar created: the time of the block that created it, in milliseconds since the epoch.
    @ivar sequence: how many events were published to it.
    @ivar height: the height of the block of its latest event; 0 if there is none.
    @ivar authors: who may publish to it; absent where events need no signature.
    """

    topicName: str
    address: str
    sender: str
    created: int
    isOpen: bool
    sequence: int
    height: int
    authors: AuthorFields | UnsetType = UNSET

    @classmethod
    def of(cls, topic: Topic) -> TopicFields:
        """The fields of a topic."""
        return cls(
            topicName=topic.name,
            address=topic.address.hex(),
            sender=topic.sender.hex(),
            created=topic.created,
            isOpen=topic.isOpen,
            sequence=topic.sequence,
            height=topic.height,
            authors=UNSET if topic.authors is None else AuthorFields.of(topic.authors),
        )

    def topic(self) -> Topic:
        """
        The topic that they are of.

        @raise Malformed: they are not of one.
        """
        return Topic(
            name=self.topicName,
            address=unhex(self.address, 20),
            sender=unhex(self.sender, 20),
            created=self.created,
            isOpen=self.isOpen,
            sequence=self.sequence,
            height=self.height,
            authors=None if isinstance(self.authors, UnsetType) else self.authors.authorSet(),
        )


class TopicProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A proof of the number of a topic's events in the state after a block.

    @ivar index: the topic's number in the order of creation, from 0.
    @ivar topicPath: the way from the topic's leaf to the root of the topics.
    @ivar topicCount: how many topics there are.
    @ivar accountRoot: the root of the accounts.
    @ivar accountCount: how many accounts there are.
    @ivar block: the header with the root of the state.
    @ivar genesis: the beginning of the chain.
    @ivar changes: every change of the validator set before the block.
    """

    format: Literal["svcbroker/topic-proof/1"]
    topic: TopicFields
    index: int
    topicPath: Sequence[str]
    topicCount: int
    accountRoot: str
    accountCount: int
    block: FinalHeader
    genesis: GenesisFields
    changes: Sequence[NodeChange] = ()


class EarlierHeader(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A header in the history of another one.

    @ivar path: the way from its hash to the later header's C{history}.
    """

    header: HeaderFields
    path: Sequence[str]


class HeaderProof(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    That a quorum has signed a header.

    @ivar block: the header.
    @ivar genesis: the beginning of the chain.
    @ivar changes: every change of the validator set before it.
    @ivar earlier: the header in its history that the proof is about, if it has no certificate.
    """

    format: Literal["svcbroker/header-proof/1"]
    block: FinalHeader
    genesis: GenesisFields
    changes: Sequence[NodeChange] = ()
    earlier: EarlierHeader | None = None


class ContradictionFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    Two documents of which not both can be true of one chain.

    @ivar first: a proof, or a checkpoint: C{HEIGHT:HASH}. In format 2 also a C{tlog-proof} or a
        checkpoint of a transparency log, as text.
    @ivar second: another one.
    @ivar keys: in format 2, the vkeys of the logs and witnesses whose signatures count. A reader
        compares them with what these have published.
    @ivar contradiction: what follows from them; a verifier compares it with what it finds.
    """

    format: Literal["svcbroker/contradiction/1", "svcbroker/contradiction/2"]
    first: Mapping[str, Any] | str
    second: Mapping[str, Any] | str
    keys: Sequence[str] | UnsetType = UNSET
    contradiction: Mapping[str, Any]


class ConsistencyProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    That the chain of an older checkpoint is the beginning of the chain of a newer one.

    @ivar older: the older header's height and hash, as L{Checkpoint} writes them.
    @ivar newer: the newer header.
    @ivar path: the way from the older header's hash to the newer one's C{history}.
    """

    format: Literal["svcbroker/consistency-proof/1"]
    older: str
    newer: HeaderFields
    path: Sequence[str]


T = TypeVar("T")

_COMMITMENT = slice(38, 70)
"""The place at which a head commits to the content."""


def transactionOf(event: EventFields) -> Transaction:
    """
    The transaction that published an event.

    @raise Malformed: the fields are not those of one.
    """
    sender = unhex(event.sender, 20)
    nonce, timestamp = _number(event.nonce), _number(event.timestamp)
    try:
        checkTopicName(event.topicName, TopicRule.UTF8)
        checkExtensions(event.extensions)
    except BrokerError as error:
        raise Malformed(error.message) from None
    isErased = event.commitment is not UNSET
    if isErased and (event.content, event.contentBase64) != (UNSET, UNSET):
        raise Malformed("an erased event has no content")
    content = b"" if isErased else event.contentBytes
    if event.version is not UNSET and event.version != 1:
        claims, salt = _claims(event, isErased), b""
        extensions = dict(event.extensions)
        if not isErased:
            salt = unhex(_given(event.salt, "salt"), SALT_SIZE)
        elif event.hasPrivateExtensions is not UNSET:
            # Sets the option in the head, which does not have the extensions themselves.
            extensions[PRIVATE_PREFIX] = ""
        made = Transaction.publish(
            sender,
            nonce,
            timestamp,
            event.topicName,
            content,
            extensions,
            salt,
            claims,
            event.version,
        )
    else:
        made = Transaction.create(
            Kind.PUBLISH, sender, nonce, timestamp, event.topicName, content, event.extensions
        )
    entry = made.head + made.seal + content
    if event.commitment is not UNSET:
        commitment = unhex(event.commitment, 32)
        entry = made.head[: _COMMITMENT.start] + commitment + made.head[_COMMITMENT.stop :]
    transaction = Transaction.decode(entry, mayBeErased=isErased)
    if transaction.isErased != isErased or transaction.extensions != event.extensions:
        raise Malformed("the event has more extensions than its transaction")
    return transaction


def eventFieldsOf(eventId: EventId, transaction: Transaction) -> EventFields:
    """
    The fields of an event and of the transaction that published it.
    """
    fields: dict[str, Any] = {
        "eventId": str(eventId),
        "topicName": transaction.topic,
        "extensions": transaction.extensions,
        "sender": transaction.sender.hex(),
        "nonce": transaction.nonce,
        "timestamp": transaction.timestamp,
    }
    if transaction.isErased:
        fields["commitment"] = transaction.head[_COMMITMENT].hex()
        if transaction.hasPrivateExtensions:
            fields["hasPrivateExtensions"] = True
    else:
        fields |= contentFields(transaction.content)
    if transaction.version == 1 and not transaction.isErased:
        return EventFields(**fields)
    fields["version"] = transaction.version
    if transaction.seal:
        fields["salt"] = transaction.seal[:SALT_SIZE].hex()
    if transaction.claims is not None:
        fields |= _claimFields(transaction.claims)
    return EventFields(**fields)


def _claimFields(claims: Claims) -> Mapping[str, Any]:
    fields: dict[str, Any] = {}
    if claims.author is not None:
        fields |= {"author": claims.author.key.hex(), "signedAt": claims.author.signedAt}
        if claims.author.signature:
            fields["signature"] = claims.author.signature.hex()
        if claims.author.statement != 1:
            fields["statement"] = claims.author.statement
    if claims.owner is not None:
        fields["owner"] = claims.owner.hex()
    if claims.key is not None:
        fields["idempotencyKey"] = claims.key
    if claims.expected is not None:
        fields["expectedSequence"] = claims.expected
    return fields


def checkMembers(event: EventFields, isVersioned: bool) -> None:
    """
    Check that an event has no members of another version or form than its own.

    @param isVersioned: whether the format of the proof has versions of events.
    @raise Malformed: it has.
    """
    if isVersioned != (event.version is not UNSET):
        raise Malformed("an event has a version in format 3 of event proofs, and in no other one")
    isErased = event.commitment is not UNSET
    refused: set[str] = set()
    if not isVersioned:
        refused |= {"commitment"}
    if event.version is UNSET or event.version == 1:
        refused |= _OF_VERSION_2
    if event.version != 3:
        refused |= {"statement"}
    if event.author is UNSET:
        refused |= {"signedAt", "signature", "statement"}
    if event.author is not UNSET or event.idempotencyKey is UNSET:
        refused |= {"owner"}
    refused |= {"salt", "signature"} if isErased else {"hasPrivateExtensions"}
    for name in sorted(refused):
        if getattr(event, name) is not UNSET:
            raise Malformed(f"the event has a member that is not its own: {name}")
    if event.hasPrivateExtensions is False:
        raise Malformed("hasPrivateExtensions is true or absent")


_OF_VERSION_2 = {
    "salt",
    "author",
    "signedAt",
    "signature",
    "owner",
    "idempotencyKey",
    "expectedSequence",
    "hasPrivateExtensions",
}


def _claims(event: EventFields, isErased: bool) -> Claims | None:
    author = key = owner = expected = None
    if event.author is not UNSET:
        signature = b""
        if not isErased:
            signature = unhex(_given(event.signature, "signature"), SIGNATURE_SIZE)
        author = Authorship(
            key=unhex(event.author, AUTHOR_KEY_SIZE),
            signedAt=_number(_given(event.signedAt, "signedAt")),
            signature=signature,
            statement=1 if event.statement is UNSET else event.statement,
        )
    if event.idempotencyKey is not UNSET:
        key = event.idempotencyKey
        if not isIdempotencyKey(key):
            raise Malformed("the idempotency key is not one")
        if author is None:
            owner = unhex(_given(event.owner, "owner"), 20)
    if event.expectedSequence is not UNSET:
        expected = _number(event.expectedSequence)
    if author is None and key is None and expected is None:
        return None
    return Claims(author=author, key=key, owner=owner, expected=expected)


def checkSignature(transaction: Transaction, chain: bytes) -> Authorship | None:
    """
    Check the signature of an event's author, unless it was erased with the content.

    @param chain: the chain's id.
    @return: the author, or C{None} where the event has none.
    @raise Malformed: it does not hold.
    """
    claims = transaction.claims
    if claims is None or claims.author is None:
        return None
    if not transaction.isErased and not transaction.isSigned(chain):
        raise Malformed("the signature of the event's author does not hold")
    return claims.author


def _given(value: T | UnsetType, name: str) -> T:
    if isinstance(value, UnsetType):
        raise Malformed(f"the event has no {name}")
    return value


def _number(value: int) -> int:
    if not 0 <= value < 2**64:
        raise Malformed("a number of the event is not one of 64 bits")
    return value
