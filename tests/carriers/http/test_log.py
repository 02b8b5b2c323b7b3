"""
The transparency log over HTTP: on a chain of the embedded ledger, by the paths of the
specification.
"""

from __future__ import annotations

import json

from attrs import evolve
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Grants, Principal, Usage
from svcbroker.broker import MetadataStore
from svcbroker.broker.transparency import LOG_TOPIC
from svcbroker.broker.transparency._transparencylog import TransparencyLog, logGroup
from svcbroker.chain import Header, checkGrowth, growthPath, leafHash, rootOfPath
from svcbroker.errors import EventNotFound, LedgerUnavailable, NotAuthorized
from svcbroker.interfaces import Identity, Quotas
from svcbroker.model import EventId
from svcbroker.proofs import ProofInvalid, readGenesis, verifyProof, verifyWitnessed
from svcbroker.proofs.tlog import (
    LogProof,
    Note,
    Policy,
    Tile,
    Tiles,
    TreeHead,
    VerifierKey,
    decodeEntries,
    hashEntries,
    neededTiles,
)
from tests.broker.support import makeFixture
from tests.carriers.mqtt.support import MetadataFile
from tests.ledgers.pbft.rig import LedgerRig

from .support import BASE, Answer, Client

LOG = f"{BASE}/log/1"
ORIGIN = "broker.example/svcbroker/log/1"


def granted(*grants: str) -> Principal:
    """A principal with some grants."""
    identity = Identity(name="ann", grants=Grants.parse(grants, "ann"))
    return Principal(identity, Usage(Quotas(), lambda: 0.0))


class LogTests(SynchronousTestCase):
    """
    A group on the embedded ledger with its log, and one on a ledger without a chain.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self).start().open()
        self.rig.publish(3)
        self.rig.settle()
        receipts = [self.successResultOf(receipt) for receipt in self.rig.receipts]
        self.ids = [str(receipt.eventId) for receipt in receipts]
        self.file = MetadataFile()
        self.serve()

    def serve(self) -> None:
        """Begin to serve the log, as a broker that has just started."""
        self.metadata = MetadataStore(self.file, self.rig.clock, maybeDeferred)
        self.log = TransparencyLog(
            self.rig.ledger, self.metadata, self.rig.clock.seconds, origin=ORIGIN
        )
        fixture = makeFixture(ledgers={"1": self.rig.ledger}, logs={"1": self.log})
        self.client = Client(fixture=fixture)
        # Certifies the key, which takes a block.
        self.certify()

    def certify(self) -> None:
        """Have the chain certify the current key."""
        certified = self.log.certified()
        self.rig.run(1)
        self.successResultOf(certified)

    def header(self, height: int) -> Header:
        """A header of the chain."""
        [row] = self.rig.store.blockHeads(height, height)
        return Header.decode(row.header)

    def get(self, path: str) -> Answer:
        """An answer of the log."""
        return self.client.ask("GET", f"{LOG}/{path}")

    def read(self, path: str) -> bytes:
        """What is at a path of the log."""
        answer = self.get(path)
        self.assertEqual(answer.status, 200, answer.body)
        return answer.body

    def publish(self, count: int) -> None:
        """Make blocks, and let the newest checkpoint become old."""
        for _ in range(count):
            self.rig.publish()
            self.rig.settle()
        self.rig.clock.advance(1)

    def key(self) -> VerifierKey:
        """The key of the log."""
        return VerifierKey.parse(json.loads(self.read("keys"))["key"])

    def head(self) -> TreeHead:
        """What the newest checkpoint says, once its signature is verified."""
        note = Note.decode(self.read("checkpoint"))
        self.assertEqual([key for key, _ in note.verified([self.key()])], [self.key()])
        return TreeHead.parse(note.text)

    def tiles(self, size: int, *indexes: int) -> Tiles:
        """The tiles that a verifier needs."""
        needed = neededTiles(size, *indexes)
        return Tiles({tile: self.read(f"tile/{tile.path}") for tile in needed})

    def test_checkpointHasAllHeaders(self) -> None:
        """Its root is the history that the next header holds, and its size counts genesis."""
        head = self.head()
        self.assertEqual((head.origin, head.size), (ORIGIN, self.rig.height + 1))
        self.publish(1)
        header = self.header(self.rig.height)
        self.assertEqual((header.height, header.history), (head.size, head.root))

    def test_contentTypesAndCaching(self) -> None:
        """Checkpoints are fresh for a second, and tiles for ever."""
        for path, type, caching in (
            ("checkpoint", "text/plain; charset=utf-8", "max-age=1"),
            ("tile/0/000.p/2", "application/octet-stream", "max-age=31536000, immutable"),
            ("tile/entries/000.p/2", "application/octet-stream", "max-age=31536000, immutable"),
            (f"proof?eventId={self.ids[0]}", "text/plain; charset=utf-8", "max-age=1"),
        ):
            headers = self.get(path).headers
            self.assertEqual((headers["content-type"], headers["cache-control"]), (type, caching))
            head = self.client.connect()
            head.send(f"HEAD {LOG}/{path} HTTP/1.1\r\nHost: broker\r\n\r\n".encode())
            [answer] = head.answers(isHead=True)
            self.assertEqual((answer.status, answer.headers["content-type"]), (200, type))

    def test_entriesAreHashesOfHeaders(self) -> None:
        """The tile of level 0 has the hashes of the entries."""
        size = self.head().size
        entries = decodeEntries(self.read(f"tile/entries/000.p/{size}"))
        expected = [self.header(height).hash for height in range(1, size)]
        self.assertEqual(entries[1:], expected)
        self.assertEqual(hashEntries(entries), self.read(f"tile/0/000.p/{size}"))

    def test_tilesProveEntriesAndGrowth(self) -> None:
        """Over the width of a tile: from the tiles follow paths and consistency proofs."""
        older = self.head()
        self.publish(260)
        newer = self.head()
        self.assertGreater(newer.size, 256)
        source = self.tiles(newer.size, older.size - 1).source
        growth = growthPath(older.size, newer.size, source)
        checkGrowth(older.size, older.root, newer.size, newer.root, growth)
        for path in ("tile/0/000", "tile/1/000.p/1", f"tile/0/001.p/{newer.size - 256}"):
            self.read(path)
        siblings = self.successResultOf(self.log.path(2, newer.size))
        entry = self.header(2).hash
        self.assertEqual(rootOfPath(leafHash(entry), 2, newer.size, siblings), newer.root)

    def test_absentTilesAreNotFound(self) -> None:
        """A tile that the chain does not fill yet is 404, and what is no path is 400."""
        size = self.head().size
        for path, status in (
            (f"tile/0/000.p/{size + 1}", 404),
            ("tile/0/000", 404),
            ("tile/1/000.p/1", 404),
            ("tile/7/x999/x999/999", 404),
            ("tile/entries/001.p/1", 404),
            ("tile/0/0", 400),
            ("tile/0/000.p/256", 400),
            ("tile/8/000", 400),
            ("tile/a/000", 400),
            ("tile/0/000/", 400),
            ("tiles/0/000", 404),
            ("proof?eventId=x", 400),
            ("proof", 400),
            ("proof?eventId=e3b98a4d-1-99", 404),
        ):
            answer = self.get(path)
            self.assertEqual(answer.status, status, path)
            self.assertIn("message", answer.json())

    def test_groupWithoutChainHasNoLog(self) -> None:
        """It is answered in words, as a group that there is not."""
        for group, words in (("2", "no log"), ("3", "unknown")):
            for path in ("checkpoint", "keys", "tile/0/000", f"proof?eventId={self.ids[0]}"):
                answer = self.client.ask("GET", f"{BASE}/log/{group}/{path}")
                self.assertEqual(answer.status, 404)
                self.assertIn(words, answer.json()["message"])

    def test_checkpointIsSignedOnceASecond(self) -> None:
        """In between the same one is served, unless a proof needs a newer one."""
        first = self.read("checkpoint")
        self.rig.publish()
        self.rig.settle()
        self.assertEqual(self.read("checkpoint"), first)
        event = self.successResultOf(self.rig.receipts[-1]).eventId
        proof = LogProof.decode(self.read(f"proof?eventId={event}"))
        self.assertEqual(TreeHead.parse(proof.checkpoint.text).size, self.rig.height + 1)
        self.assertEqual(self.read("checkpoint"), proof.checkpoint.encode())

    # The key

    def test_chainCertifiesTheKey(self) -> None:
        """The proof of the event that C{keys} names proves the key to whom trusts the chain."""
        told = json.loads(self.read("keys"))
        chain = readGenesis(self.client.ask("GET", f"{BASE}/rest/genesis").body).chain
        proof = self.client.ask("GET", f"{BASE}/rest/proof?eventId={told['eventId']}").body
        proved = verifyProof(proof, chain=chain)
        self.assertEqual(proved.topic, LOG_TOPIC)
        content = json.loads(proved.content or b"")
        self.assertEqual(content, {"origin": ORIGIN, "key": told["key"]})
        self.assertEqual((told["group"], told["origin"]), ("1", ORIGIN))

    def test_keyIsCertifiedOnce(self) -> None:
        """Also after a restart, and after one that has lost what was kept."""
        height, told = self.rig.height, self.read("keys")
        self.rig.clock.advance(1)
        self.serve()
        self.assertEqual((self.rig.height, self.read("keys")), (height, told))
        self.file = MetadataFile()
        self.serve()
        self.assertEqual((self.rig.height, self.read("keys")), (height, told))

    def test_rotatedKeyIsCertifiedAnew(self) -> None:
        """The next checkpoint after it is signed by the new key, and the log has only grown."""
        older, key = self.head(), self.key()
        change = self.client.fixture.calls.operator.changeNodes(ANYBODY, "1", [0], None)
        self.rig.run(5)
        self.successResultOf(change)
        self.certify()
        self.assertNotEqual(self.key(), key)
        newer = self.head()
        source = self.tiles(newer.size, older.size - 1).source
        growth = growthPath(older.size, newer.size, source)
        checkGrowth(older.size, older.root, newer.size, newer.root, growth)

    def test_failedCertificationIsTriedAgain(self) -> None:
        """No checkpoint is signed while the ledger does not take the record."""
        self.file = MetadataFile()
        self.rig = LedgerRig(self).start().open()
        self.rig.disk.error = OSError("full")
        log = TransparencyLog(
            self.rig.ledger,
            MetadataStore(self.file, self.rig.clock, maybeDeferred),
            self.rig.clock.seconds,
        )
        signed = log.sign()
        self.rig.run(1)
        self.failureResultOf(signed, LedgerUnavailable)
        self.flushLoggedErrors()
        self.rig.disk.error = None
        self.rig.run(60)
        signed = log.sign()
        self.rig.run(1)
        head = self.successResultOf(signed).head
        origin = f"svcbroker/{self.rig.ledger.chain.hex()}"
        self.assertEqual((head.size, head.origin), (self.rig.height + 1, origin))

    def test_entriesOfTheStoreBelongToTheGroup(self) -> None:
        """So they are set aside when another chain takes the group's place."""
        self.head()
        names = self.metadata.names("log")
        self.assertEqual(sorted(names), ["1/checkpoint", "1/key"])
        self.assertEqual({logGroup("log", name, b"") for name in names}, {"1"})

    # Proofs

    def test_proofNeedsNoValidators(self) -> None:
        """A verifier that trusts the log's key alone has the event proved."""
        policy = Policy.parse(f"log {self.key().text}\nquorum none\n".encode())
        for eventId in self.ids:
            proof = self.read(f"proof?eventId={eventId}")
            proved = verifyWitnessed(proof, policy)
            self.assertEqual((proved.event.eventId, proved.event.content), (eventId, b"x"))
            self.assertEqual(proved.witnessed.head, self.head())

    def test_proofOfAnotherEntryIsRefused(self) -> None:
        """What is changed in the extra data, the index, the path or the checkpoint shows."""
        policy = Policy.parse(f"log {self.key().text}\nquorum none\n".encode())
        proof = LogProof.decode(self.read(f"proof?eventId={self.ids[0]}"))
        self.publish(1)
        later = self.successResultOf(self.rig.receipts[-1]).eventId
        other = LogProof.decode(self.read(f"proof?eventId={later}"))
        for change in (
            {"extra": other.extra},
            {"extra": b""},
            {"extra": proof.extra.replace(b'"content":"x"', b'"content":"y"')},
            {"index": proof.index + 1},
            {"path": proof.path[::-1]},
            {"checkpoint": Note(proof.checkpoint.text)},
            {"checkpoint": other.checkpoint},
        ):
            changed = evolve(proof, **change)
            self.assertNotEqual(changed, proof)
            self.assertRaises(ProofInvalid, verifyWitnessed, changed.encode(), policy)
        another = Policy.parse(b"quorum none\n")
        self.assertRaises(ProofInvalid, verifyWitnessed, proof.encode(), another)

    # Access

    def test_logNeedsTheGrantOfItsTopic(self) -> None:
        """Other grants in the group, or in another one, are not enough."""
        logs, event = self.client.fixture.calls.transparency, EventId.parse(self.ids[0])
        self.head()
        for grants in (("subscribe 1 news/#",), (f"subscribe 2 {LOG_TOPIC}",), ()):
            principal = granted(*grants)
            for call in (
                logs.checkpoint(principal, "1"),
                logs.key(principal, "1"),
                logs.tile(principal, "1", "0/000.p/1"),
                logs.prove(principal, "1", event),
            ):
                self.failureResultOf(call, NotAuthorized)

    def test_grantOfTheTopicIsEnough(self) -> None:
        """For the log; the proof of an event needs the right to read it, too."""
        logs, event = self.client.fixture.calls.transparency, EventId.parse(self.ids[0])
        principal = granted(f"subscribe 1 {LOG_TOPIC}")
        expected = self.read("checkpoint")
        self.assertEqual(self.successResultOf(logs.checkpoint(principal, "1")), expected)
        tile = self.successResultOf(logs.tile(principal, "1", Tile(0, 0, 2).path))
        self.assertEqual(tile, self.read("tile/0/000.p/2"))
        self.failureResultOf(logs.prove(principal, "1", event), EventNotFound)
        reader = granted(f"subscribe 1 {LOG_TOPIC}", "subscribe 1 t")
        self.successResultOf(logs.prove(reader, "1", event))
