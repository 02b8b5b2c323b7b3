"""
The vectors of C{docs/vectors/chain.json}, which are the authority on every encoding, against
the package. L{tests.chain.test_reference} holds the reference against them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Certificate,
    CertificateInvalid,
    ChainState,
    ChangeRefused,
    Genesis,
    Header,
    History,
    InvalidBlock,
    Malformed,
    MerkleTree,
    Nonces,
    Phase,
    Transaction,
    TransactionReceipt,
    ValidatorChange,
    ValidatorSet,
    accountAddress,
    changePayload,
    checkBlock,
    checkCertificate,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeBody,
    encodeReceipts,
    execute,
    faultsTolerated,
    historyPath,
    leaderIndex,
    leafHash,
    merklePath,
    merkleRoot,
    quorum,
    rootOfPath,
    topicAddress,
    votePayload,
)
from svcbroker.chain._body import receiptRoot
from svcbroker.chain._state import topicLeaf
from svcbroker.model import Execution

from .reference import VECTORS, VECTORS_PATH, Sent
from .support import GENESIS, headerOf, transactionOf, verify


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

    def test_keysMatchVectors(self) -> None:
        """The nodes' public keys follow from their seeds."""
        for node in VECTORS["keys"]["nodes"] + VECTORS["keys"]["later"]:
            key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node["seed"]))
            self.assertEqual(key.public_key().public_bytes_raw().hex(), node["publicKey"])

    def test_addressesMatchVectors(self) -> None:
        """Addresses of topics and accounts."""
        for vector in VECTORS["addresses"]:
            make = {"topic": topicAddress, "account": accountAddress}[vector["of"]]
            made = make(bytes.fromhex(vector["chain"]), vector["name"])
            self.assertEqual(made.hex(), vector["address"])

    def test_genesisMatchesVectors(self) -> None:
        """Genesis, its id, the validator set, the header it gives."""
        for vector in VECTORS["genesis"]:
            genesis = Genesis(
                group=vector["group"],
                created=vector["created"],
                validators=tuple(raw(vector["validators"])),
            )
            self.assertEqual(genesis.encoded.hex(), vector["encoded"])
            self.assertEqual(genesis.chain.hex(), vector["chain"])
            self.assertEqual(genesis.validatorSet.hash.hex(), vector["validatorsHash"])
            self.assertEqual(genesis.header(), headerOf(vector["header"]))
            self.assertEqual(genesis.header().hash.hex(), vector["header"]["hash"])
            self.assertEqual(Genesis.decode(genesis.encoded), genesis)

    def test_transactionsMatchVectors(self) -> None:
        """Every kind of transaction."""
        for vector in VECTORS["transactions"]:
            made = transactionOf(Sent.read(vector))
            self.assertEqual(made.head.hex(), vector["head"], vector["name"])
            self.assertEqual(made.hash.hex(), vector["hash"], vector["name"])
            self.assertEqual(Transaction.decode(made.head + made.content), made)

    def test_malformedTransactionsAreRefused(self) -> None:
        """Bytes that are nearly a transaction are refused."""
        accepted = [
            vector["why"]
            for vector in VECTORS["malformedTransactions"]
            if isDecoded(Transaction.decode, bytes.fromhex(vector["entry"]))
        ]
        self.assertEqual(accepted, [])

    def test_bodiesMatchVectors(self) -> None:
        """Bodies and their tables."""
        named = {vector["name"]: vector for vector in VECTORS["transactions"]}
        for vector in VECTORS["bodies"]:
            made = [transactionOf(Sent.read(named[name])) for name in vector["transactions"]]
            body, offsets = encodeBody(made)
            self.assertEqual((body.hex(), list(offsets)), (vector["body"], vector["offsets"]))
            self.assertEqual(list(decodeBody(body)), made)
            self.assertEqual(list(decodeTable(body)), vector["offsets"])

    def test_malformedBodiesAreRefused(self) -> None:
        """Bytes that are nearly a body are refused."""
        accepted = [
            vector["why"]
            for vector in VECTORS["malformedBodies"]
            if isDecoded(decodeBody, bytes.fromhex(vector["body"]))
        ]
        self.assertEqual(accepted, [])

    def test_receiptsMatchVectors(self) -> None:
        """Receipts and their root."""
        for vector in VECTORS["receipts"]:
            made = receiptsOf(vector["receipts"])
            self.assertEqual(encodeReceipts(made).hex(), vector["encoded"])
            self.assertEqual(decodeReceipts(bytes.fromhex(vector["encoded"])), made)
            found = receiptRoot(raw(vector["transactionHashes"]), encodeReceipts(made))
            self.assertEqual(found.hex(), vector["root"])

    def test_merkleRootsMatchVectors(self) -> None:
        """Roots of 0 to 9 leaves, at once and from a tree."""
        self.assertEqual([len(vector["leaves"]) for vector in VECTORS["merkle"]], list(range(10)))
        for vector in VECTORS["merkle"]:
            hashes = [leafHash(leaf) for leaf in raw(vector["leaves"])]
            self.assertEqual(hashes, raw(vector["leafHashes"]))
            self.assertEqual(merkleRoot(hashes).hex(), vector["root"])
            self.assertEqual(MerkleTree(hashes).root.hex(), vector["root"])
            for index, path in enumerate(vector["paths"]):
                self.assertEqual(merklePath(hashes, index), raw(path))
                found = rootOfPath(hashes[index], index, len(hashes), raw(path))
                self.assertEqual(found.hex(), vector["root"])

    def test_historiesMatchVectors(self) -> None:
        """Histories, and paths in them."""
        hashes = raw(VECTORS["history"]["headers"])
        roots = raw(VECTORS["history"]["roots"])
        self.assertEqual([History.of(hashes[:size]).root for size in range(len(hashes) + 1)], roots)
        leaves = [leafHash(hash) for hash in hashes]

        def source(level: int, first: int, count: int) -> list[bytes]:
            self.assertEqual(level, 0)
            return leaves[first : first + count]

        for vector in VECTORS["history"]["paths"]:
            height, size, path = vector["height"], vector["size"], raw(vector["path"])
            self.assertEqual(historyPath(height, size, source), path)
            self.assertEqual(rootOfPath(leaves[height], height, size, path), roots[size])

    def test_setsMatchVectors(self) -> None:
        """Validator sets."""
        for vector in VECTORS["sets"]:
            made = ValidatorSet(vector["generation"], tuple(raw(vector["keys"])))
            self.assertEqual(made.encoded.hex(), vector["encoded"])
            self.assertEqual(made.hash.hex(), vector["hash"])
            self.assertEqual(ValidatorSet.decode(made.encoded), made)

    def test_changesMatchVectors(self) -> None:
        """Changes of the validator set that hold, and those that are refused."""
        current = GENESIS.validatorSet
        for vector in VECTORS["changes"]:
            encoded = bytes.fromhex(vector["encoded"])
            change = ValidatorChange.decode(encoded)
            self.assertEqual(change.encode(), encoded)
            self.assertEqual(change.following.hash.hex(), vector["following"])
            payload = changePayload(GENESIS.chain, current, change.following)
            self.assertEqual(payload.hex(), vector["payload"])
            try:
                change.check(GENESIS.chain, current)
                refused = False
            except ChangeRefused:
                refused = True
            self.assertEqual(refused, bool(vector["refused"]), vector["refused"])

    def test_malformedChangesAreRefused(self) -> None:
        """Bytes that are nearly a change are refused."""
        accepted = [
            vector["why"]
            for vector in VECTORS["malformedChanges"]
            if isDecoded(ValidatorChange.decode, bytes.fromhex(vector["encoded"]))
        ]
        self.assertEqual(accepted, [])

    def test_accountsMatchVectors(self) -> None:
        """The nonces that are executed, and the memory of them."""
        for vector in VECTORS["accounts"]:
            account, accepted = Nonces(), []
            for nonce in vector["nonces"]:
                accepted.append(account.accepts(nonce))
                if accepted[-1]:
                    account = account.after(nonce)
            self.assertEqual(accepted, vector["accepted"])
            self.assertEqual(account.encode().hex(), vector["encoded"])
            self.assertEqual(Nonces.decode(bytes.fromhex(vector["encoded"])), account)

    def test_headerMatchesVectors(self) -> None:
        """A header in which every field can be told from every other."""
        vector = VECTORS["header"]
        header = headerOf(vector)
        self.assertEqual(header.encoded.hex(), vector["encoded"])
        self.assertEqual(header.hash.hex(), vector["hash"])
        self.assertEqual(Header.decode(header.encoded), header)

    def test_leadersMatchVectors(self) -> None:
        """The leaders by view and height."""
        for vector in VECTORS["leaders"]:
            found = leaderIndex(vector["view"], vector["height"], vector["nodes"])
            self.assertEqual(found, vector["leader"])

    def test_quorumsMatchVectors(self) -> None:
        """The numbers that may fail, and that must agree."""
        for vector in VECTORS["quorums"]:
            nodes = vector["nodes"]
            self.assertEqual(faultsTolerated(nodes), vector["faults"])
            self.assertEqual(quorum(nodes), vector["quorum"])

    def test_votesMatchVectors(self) -> None:
        """The bytes that are signed for a vote; the signature is that node's."""
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

    def test_certificatesMatchVectors(self) -> None:
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

    def test_smallChainMatchesVectors(self) -> None:
        """The small chain follows block by block, and each state is the one that is written."""
        state, parent = GENESIS.state(), GENESIS.header()
        self.assertEqual(state.root.hex(), VECTORS["emptyState"]["stateRoot"])
        for block in VECTORS["blocks"]:
            header = Header.decode(bytes.fromhex(block["header"]["encoded"]))
            certificate = Certificate.decode(bytes.fromhex(block["certificate"]))
            nodes = state.validators
            checkCertificate(certificate, header, len(nodes.keys), nodes.verify)
            transactions = decodeBody(bytes.fromhex(block["body"]))
            candidate = checkBlock(state, parent, header, transactions)
            self.assertEqual(candidate.header.hash.hex(), block["header"]["hash"])
            self.assertEqual(candidate.body.hex(), block["body"])
            self.assertEqual(candidate.outcome.receipts, receiptsOf(block["receipts"]))
            self.assertEqual(
                encodeReceipts(candidate.outcome.receipts).hex(), block["encodedReceipts"]
            )
            state.apply(candidate.outcome, candidate.history)
            self.checkState(state, block["state"])
            self.assertEqual(state.validators.encoded.hex(), block["validators"]["encoded"])
            parent = header

    def test_oneNextBlockIsValid(self) -> None:
        """Of the blocks that might follow the small chain, one may."""
        state = GENESIS.state()
        parent = GENESIS.header()
        for block in VECTORS["blocks"]:
            parent = Header.decode(bytes.fromhex(block["header"]["encoded"]))
            transactions = decodeBody(bytes.fromhex(block["body"]))
            outcome = execute(state, transactions, parent.height, parent.timestamp)
            state.apply(outcome, state.history.after(parent.hash))
        for vector in VECTORS["nextBlocks"]:
            header = Header.decode(bytes.fromhex(vector["header"]))
            transactions = decodeBody(bytes.fromhex(vector["body"]))
            try:
                checkBlock(state, parent, header, transactions)
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
            encoded = state.nonces(bytes.fromhex(account["address"])).encode()
            self.assertEqual(encoded.hex(), account["encoded"])


class PageTests(SynchronousTestCase):
    """
    C{docs/chain.rst}.
    """

    def test_pageExplainsEveryMember(self) -> None:
        """The page explains each member of the file, and has no other root of nothing."""
        page = VECTORS_PATH.parents[1].joinpath("chain.rst").read_text("utf-8")
        for name in set(VECTORS) - {"version"}:
            self.assertTrue(f"``{name}``" in page or f"``{name}." in page, name)
        _, _, ofFormat3 = page.partition(".. _chain-vectors-3:")
        ofFormat3, _, ofFormat4 = ofFormat3.partition(".. _chain-vectors-4:")
        for name in VECTORS["format3"]:
            self.assertIn(f"``{name}``", ofFormat3)
        for name in VECTORS["format4"]:
            self.assertIn(f"``{name}``", ofFormat4)
        self.assertIn(VECTORS["emptyState"]["stateRoot"], page)
        self.assertIn(VECTORS["merkle"][0]["root"], page)
