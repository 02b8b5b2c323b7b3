"""
Verifying the blocks of a stream, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from ..chain import CertificateInvalid, Header, Malformed, Transaction, decodeBody
from ..proofs import CometCertificate, checkFinal, storedCertificate
from ..storage import Append
from ._replay import Replay
from ._stream import StreamedBlock


@frozen(kw_only=True)
class VerifiedBlock:
    """
    A block that was verified.

    @ivar transactions: its transactions; contents of publishes may be missing.
    @ivar append: the rows to store for it.
    @ivar isFinal: whether it has a certificate of its own.
    """

    header: Header
    transactions: Sequence[Transaction]
    append: Append
    isFinal: bool


class BlockVerifier:
    """
    Verifies the next blocks of a chain as its validators do: the certificate, the link to the block
    before, the execution. An import and a copy take only what it has verified.

    On an engine's chain only blocks with transactions need a certificate. It makes the blocks
    before it final, too.

    @ivar replay: the state after the last block.
    @ivar isFinal: whether the last block is final. A block that is not must not be stored before a
        later one is.
    """

    def __init__(self, replay: Replay, group: str) -> None:
        """
        @param group: the id of the group, as the genesis has it.
        """
        self.replay = replay
        self.isFinal = True
        self._group = group

    def verify(self, header: Header, block: StreamedBlock) -> VerifiedBlock:
        """
        Verify the next block.

        @param header: its header, decoded.
        @raise Malformed, CertificateInvalid, InvalidBlock: it does not hold. Nothing has changed.
        """
        certificate = storedCertificate(block.certificate)
        validators = self.replay.state.validators
        if certificate is not None:
            if not (self.isFinal or isinstance(certificate, CometCertificate)):
                raise CertificateInvalid("the block before it has no certificate")
            checkFinal(certificate, header, validators, self._group)
        elif header.nextValidators != validators.hash:
            raise CertificateInvalid("it changes the validators and has no certificate")
        transactions = decodeBody(block.body, mayBeErased=True)
        append = self.replay.execute(header, transactions, block.certificate, block.receipts)
        self.isFinal = certificate is not None
        return VerifiedBlock(
            header=header, transactions=transactions, append=append, isFinal=self.isFinal
        )


def isSameBody(one: bytes, other: bytes) -> bool:
    """Whether two bodies have the same transactions; contents may be missing in either."""
    if one == other:
        return True
    try:
        heads = [
            [each.head for each in decodeBody(body, mayBeErased=True)] for body in (one, other)
        ]
    except Malformed:
        return False
    return heads[0] == heads[1]
