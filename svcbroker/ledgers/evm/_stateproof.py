"""
Proofs of what a contract's storage holds: from a slot over the account to the state root in a
block's header, whose hash is the block's. Whoever has that hash from elsewhere believes no node.

A node answers C{eth_getProof} with the nodes of two Merkle Patricia tries, from the root down: that
of accounts, and that of the account's slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from attrs import frozen
from msgspec import Struct

from ...chain import Malformed
from ...net.deferreds import asDeferred
from .._jsonrpc import RpcCall
from ._contract import attestedCall, contractCode
from ._ethereum import WORD, encodeRlp, keccak256, word
from ._evmrpc import (
    EvmError,
    EvmReason,
    EvmRpc,
    at,
    contractCall,
    quantity,
    todata,
    undata,
    unquantity,
)

Tree: TypeAlias = "bytes | list[Tree]"
"""Decoded RLP: bytes, or a list of such."""

_ATTESTATIONS: Final = 4
"""The slot of the mapping C{attestations} of the contract."""

_AGREED: Final = 2
"""The place of C{agreed} in an entry of it."""

_MAX_DEPTH: Final = 8
_BRANCH: Final = 17
_EMPTY: Final = encodeRlp(b"")


def decodeRlp(data: bytes) -> Tree:
    """
    Decode RLP.

    @raise Malformed: it is something else, or more.
    """
    item, end = _decode(data, 0, _MAX_DEPTH)
    if end != len(data):
        raise Malformed("there is more than one item of RLP")
    return item


def _decode(data: bytes, start: int, depth: int) -> tuple[Tree, int]:
    """The item that begins there, and its end."""
    if start >= len(data) or not depth:
        raise Malformed("the RLP is cut, or too deep")
    first, begin = data[start], start + 1
    if first < 0x80:
        return data[start:begin], begin
    offset = 0x80 if first < 0xC0 else 0xC0
    length = first - offset
    if length > 55:
        begin += length - 55
        length = int.from_bytes(data[start + 1 : begin], "big")
    end = begin + length
    if end > len(data):
        raise Malformed("the RLP is cut")
    if offset == 0x80:
        return data[begin:end], end
    items: list[Tree] = []
    while begin < end:
        item, begin = _decode(data, begin, depth - 1)
        items.append(item)
    if begin != end:
        raise Malformed("a list of RLP is cut")
    return items, end


def provedValue(root: bytes, key: bytes, nodes: Sequence[bytes]) -> bytes:
    """
    The value of a key in a Merkle Patricia trie; empty where it is proved that there is none.

    @param root: the trie's root.
    @param key: the key, which is hashed: all tries of a state are of that kind.
    @param nodes: the nodes on the way to it, from the root down.
    @raise Malformed: they do not prove it.
    """
    path = keccak256(key).hex()
    found: Tree = root
    left = list(nodes)
    while True:
        if isinstance(found, bytes):
            if found == keccak256(_EMPTY):
                # Some nodes give the one node of the empty trie.
                found, left = b"", [each for each in left if each != _EMPTY]
            if not found:
                break
            if not left or keccak256(left[0]) != found:
                raise Malformed("the nodes of the proof do not lead on from the root")
            found = decodeRlp(left.pop(0))
        if not isinstance(found, list):
            raise Malformed("a node of the proof is none")
        if len(found) == _BRANCH:
            if not path:
                raise Malformed("a node of the proof is below the end of the key")
            found, path = found[int(path[0], 16)], path[1:]
            continue
        isLeaf, part = _partOf(found)
        if not path.startswith(part) or (isLeaf and path != part):
            found = b""
            break
        found, path = found[1], path[len(part) :]
        if isLeaf:
            break
    if left or not isinstance(found, bytes):
        raise Malformed("the proof does not end at the key")
    return found


def _partOf(node: list[Tree]) -> tuple[bool, str]:
    """Whether a node of two items is a leaf, and its part of the key, in hexadecimal digits."""
    if len(node) != 2 or not isinstance(node[0], bytes) or not node[0]:
        raise Malformed("a node of the proof has neither 17 items nor 2")
    digits = node[0].hex()
    kind = int(digits[0], 16)
    if kind > 3 or (kind % 2 == 0 and digits[1] != "0"):
        raise Malformed("a node of the proof is of no kind")
    return kind >= 2, digits[1:] if kind % 2 else digits[2:]


def attestedSlot(height: int) -> bytes:
    """The slot with the hash that more than two thirds of the accounts have attested."""
    entry = keccak256(word(height) + word(_ATTESTATIONS))
    return word(int.from_bytes(entry, "big") + _AGREED)


class HeaderInfo(Struct, frozen=True, rename="camel"):
    """
    A block's header; empty for what the node does not tell, and C{None} for what came with a later
    fork.
    """

    hash: str
    number: str
    stateRoot: str
    parentHash: str = ""
    sha3Uncles: str = ""
    miner: str = ""
    transactionsRoot: str = ""
    receiptsRoot: str = ""
    logsBloom: str = ""
    difficulty: str = ""
    gasLimit: str = ""
    gasUsed: str = ""
    timestamp: str = ""
    extraData: str = ""
    mixHash: str = ""
    nonce: str = ""
    baseFeePerGas: str | None = None
    withdrawalsRoot: str | None = None
    blobGasUsed: str | None = None
    excessBlobGas: str | None = None
    parentBeaconBlockRoot: str | None = None
    requestsHash: str | None = None

    @property
    def computedHash(self) -> bytes:
        """
        The hash of these fields. That of chains with IBFT and QBFT is another one: they leave out
        what validators add at the end.

        @raise Malformed: a field is not what it has to be.
        """
        fields: list[Any] = [
            *map(undata, (self.parentHash, self.sha3Uncles, self.miner, self.stateRoot)),
            *map(undata, (self.transactionsRoot, self.receiptsRoot, self.logsBloom)),
            *map(unquantity, (self.difficulty, self.number, self.gasLimit, self.gasUsed)),
            unquantity(self.timestamp),
            *map(undata, (self.extraData, self.mixHash, self.nonce)),
        ]
        later = (
            *((self.baseFeePerGas, unquantity), (self.withdrawalsRoot, undata)),
            *((self.blobGasUsed, unquantity), (self.excessBlobGas, unquantity)),
            *((self.parentBeaconBlockRoot, undata), (self.requestsHash, undata)),
        )
        fields += [read(value) for value, read in later if value is not None]
        return keccak256(encodeRlp(fields))


class _SlotProof(Struct, frozen=True):
    proof: Sequence[str]


class StateProof(Struct, frozen=True, rename="camel"):
    """
    A node's answer to C{eth_getProof} for one slot.
    """

    accountProof: Sequence[str]
    storageProof: tuple[_SlotProof]

    def value(self, stateRoot: bytes, contract: bytes, slot: bytes) -> bytes:
        """
        The word in a slot of the contract of this release.

        @raise Malformed: the proof does not lead there, or another contract is at the address.
        """
        entry = provedValue(stateRoot, contract, [undata(each) for each in self.accountProof])
        account = decodeRlp(entry or _EMPTY)
        if not isinstance(account, list) or len(account) != 4:
            raise Malformed("it proves that there is no contract at the address")
        storageRoot, codeHash = account[2:]
        if codeHash != keccak256(bytes.fromhex(contractCode().deployed)):
            raise Malformed("it proves that another contract is at the address")
        if not isinstance(storageRoot, bytes):
            raise Malformed("the account's storage has no root")
        nodes = [undata(each) for each in self.storageProof[0].proof]
        value = decodeRlp(provedValue(storageRoot, slot, nodes) or _EMPTY)
        if not isinstance(value, bytes) or len(value) > WORD:
            raise Malformed("the slot holds no word")
        return word(value)


_decodeHeader = msgspec.json.Decoder(HeaderInfo | None).decode
_decodeProof = msgspec.json.Decoder(StateProof).decode


def _header(data: bytes) -> HeaderInfo:
    found: HeaderInfo | None = _decodeHeader(data)
    if found is None:
        raise EvmError(EvmReason.NO_STATE, "the node does not have that block")
    return found


@frozen(kw_only=True)
class Attested:
    """
    The hash of a block of ours that brokers have attested.

    @ivar hash: C{None} where not more than two thirds of them have attested one.
    @ivar number: the number of the chain's block whose state holds it.
    @ivar block: that block's hash.
    @ivar isProved: whether it was proved from that block's state; otherwise by the node's word.
    """

    hash: bytes | None
    number: int = 0
    block: bytes = b""
    isProved: bool = False


@asDeferred
async def attestedHash(
    rpc: EvmRpc, contract: bytes, height: int, block: bytes | None = None
) -> Attested:
    """
    The hash of a block of a group's chain that more than two thirds of a contract's accounts have
    attested.

    @param rpc: a node of the verifier's own choice.
    @param block: the hash of a block of the chain, which the verifier trusts: then the node has to
        prove all. C{None} for the last block that it tells of.
    @raise EvmError: it does not answer, or its proof is none, or the contract is not there.
    """
    if block is None:
        header = await rpc.ask(RpcCall("eth_getBlockByNumber", (at("latest"), False), _header))
    else:
        header = await rpc.ask(RpcCall("eth_getBlockByHash", (todata(block), False), _header))
    try:
        number = unquantity(header.number)
        if block is not None and header.computedHash != block:
            raise EvmError(
                EvmReason.BAD_ANSWER,
                "the header that the node gives does not have the hash of that block, or the chain "
                "has hashes of its own kind (IBFT, QBFT)",
            )
        slot = attestedSlot(height)
        parameters = (todata(contract), [todata(slot)], quantity(number))
        try:
            proof = await rpc.ask(RpcCall("eth_getProof", parameters, _decodeProof))
        except EvmError as error:
            if block is not None or error.reason in (EvmReason.UNREACHABLE, EvmReason.BAD_ANSWER):
                raise
            found = await rpc.ask(contractCall(contract, attestedCall(height)))
            return Attested(hash=found if any(found) else None)
        value = proof.value(undata(header.stateRoot, WORD), contract, slot)
        return Attested(
            hash=value if any(value) else None,
            number=number,
            block=block or undata(header.hash, WORD),
            isProved=True,
        )
    except Malformed as error:
        raise EvmError(EvmReason.BAD_ANSWER, f"the node's proof is none: {error}") from error
