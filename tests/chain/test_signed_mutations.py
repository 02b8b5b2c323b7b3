"""
Signed events that were changed: what the author has not signed is not executed as the author's.
"""

from __future__ import annotations

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    ChainState,
    Kind,
    Malformed,
    Transaction,
    TransactionReceipt,
    encodeAuthors,
    execute,
    verifySignature,
)
from svcbroker.model import AuthorSet, Execution

from .reference import Sent, digest
from .support import GENESIS
from .test_vectors3 import VECTORS3

COUNT = 10_000
SIGNED = [Sent.read(vector) for vector in VECTORS3["transactions"] if vector["author"]]
AUTHORS = tuple(sorted(bytes.fromhex(key["publicKey"]) for key in VECTORS3["authorKeys"]))
DONE = TransactionReceipt(Execution.DONE, 1)


def changed(data: bytes, seed: Random) -> bytes:
    """Some bytes with a bit flipped, a byte exchanged, taken out or added, or two swapped."""
    at, other = seed.randrange(len(data)), seed.randrange(len(data))
    match seed.randrange(5):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << seed.randrange(8)]) + data[at + 1 :]
        case 1:
            return data[:at] + bytes([seed.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + 1 :]
        case 3:
            return data[:at] + bytes([seed.randrange(256)]) + data[at:]
        case _:
            swapped = bytearray(data)
            swapped[at], swapped[other] = data[other], data[at]
            return bytes(swapped)


class MutationTests(SynchronousTestCase):
    """
    Random changes, the same in each run.
    """

    def test_changedStatementsDoNotHold(self) -> None:
        """A signature holds for no other statement, key or signature."""
        seed = Random(1)
        keys = {key["name"]: bytes.fromhex(key["publicKey"]) for key in VECTORS3["authorKeys"]}
        for _ in range(COUNT):
            vector = seed.choice(VECTORS3["statements"])
            name = seed.choice([*keys])
            parts = [
                keys[name],
                vector["statement"].encode("utf-8"),
                bytes.fromhex(vector["signatures"][name]),
            ]
            before, at = list(parts), seed.randrange(3)
            parts[at] = changed(parts[at], seed)
            if at == 0:
                parts[0] = parts[0][:32].ljust(32, b"\0")
            if parts != before:
                self.assertFalse(verifySignature(*parts))

    def test_changedEntriesAreNotExecuted(self) -> None:
        """
        An entry in which any bytes of head, seal or content are changed, and the commitment is made
        right again, is malformed, or refused, or says the same as the author has signed.
        """
        seed = Random(2)
        executed = refused = 0
        for _ in range(COUNT):
            sent = seed.choice(SIGNED)
            head, rest = sent.head, sent.seal + sent.content
            if seed.random() < 0.5:
                head = changed(head, seed)
            else:
                rest = changed(rest, seed)
            commitment = digest(b"svcbroker/content", rest)
            entry = head[:38] + commitment + head[70:] + rest
            try:
                made = Transaction.decode(entry)
            except Malformed:
                continue
            if made.kind is not Kind.PUBLISH:
                continue
            if self.execute(made) != DONE:
                refused += 1
                continue
            executed += 1
            assert made.claims is not None and made.claims.author is not None
            author = made.claims.author
            self.assertEqual(
                (made.topic, made.content, dict(made.extensions), made.claims.key),
                (sent.topic, sent.content, dict(sent.extensions), sent.key),
            )
            self.assertEqual(
                (author.key, author.signedAt, author.signature),
                (sent.author, sent.signedAt, sent.signature),
            )
        self.assertGreater(min(executed, refused), 1000)

    def execute(self, transaction: Transaction) -> TransactionReceipt:
        """The receipt of a publish to a new topic for the authors of the vectors."""
        state: ChainState = GENESIS.state()
        opening = Transaction.make(
            Kind.OPEN,
            bytes(20),
            1,
            1,
            transaction.topic,
            encodeAuthors(AuthorSet(authors=AUTHORS)),
        )
        _, receipt = execute(state, [opening, transaction], 1, 1).receipts
        return receipt
