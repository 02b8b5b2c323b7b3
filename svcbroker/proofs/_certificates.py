"""
Certificates: the signatures that make a header final, by the kind of ledger; and the binary fields
of proofs.

B{Frozen}: what is accepted is pinned by C{docs/vectors/proofs.json}.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from attrs import frozen
from msgspec import Struct

from ..chain import (
    Certificate,
    CertificateInvalid,
    Header,
    Malformed,
    ValidatorSet,
    checkCertificate,
)
from .cometbft import (
    MARK,
    Base64,
    LightBlock,
    LightBlockInvalid,
    Member,
    inOrder,
    validatorsHash,
    verifyLightBlock,
)

EVM_MARK = b"svcbroker/evm-block\x01"
_EVM_PLACE = struct.Struct(f">{len(EVM_MARK)}sQ32sQ32s")


class NodeSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A validator's commit vote.

    @ivar node: its index.
    """

    node: int
    signature: str


class PbftCertificate(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="pbft"
):
    """
    The commit votes of a quorum; see L{Certificate<svcbroker.chain.Certificate>}.
    """

    round: int
    signatures: Sequence[NodeSignature]

    @classmethod
    def of(cls, certificate: Certificate) -> PbftCertificate:
        """The fields of a certificate."""
        return cls(
            round=certificate.round,
            signatures=[
                NodeSignature(node=index, signature=signature.hex())
                for index, signature in certificate.signatures
            ],
        )

    def certificate(self) -> Certificate:
        """
        The certificate that they are of.

        @raise Malformed: they are not of one.
        """
        if not 0 <= self.round < 2**64:
            raise Malformed("the round of a certificate is not one")
        return Certificate(
            round=self.round,
            signatures=[(each.node, unhex(each.signature, 64)) for each in self.signatures],
        )


def unhex(text: str, size: int) -> bytes:
    """
    Decode hexadecimal digits.

    @param size: how many bytes there must be.
    @raise Malformed: it is something else, or written in another way than proofs are.
    """
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) != size or data.hex() != text:
        raise Malformed(f"{text[:80]!r} are not {size} bytes in lower-case hexadecimal digits")
    return data


def contentFields(content: bytes) -> Mapping[str, str]:
    """
    The fields in which an event's content is written.
    """
    try:
        return {"content": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"contentBase64": b64encode(content).decode("ascii")}


def unbase64(text: str) -> bytes:
    """
    The content that is written in Base64.

    @raise Malformed: it is something else, or not canonical.
    """
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        data = b""
    if b64encode(data).decode("ascii") != text:
        raise Malformed("the content is not in canonical base64")
    return data


class CometCertificate(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="cometbft"
):
    """
    The block of an engine that comes after a header's, and the votes for it: it names the header.

    @ivar lightBlock: as L{LightBlock<svcbroker.proofs.cometbft.LightBlock>} writes it.
    """

    lightBlock: Mapping[str, Any]

    @classmethod
    def of(cls, block: LightBlock) -> CometCertificate:
        """The fields of a light block."""
        return cls(lightBlock=block.toJson())

    def block(self) -> LightBlock:
        """
        The light block that it is.

        @raise LightBlockInvalid: it is none.
        """
        return LightBlock.fromJson(self.lightBlock)


@frozen(kw_only=True)
class EvmPlace:
    """
    The place of a block on an EVM chain, which stands where other ledgers have a certificate. It
    proves nothing by itself: whether it is true, only that chain can tell.

    @ivar number: the number of the chain's block whose batches it has.
    @ivar hash: that block's hash.
    @ivar count: the number of batches up to and including the block's.
    @ivar head: the contract's hash over all of these.
    """

    number: int
    hash: bytes
    count: int
    head: bytes

    def encode(self) -> bytes:
        """Its encoding in a store."""
        return _EVM_PLACE.pack(EVM_MARK, self.number, self.hash, self.count, self.head)

    @classmethod
    def decode(cls, data: bytes) -> EvmPlace:
        """
        Read its encoding.

        @raise Malformed: it is none.
        """
        if len(data) != _EVM_PLACE.size or not data.startswith(EVM_MARK):
            raise Malformed("this is not a block's place on a chain")
        _, number, hash, count, head = _EVM_PLACE.unpack(data)
        return cls(number=number, hash=hash, count=count, head=head)


AnyCertificate: TypeAlias = PbftCertificate | CometCertificate
"""The certificate that makes a header final, by the kind of ledger."""


def kindOf(certificate: AnyCertificate) -> str:
    """The kind of a certificate, as documents name it: C{pbft} or C{cometbft}."""
    return str(certificate.__struct_config__.tag)


def isEngineCertificate(data: bytes) -> bool:
    """Whether a store's certificate is of a block that others decided: an engine, or a chain."""
    return not data or data.startswith(MARK) or isEvmPlace(data)


def isEvmPlace(data: bytes) -> bool:
    """Whether a store's certificate is of a block that an EVM chain has ordered."""
    return data.startswith(EVM_MARK)


def ledgerOfCertificate(data: bytes) -> str:
    """The kind of ledger that has decided a block, by the certificate in its store."""
    if isEvmPlace(data):
        return "evm"
    return "cometbft" if isEngineCertificate(data) else "pbft"


def storedCertificate(data: bytes) -> AnyCertificate | None:
    """
    Read what a store has for a block's certificate.

    @return: C{None} where an engine decided the block, and what shows that is not there (yet), or
        where a chain did, which alone can tell.
    @raise Malformed: it is no certificate.
    """
    if not data:
        return None
    if isEvmPlace(data):
        EvmPlace.decode(data)
        return None
    if not data.startswith(MARK):
        return PbftCertificate.of(Certificate.decode(data))
    try:
        return CometCertificate.of(LightBlock.decode(data))
    except LightBlockInvalid as error:
        raise Malformed(str(error)) from None


def checkFinal(
    certificate: AnyCertificate, header: Header, validators: ValidatorSet, group: str
) -> Sequence[int]:
    """
    Make sure that a header is final.

    @param validators: the set that decides the header's block.
    @param group: the id of the group, as the genesis has it: an engine's chain has it for a name.
    @return: the indexes of the validators that signed.
    @raise Malformed: the certificate is none.
    @raise CertificateInvalid: it does not make this header final.
    """
    if isinstance(certificate, PbftCertificate):
        checkCertificate(certificate.certificate(), header, len(validators.keys), validators.verify)
        return [signature.node for signature in certificate.signatures]
    try:
        block = certificate.block()
        checkLightBlock(block, header, validators, group)
    except LightBlockInvalid as error:
        raise CertificateInvalid(
            f"the engine's block after block {header.height}: {error}"
        ) from None
    voters = [
        member.key
        for member, vote in zip(block.validators, block.votes, strict=True)
        if vote is not None
    ]
    return sorted(map(validators.keys.index, voters))


def checkLightBlock(
    block: LightBlock, header: Header, validators: ValidatorSet, group: str
) -> None:
    """
    Make sure that an engine's block stands for a header of ours, and that its validators have
    decided it.

    @raise LightBlockInvalid: it does not.
    """
    if block.header.height != header.height + 1:
        raise LightBlockInvalid(f"it is block {block.header.height}")
    if block.header.appHash != header.hash:
        raise LightBlockInvalid("it stands for another header")
    verifyLightBlock(block, group, engineSet(validators, block.power))


@lru_cache(maxsize=16)
def engineSet(validators: ValidatorSet, power: int) -> bytes:
    """
    An engine's hash of a validator set.

    @param power: the voting power of each: all votes are equal, so any number proves the same.
    """
    return validatorsHash(inOrder(Member(Base64(key), power) for key in validators.keys))
