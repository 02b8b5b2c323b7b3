"""
Verifying what the original answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from io import BytesIO

from ...archive import (
    Begin,
    BlockVerifier,
    End,
    StreamBroken,
    StreamedBlock,
    StreamReader,
    VerifiedBlock,
    isSameBody,
)
from ...chain import (
    CertificateInvalid,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    ValidatorSet,
    decodeBody,
    merkleRoot,
)
from ...proofs import Checkpoint, checkFinal, storedCertificate
from ...storage import Store


class CopyRefusal(Enum):
    """
    Reasons for copying nothing more.

    @cvar CHAIN: the original has another chain than the copy, or than it should have.
    @cvar BLOCK: a block does not hold, or contents are missing.
    @cvar CONTRADICTION: the validators have decided two different blocks: there are two histories
        of one chain.
    """

    CHAIN = "chain"
    BLOCK = "block"
    CONTRADICTION = "contradiction"


class CopyRefused(Exception):
    """
    The error for blocks of the original that must not be copied. The text is one line for the
    operator.

    @ivar refusal: why.
    @ivar height: the height of the block that is refused; 0 where it is none.
    @ivar isSigned: whether validators of this chain have signed what is wrong, so that nobody in
        between can have made it.
    """

    def __init__(
        self, refusal: CopyRefusal, height: int, text: str, *, isSigned: bool = False
    ) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.height = height
        self.isSigned = isSigned


class PartVerifier:
    """
    Verifies parts of the original's chain, block by block.

    @ivar verifier: the state after the last verified block.
    """

    def __init__(
        self,
        genesis: Genesis,
        store: Store,
        verifier: BlockVerifier,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """
        @param checkpoint: a block that the chain must have.
        """
        self.verifier = verifier
        self._genesis = genesis
        self._store = store
        self._checkpoint = checkpoint

    def blocks(self, first: int, stream: bytes) -> Iterator[VerifiedBlock]:
        """
        The verified blocks of a part that the copy does not have yet. Those that it has are
        compared.

        @param first: the height that it has to begin with, at most one above the last verified one.
        @param stream: an export.
        @raise CopyRefused: a block must not be copied. Those before are good, if they are final.
        @raise StreamBroken: it is no export, or not all of it.
        """
        reader = StreamReader(BytesIO(stream))
        begin: Begin = reader.begin()
        if begin.genesis.encoded != self._genesis.encoded:
            raise CopyRefused(CopyRefusal.CHAIN, 0, "it has another chain: another genesis")
        if begin.first != first:
            raise StreamBroken(f"it begins with block {begin.first} instead of {first}")
        height = first - 1
        for record in reader.rest():
            if isinstance(record, End):
                break
            height += 1
            try:
                header = Header.decode(record.header)
                if header.height != height:
                    raise Malformed(f"it says that it is block {header.height}")
                if height > self.verifier.replay.head.height:
                    yield self._verify(header, record)
                else:
                    self._compare(header, record)
            except (Malformed, CertificateInvalid) as error:
                text = f"block {height} does not hold: {error}"
                raise CopyRefused(CopyRefusal.BLOCK, height, text) from None
            except InvalidBlock as error:
                text, isSigned = f"block {height} does not hold: {error}", False
                if self._isAsSigned(header, record):
                    text, isSigned = f"{text}, and validators of this chain have signed it", True
                raise CopyRefused(CopyRefusal.BLOCK, height, text, isSigned=isSigned) from None
        if height != begin.last:
            raise StreamBroken(f"it ends after block {height}, before {begin.last}")
        if not self.verifier.isFinal:
            raise CopyRefused(CopyRefusal.BLOCK, height, f"block {height} has no certificate")

    def _verify(self, header: Header, block: StreamedBlock) -> VerifiedBlock:
        head = self.verifier.replay.head
        if header.parent != head.hash:
            self._refuseOther(header, block, f"follows another block {head.height} than the one")
        self._checkCheckpoint(header)
        return self.verifier.verify(header, block)

    def _compare(self, header: Header, block: StreamedBlock) -> None:
        row = self._store.block(header.height)
        if row is None or row.header != block.header:
            self._refuseOther(header, block, "is another one than that")
        elif not isSameBody(row.body, block.body):
            raise Malformed("its transactions are not those of its header")
        else:
            self._checkCheckpoint(header)

    def _checkCheckpoint(self, header: Header) -> None:
        wanted = self._checkpoint
        if wanted is not None and wanted.height == header.height and wanted.hash != header.hash:
            text = f"block {header.height} is not the one of the checkpoint: {header.hash.hex()}"
            raise CopyRefused(CopyRefusal.CHAIN, header.height, text)

    def _refuseOther(self, header: Header, block: StreamedBlock, what: str) -> None:
        """
        Refuse a block of another history.

        @raise CopyRefused: always.
        """
        text = f"block {header.height} {what} here"
        if self._isFinal(header, block):
            raise CopyRefused(
                CopyRefusal.CONTRADICTION,
                header.height,
                f"{text}, and validators of this chain have signed both: there are two histories",
                isSigned=True,
            )
        raise CopyRefused(
            CopyRefusal.BLOCK, header.height, f"{text}, and no validators have signed it"
        )

    def _isAsSigned(self, header: Header, block: StreamedBlock) -> bool:
        """
        Whether validators have signed the very transactions of a block, and all of them are here:
        then nobody else can have made it one that cannot be executed.
        """
        transactions = decodeBody(block.body, mayBeErased=True)
        isWhole = not any(each.isErased for each in transactions)
        root = merkleRoot([each.hash for each in transactions])
        return isWhole and root == header.transactionRoot and self._isFinal(header, block)

    def _isFinal(self, header: Header, block: StreamedBlock) -> bool:
        """Whether validators that this chain has had have decided a block."""
        rows = self._store.validatorSets()
        sets = [self._genesis.validatorSet, *(ValidatorSet.decode(row.encoded) for row in rows)]
        try:
            certificate = storedCertificate(block.certificate)
            for validators in sets:
                if certificate is not None and validators.hash == header.validators:
                    checkFinal(certificate, header, validators, self._genesis.group)
                    return True
        except (Malformed, CertificateInvalid):
            pass
        return False
