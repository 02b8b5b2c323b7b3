"""
The contract C{EventLog}, as the broker calls it and reads its logs. C{EventLog.json} is what the
compiler makes of C{EventLog.sol}.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from attrs import field, frozen

from ...chain import Malformed
from ._ethereum import ADDRESS_SIZE, WORD, keccak256, packBytes, selector, unpackBytes, word

MAX_ACCOUNTS: Final = 64
"""The most accounts that a contract allows."""

_FILE: Final = Path(__file__).parent / "EventLog.json"


class ContractCode(msgspec.Struct, frozen=True):
    """
    The compiled contract.

    @ivar code: the code that makes it, in hexadecimal digits.
    @ivar deployed: the code that is then at its address.
    """

    code: str
    deployed: str


@lru_cache(maxsize=1)
def contractCode() -> ContractCode:
    """The compiled contract of this version."""
    return msgspec.json.decode(_FILE.read_bytes(), type=ContractCode)


def deployment(accounts: Sequence[bytes]) -> bytes:
    """
    The data of the transaction that makes a contract.

    @param accounts: the addresses that it allows.
    """
    words = [word(WORD), word(len(accounts)), *map(word, accounts)]
    return bytes.fromhex(contractCode().code) + b"".join(words)


@lru_cache(maxsize=32)
def _selector(signature: str) -> bytes:
    return selector(signature)


@lru_cache(maxsize=1)
def batchTopic() -> bytes:
    """The first topic of the logs of batches."""
    return keccak256(b"Batch(uint64,address,bytes)")


def submitCall(data: bytes) -> bytes:
    """The data of the call that puts a batch into the log."""
    return _selector("submit(bytes)") + word(WORD) + packBytes(data)


def attestCall(height: int, hash: bytes) -> bytes:
    """The data of the call that attests the hash of a block of ours."""
    return _selector("attest(uint64,bytes32)") + word(height) + hash


def allowCall(account: bytes, *, isAllowed: bool) -> bytes:
    """The data of the owner's call that allows an account, or does not any more."""
    return _selector("allow(address,bool)") + word(account) + word(int(isAllowed))


def stateCall() -> bytes:
    """The data of the call that L{LogState.decode} reads the answer of."""
    return _selector("state()")


def bornCall() -> bytes:
    """The data of the call for the block that the contract was made in; see L{readPair}."""
    return _selector("born()")


def allowedCall(account: bytes) -> bytes:
    """The data of the call that tells whether an account may submit."""
    return _selector("allowed(address)") + word(account)


def accountsCall() -> bytes:
    """The data of the call for the number of allowed accounts."""
    return _selector("accounts()")


def ownerCall() -> bytes:
    """The data of the call for the owner's address."""
    return _selector("owner()")


def attestedCall(height: int) -> bytes:
    """The data of the call for the hash that more than two thirds have attested."""
    return _selector("attested(uint64)") + word(height)


def attestedByCall(height: int, account: bytes) -> bytes:
    """The data of the call for the hash that one account has attested."""
    return _selector("attestedBy(uint64,address)") + word(height) + word(account)


def readPair(answer: bytes) -> tuple[int, int]:
    """
    Two numbers of an answer.

    @raise Malformed: it is something else.
    """
    if len(answer) != 2 * WORD:
        raise Malformed("the contract's answer is not two words")
    return int.from_bytes(answer[:WORD], "big"), int.from_bytes(answer[WORD:], "big")


@frozen
class LogState:
    """
    The batches of a contract up to some block.

    @ivar count: how many they are.
    @ivar head: the hash over all of them.
    """

    count: int = 0
    head: bytes = bytes(WORD)

    @classmethod
    def decode(cls, answer: bytes) -> LogState:
        """
        Read the contract's answer to C{state()}.

        @raise Malformed: it is something else.
        """
        count, head = readPair(answer)
        return cls(count, word(head))

    def after(self, batch: LoggedBatch) -> LogState:
        """
        The state after the next batch, as the contract computes it.

        @raise Malformed: it is not the next one.
        """
        count = self.count + 1
        if batch.number != count:
            raise Malformed(f"batch {batch.number} is not the one after {self.count}")
        link = self.head + word(count) + word(batch.sender) + batch.digest
        return LogState(count, keccak256(link))


@frozen
class LoggedBatch:
    """
    A batch in the log.

    @ivar number: its number; the first has 1.
    @ivar sender: the address of the account that has submitted it.
    @ivar digest: the hash of its data.
    """

    number: int
    sender: bytes
    data: bytes
    digest: bytes = field(init=False)

    @digest.default
    def _digestOfData(self) -> bytes:
        return keccak256(self.data)

    @classmethod
    def decode(cls, topics: Sequence[bytes], data: bytes) -> LoggedBatch:
        """
        Read a log.

        @raise Malformed: it is none of a batch.
        """
        if len(topics) != 3 or topics[0] != batchTopic():
            raise Malformed("the log is not one of a batch")
        sender = topics[2][-ADDRESS_SIZE:]
        return cls(int.from_bytes(topics[1], "big"), sender, unpackBytes(data))
