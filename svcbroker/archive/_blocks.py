"""
Checking blocks one after the other, and going on behind one that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from attrs import evolve

from ..chain import (
    Candidate,
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    History,
    Malformed,
    PrefixConflict,
    Transaction,
    ValidatorSet,
    decodeBody,
    decodeTable,
    leaderIndex,
    merkleRoot,
    proposeBlock,
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
from ..storage import Append
from ._findings import Findings, difference, show
from ._rows import appendOf

_RECEIPT: Final = 9
_PRINT: Final = 4

EXECUTED: Final = ("transactionRoot", "receiptRoot", "stateRoot", "nextValidators")
"""The fields of a header that only execution tells."""


class RawBlock(NamedTuple):
    """
    A block as it is stored, of whatever types.
    """

    height: int
    transactionTotal: Any
    hash: Any
    header: Any
    certificate: Any
    receipts: Any
    body: Any


class BlockAuditor:
    """
    Executes a chain from its genesis and compares each block with what comes of it.

    Behind a block whose content does not hold, nobody knows the state. From there on blocks
    are checked as far as it goes without: headers, links, certificates, transactions.

    @ivar height: the height of the last block that was looked at.
    @ivar final: the height of the last block whose certificate holds.
    @ivar state: the state after it; C{None} where that is not known any more.
    @ivar hash: its hash.
    """

    def __init__(
        self,
        genesis: Genesis,
        sets: Mapping[bytes, ValidatorSet],
        findings: Findings,
        *,
        hasEngine: bool = False,
    ) -> None:
        """
        @param sets: sets of nodes by their hashes. They are trusted only where a header that
            is final names them.
        @param hasEngine: whether an engine decides, so that certificates may be missing.
        """
        self.height = self.final = 0
        self._hasEngine = hasEngine
        self._group = genesis.group
        self.state: ChainState | None = genesis.state()
        self.hash: bytes | None = genesis.header().hash
        self._chain = genesis.chain
        self._head: Header | None = genesis.header()
        self._history: History | None = self.state.history
        self._total: int | None = 0
        self._validators: bytes = genesis.validatorSet.hash
        self._sets = {**sets, genesis.validatorSet.hash: genesis.validatorSet}
        self._isTrusted = True
        self._found = findings

    def lose(self, place: str, problem: str, height: int) -> None:
        """
        A block cannot be read, or is missing: nothing that depends on it is known any more.
        """
        self._found.damage(place, problem, height)
        self._stop(height)
        self.height = height
        self.hash = self._head = self._history = self._total = None

    def check(self, row: RawBlock, prints: Callable[[], bytes]) -> Append | None:
        """
        Check the next block.

        @param prints: gives what is stored as the fingerprints of its transactions, as far as that
            is there.
        @return: what must be stored of it; C{None} where nobody knows.
        """
        if row.height != self.height + 1:
            first, last = self.height + 1, row.height - 1
            which = f"block {first} is" if first == last else f"blocks {first} to {last} are"
            self.lose("head.height", f"{which} missing", last)
        self.height = row.height
        header = self._header(row)
        if header is None:
            self.hash = row.hash if isinstance(row.hash, bytes) else None
            self._head = self._history = self._total = None
            self._stop(row.height)
            return None
        self._certificate(row, header)
        transactions = self._transactions(row)
        candidate = self._execute(header, transactions)
        self._compare(header, transactions, candidate)
        if transactions is not None:
            self._checkRoot(header, transactions, candidate, prints)
        history = self._historyWith(candidate)
        append = None
        if candidate is not None and history is not None:
            append = appendOf(evolve(candidate, history=history), None)
            self._checkReceipts(row.receipts, append.block.receipts)
        self._proceed(header, transactions, candidate, history)
        return append if self.state is not None else None

    def _header(self, row: RawBlock) -> Header | None:
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

    def _certificate(self, row: RawBlock, header: Header) -> None:
        """Check who has signed the header, and which hash it has."""
        trouble = self._certificateTrouble(row, header)
        self.hash, before = header.hash, self.hash
        self._isTrusted = not trouble
        if header.hash != row.hash:
            if trouble:
                # The signatures are under another header, and so is the hash beside it.
                trouble = ""
                self._found.damage(
                    "head.header",
                    f"its hash is {show(header.hash)}, which is neither the one stored beside it "
                    "nor the one that was signed",
                    self.height,
                )
                self.hash = row.hash if isinstance(row.hash, bytes) else None
            else:
                self._differ("head.hash", header.hash, row.hash)
        if trouble:
            self._found.damage("head.certificate", trouble, self.height)
        if before is not None and header.parent != before:
            self._differ("header.parent", before, header.parent)

    def _certificateTrouble(self, row: RawBlock, header: Header) -> str:
        nodes = self._sets.get(self._validators)
        if nodes is None:
            return "the set of nodes that has to sign it is not known"
        try:
            if not isinstance(row.certificate, bytes):
                raise Malformed("it is not stored as bytes")
            certificate = self._certificateOf(row.certificate)
            if certificate is not None:
                checkFinal(certificate, header, nodes, self._group)
                self._checkNext(certificate, header)
        except (Malformed, CertificateInvalid) as error:
            return str(error)
        if certificate is not None:
            self.final = row.height
        return ""

    def _certificateOf(self, data: bytes) -> AnyCertificate | None:
        if not self._hasEngine:
            return PbftCertificate.of(Certificate.decode(data))
        if not isEngineCertificate(data):
            raise Malformed("it is not what an engine's validators sign")
        return storedCertificate(data)

    def _checkNext(self, certificate: AnyCertificate, header: Header) -> None:
        """An engine has the set that decides next from the same block on."""
        following = self._sets.get(header.nextValidators)
        if following is None or not isinstance(certificate, CometCertificate):
            return
        if certificate.block().header.nextValidatorsHash != engineSet(following):
            raise CertificateInvalid("the engine has other nodes for the next block")

    def _transactions(self, row: RawBlock) -> Sequence[Transaction] | None:
        body = row.body
        if body is None:
            self._found.damage("body", "the block has no body", self.height)
            return None
        if not isinstance(body, bytes):
            self._found.damage("body.body", "it is not stored as bytes", self.height)
            return None
        try:
            return decodeBody(body)
        except Malformed as error:
            index, problem = _firstBad(body)
            self._found.damage("body.body", problem or str(error), self.height, index)
        return None

    def _execute(
        self, header: Header, transactions: Sequence[Transaction] | None
    ) -> Candidate | None:
        if self.state is None or self._head is None or transactions is None:
            return None
        try:
            return proposeBlock(self.state, self._head, header.view, header.timestamp, transactions)
        except PrefixConflict:
            self._found.damage("body.body", "two of its events might have the same id", self.height)
        return None

    def _compare(
        self,
        header: Header,
        transactions: Sequence[Transaction] | None,
        candidate: Candidate | None,
    ) -> None:
        """Compare the header with what its place and its transactions make of it."""
        before = 0 if self._head is None else self._head.view
        if header.view < before:
            self._found.damage(
                "header.view", f"{header.view} is below its parent's {before}", self.height
            )
        if candidate is not None and candidate.header.hash == header.hash:
            return
        if candidate is not None and header.timestamp < candidate.header.timestamp:
            before = candidate.header.timestamp
            self._found.damage(
                "header.timestamp",
                f"{header.timestamp} is before its parent's {before}",
                self.height,
            )
        expected: dict[str, object] = {
            "chain": self._chain,
            "height": self.height,
            "validators": self._validators,
        }
        if self._history is not None:
            expected["history"] = self._history.root
        nodes = self._sets.get(self._validators)
        if nodes is not None:
            expected["proposer"] = leaderIndex(header.view, self.height, len(nodes.keys))
        if transactions is not None:
            expected["transactionCount"] = len(transactions)
        if self._total is not None:
            count = header.transactionCount if transactions is None else len(transactions)
            expected["transactionTotal"] = self._total + count
        if candidate is not None:
            expected |= {name: getattr(candidate.header, name) for name in EXECUTED[1:]}
        for name, value in expected.items():
            if getattr(header, name) != value:
                self._differ(f"header.{name}", value, getattr(header, name))

    def _checkRoot(
        self,
        header: Header,
        transactions: Sequence[Transaction],
        candidate: Candidate | None,
        prints: Callable[[], bytes],
    ) -> None:
        """Compare the transactions with the header's root."""
        hashes = [transaction.hash for transaction in transactions]
        root = candidate.header.transactionRoot if candidate else merkleRoot(hashes)
        if root != header.transactionRoot:
            self._found.damage(
                "body.body",
                "these are not the transactions of its header: "
                + difference(header.transactionRoot, root),
                self.height,
                _otherPrint(hashes, prints()),
            )

    def _checkReceipts(self, stored: object, receipts: bytes) -> None:
        if stored != receipts:
            index = None
            if isinstance(stored, bytes) and len(stored) == len(receipts):
                pairs = zip(receipts, stored, strict=True)
                index = next(i for i, (one, other) in enumerate(pairs) if one != other) // _RECEIPT
            self._found.differ("body.receipts", receipts, stored, self.height, index)

    def _historyWith(self, candidate: Candidate | None) -> History | None:
        """The history with this block."""
        if candidate is not None and candidate.header.hash == self.hash:
            return candidate.history
        if self._history is None or self.hash is None:
            return None
        return self._history.after(self.hash)

    def _proceed(
        self,
        header: Header,
        transactions: Sequence[Transaction] | None,
        candidate: Candidate | None,
        history: History | None,
    ) -> None:
        """Make the block the last one."""
        if self._total is None:
            self._total = header.transactionTotal
        else:
            self._total += header.transactionCount if transactions is None else len(transactions)
        # What follows is judged by what the header should be, where that is known.
        before, self._head = self._head, header if candidate is None else candidate.header
        if before is not None and not self._isTrusted:
            # They may be anything, and may not fall.
            self._head = evolve(self._head, view=before.view, timestamp=before.timestamp)
        self._history, self._validators = history, self._head.nextValidators
        if self.state is None:
            return
        if (
            candidate is None
            or history is None
            or any(getattr(candidate.header, name) != getattr(header, name) for name in EXECUTED)
        ):
            self._stop(self.height)
            return
        self.state.apply(candidate.outcome, history)
        self._sets[self.state.validators.hash] = self.state.validators

    def _stop(self, height: int) -> None:
        if self.state is not None:
            self.state = None
            self._found.note(
                "body",
                "nobody knows what this block did, so from here on nothing is executed: headers, "
                "certificates and transactions are checked, topics and positions are not",
                height,
            )

    def _differ(self, place: str, expected: object, found: object) -> None:
        self._found.differ(place, expected, found, self.height)


def _firstBad(body: bytes) -> tuple[int | None, str]:
    """Which transaction of a body is not one, and why."""
    try:
        offsets = decodeTable(body)
    except Malformed:
        return None, ""
    if offsets[-1] != len(body):
        return None, ""
    for index in range(len(offsets) - 1):
        try:
            Transaction.decode(body[offsets[index] : offsets[index + 1]])
        except Malformed as error:
            return index, str(error)
    return None, ""


def _otherPrint(hashes: Sequence[bytes], prints: bytes) -> int | None:
    """Which transaction is not the one that its fingerprint was taken of."""
    if len(prints) != len(hashes) * _PRINT:
        return None
    for index, hash in enumerate(hashes):
        if hash[:_PRINT] != prints[index * _PRINT : (index + 1) * _PRINT]:
            return index
    return None


def isSame(expected: object, found: object) -> bool:
    """Whether a value is the same and of the same type, which Python's numbers do not mind."""
    return type(expected) is type(found) and expected == found
