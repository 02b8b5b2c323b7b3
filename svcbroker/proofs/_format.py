"""
What proofs look like: JSON that holds all that is needed to check it.

C{docs/proofs.rst} is the specification. Binary fields are lower-case hexadecimal digits. A field
that is not known here is refused, so that nothing in a proof goes unchecked.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from struct import error as StructError
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from ..chain import Genesis, Header, Malformed
from ..model import EventId, Topic, topicPrefix
from ._certificates import AnyCertificate
from ._hex import unhex


class GenesisFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The beginning of a chain.

    @ivar group: the id of its group.
    @ivar created: when it was made, in milliseconds since the epoch.
    @ivar nodes: the public keys of its first validators.
    @ivar chain: the chain's id, which follows from the rest.
    """

    group: str
    created: int
    nodes: Sequence[str]
    chain: str

    @classmethod
    def of(cls, genesis: Genesis) -> GenesisFields:
        """What is said of a genesis."""
        return cls(
            group=genesis.group,
            created=genesis.created,
            nodes=[key.hex() for key in genesis.validators],
            chain=genesis.chain.hex(),
        )

    def genesis(self) -> Genesis:
        """
        The genesis that they are of.

        @raise Malformed: they are not of one.
        """
        keys = tuple(unhex(key, 32) for key in self.nodes)
        try:
            made = Genesis(group=self.group, created=self.created, validators=keys)
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
    """

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
        """What is said of a header."""
        values: dict[str, Any] = {
            name: value.hex() if isinstance(value := getattr(header, name), bytes) else value
            for name in cls.__struct_fields__
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
    An event, and the transaction that published it.

    @ivar content: the content where it is UTF-8, and otherwise C{contentBase64} has it.
    @ivar sender: the address of the account that sent the transaction.
    @ivar nonce: the sender's number for it.
    @ivar timestamp: when it was submitted, in milliseconds since the epoch.
    """

    eventId: str
    topicName: str
    content: str | UnsetType = UNSET
    contentBase64: str | UnsetType = UNSET
    extensions: Mapping[str, str]
    sender: str
    nonce: int
    timestamp: int

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
                return _unbase64(encoded)
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


def contentFields(content: bytes) -> Mapping[str, str]:
    """
    What an event's content is written as.
    """
    try:
        return {"content": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"contentBase64": b64encode(content).decode("ascii")}


def _unbase64(text: str) -> bytes:
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        data = b""
    if b64encode(data).decode("ascii") != text:
        raise Malformed("the content is not in canonical base64")
    return data


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


class EventProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    An event, and everything that proves it.

    @ivar format: L{CERTIFIED} or L{UNCERTIFIED}. Verifiers that know the first one only refuse the
        other one by its name.
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

    format: Literal["svcbroker/event-proof/1", "svcbroker/event-proof/2"]
    event: EventFields
    index: int
    transactionPath: Sequence[str]
    receiptPath: Sequence[str]
    block: FinalHeader
    genesis: GenesisFields
    changes: Sequence[NodeChange] = ()
    checkpoint: CheckpointFields | None = None


class TopicFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A topic in the state after a block; see L{Topic<svcbroker.model.Topic>}.

    @ivar address: the topic's address.
    @ivar sender: the address of the account that created it.
    @ivar created: the time of the block that created it, in milliseconds since the epoch.
    @ivar sequence: how many events were published to it.
    @ivar height: the height of the block of its latest event; 0 if there is none.
    """

    topicName: str
    address: str
    sender: str
    created: int
    isOpen: bool
    sequence: int
    height: int

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
        )


class TopicProof(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    How many events a topic has in the state after a block.

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

    @ivar first: a proof, or a checkpoint: C{HEIGHT:HASH}.
    @ivar second: another one.
    @ivar contradiction: what follows from them; a verifier compares it with what it finds.
    """

    format: Literal["svcbroker/contradiction/1"]
    first: Mapping[str, Any] | str
    second: Mapping[str, Any] | str
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
