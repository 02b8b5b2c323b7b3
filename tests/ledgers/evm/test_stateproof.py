"""
Proofs of the hash that brokers have attested, as nodes gave them, and as nodes forge them.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.ledgers._jsonrpc import RpcCall
from svcbroker.ledgers.evm import checkInstalled
from svcbroker.ledgers.evm._ethereum import encodeRlp, keccak256, word
from svcbroker.ledgers.evm._evmrpc import EvmError, EvmReason, todata, undata
from svcbroker.ledgers.evm._stateproof import (
    Attested,
    HeaderInfo,
    StateProof,
    attestedHash,
    attestedSlot,
    decodeRlp,
    provedValue,
)

skip = checkInstalled() or None

HEIGHT = 6
HASH = b"\x07" * 32
RECORDED: Any = json.loads((Path(__file__).parent / "fixtures" / "stateproofs.json").read_text())
"""By fork or node: a header, the proof of C{HASH} at C{HEIGHT}, and that above it there is none."""


def trieOf(values: dict[str, bytes], path: str | None, way: list[bytes]) -> Any:
    """
    The node of a trie with values by their keys, in hexadecimal digits.

    @param path: the key whose nodes C{way} gets, from the root down; C{None} for none.
    """
    if not values:
        return b""
    keys = sorted(values)
    shared = 0
    while len(keys) > 1 and keys[0][shared] == keys[-1][shared]:
        shared += 1
    if len(keys) == 1:
        node = [packed(keys[0], 2), values[keys[0]]]
    elif shared:
        isOnWay = path is not None and path.startswith(keys[0][:shared])
        rest = {key[shared:]: value for key, value in values.items()}
        below = trieOf(rest, path[shared:] if path and isOnWay else None, way)
        node = [packed(keys[0][:shared], 0), linked(below)]
    else:
        node = []
        for digit in "0123456789abcdef":
            below = {key[1:]: value for key, value in values.items() if key[0] == digit}
            isOnWay = path is not None and path[0] == digit
            node.append(linked(trieOf(below, path[1:] if path and isOnWay else None, way)))
        node.append(b"")
    if path is not None and len(encodeRlp(node)) >= 32:
        way.insert(0, encodeRlp(node))
    return node


def packed(part: str, kind: int) -> bytes:
    """A part of a key, with the kind of its node."""
    return bytes.fromhex(f"{kind + 1:x}{part}" if len(part) % 2 else f"{kind:x}0{part}")


def linked(node: Any) -> Any:
    """A node as its parent has it: a short one whole, another by its hash."""
    return node if len(encodeRlp(node)) < 32 else keccak256(encodeRlp(node))


class TrieTests(SynchronousTestCase):
    """Tries that are made here by the rules of their specification."""

    def test_everyKeyIsProved(self) -> None:
        """In tries of any size a key has its value, and another key none."""
        random = Random(7)
        for size in (1, 2, 3, 17, 300):
            names = [random.randbytes(20) for _ in range(size)]
            values = {keccak256(each).hex(): random.randbytes(40) for each in names}
            for name in [*names[:20], *(random.randbytes(20) for _ in range(20))]:
                path = keccak256(name).hex()
                way: list[bytes] = []
                root = keccak256(encodeRlp(trieOf(values, path, way)))
                self.assertEqual(provedValue(root, name, way), values.get(path, b""))
                for nodes in (way[:-1], [*way, way[-1]], way[1:]):
                    with self.assertRaises(Malformed):
                        provedValue(root, name, nodes)

    def test_emptyTrieHasNoKey(self) -> None:
        """The trie without a value proves that any key has none, with its node or without."""
        root = keccak256(b"\x80")
        self.assertEqual(provedValue(root, b"key", []), b"")
        self.assertEqual(provedValue(root, b"key", [b"\x80"]), b"")

    def test_rlpIsReadAsWritten(self) -> None:
        """What is encoded is decoded; what is cut, longer or too deep is refused."""
        item: Any = [b"", b"\x01", b"x" * 55, b"y" * 56, [b"z" * 300, []]]
        data = encodeRlp(item)
        self.assertEqual(decodeRlp(data), item)
        deep = b"\xc0"
        for _ in range(40):
            deep = encodeRlp([]) if len(deep) > 55 else bytes([0xC0 + len(deep)]) + deep
        for bad in (b"", data[:-1], data + b"\x00", b"\xbf" + b"\xff" * 8, b"\xc2\x83a", deep):
            with self.assertRaises(Malformed):
                decodeRlp(bad)


class RecordedTests(SynchronousTestCase):
    """What anvil answered, in the forks Istanbul and Prague, and geth."""

    def test_recordedProofsHold(self) -> None:
        """The attested hash is proved, and that another height has none; headers have their
        hashes."""
        for name, fork in RECORDED.items():
            header = msgspec.convert(fork["header"], HeaderInfo)
            self.assertEqual(todata(header.computedHash), header.hash, name)
            for answer, height, expected in (
                (fork["proof"], HEIGHT, HASH),
                (fork["absent"], HEIGHT + 1, bytes(32)),
            ):
                proof = msgspec.convert(answer, StateProof)
                contract, root = bytes.fromhex(fork["contract"]), undata(header.stateRoot)
                self.assertEqual(proof.value(root, contract, attestedSlot(height)), expected)

    def test_changedProofsAreRefused(self) -> None:
        """No byte of a proof can be another one, and no node be left out; it proves nothing of
        another contract, height or state."""
        fork = RECORDED["prague"]
        root = undata(fork["header"]["stateRoot"])
        contract, slot = bytes.fromhex(fork["contract"]), attestedSlot(HEIGHT)
        proof = msgspec.convert(fork["proof"], StateProof)
        for nodes in (proof.accountProof, proof.storageProof[0].proof):
            assert isinstance(nodes, list)
            for index, node in enumerate(nodes):
                data = undata(node)
                for place in range(len(data)):
                    changed = bytearray(data)
                    changed[place] ^= 1 << place % 8
                    nodes[index] = todata(bytes(changed))
                    with self.assertRaises(Malformed):
                        proof.value(root, contract, slot)
                nodes[index] = node
        for arguments in (
            (keccak256(root), contract, slot),
            (root, b"\x01" * 20, slot),
            (root, contract, attestedSlot(HEIGHT + 2)),
        ):
            with contextlib.suppress(Malformed):
                self.assertFalse(any(proof.value(*arguments)))
        self.assertEqual(proof.value(root, contract, slot), HASH)

    def test_changedHeadersHaveOtherHashes(self) -> None:
        """Each field of a header is in its hash."""
        fields = RECORDED["prague"]["header"]
        found = {undata(fields["hash"])}
        names = {field.encode_name for field in msgspec.structs.fields(HeaderInfo)} - {"hash"}
        for name in names:
            old = fields[name]
            new = "0x01" if old == "0x" else old[:-1] + ("2" if old[-1] == "1" else "1")
            found.add(msgspec.convert({**fields, name: new}, HeaderInfo).computedHash)
        self.assertEqual(len(found), 1 + len(names))


class _Node:
    """A node that answers what a test says."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def ask(self, call: RpcCall[Any]) -> Deferred[Any]:
        """Read the answer, or fail with it."""
        answer = self._answers[call.method]
        if isinstance(answer, EvmError):
            return fail(answer)
        return succeed(call.read(msgspec.json.encode(answer)))


class AttestedTests(SynchronousTestCase):
    """The hash that brokers have attested, by nodes that tell the truth, and that do not."""

    def setUp(self) -> None:
        self.fork = RECORDED["prague"]
        self.contract = bytes.fromhex(self.fork["contract"])
        self.block = undata(self.fork["header"]["hash"])

    def asked(
        self, block: bytes | None = None, height: int = HEIGHT, **answers: Any
    ) -> Deferred[Attested]:
        """The answer about a node that answers as recorded, but for some calls."""
        node: Any = _Node(
            **{
                "eth_getBlockByNumber": self.fork["header"],
                "eth_getBlockByHash": self.fork["header"],
                "eth_getProof": self.fork["proof"],
                "eth_call": todata(HASH),
                **answers,
            }
        )
        return attestedHash(node, self.contract, height, block)

    def ask(self, *arguments: Any, **answers: Any) -> Attested:
        """What comes of it."""
        return self.successResultOf(self.asked(*arguments, **answers))

    def refused(self, words: str, *arguments: Any, **answers: Any) -> None:
        """The hash is not believed, with some words."""
        failure = self.failureResultOf(self.asked(*arguments, **answers), EvmError)
        self.assertIn(words, str(failure.value))

    def test_trustedBlockProvesHash(self) -> None:
        """From a trusted block everything is proved."""
        found = self.ask(self.block)
        number = int(self.fork["header"]["number"], 16)
        expected = Attested(hash=HASH, number=number, block=self.block, isProved=True)
        self.assertEqual(found, expected)
        self.assertEqual(self.ask(), expected)
        absent = self.ask(self.block, HEIGHT + 1, eth_getProof=self.fork["absent"])
        self.assertEqual((absent.hash, absent.isProved), (None, True))

    def test_falseAnswersAreRefused(self) -> None:
        """A header that is not that of the block, and a proof of something else, are refused."""
        other = {**self.fork["header"], "stateRoot": todata(HASH)}
        self.refused("does not have the hash", self.block, eth_getBlockByHash=other)
        self.refused("proof is none", None, eth_getBlockByNumber=other)
        self.refused("does not have that block", self.block, eth_getBlockByHash=None)
        self.refused("proof is none", self.block, HEIGHT + 1)
        self.refused("proof is none", self.block, eth_getProof=self.fork["absent"])

    def test_nodeWithoutProofsIsBelievedOnlyWhereNoBlockIsTrusted(self) -> None:
        """A node that serves no proofs tells the hash by its word, and with a trusted block not."""
        none = EvmError(EvmReason.REFUSED, "the method does not exist")
        self.assertEqual(self.ask(eth_getProof=none), Attested(hash=HASH))
        self.assertIsNone(self.ask(eth_getProof=none, eth_call=todata(word(0))).hash)
        self.refused("does not exist", self.block, eth_getProof=none)
        self.refused("bad", None, eth_getProof=EvmError(EvmReason.BAD_ANSWER, "bad"))
