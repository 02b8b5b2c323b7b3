"""
Auditing stored blocks one after the other, and going on behind a block that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..chain import (
    RECEIPT_SIZE,
    Certificate,
    CertificateInvalid,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    Transaction,
    ValidatorSet,
    decodeBody,
    decodeTable,
    leaderIndex,
    merkleRoot,
)
from ..proofs import (
    AnyCertificate,
    CometCertificate,
    PbftCertificate,
    checkFinal,
    engineSet,
    isEngineCertificate,
    storedCertificate,
)
from ..storage import PRINT_SIZE, Append
from ._auditkeys import KeyAuditor
from ._findings import Findings, difference, isSame, show
from ._replay import Replay


class RawBlock(NamedTuple):
    """
    A block as it is stored. Columns may be of any type.
    """

    height: int
    transactionTotal: Any
    hash: Any
    header: Any
    certificate: Any
    receipts: Any
    body: Any
    padding: Any


class BlockAuditor:
    """
    Executes a chain from its genesis and compares the stored blocks with the outcome.

    Execution ends at the first block that does not follow from the state before it, since the
    state after it is unknown. The header, link, certificate and transactions of the blocks behind
    it are still checked.

    @ivar height: the height of the last block that was audited.
    @ivar final: the height of the last block whose certificate holds.
    @ivar hash: the hash of the last block; C{None} where it is unknown.
    @ivar replay: the state after the last block; C{None} once execution has ended.
    """

    def __init__(
        self,
        genesis: Genesis,
        sets: Mapping[bytes, ValidatorSet],
        findings: Findings,
        keys: KeyAuditor,
        *,
        hasEngine: bool = False,
    ) -> None:
        """
        @param sets: validator sets by their hashes. A set is used only where a certified header
            names it.
        @param keys: is given what the blocks bring of idempotency keys and erasures.
        @param hasEngine: whether an engine decides, so that certificates may be missing.
        """
        header = genesis.header()
        self.height = self.final = 0
        self.hash: bytes | None = header.hash
        state = genesis.state()
        state.keys = keys.keys
        self.replay: Replay | None = Replay(state, header)
        self._keys = keys
        self._hasEngine = hasEngine
        self._genesis = genesis
        self._previous: Header | None = header
        self._validators = header.nextValidators
        self._sets = {**sets, genesis.validatorSet.hash: genesis.validatorSet}
        self._found = findings

    def lose(self, place: str, problem: str, height: int) -> None:
        """
        Report that the blocks up to a height cannot be read, or are missing.
        """
        self._found.damage(place, problem, height)
        self._endExecution(height)
        self.height, self.hash, self._previous = height, None, None

    def check(self, row: RawBlock, prints: Callable[[], bytes]) -> Append | None:
        """
        Check the next block.

        @param prints: returns the stored fingerprints of its transactions, as far as there are any.
        @return: the rows that must be stored for it; C{None} where they are unknown.
        """
        if row.height != self.height + 1:
            first, last = self.height + 1, row.height - 1
            which = f"block {first} is" if first == last else f"blocks {first} to {last} are"
            self.lose("head.height", f"{which} missing", last)
        self.height = row.height
        damages = self._found.damageCount
        header = self._decodeHeader(row)
        if header is None:
            self.hash, self._previous = row.hash if isinstance(row.hash, bytes) else None, None
            self._endExecution(row.height)
            return None
        before = self.hash
        problem = self._certificateProblem(row, header)
        isItself = self._checkHash(row, header, problem)
        if before is not None and header.parent != before:
            self._differ("header.parent", before, header.parent)
        transactions = self._transactions(row)
        self._checkLinks(header, transactions)
        append, reason = None, ""
        if self.replay is not None and isItself and transactions is not None:
            try:
                receipts = row.receipts if isinstance(row.receipts, bytes) else b""
                append = self.replay.execute(header, transactions, b"", receipts)
            except InvalidBlock as error:
                reason = str(error)
        if self.replay is not None and append is not None:
            validators = self.replay.state.validators
            self._sets[validators.hash] = validators
            self._checkReceipts(row.receipts, append.block.receipts)
            if transactions is not None:
                self._checkContents(row, append)
                self._keys.add(transactions, append)
        else:
            if transactions is not None:
                self._checkRoot(header, transactions, prints)
            if reason and self._found.damageCount == damages:
                self._found.damage("head.header", reason, row.height)
            self._endExecution(row.height)
        self._previous = header if isItself else None
        if append is not None or not problem:
            self._validators = header.nextValidators
        return append

    def _decodeHeader(self, row: RawBlock) -> Header | None:
        try:
            if not isinstance(row.header, bytes):
                raise Malformed("it is not stored as bytes")
            header = Header.decode(row.header)
        except Malformed as error:
            self._found.damage("head.header", str(error), row.height)
            return None
        if not isSame(header.transactionTotal, row.transactionTotal):
            self._differ("head.transaction_total", header.transactionTotal, row.transactionTotal)
        return header

    def _checkHash(self, row: RawBlock, header: Header, problem: str) -> bool:
        """
        Compare the hash of a header with the one stored beside it.

        @param problem: why the certificate does not hold; empty where it does.
        @return: whether this is the header that was written, by its stored hash or its certificate.
        """
        self.hash = header.hash
        if header.hash == row.hash:
            if problem:
                self._found.damage("head.certificate", problem, self.height)
            return True
        if not problem:
            self._differ("head.hash", header.hash, row.hash)
            return True
        self._found.damage(
            "head.header",
            f"its hash is {show(header.hash)}, which is neither the one stored beside it nor the "
            "one that was signed",
            self.height,
        )
        self.hash = row.hash if isinstance(row.hash, bytes) else None
        return False

    def _certificateProblem(self, row: RawBlock, header: Header) -> str:
        validators = self._sets.get(self._validators)
        if validators is None:
            return "the validator set that has to sign it is unknown"
        try:
            if not isinstance(row.certificate, bytes):
                raise Malformed("it is not stored as bytes")
            certificate = self._decodeCertificate(row.certificate)
            if certificate is not None:
                checkFinal(certificate, header, validators, self._genesis.group)
                self._checkNext(certificate, header)
        except (Malformed, CertificateInvalid) as error:
            return str(error)
        if certificate is not None:
            self.final = row.height
        return ""

    def _decodeCertificate(self, data: bytes) -> AnyCertificate | None:
        if not self._hasEngine:
            return PbftCertificate.of(Certificate.decode(data))
        if not isEngineCertificate(data):
            raise Malformed("it is not what an engine's validators sign")
        return storedCertificate(data)

    def _checkNext(self, certificate: AnyCertificate, header: Header) -> None:
        """Compare the set that decides the next block with the one that the engine has."""
        following = self._sets.get(header.nextValidators)
        if following is None or not isinstance(certificate, CometCertificate):
            return
        block = certificate.block()
        if block.header.nextValidatorsHash != engineSet(following, block.power):
            raise CertificateInvalid("the engine has other validators for the next block")

    def _transactions(self, row: RawBlock) -> Sequence[Transaction] | None:
        body = row.body
        if body is None:
            self._found.damage("body", "the block has no body", self.height)
            return None
        if not isinstance(body, bytes):
            self._found.damage("body.body", "it is not stored as bytes", self.height)
            return None
        try:
            return decodeBody(body, mayBeErased=True)
        except Malformed as error:
            index, problem = _firstMalformed(body)
            self._found.damage("body.body", problem or str(error), self.height, index)
        return None

    def _checkLinks(self, header: Header, transactions: Sequence[Transaction] | None) -> None:
        """Compare a header with its place in the chain and with the header before it."""
        expected: dict[str, object] = {
            "chain": self._genesis.chain,
            "height": self.height,
            "validators": self._validators,
        }
        validators = self._sets.get(self._validators)
        if validators is not None:
            expected["proposer"] = leaderIndex(header.view, self.height, len(validators.keys))
        if transactions is not None:
            expected["transactionCount"] = len(transactions)
        previous = self._previous
        if previous is not None:
            count = header.transactionCount if transactions is None else len(transactions)
            expected["transactionTotal"] = previous.transactionTotal + count
            for name in ("view", "timestamp"):
                value, before = getattr(header, name), getattr(previous, name)
                if value < before:
                    self._found.damage(
                        f"header.{name}", f"{value} is below its parent's {before}", self.height
                    )
        for name, value in expected.items():
            if getattr(header, name) != value:
                self._differ(f"header.{name}", value, getattr(header, name))

    def _checkRoot(
        self, header: Header, transactions: Sequence[Transaction], prints: Callable[[], bytes]
    ) -> None:
        """Compare the transactions with the header's root."""
        hashes = [transaction.hash for transaction in transactions]
        root = merkleRoot(hashes)
        if root != header.transactionRoot:
            self._found.damage(
                "body.body",
                "these are not the transactions of its header: "
                + difference(header.transactionRoot, root),
                self.height,
                _firstOther(hashes, prints()),
            )

    def _checkReceipts(self, stored: object, receipts: bytes) -> None:
        if stored != receipts:
            index = None
            if isinstance(stored, bytes) and len(stored) == len(receipts):
                pairs = zip(receipts, stored, strict=True)
                first = next(i for i, (one, other) in enumerate(pairs) if one != other)
                index = first // RECEIPT_SIZE
            self._found.differ("body.receipts", receipts, stored, self.height, index)

    def _checkContents(self, row: RawBlock, append: Append) -> None:
        """Compare a body with the one that is to be stored."""
        if row.body != append.block.body:
            self._found.damage(
                "body.body", "it has the content of a publish that was refused", row.height
            )
        if row.padding is not None and (
            not isinstance(row.padding, bytes) or row.padding.strip(b"\0")
        ):
            self._found.damage("body.padding", "it is not made of zeros", row.height)

    def _endExecution(self, height: int) -> None:
        if self.replay is not None:
            self.replay = None
            self._found.note(
                "body",
                "the state after this block is unknown, so execution ends here: of the blocks "
                "behind it, headers, certificates and transactions are checked, and the rows that "
                "follow from execution are not",
                height,
            )

    def _differ(self, place: str, expected: object, found: object) -> None:
        self._found.differ(place, expected, found, self.height)


def _firstMalformed(body: bytes) -> tuple[int | None, str]:
    """The index of the first malformed transaction of a body, and the reason."""
    try:
        offsets = decodeTable(body)
    except Malformed:
        return None, ""
    if offsets[-1] != len(body):
        return None, ""
    for index in range(len(offsets) - 1):
        try:
            Transaction.decode(body[offsets[index] : offsets[index + 1]], mayBeErased=True)
        except Malformed as error:
            return index, str(error)
    return None, ""


def _firstOther(hashes: Sequence[bytes], prints: bytes) -> int | None:
    """The index of the first transaction whose hash does not match its fingerprint."""
    if len(prints) != len(hashes) * PRINT_SIZE:
        return None
    for index, hash in enumerate(hashes):
        if hash[:PRINT_SIZE] != prints[index * PRINT_SIZE : (index + 1) * PRINT_SIZE]:
            return index
    return None
