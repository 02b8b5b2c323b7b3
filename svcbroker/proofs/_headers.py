"""
The headers of a proof: their validator sets, their certificates, and that they follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from attrs import frozen

from ..chain import CertificateInvalid, Genesis, Header, Malformed, ValidatorSet
from ._certificates import (
    AnyCertificate,
    CometCertificate,
    checkFinal,
    engineSet,
    unhex,
)
from ._documents import Checkpoint
from ._format import FinalHeader, HeaderFields, NodeChange
from .cometbft import EngineHeader as EngineHeader
from .cometbft import headerHash

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
