"""
The transparency service on a chain of the embedded ledger, over HTTP in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import cbor2
import msgspec
from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred

from svcbroker.carriers.scitt.scittservice import TREE_TIMEOUT
from svcbroker.carriers.scitt.statementtree import SCITT, SignedRoot
from svcbroker.chain import History
from svcbroker.interfaces import submit
from svcbroker.model import EraseEvents
from svcbroker.proofs import base64url
from svcbroker.proofs.scitt import (
    Issuer,
    RegistrationPolicy,
    ServiceKey,
    SignedStatement,
    TreeLine,
    readKeys,
    receiptsOf,
    verifyGrowth,
    verifyReceipts,
)
from svcbroker.proofs.tlog import Tiles, tilesBetween
from tests.broker.support import TIMEOUT
from tests.carriers.http.support import requestBytes
from tests.carriers.scitt.support import (
    CLAIMS,
    ISSUER,
    POLICY,
    TOPIC,
    ScittServiceTestCase,
    pathOf,
    statement,
)


class ServiceTests(ScittServiceTestCase):
    """
    What clients see of a service, and what it makes of a log.
    """

    def test_policyAndAnchorsAreTheFirstEvents(self) -> None:
        """Of the topic, and of the tree."""
        topic = self.rig.ledger.topicState(TOPIC)
        assert topic is not None
        self.assertEqual((topic.sequence, self.tree.state.size), (2, 2))
        block = self.successResultOf(self.rig.ledger.readBlock(topic.height))
        documents = [event.content for event in block.events if event.topic == TOPIC]
        for index, data in enumerate(documents):
            answer = self.answer("GET", pathOf(data))
            self.assertEqual(self.check(data, answer), index)
        payloads = [SignedStatement.decode(each).message.payload for each in documents]
        self.assertEqual(payloads, [document for _, document in POLICY.documents()])

    def test_eventsOfOthersAreLeftOut(self) -> None:
        """What is no statement, or one that is refused or registered; good ones are entries."""
        known = statement(1)
        self.register(known)
        self.put(
            b"hello", known, known + b"\0", ServiceKey.derive(b"x").statement(CLAIMS, "a", b"b")
        )
        other = statement(2)
        self.put(other)
        self.assertEqual(self.tree.state.size, 4)
        self.assertEqual(self.check(other, self.answer("GET", pathOf(other))), 3)
        root = self.tree.state.root
        self.serve()
        self.assertEqual(self.tree.state.root, root)
        self.path.unlink()
        self.serve()
        self.assertEqual((self.tree.state.size, self.tree.state.root), (4, root))

    def test_statementsOfATurnAreInOneBlock(self) -> None:
        """A block costs more than a statement."""
        given = [*map(statement, range(5))]
        connections = [self.client.connect() for _ in given]
        for each, connection in zip(given, connections, strict=True):
            headers = {"Content-Type": "application/cose"}
            connection.send(requestBytes("POST", "/entries", each, headers))
        self.settle()
        heights = set()
        for each, connection in zip(given, connections, strict=True):
            [answer] = connection.answers()
            self.check(each, answer)
            place = self.successResultOf(self.tree.place(sha256(each).digest(), len(given) + 2))
            assert place is not None
            heights.add(place.event.rpartition("-")[2])
        self.assertEqual(len(heights), 1)

    def test_lateBlockIsAcceptedAndFollowed(self) -> None:
        """202 with the place of the receipt; 204 until it is there; never a second event."""
        self.rig.disk.isHeld = True
        late = statement(1)
        connection = self.ask("POST", "/entries", late)
        self.clock.advance(TIMEOUT)
        [answer] = connection.answers()
        location = pathOf(late)
        self.assertEqual((answer.status, answer.headers["location"]), (202, location))
        self.assertEqual((answer.headers["retry-after"], answer.body), ("1", b""))
        for method, path, status in (("GET", location, 204), ("POST", "/entries", 202)):
            answer = self.answer(method, path, late if method == "POST" else b"")
            self.assertEqual(answer.status, status)
        self.rig.disk.isHeld = False
        self.rig.disk.release()
        self.settle()
        for method, path, status in (("GET", location, 200), ("POST", "/entries", 201)):
            answer = self.answer(method, path, late if method == "POST" else b"")
            self.assertEqual((answer.status, answer.headers["location"]), (status, location))
            self.assertEqual(self.check(late, answer), 2)
        topic = self.rig.ledger.topicState(TOPIC)
        assert topic is not None
        self.assertEqual(topic.sequence, 3)

    def test_nothingIsSignedOfALogWithoutTheSignedTree(self) -> None:
        """As after a restore of an older backup; the tree is made again once, and it is told."""
        self.register(statement(1))
        known = msgspec.json.decode(self.metadata.kept[SCITT, f"1/{TOPIC}"], type=SignedRoot)
        self.assertEqual((known.size, known.root), (3, self.tree.state.root.hex()))
        for record in (SignedRoot(3, "00" * 32), SignedRoot(4, known.root)):
            self.metadata.kept[SCITT, f"1/{TOPIC}"] = msgspec.json.encode(record)
            self.serve()
            self.assertEqual(
                self.problem(f"/entries/{'0' * 64}"),
                (503, "the log does not have the tree that was signed"),
            )
        self.metadata.kept[SCITT, f"1/{TOPIC}"] = msgspec.json.encode(known)
        self.serve()
        self.register(statement(2))

    def test_damageIsSeenBeforeAReceiptIsSigned(self) -> None:
        """A changed leaf, node or event in the file of a running service: it is made again."""
        first = statement(1)
        self.register(first, *map(statement, range(2, 6)))
        root = self.tree.state.root
        for change in (
            "UPDATE leaf SET hash = zeroblob(32) WHERE number = 2",
            "UPDATE leaf SET hash = zeroblob(32) WHERE number = 4",
            "UPDATE leaf SET event = (SELECT event FROM leaf WHERE number = 3) WHERE number = 2",
            "DROP TABLE node",
            "DROP TABLE leaf",
        ):
            connection = sqlite3.connect(self.path)
            connection.execute(change)
            connection.commit()
            connection.close()
            answers = [self.answer("GET", pathOf(first)) for _ in range(2)]
            if "node" not in change:
                self.assertEqual(answers[0].status, 503, change)
            self.assertEqual(self.check(first, answers[1]), 2)
            self.assertEqual(self.tree.state.root, root)
        self.register(statement(9))

    def test_laterTreeHasEverythingOfAnEarlierOne(self) -> None:
        """From every size to the newest; sizes that no receipt has are refused."""
        known = [statement(each) for each in range(9)]
        receipts = []
        for each in known:
            receipts.append(self.answer("POST", "/entries", each).body)
        keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
        for each, receipt in zip(known[:-1], receipts, strict=False):
            found = verifyReceipts(SignedStatement.decode(each), [receipt], keys)
            size = found[0].receipt.size
            answer = self.answer("GET", f"/consistency/{size}")
            self.assertEqual(answer.headers["content-type"], "application/cose")
            grown, root = verifyGrowth(found, answer.body, keys, "service")
            self.assertEqual((grown.older, grown.newer, root), (size, 11, self.tree.state.root))
        self.assertEqual(self.answer("GET", "/consistency/2").status, 200)
        self.assertEqual(self.answer("GET", "/consistency/11").status, 204)
        for wrong in ("1", "12", "0", "-1", "x", "9" * 19, "9" * 30):
            self.assertEqual(self.answer("GET", f"/consistency/{wrong}").status, 400, wrong)
        connection = sqlite3.connect(self.path)
        connection.execute("UPDATE leaf SET hash = zeroblob(32) WHERE number = 4")
        connection.commit()
        connection.close()
        answers = [self.answer("GET", "/consistency/4").status for _ in range(2)]
        self.assertEqual(answers, [503, 200])

    def test_receiptsAreOfTheTreeThatIsAskedFor(self) -> None:
        """Of every size that has the entry; damage of the file is seen before one is signed."""
        known = [statement(each) for each in range(6)]
        self.register(*known)
        keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
        said = SignedStatement.decode(known[1])
        for size in range(4, 9):
            answer = self.answer("GET", f"{pathOf(known[1])}?size={size}")
            [found] = verifyReceipts(said, [answer.body], keys, "service")
            root = self.successResultOf(self.tree.rootAt(size))
            self.assertEqual((found.receipt.size, found.root), (size, root))
        for text, status in (("3", 404), ("2", 404), ("1", 400), ("9", 400), ("x", 400), ("", 400)):
            answer = self.answer("GET", f"{pathOf(known[1])}?size={text}")
            self.assertEqual(answer.status, status, text)
        connection = sqlite3.connect(self.path)
        connection.execute("UPDATE leaf SET hash = zeroblob(32) WHERE number = 4")
        connection.commit()
        connection.close()
        path = f"{pathOf(known[1])}?size=6"
        self.assertEqual([self.answer("GET", path).status for _ in range(2)], [503, 200])

    def lines(self) -> Sequence[str]:
        """The lines for a checkpoint, which may wait for the tree."""
        found = self.service.checkpointLines()
        self.settle()
        return self.successResultOf(found)

    def test_checkpointHasTheTreeOfItsBlocks(self) -> None:
        """None before there is one, nor of a log without the tree that was signed."""
        self.register(statement(1))
        state = self.tree.state
        self.assertEqual(self.lines(), (TreeLine(TOPIC, 3, state.root).text,))
        known = msgspec.json.decode(self.metadata.kept[SCITT, f"1/{TOPIC}"], type=SignedRoot)
        self.assertEqual((known.size, known.root), (3, state.root.hex()))
        # A block whose entries the tree does not have yet is waited for, and not for long.
        late, add = Deferred[None](), self.tree._runBriefly
        self.patch(self.tree, "_runBriefly", lambda *given: late.addCallback(lambda _: add(*given)))
        self.put(statement(2))
        waiting = self.service.checkpointLines()
        self.assertNoResult(waiting)
        late.callback(None)
        self.settle()
        self.assertEqual(self.successResultOf(waiting)[0].split(" ")[2], "4")
        self.patch(self.tree, "_runBriefly", lambda *given: Deferred())
        self.put(statement(3))
        waiting = self.service.checkpointLines()
        self.rig.clock.advance(TREE_TIMEOUT)
        self.assertEqual(self.successResultOf(waiting)[0].split(" ")[2], "4")
        self.patch(self.tree, "_runBriefly", maybeDeferred)
        self.serve()
        self.metadata.kept[SCITT, f"1/{TOPIC}"] = msgspec.json.encode(SignedRoot(3, "00" * 32))
        self.serve()
        self.assertEqual(self.lines(), ())

    def test_erasedStatementIsTold(self) -> None:
        """Its receipts end; and a tree that is lost as well cannot be made again."""
        first, second = statement(1), statement(2)
        self.register(first, second)
        erase = EraseEvents(topic=TOPIC, ranges=((3, 3),), account="op", reason="request 17")
        done = submit(self.rig.ledger, erase)
        self.settle()
        self.successResultOf(done)
        self.assertEqual(self.problem(pathOf(first)), (503, "the content of the entry was erased"))
        self.assertEqual(self.check(second, self.answer("GET", pathOf(second))), 3)
        self.path.unlink()
        self.serve()
        self.assertEqual(self.problem(pathOf(second))[0], 503)

    def test_clientThatLeavesDoesNotTakeItBack(self) -> None:
        """The statement is registered, and who asks again gets its receipt."""
        self.rig.disk.isHeld = True
        given = statement(1)
        self.ask("POST", "/entries", given).disconnect()
        waiting = self.ask("POST", "/entries", given)
        self.rig.disk.isHeld = False
        self.rig.disk.release()
        self.settle()
        [answer] = waiting.answers()
        self.assertEqual((answer.status, self.check(given, answer)), (201, 2))

    def test_slowLookupsRegisterNothingTwice(self) -> None:
        """A lookup of before the registration says nothing about the log of after it."""
        given, disk = statement(1), self.rig.disk
        disk.isHeld = True
        first = self.ask("POST", "/entries", given)
        look, late = self.tree.place, Deferred[None]()

        def lookLate(*given: Any) -> Deferred[Any]:
            found = look(*given)
            return late.addCallback(lambda _: found) if disk.isHeld else found

        self.patch(self.tree, "place", lookLate)
        second = self.ask("POST", "/entries", given)
        disk.isHeld = False
        disk.release()
        self.settle()
        late.callback(None)
        self.settle()
        for each in (first, second):
            [answer] = each.answers()
            self.assertEqual((answer.status, self.check(given, answer)), (201, 2))
        topic = self.rig.ledger.topicState(TOPIC)
        assert topic is not None
        self.assertEqual(topic.sequence, 3)

    def test_policyIsRegisteredWhereItDiffers(self) -> None:
        """Not at every start; the unchanged document of the two is not registered again."""
        topic = self.rig.ledger.topicState
        self.serve()
        more = RegistrationPolicy.of(
            [*POLICY.issuers.values(), Issuer(name="b", key=ISSUER.public)]
        )
        for policy, count in ((POLICY, 2), (more, 3), (more, 3), (POLICY, 4)):
            self.serve(policy)
            found = topic(TOPIC)
            assert found is not None
            self.assertEqual(found.sequence, count)
            self.register()
        self.register(statement(1))

    def test_receiptsAreSignedAsThePolicySays(self) -> None:
        """With another key, which is certified before, and is at its URL beside the other one."""
        self.register(statement(1))
        given = statement(2)
        self.register(given)
        old = self.answer("GET", pathOf(given))
        self.serve(evolve(POLICY, receipts="EdDSA"))
        self.register(statement(3))
        new = self.answer("GET", pathOf(given))
        self.assertEqual((self.check(given, old), self.check(given, new)), (3, 3))
        headers = [cbor2.loads(cbor2.loads(each.body[1:])[0]) for each in (old, new)]
        self.assertEqual([each[1] for each in headers], [-7, -8])
        keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
        self.assertEqual([each.kid for each in keys], [each[4] for each in headers])
        for each in keys:
            answer = self.answer("GET", f"/.well-known/scitt-keys/{base64url(each.kid)}")
            self.assertEqual(readKeys(answer.body), [each])
        self.serve()
        again = cbor2.loads(cbor2.loads(self.answer("GET", pathOf(given)).body[1:])[0])
        self.assertEqual(again[1], -7)

    def test_policyAndAnchorsInForceAreServed(self) -> None:
        """As Transparent Statements, whose payloads are the documents."""
        more = RegistrationPolicy.of(
            [*POLICY.issuers.values(), Issuer(name="b", key=ISSUER.public)]
        )
        for policy, index in ((POLICY, 1), (more, 2)):
            self.serve(policy)
            keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
            for path, (_, document) in zip(("policy", "anchors"), policy.documents(), strict=True):
                answer = self.answer("GET", f"/{path}")
                said = SignedStatement.decode(answer.body)
                [found] = verifyReceipts(said, receiptsOf(said), keys, "service")
                self.assertEqual(said.message.payload, document)
                self.assertEqual(found.receipt.index, 0 if path == "policy" else index)

    def test_tilesMakeTheSignedRoot(self) -> None:
        """Those that a log of C{tlog-tiles} has at this size, and no others."""
        signed = [statement(each) for each in range(300)]
        self.put(*signed)
        size = 302
        self.assertEqual(self.tree.state.size, size)
        tiles = {
            tile: self.answer("GET", f"/tile/{tile.path}").body for tile in tilesBetween(0, size)
        }
        self.assertEqual([each.width for each in tiles], [256, 46, 1])
        root = History.load(size, Tiles(tiles).source).root
        keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
        receipt = self.answer("GET", pathOf(signed[0])).body
        [found] = verifyReceipts(SignedStatement.decode(signed[0]), [receipt], keys)
        self.assertEqual((found.receipt.size, found.root), (size, root))
        for path, status in (
            ("0/001.p/47", 404),
            ("0/001", 404),
            ("2/000.p/1", 404),
            ("entries/000", 404),
            ("0/1", 400),
            ("0/000.p/0", 400),
            ("x", 400),
        ):
            self.assertEqual(self.answer("GET", f"/tile/{path}").status, status, path)

    def test_clientsOfEarlierDraftsAreRedirected(self) -> None:
        """303 to the receipt, 302 to itself until it is there, at last 200."""
        self.rig.disk.isHeld = True
        late, query = statement(1), "?api-version=2026-03-26"
        location = f"{pathOf(late)}{query}"
        connection = self.ask("POST", f"/entries{query}", late)
        self.clock.advance(TIMEOUT)
        [answer] = connection.answers()
        self.assertEqual((answer.status, answer.headers["location"]), (303, location))
        answer = self.answer("GET", location)
        self.assertEqual((answer.status, answer.headers["location"]), (302, location))
        self.assertEqual((answer.headers["retry-after"], answer.body), ("1", b""))
        self.rig.disk.isHeld = False
        self.rig.disk.release()
        self.settle()
        answer = self.answer("GET", location)
        self.assertEqual((answer.status, self.check(late, answer)), (200, 2))
        answer = self.answer("POST", f"/entries{query}", late)
        self.assertEqual((answer.status, answer.headers["location"]), (303, location))
        wrong = self.answer("POST", f"/entries{query}", b"x")
        self.assertEqual(wrong.status, 400)
