"""
The reference beside this file, which was made from the specification alone, against the vectors.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from . import reference, reference_state
from .reference import VECTORS, Sent
from .support import FIELDS, GENESIS


def raw(texts: list[str]) -> list[bytes]:
    """Bytes of hex digits."""
    return [bytes.fromhex(text) for text in texts]


class ReferenceTests(SynchronousTestCase):
    """
    The specification alone leads to the vectors: the reference has no line of the package.
    """

    def test_addressesMatchReference(self) -> None:
        """Addresses."""
        for vector in VECTORS["addresses"]:
            made = reference.address(vector["of"], bytes.fromhex(vector["chain"]), vector["name"])
            self.assertEqual(made.hex(), vector["address"])

    def test_genesisMatchesReference(self) -> None:
        """Genesis."""
        for vector in VECTORS["genesis"]:
            keys = raw(vector["validators"])
            made = reference.genesis(vector["group"], vector["created"], keys)
            self.assertEqual(made.hex(), vector["encoded"])
            self.assertEqual(reference.digest(made).hex(), vector["chain"])
            self.assertEqual(reference.Nodes(0, keys).hash.hex(), vector["validatorsHash"])

    def test_transactionsMatchReference(self) -> None:
        """Transactions and bodies."""
        named = {vector["name"]: Sent.read(vector) for vector in VECTORS["transactions"]}
        for vector in VECTORS["transactions"]:
            sent = named[vector["name"]]
            self.assertEqual((sent.head.hex(), sent.hash.hex()), (vector["head"], vector["hash"]))
        for vector in VECTORS["bodies"]:
            made = reference.body([named[name] for name in vector["transactions"]])
            self.assertEqual(made.hex(), vector["body"])

    def test_receiptsMatchReference(self) -> None:
        """Receipts and their root."""
        for vector in VECTORS["receipts"]:
            self.assertEqual(reference.receipts(vector["receipts"]).hex(), vector["encoded"])
            found = reference.receiptRoot(raw(vector["transactionHashes"]), vector["receipts"])
            self.assertEqual(found.hex(), vector["root"])

    def test_merkleRootsMatchReference(self) -> None:
        """Roots by the recursive definition of RFC 6962."""
        for vector in VECTORS["merkle"]:
            hashes = [reference.digest(b"\0", leaf) for leaf in raw(vector["leaves"])]
            self.assertEqual(reference.root(hashes).hex(), vector["root"])
            for index, path in enumerate(vector["paths"]):
                self.assertEqual(reference.path(hashes, index), raw(path))

    def test_historiesMatchReference(self) -> None:
        """Histories, and paths in them."""
        hashes = raw(VECTORS["history"]["headers"])
        for size, root in enumerate(raw(VECTORS["history"]["roots"])):
            self.assertEqual(reference.history(hashes[:size]), root)
        leaves = [reference.digest(b"\0", hash) for hash in hashes]
        for vector in VECTORS["history"]["paths"]:
            made = reference.path(leaves[: vector["size"]], vector["height"])
            self.assertEqual(made, raw(vector["path"]))

    def test_setsMatchReference(self) -> None:
        """Validator sets."""
        for vector in VECTORS["sets"]:
            made = reference.Nodes(vector["generation"], raw(vector["keys"]))
            self.assertEqual(made.encoded.hex(), vector["encoded"])
            self.assertEqual(made.hash.hex(), vector["hash"])

    def test_changesMatchReference(self) -> None:
        """Changes of the validator set that hold, and those that are refused."""
        current = reference.Nodes(0, GENESIS.validators)
        sets = {vector["hash"]: vector for vector in VECTORS["sets"]}
        for vector in VECTORS["changes"]:
            encoded = bytes.fromhex(vector["encoded"])
            made = reference.following(encoded, GENESIS.chain, current)
            self.assertEqual(made is None, bool(vector["refused"]), vector["refused"])
            if made is not None:
                payload = reference.agreement(GENESIS.chain, current, made)
                self.assertEqual(payload.hex(), vector["payload"])
                self.assertEqual(made.hash.hex(), vector["following"])
                if vector["following"] in sets:
                    self.assertEqual(made.encoded.hex(), sets[vector["following"]]["encoded"])
        for vector in VECTORS["malformedChanges"]:
            encoded = bytes.fromhex(vector["encoded"])
            self.assertIsNone(reference.following(encoded, GENESIS.chain, current), vector["why"])

    def test_accountsMatchReference(self) -> None:
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

    def test_headersMatchReference(self) -> None:
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

    def test_votesMatchReference(self) -> None:
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

    def test_roundChangesMatchReference(self) -> None:
        """Round changes sign the same bytes."""
        free, bound = VECTORS["roundChangeDigests"]
        self.assertIsNone(free["prepared"])
        self.assertEqual(free["digest"], reference.digest(b"svcbroker/not-prepared").hex())
        round, hash = bound["prepared"]["round"], bytes.fromhex(bound["prepared"]["header"])
        digest = reference.digest(b"svcbroker/prepared", round.to_bytes(8, "big"), hash)
        self.assertEqual(bound["digest"], digest.hex())

    def test_smallChainMatchesReference(self) -> None:
        """The small chain."""
        parent = VECTORS["genesis"][0]["header"]
        nodes = reference.Nodes(0, GENESIS.validators)
        state = reference_state.State(bytes.fromhex(parent["chain"]), nodes)
        hashes = [bytes.fromhex(parent["hash"])]
        for vector in VECTORS["blocks"]:
            header = vector["header"]
            block = [Sent.read(transaction) for transaction in vector["transactions"]]
            self.assertEqual(reference.body(block).hex(), vector["body"])
            ends = state.execute(block, header["height"], header["timestamp"])
            self.assertEqual([list(end) for end in ends], vector["receipts"])
            sent = [one.hash for one in block]
            expected = {
                "chain": parent["chain"],
                "height": parent["height"] + 1,
                "parent": parent["hash"],
                "history": reference.history(hashes).hex(),
                "view": header["view"],
                "proposer": (header["view"] + header["height"]) % len(nodes.keys),
                "timestamp": header["timestamp"],
                "transactionRoot": reference.root(sent).hex(),
                "receiptRoot": reference.receiptRoot(sent, ends).hex(),
                "stateRoot": state.root.hex(),
                "validators": nodes.hash.hex(),
                "nextValidators": state.nodes.hash.hex(),
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
                    f"{reference.digest(one.topic.encode()).hex()[:8]}-{number}-{header['height']}"
                    for one, (_, number) in zip(block, ends, strict=True)
                    if number
                ],
                vector["eventIds"],
            )
            payload = reference.payload(
                "COMMIT",
                GENESIS.chain,
                header["height"],
                vector["round"],
                bytes.fromhex(header["hash"]),
            )
            certificate = bytes.fromhex(vector["certificate"])
            signers = 0
            for start in range(10, len(certificate), 66):
                index = int.from_bytes(certificate[start : start + 2], "big")
                signature = certificate[start + 2 : start + 66]
                self.assertTrue(reference.isSigned(nodes.keys[index], payload, signature))
                signers += 1
            self.assertGreaterEqual(signers, nodes.quorum)
            parent, nodes = header, state.nodes
            hashes.append(bytes.fromhex(header["hash"]))
