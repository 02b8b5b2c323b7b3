"""
The vectors of C{docs/vectors/chain.json}, which are the authority on every encoding, against
the package and against the reference beside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Account,
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    MerkleTree,
    Phase,
    Transaction,
    TransactionReceipt,
    accountAddress,
    checkBlock,
    checkCertificate,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeBody,
    encodeReceipts,
    faultsTolerated,
    leaderIndex,
    leafHash,
    merkleRoot,
    quorum,
    topicAddress,
    votePayload,
)
from svcbroker.chain._genesis import validatorsHash
from svcbroker.chain._receipts import receiptRoot
from svcbroker.chain._state import topicLeaf
from svcbroker.model import Execution

from . import reference
from .reference import VECTORS, VECTORS_PATH, Sent
from .support import FIELDS, GENESIS, headerOf, transactionOf, verify


def raw(texts: list[str]) -> list[bytes]:
    """Bytes of hex digits."""
    return [bytes.fromhex(text) for text in texts]


def receiptsOf(vector: list[tuple[str, int]]) -> list[TransactionReceipt]:
    """The package's form of a vector's receipts."""
    return [TransactionReceipt(Execution[end], sequence) for end, sequence in vector]


def isDecoded(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Whether C{decode} takes C{data}."""
    try:
        decode(data)
    except Malformed:
        return False
    return True


class PackageTests(SynchronousTestCase):
    """
    The package encodes as the vectors say, and reads it back.
    """

    def test_keys(self) -> None:
        """The nodes' public keys follow from their seeds."""
        for node in VECTORS["keys"]["nodes"]:
            key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node["seed"]))
            self.assertEqual(key.public_key().public_bytes_raw().hex(), node["publicKey"])

    def test_addresses(self) -> None:
        """Addresses of topics and accounts."""
        for vector in VECTORS["addresses"]:
            make = {"topic": topicAddress, "account": accountAddress}[vector["of"]]
            made = make(bytes.fromhex(vector["chain"]), vector["name"])
            self.assertEqual(made.hex(), vector["address"])

    def test_genesis(self) -> None:
        """Genesis, its id, the set of nodes, the header it gives."""
        for vector in VECTORS["genesis"]:
            genesis = Genesis(
                group=vector["group"],
                created=vector["created"],
                validators=tuple(raw(vector["validators"])),
            )
            self.assertEqual(genesis.encoded.hex(), vector["encoded"])
            self.assertEqual(genesis.chain.hex(), vector["chain"])
            self.assertEqual(validatorsHash(genesis.validators).hex(), vector["validatorsHash"])
            self.assertEqual(genesis.header(), headerOf(vector["header"]))
            self.assertEqual(genesis.header().hash.hex(), vector["header"]["hash"])
            self.assertEqual(Genesis.decode(genesis.encoded), genesis)

    def test_transactions(self) -> None:
        """Every kind of transaction."""
        for vector in VECTORS["transactions"]:
            made = transactionOf(Sent.read(vector))
            self.assertEqual(made.head.hex(), vector["head"], vector["name"])
            self.assertEqual(made.hash.hex(), vector["hash"], vector["name"])
            self.assertEqual(Transaction.decode(made.head + made.content), made)

    def test_malformedTransactions(self) -> None:
        """What is nearly a transaction is none."""
        accepted = [
            vector["why"]
            for vector in VECTORS["malformedTransactions"]
            if isDecoded(Transaction.decode, bytes.fromhex(vector["entry"]))
        ]
        self.assertEqual(accepted, [])

    def test_bodies(self) -> None:
        """Bodies and their tables."""
        named = {vector["name"]: vector for vector in VECTORS["transactions"]}
        for vector in VECTORS["bodies"]:
            made = [transactionOf(Sent.read(named[name])) for name in vector["transactions"]]
            body, offsets = encodeBody(made)
            self.assertEqual((body.hex(), list(offsets)), (vector["body"], vector["offsets"]))
            self.assertEqual(list(decodeBody(body)), made)
            self.assertEqual(list(decodeTable(body)), vector["offsets"])

    def test_malformedBodies(self) -> None:
        """What is nearly a body is none."""
        accepted = [
            vector["why"]
            for vector in VECTORS["malformedBodies"]
            if isDecoded(decodeBody, bytes.fromhex(vector["body"]))
        ]
        self.assertEqual(accepted, [])

    def test_receipts(self) -> None:
        """Receipts and their root."""
        for vector in VECTORS["receipts"]:
            made = receiptsOf(vector["receipts"])
            self.assertEqual(encodeReceipts(made).hex(), vector["encoded"])
            self.assertEqual(decodeReceipts(bytes.fromhex(vector["encoded"])), made)
            found = receiptRoot(raw(vector["transactionHashes"]), made)
            self.assertEqual(found.hex(), vector["root"])

    def test_merkle(self) -> None:
        """Roots of 0 to 9 leaves, at once and from a tree."""
        self.assertEqual([len(vector["leaves"]) for vector in VECTORS["merkle"]], list(range(10)))
        for vector in VECTORS["merkle"]:
            hashes = [leafHash(leaf) for leaf in raw(vector["leaves"])]
            self.assertEqual(hashes, raw(vector["leafHashes"]))
            self.assertEqual(merkleRoot(hashes).hex(), vector["root"])
            self.assertEqual(MerkleTree(hashes).root.hex(), vector["root"])

    def test_accounts(self) -> None:
        """Which nonces are executed, and what is remembered of them."""
        for vector in VECTORS["accounts"]:
            account, accepted = Account(), []
            for nonce in vector["nonces"]:
                accepted.append(account.accepts(nonce))
                if accepted[-1]:
                    account = account.after(nonce)
            self.assertEqual(accepted, vector["accepted"])
            self.assertEqual(account.encode().hex(), vector["encoded"])
            self.assertEqual(Account.decode(bytes.fromhex(vector["encoded"])), account)

    def test_header(self) -> None:
        """A header in which every field can be told from every other."""
        vector = VECTORS["header"]
        header = headerOf(vector)
        self.assertEqual(header.encoded.hex(), vector["encoded"])
        self.assertEqual(header.hash.hex(), vector["hash"])
        self.assertEqual(Header.decode(header.encoded), header)

    def test_leaders(self) -> None:
        """Whose turn it is."""
        for vector in VECTORS["leaders"]:
            found = leaderIndex(vector["view"], vector["height"], vector["nodes"])
            self.assertEqual(found, vector["leader"])

    def test_quorums(self) -> None:
        """How many may fail, and how many must agree."""
        for vector in VECTORS["quorums"]:
            nodes = vector["nodes"]
            self.assertEqual(faultsTolerated(nodes), vector["faults"])
            self.assertEqual(quorum(nodes), vector["quorum"])

    def test_votes(self) -> None:
        """What is signed for a vote; the signature is that node's."""
        self.assertEqual([vote["phase"] for vote in VECTORS["votes"]], [*Phase.__members__])
        for vector in VECTORS["votes"]:
            payload = votePayload(
                Phase[vector["phase"]],
                GENESIS.chain,
                vector["height"],
                vector["round"],
                bytes.fromhex(vector["digest"]),
            )
            self.assertEqual(payload.hex(), vector["payload"])
            self.assertTrue(verify(vector["signer"], payload, bytes.fromhex(vector["signature"])))

    def test_certificates(self) -> None:
        """Certificates that hold, and those that are refused."""
        header = headerOf(VECTORS["blocks"][0]["header"])
        for vector in VECTORS["certificates"]:
            encoded = bytes.fromhex(vector["encoded"])
            certificate = Certificate.decode(encoded)
            self.assertEqual(certificate.encode(), encoded)
            self.assertEqual(certificate.round, vector["round"])
            self.assertEqual(
                [[index, signature.hex()] for index, signature in certificate.signatures],
                vector["signatures"],
            )
            try:
                checkCertificate(certificate, header, 4, verify)
                refused = False
            except CertificateInvalid:
                refused = True
            self.assertEqual(refused, bool(vector["refused"]), vector["refused"])

    def test_chain(self) -> None:
        """The small chain follows block by block, and each state is the one that is written."""
        state, parent = ChainState(GENESIS.chain), GENESIS.header()
        self.assertEqual(state.root.hex(), VECTORS["emptyState"]["stateRoot"])
        for block in VECTORS["blocks"]:
            header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
            certificate = Certificate.decode(bytes.fromhex(block["certificate"]))
            checkCertificate(certificate, header, 4, verify)
            transactions = decodeBody(bytes.fromhex(block["body"]))
            candidate = checkBlock(state, parent, header, transactions, GENESIS.validators)
            self.assertEqual(candidate.header.hash.hex(), block["header"]["hash"])
            self.assertEqual(candidate.body.hex(), block["body"])
            self.assertEqual(candidate.outcome.receipts, receiptsOf(block["receipts"]))
            self.assertEqual(
                encodeReceipts(candidate.outcome.receipts).hex(), block["encodedReceipts"]
            )
            state.apply(candidate.outcome)
            self.checkState(state, block["state"])
            parent = header

    def test_nextBlocks(self) -> None:
        """Of the blocks that might follow the small chain, one may."""
        state = ChainState(GENESIS.chain)
        parent = GENESIS.header()
        for block in VECTORS["blocks"]:
            parent = Header.decode(bytes.fromhex(block["header"]["encoded"]))
            transactions = decodeBody(bytes.fromhex(block["body"]))
            state.apply(state.execute(transactions, parent.height, parent.timestamp))
        for vector in VECTORS["nextBlocks"]:
            header = Header.decode(bytes.fromhex(vector["header"]))
            transactions = decodeBody(bytes.fromhex(vector["body"]))
            try:
                checkBlock(state, parent, header, transactions, GENESIS.validators)
                refused = False
            except InvalidBlock:
                refused = True
            self.assertEqual(refused, bool(vector["refused"]), vector["refused"])

    def checkState(self, state: ChainState, vector: Any) -> None:
        """The state is that of a vector."""
        self.assertEqual(state.root.hex(), vector["stateRoot"])
        for index, topic in enumerate(vector["topics"]):
            found = state.topicAt(index)
            self.assertEqual(found, state.topic(topic["name"]))
            self.assertEqual(
                (found.address.hex(), found.sender.hex(), found.created),
                (topic["address"], topic["sender"], topic["created"]),
            )
            self.assertEqual(
                (found.isOpen, found.sequence, found.height),
                (topic["isOpen"], topic["sequence"], topic["height"]),
            )
            self.assertEqual(topicLeaf(found).hex(), topic["leaf"])
        for account in vector["accounts"]:
            encoded = state.account(bytes.fromhex(account["address"])).encode()
            self.assertEqual(encoded.hex(), account["encoded"])


class PageTests(SynchronousTestCase):
    """
    C{docs/chain.rst}.
    """

    def test_members(self) -> None:
        """The page explains each member of the file, and has no other root of nothing."""
        page = VECTORS_PATH.parents[1].joinpath("chain.rst").read_text("utf-8")
        for name in set(VECTORS) - {"version"}:
            self.assertTrue(f"``{name}``" in page or f"``{name}." in page, name)
        self.assertIn(VECTORS["emptyState"]["stateRoot"], page)
        self.assertIn(VECTORS["merkle"][0]["root"], page)


class ReferenceTests(SynchronousTestCase):
    """
    The specification alone leads to the vectors: the reference has no line of the package.
    """

    def test_addresses(self) -> None:
        """Addresses."""
        for vector in VECTORS["addresses"]:
            made = reference.address(vector["of"], bytes.fromhex(vector["chain"]), vector["name"])
            self.assertEqual(made.hex(), vector["address"])

    def test_genesis(self) -> None:
        """Genesis."""
        for vector in VECTORS["genesis"]:
            keys = raw(vector["validators"])
            made = reference.genesis(vector["group"], vector["created"], keys)
            self.assertEqual(made.hex(), vector["encoded"])
            self.assertEqual(reference.digest(made).hex(), vector["chain"])
            self.assertEqual(reference.validators(keys).hex(), vector["validatorsHash"])

    def test_transactions(self) -> None:
        """Transactions and bodies."""
        named = {vector["name"]: Sent.read(vector) for vector in VECTORS["transactions"]}
        for vector in VECTORS["transactions"]:
            sent = named[vector["name"]]
            self.assertEqual((sent.head.hex(), sent.hash.hex()), (vector["head"], vector["hash"]))
        for vector in VECTORS["bodies"]:
            made = reference.body([named[name] for name in vector["transactions"]])
            self.assertEqual(made.hex(), vector["body"])

    def test_receipts(self) -> None:
        """Receipts and their root."""
        for vector in VECTORS["receipts"]:
            self.assertEqual(reference.receipts(vector["receipts"]).hex(), vector["encoded"])
            found = reference.receiptRoot(raw(vector["transactionHashes"]), vector["receipts"])
            self.assertEqual(found.hex(), vector["root"])

    def test_merkle(self) -> None:
        """Roots by the recursive definition of RFC 6962."""
        for vector in VECTORS["merkle"]:
            hashes = [reference.digest(b"\0", leaf) for leaf in raw(vector["leaves"])]
            self.assertEqual(reference.root(hashes).hex(), vector["root"])

    def test_accounts(self) -> None:
        """Accounts as plain sets of nonces."""
        for vector in VECTORS["accounts"]:
            used: set[int] = set()
            for nonce, isAccepted in zip(vector["nonces"], vector["accepted"], strict=True):
                self.assertEqual(reference.isNew(used, nonce), isAccepted)
                used |= {nonce} if isAccepted else set()
            encoded = reference.account(used)
            self.assertEqual(encoded.hex(), vector["encoded"])
            leaf = reference.digest(b"\0", bytes.fromhex(vector["address"]), encoded)
            self.assertEqual(leaf.hex(), vector["leaf"])

    def test_headers(self) -> None:
        """Headers."""
        headers = [
            VECTORS["header"],
            *(vector["header"] for vector in VECTORS["genesis"] + VECTORS["blocks"]),
        ]
        for vector in headers:
            encoded = reference.header(vector)
            self.assertEqual(encoded.hex(), vector["encoded"])
            self.assertEqual(reference.digest(encoded).hex(), vector["hash"])
            self.assertLessEqual(set(FIELDS), set(vector))

    def test_votes(self) -> None:
        """Votes and certificates."""
        for vector in VECTORS["votes"]:
            what = bytes.fromhex(vector["digest"])
            made = reference.payload(
                vector["phase"], GENESIS.chain, vector["height"], vector["round"], what
            )
            self.assertEqual(made.hex(), vector["payload"])
        for vector in VECTORS["certificates"]:
            signatures = [(index, bytes.fromhex(text)) for index, text in vector["signatures"]]
            made = reference.certificate(vector["round"], signatures)
            self.assertEqual(made.hex(), vector["encoded"])

    def test_roundChanges(self) -> None:
        """What round changes sign."""
        free, bound = VECTORS["roundChangeDigests"]
        self.assertIsNone(free["prepared"])
        self.assertEqual(free["digest"], reference.digest(b"svcbroker/not-prepared").hex())
        round, hash = bound["prepared"]["round"], bytes.fromhex(bound["prepared"]["header"])
        digest = reference.digest(b"svcbroker/prepared", round.to_bytes(8, "big"), hash)
        self.assertEqual(bound["digest"], digest.hex())

    def test_chain(self) -> None:
        """The small chain."""
        keys = list(GENESIS.validators)
        parent = VECTORS["genesis"][0]["header"]
        state = reference.State(bytes.fromhex(parent["chain"]))
        for vector in VECTORS["blocks"]:
            header = vector["header"]
            block = [Sent.read(transaction) for transaction in vector["transactions"]]
            self.assertEqual(reference.body(block).hex(), vector["body"])
            ends = state.execute(block, header["height"], header["timestamp"])
            self.assertEqual([list(end) for end in ends], vector["receipts"])
            hashes = [sent.hash for sent in block]
            expected = {
                "chain": parent["chain"],
                "height": parent["height"] + 1,
                "parent": parent["hash"],
                "view": header["view"],
                "proposer": (header["view"] + header["height"]) % len(keys),
                "timestamp": header["timestamp"],
                "transactionRoot": reference.root(hashes).hex(),
                "receiptRoot": reference.receiptRoot(hashes, ends).hex(),
                "stateRoot": state.root.hex(),
                "validators": reference.validators(keys).hex(),
                "transactionCount": len(block),
                "transactionTotal": parent["transactionTotal"] + len(block),
            }
            self.assertEqual(reference.header(expected).hex(), header["encoded"])
            self.assertGreaterEqual(header["view"], parent["view"])
            self.assertGreaterEqual(header["timestamp"], parent["timestamp"])
            self.assertEqual(state.root.hex(), vector["state"]["stateRoot"])
            self.assertEqual(state.topicRoot.hex(), vector["state"]["topicRoot"])
            self.assertEqual(state.accountRoot.hex(), vector["state"]["accountRoot"])
            self.assertEqual(
                [topic.leaf.hex() for topic in state.topics.values()],
                [topic["leaf"] for topic in vector["state"]["topics"]],
            )
            self.assertEqual(
                [
                    f"{reference.digest(sent.topic.encode()).hex()[:8]}-{number}-{header['height']}"
                    for sent, (_, number) in zip(block, ends, strict=True)
                    if number
                ],
                vector["eventIds"],
            )
            parent = header
