"""
Bytes of Ethereum.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.ledgers.evm import checkInstalled
from svcbroker.ledgers.evm._contract import LoggedBatch, LogState, batchTopic, contractCode
from svcbroker.ledgers.evm._ethereum import (
    WORD,
    EvmAccount,
    Item,
    KeyUnusable,
    contractAddress,
    encodeRlp,
    keccak256,
    packBytes,
    readAddress,
    selector,
    showAddress,
    unpackBytes,
    word,
)

skip = checkInstalled() or None

SIGNED = (
    "f868098504a817c8008252089435353535353535353535353535353535353535358082010282f4f6"
    "a06f7a26a38b6dc536bf1865901e9ffcc27bd906f807a6d83fd206e22702a0dc15a0368539123802"
    "f8ad46959eee4d927e580096c855b0d17058757691a7655c4668"
)
"""What eth-account makes of the transaction that is signed here."""


class EncodingTests(SynchronousTestCase):
    """RLP and the ABI, by published values."""

    def test_rlpIsThatOfItsSpecification(self) -> None:
        """The examples of the specification of RLP."""
        long = b"Lorem ipsum dolor sit amet, consectetur adipisicing elit"
        examples: Sequence[tuple[Item, str]] = (
            (b"dog", "83646f67"),
            ([b"cat", b"dog"], "c88363617483646f67"),
            (b"", "80"),
            ([], "c0"),
            (0, "80"),
            (15, "0f"),
            (1024, "820400"),
            ([[], [[]], [[], [[]]]], "c7c0c1c0c3c0c1c0"),
            (long, "b838" + long.hex()),
        )
        for item, encoded in examples:
            self.assertEqual(encodeRlp(item).hex(), encoded)

    def test_hashIsKeccak(self) -> None:
        """The hash of nothing, and the selector of a known call."""
        self.assertEqual(
            keccak256(b"").hex(),
            "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
        )
        self.assertEqual(selector("transfer(address,uint256)").hex(), "a9059cbb")

    def test_byteStringsAreReadAsWritten(self) -> None:
        """Byte strings of all lengths; those that are cut, padded or not at the start are not."""
        for length in (0, 1, 31, 32, 33, 1000):
            data = os.urandom(length)
            self.assertEqual(unpackBytes(word(WORD) + packBytes(data)), data)
        good = word(WORD) + packBytes(b"abc")
        for bad in (
            *(b"", good[:-1], good + bytes(32), word(64) + good[32:], good[:-1] + b"x"),
            word(WORD) + word(2**255) + bytes(32),
        ):
            self.assertRaises(Malformed, unpackBytes, bad)


class AccountTests(SynchronousTestCase):
    """Addresses, keys and signatures."""

    def test_addressesHaveTheirChecksum(self) -> None:
        """The examples of EIP-55; a mistyped one is refused."""
        for text in (
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
            "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
        ):
            self.assertEqual(showAddress(readAddress(text)), text)
            self.assertEqual(readAddress(text.lower()), readAddress(text))
            self.assertRaises(ValueError, readAddress, text[:-1] + text[-1].swapcase() + "0")
        wrong = "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
        self.assertIn("checksum", str(self.assertRaises(ValueError, readAddress, wrong)))
        for bad in ("", "0x12", "5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0x" + "zz" * 20):
            self.assertRaises(ValueError, readAddress, bad)

    def test_transactionIsSignedAsOthersDo(self) -> None:
        """The bytes and the hash that eth-account makes of the same transaction."""
        account = EvmAccount(b"\x46" * 32)
        self.assertEqual(showAddress(account.address), "0x9d8A62f656a8d1615C1294fd71e9CFb3E4855A4F")
        signed = account.sign(
            chainId=31337,
            nonce=9,
            gasPrice=20 * 10**9,
            gas=21000,
            to=b"\x35" * 20,
            data=b"\x01\x02",
        )
        self.assertEqual(
            signed.raw.hex(),
            SIGNED,
        )
        self.assertEqual(signed.hash, keccak256(signed.raw))

    def test_contractsHaveKnownAddresses(self) -> None:
        """The address of a contract follows from its maker and the nonce."""
        sender = readAddress("0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0")
        self.assertEqual(
            [contractAddress(sender, nonce).hex() for nonce in (0, 1)],
            [
                "cd234a471b72ba2f1ccf0a70fcaba648a5eecd8d",
                "343c43a37d37dff08ae8c4a11544c718abb4fcf8",
            ],
        )

    def test_keyFilesAreForTheirOwner(self) -> None:
        """A key is kept with mode 0600, is not overwritten, and what is none is refused."""
        path = Path(self.mktemp())
        made = EvmAccount.create(path, os.urandom)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(EvmAccount.load(path).address, made.address)
        self.assertRaises(FileExistsError, EvmAccount.create, path, os.urandom)
        for text in ("", "ff" * 32, "00" * 32, "zz" * 32, "ab" * 31):
            path.write_text(text)
            self.assertIn(str(path), str(self.assertRaises(KeyUnusable, EvmAccount.load, path)))


class ContractTests(SynchronousTestCase):
    """What the broker reads of the contract."""

    def test_statesFollowFromBatches(self) -> None:
        """The hash over two batches, which the contract has computed on a real chain."""
        sender = b"\x05" * 20
        state = LogState().after(LoggedBatch(1, sender, b"a")).after(LoggedBatch(2, sender, b""))
        first = keccak256(bytes(32) + word(1) + word(sender) + keccak256(b"a"))
        second = keccak256(first + word(2) + word(sender) + keccak256(b""))
        self.assertEqual(state, LogState(2, second))
        self.assertRaises(Malformed, state.after, LoggedBatch(4, sender, b"x"))
        self.assertRaises(Malformed, state.after, LoggedBatch(2, sender, b"x"))

    def test_onlyLogsOfBatchesAreRead(self) -> None:
        """A log of another event, or with fewer topics, is none of a batch."""
        data = word(WORD) + packBytes(b"x")
        topics = [batchTopic(), word(7), word(b"\x05" * 20)]
        self.assertEqual(LoggedBatch.decode(topics, data), LoggedBatch(7, b"\x05" * 20, b"x"))
        for bad in (topics[:2], [*topics, word(0)], [word(1), *topics[1:]], []):
            self.assertRaises(Malformed, LoggedBatch.decode, bad, data)

    def test_codeIsSmall(self) -> None:
        """The compiled contract is there, and below the bound of all chains."""
        code = contractCode()
        self.assertLess(len(bytes.fromhex(code.deployed)), 24576)
        self.assertIn(code.deployed, code.code)
