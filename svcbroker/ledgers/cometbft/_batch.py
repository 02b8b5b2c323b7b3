"""
Batches: one transaction of the engine is a batch of transactions, signed by its broker.

The engine does not authenticate senders. So a batch carries the broker's key, and the attestation
of that key by a validator. Batches without an attestation by a current validator are refused.
L{IdentityFiles} keep this broker's key and its attestation.

L{ChainMachine} decides which batches are valid in a block, and executes blocks. It is
deterministic, as ABCI requires: every result follows from the state and the arguments.
L{svcbroker.chain} executes transactions; the machine maps batches to them.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import msgspec
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ...chain import (
    Candidate,
    ChainState,
    ChangeRefused,
    Header,
    Malformed,
    Transaction,
    ValidatorChange,
    ValidatorSet,
    VersionUnknown,
    decodeBody,
    encodeBody,
    keyAddress,
    leaderIndex,
    proposeBlock,
    verifySignature,
)
from ...errors import ParameterInvalid
from ...files import readFile
from ...proofs.cometbft import engineOrder
from ...storage import writeFile
from ..replicated import NEWEST, BlockDraft, BlockRefused, Code
from ._home import KeyFileDamaged, publicKey, readValidatorSeed
from .abci import framedSize

_TAG = b"svcbroker/batch\x01"
_CHAIN = len(_TAG)
_KEY = _CHAIN + 32
_SPONSOR = _KEY + 32
_ATTESTATION = _SPONSOR + 32
_PREVIOUS = _ATTESTATION + 64
_NUMBER = struct.Struct(">Q")
_BODY = _PREVIOUS + _NUMBER.size
_SIGNATURE = 64

OVERHEAD = _BODY + _SIGNATURE
"""Bytes that a batch has besides its transactions."""


class Unauthorized(Exception):
    """A batch whose sender may not send. The text says why."""


def attestationPayload(chain: bytes, key: bytes) -> bytes:
    """
    The bytes of an attestation: a validator signs them to let a broker send.

    @param chain: the chain's id.
    @param key: the broker's public key.
    """
    return b"svcbroker/broker\x00" + chain + key


@frozen(kw_only=True)
class BrokerIdentity:
    """
    A broker's identity on a chain.

    @ivar seed: its private key: 32 bytes.
    @ivar sponsor: the public key of the validator that attests it.
    @ivar attestation: the validator's signature over L{attestationPayload}.
    """

    seed: bytes
    sponsor: bytes
    attestation: bytes

    @property
    def key(self) -> bytes:
        """Its public key."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()


@frozen(kw_only=True)
class EngineBatch:
    """
    Transactions of one broker, in order.

    @ivar key: the broker's public key.
    @ivar sponsor: the public key of the validator that attests it.
    @ivar previous: the nonce before which the batch may not be executed: that of the last
        transaction in the broker's batch before it. So its batches stay in order, whatever way
        they take from engine to engine.
    """

    key: bytes
    sponsor: bytes
    previous: int
    transactions: Sequence[Transaction]


class BatchMaker:
    """
    Makes a broker's batches.
    """

    def __init__(self, chain: bytes, identity: BrokerIdentity) -> None:
        """
        @param chain: the chain's id.
        """
        self._key = Ed25519PrivateKey.from_private_bytes(identity.seed)
        self._start = _TAG + chain + identity.key + identity.sponsor + identity.attestation
        self.sender = keyAddress(chain, identity.key)

    def make(self, transactions: Sequence[Transaction], previous: int) -> bytes:
        """
        A signed batch.

        @param transactions: their sender is L{sender}.
        @param previous: see L{EngineBatch}.
        """
        body, _ = encodeBody(transactions)
        data = self._start + _NUMBER.pack(previous) + body
        return data + self._key.sign(data)


def readBatch(data: bytes, chain: bytes) -> EngineBatch:
    """
    Read a batch and make sure that its broker has signed it. Whether its sponsor is a validator
    is left to L{checkSponsor}.

    @param chain: the chain's id.
    @raise Malformed: it is not a batch of this chain.
    @raise Unauthorized: it is not signed by its broker, or the attestation is invalid.
    """
    if not data.startswith(_TAG) or len(data) < OVERHEAD:
        raise Malformed("this is not a batch")
    if data[_CHAIN:_KEY] != chain:
        raise Malformed("the batch is of another chain")
    key, sponsor = data[_KEY:_SPONSOR], data[_SPONSOR:_ATTESTATION]
    if not _isAttested(chain, key, sponsor, data[_ATTESTATION:_PREVIOUS]):
        raise Unauthorized("the attestation of the batch's broker is invalid")
    if not verifySignature(key, data[:-_SIGNATURE], data[-_SIGNATURE:]):
        raise Unauthorized("the batch is not signed by its broker")
    transactions = decodeBody(data[_BODY:-_SIGNATURE])
    if not transactions:
        raise Malformed("the batch is empty")
    sender = keyAddress(chain, key)
    if any(transaction.sender != sender for transaction in transactions):
        raise Unauthorized("the batch has transactions of somebody else")
    (previous,) = _NUMBER.unpack_from(data, _PREVIOUS)
    if previous >= min(transaction.nonce for transaction in transactions):
        # It, or two that follow each other, would keep the engines making blocks for ever.
        raise Malformed("the batch follows itself, or one that comes later")
    return EngineBatch(key=key, sponsor=sponsor, previous=previous, transactions=transactions)


def checkSponsor(batch: EngineBatch, validators: ValidatorSet) -> None:
    """
    Check that a current validator attests a batch's broker.

    @raise Unauthorized: none does.
    """
    if batch.sponsor not in validators.keys:
        raise Unauthorized("the batch's broker is attested by no current validator")


@lru_cache(maxsize=4096)
def _isAttested(chain: bytes, key: bytes, sponsor: bytes, attestation: bytes) -> bool:
    return verifySignature(sponsor, attestationPayload(chain, key), attestation)


KEY_NAME = "broker.key"
ATTESTATION_NAME = "broker.voucher"
SEED_SIZE = 32


class IdentityMissing(Exception):
    """A broker that may not send to its chain. The text is one line for the operator."""


class Attestation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A validator's signed statement that a broker may send to its chain.

    @ivar broker: the broker's public key.
    @ivar validator: the validator's public key.
    @ivar signature: the validator's signature over L{attestationPayload}.
    """

    broker: str
    validator: str
    signature: str


def attest(seed: bytes, chain: bytes, broker: bytes) -> Attestation:
    """
    Sign an attestation of a broker.

    @param seed: the validator's private key: 32 bytes.
    @param chain: the chain's id.
    @param broker: the broker's public key.
    """
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return Attestation(
        broker=broker.hex(),
        validator=publicKey(seed).hex(),
        signature=key.sign(attestationPayload(chain, broker)).hex(),
    )


def brokerSeed(directory: Path, entropy: Callable[[int], bytes]) -> bytes:
    """
    A broker's private key, which is made where there is none.

    @param directory: the ledger's directory; it exists.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise IdentityMissing: the file is no key.
    @raise OSError: it cannot be read or written.
    """
    path = directory / KEY_NAME
    if not path.exists():
        writeFile(path, entropy(SEED_SIZE).hex().encode("ascii") + b"\n", 0o600)
    try:
        seed = bytes.fromhex(readFile(path).decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != SEED_SIZE:
        raise IdentityMissing(f"{path} is not a key: put it back from a backup")
    return seed


def encodeAttestation(attestation: Attestation) -> bytes:
    """The file of an attestation."""
    return msgspec.json.encode(attestation) + b"\n"


@frozen(kw_only=True)
class IdentityFiles:
    """
    The files of a broker's identity.

    @ivar directory: the ledger's directory; it exists.
    @ivar home: the engine's home. Where its validator's key can be read, that validator attests the
        broker.
    """

    directory: Path
    home: Path

    def load(
        self, chain: bytes, validators: ValidatorSet, entropy: Callable[[int], bytes]
    ) -> BrokerIdentity:
        """
        The broker's identity; its key is made where there is none.

        @param chain: the chain's id.
        @param validators: the current set; each of them may attest the broker.
        @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
        @raise IdentityMissing: no validator attests it, or a file is damaged.
        """
        try:
            seed = brokerSeed(self.directory, entropy)
            broker = publicKey(seed)
            attestation = self._attestation(chain, validators, broker)
        except (OSError, KeyFileDamaged) as error:
            raise IdentityMissing(str(error)) from error
        return BrokerIdentity(
            seed=seed,
            sponsor=bytes.fromhex(attestation.validator),
            attestation=bytes.fromhex(attestation.signature),
        )

    def _attestation(self, chain: bytes, validators: ValidatorSet, broker: bytes) -> Attestation:
        path = self.directory / ATTESTATION_NAME
        if path.exists():
            attestation = self._read(path, chain, broker)
            if bytes.fromhex(attestation.validator) in validators.keys:
                return attestation
        seed = readValidatorSeed(self.home)
        if seed is not None and publicKey(seed) in validators.keys:
            attestation = attest(seed, chain, broker)
            writeFile(path, encodeAttestation(attestation))
            return attestation
        if path.exists():
            raise IdentityMissing(
                f"the validator that attests this broker in {path} is not a validator any more: "
                "have another one sign an attestation (svcbroker net engine attest)"
            )
        raise IdentityMissing(
            f"no validator attests this broker: have one sign {broker.hex()} "
            f"(svcbroker net engine attest), and put the attestation into {path}"
        )

    def _read(self, path: Path, chain: bytes, broker: bytes) -> Attestation:
        try:
            attestation = msgspec.json.decode(readFile(path), type=Attestation)
            isGood = attestation.broker == broker.hex() and verifySignature(
                bytes.fromhex(attestation.validator),
                attestationPayload(chain, broker),
                bytes.fromhex(attestation.signature),
            )
        except (msgspec.MsgspecError, ValueError):
            isGood = False
        if not isGood:
            raise IdentityMissing(f"{path} is not an attestation of this broker on this chain")
        return attestation


KNOWN_BYTES = 64 * 1024 * 1024
"""Bytes of parsed batches that are cached: a batch is checked several times before it is final."""


@frozen(kw_only=True)
class BlockExecution:
    """
    The result of executing a block.

    @ivar codes: the result of each batch.
    """

    candidate: Candidate
    codes: Sequence[Code]


class ChainMachine:
    """
    One chain's state machine.

    @ivar state: the state after L{head}; only L{apply} changes it.
    @ivar head: the header of the last block.
    """

    def __init__(
        self,
        state: ChainState,
        head: Header,
        format3: int | None = None,
        format4: int | None = None,
    ) -> None:
        """
        @param format3: the height from which blocks may be of format 3; C{None} for never. A chain
            that has begun with format 3, or has no transactions yet, needs none.
        @param format4: the same for format 4.
        """
        self.state = state
        self.head = head
        self._since = {2: format3, NEWEST: format4}
        self._known: OrderedDict[bytes, tuple[int, EngineBatch]] = OrderedDict()
        self._knownBytes = 0
        self._waiting: dict[tuple[bytes, int], int] = {}

    @property
    def isNew(self) -> bool:
        """Whether there are no transactions yet."""
        return not self.head.transactionTotal

    @property
    def newest(self) -> int:
        """
        The highest version of transactions that the next block may have. Only what a node proposes
        and accepts depends on it: a block that is decided is executed.
        """
        if self.isNew:
            return NEWEST
        next = self.head.height + 1
        reached = [
            version for version, since in self._since.items() if since is not None and next >= since
        ]
        return max(self.head.version - 1, *reached, 1)

    def check(self, data: bytes, timestamp: int, *, isRecheck: bool = False) -> None:
        """
        Check whether a batch may enter the mempool, or stay in it.

        @param timestamp: the time in milliseconds since the epoch.
        @param isRecheck: whether it was in the mempool while the last block was decided.
        @raise Refused: it may not.
        """
        batch = self._read(data)
        try:
            BlockDraft(self.state, timestamp, self.newest).add(batch)
        except BlockRefused as refusal:
            # Its predecessor is probably on its way, or in the mempool. If an empty block was
            # decided meanwhile, no proposer had it. Then this batch leaves the mempool, because
            # the engines make blocks as long as the mempool is not empty; its broker sends both
            # again.
            if refusal.code is not Code.OUT_OF_ORDER:
                raise
            if isRecheck and not self.head.transactionCount and not self._waits(batch):
                raise
        last = batch.transactions[-1]
        self._waiting[last.sender, last.nonce] = self.head.height

    def _waits(self, batch: EngineBatch) -> bool:
        """Whether a batch's predecessor was checked since the last block but one."""
        before = batch.transactions[0].sender, batch.previous
        return self._waiting.get(before, -2) >= self.head.height - 1

    def select(self, waiting: Iterable[bytes], maxBytes: int, timestamp: int) -> Sequence[bytes]:
        """
        Select the batches of the next block, in order.

        The selection ends before a batch that does not fit, so that none overtakes another;
        invalid batches are left out.

        @param maxBytes: the most bytes of the block's transactions, framed.
        @param timestamp: the block's time in milliseconds since the epoch.
        """
        draft, left = BlockDraft(self.state, timestamp, self.newest), maxBytes
        chosen: list[bytes] = []
        outOfOrder: list[bytes] = []
        for data in waiting:
            size = framedSize(data)
            if size > left:
                return chosen
            code = self._put(draft, data)
            if code is Code.OK:
                left -= size
                chosen.append(data)
            elif code is Code.OUT_OF_ORDER:
                outOfOrder.append(data)
            elif code is Code.CONFLICT and chosen:
                return chosen
        # Batches that arrived before their predecessors; each follows lower nonces.
        for data in sorted(outOfOrder, key=lambda each: self._read(each).previous):
            size = framedSize(data)
            if size <= left and self._put(draft, data) is Code.OK:
                left -= size
                chosen.append(data)
        return chosen

    def isValid(self, block: Sequence[bytes], timestamp: int) -> bool:
        """
        Whether a block of these batches is valid: every batch is valid in it.

        @param timestamp: the block's time in milliseconds since the epoch.
        """
        draft = BlockDraft(self.state, timestamp, self.newest)
        return all(self._put(draft, data) is Code.OK for data in block)

    def execute(
        self, block: Sequence[bytes], height: int, timestamp: int, proposer: bytes
    ) -> BlockExecution:
        """
        Execute a decided block, without changing the state.

        @param timestamp: its time in milliseconds since the epoch.
        @param proposer: the public key of the validator that proposed it, if it is known.
        @raise VersionUnknown: it has transactions that a newer svcbroker executes.
        """
        draft = BlockDraft(self.state)
        # Not all OK only if more than a third of the validators are faulty.
        codes = [self._put(draft, data) for data in block]
        if Code.TOO_NEW in codes:
            raise VersionUnknown(
                f"block {height} has transactions that this svcbroker does not execute: upgrade it"
            )
        view = self._viewOf(proposer, height)
        candidate = proposeBlock(self.state, self.head, view, timestamp, draft.transactions)
        return BlockExecution(candidate=candidate, codes=codes)

    def apply(self, candidate: Candidate) -> None:
        """Apply an executed block, once it is on stable storage."""
        self.state.apply(candidate.outcome, candidate.history)
        self.head = candidate.header
        # The mempool is rechecked now.
        oldest = self.head.height - 1
        self._waiting = {key: height for key, height in self._waiting.items() if height >= oldest}

    def _viewOf(self, proposer: bytes, height: int) -> int:
        """
        The lowest view whose leader is this proposer, so that headers name the engine's proposer
        by the same rule as on every ledger.
        """
        keys, view = self.state.validators.keys, self.head.view
        if proposer not in keys:
            # It is leaving the set, or is not in the headers' set yet.
            return view
        return view + (keys.index(proposer) - leaderIndex(view, height, len(keys))) % len(keys)

    def _put(self, draft: BlockDraft, data: bytes) -> Code:
        """Add a batch to a block if it is valid there, and return its result."""
        try:
            draft.add(self._read(data))
        except BlockRefused as refusal:
            return refusal.code
        return Code.OK

    def _read(self, data: bytes) -> EngineBatch:
        digest = sha256(data).digest()
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            batch = known[1]
        else:
            try:
                batch = readBatch(data, self.state.chain)
            except VersionUnknown as error:
                raise BlockRefused(Code.TOO_NEW, str(error)) from None
            except Malformed as error:
                raise BlockRefused(Code.MALFORMED, str(error)) from None
            except Unauthorized as error:
                raise BlockRefused(Code.UNAUTHORIZED, str(error)) from None
            self._remember(digest, len(data), batch)
        try:
            checkSponsor(batch, self.state.validators)
        except Unauthorized as error:
            raise BlockRefused(Code.UNAUTHORIZED, str(error)) from None
        return batch

    def _remember(self, digest: bytes, size: int, batch: EngineBatch) -> None:
        self._known[digest] = (size, batch)
        self._knownBytes += size
        while self._knownBytes > KNOWN_BYTES:
            _, (oldest, _) = self._known.popitem(last=False)
            self._knownBytes -= oldest


def checkChange(change: ValidatorChange, chain: bytes, current: ValidatorSet) -> None:
    """
    Check that a change of the validator set will be executed.

    @param chain: the chain's id.
    @param current: the set before the change.
    @raise ParameterInvalid: it will not be. The text says why.
    """
    try:
        change.check(chain, current)
    except ChangeRefused as error:
        raise ParameterInvalid(f"change: {error}") from error
    if change.following.keys != engineOrder(change.following.keys):
        raise ParameterInvalid("change: its validators are not in the engine's order")
