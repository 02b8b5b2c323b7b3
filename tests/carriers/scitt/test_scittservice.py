"""
The transparency service on a chain of the embedded ledger, over HTTP in memory.
"""

from __future__ import annotations

import sqlite3

import msgspec

from svcbroker.carriers.scitt.statementtree import SCITT, SignedRoot
from svcbroker.interfaces import submit
from svcbroker.model import EraseEvents
from svcbroker.proofs.scitt import (
    Issuer,
    RegistrationPolicy,
    ServiceKey,
    SignedStatement,
    readKeys,
    verifyGrowth,
    verifyReceipts,
)
from tests.broker.support import TIMEOUT
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
