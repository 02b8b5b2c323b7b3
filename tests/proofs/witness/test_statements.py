"""
Tests for a witness that executes, and checks the trees of statements in checkpoints.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing

import msgspec
from twisted.internet.defer import Deferred

from svcbroker.archive import TREES_NAME, Eraser
from svcbroker.chain import EMPTY_ROOT
from svcbroker.proofs.scitt import (
    KEY_TOPIC,
    Claims,
    Issuer,
    KeyRecord,
    RegistrationPolicy,
    ServiceKey,
    TreeAudit,
    TreeLine,
)
from svcbroker.proofs.tlog import TreeHead
from svcbroker.proofs.witness import describe
from svcbroker.proofs.witness._statements import MAX_TREES

from .rig import ExecutingTestCase

TOPIC = "statements"
SERVICE = ServiceKey.derive(b"service")
ISSUER = ServiceKey.derive(b"issuer")
CLAIMS = Claims(issuer="https://acme.example", subject="urn:thing")
POLICY = RegistrationPolicy.of([Issuer(name=CLAIMS.issuer, key=ISSUER.public)])


class StatementsTests(ExecutingTestCase):
    """
    A log that signs trees of statements.
    """

    def setUp(self) -> None:
        super().setUp()
        self.audited = TreeAudit()
        self.chain.open(KEY_TOPIC, TOPIC)
        record = msgspec.json.encode(KeyRecord.of("service", SERVICE.public))
        self.chain.publish(KEY_TOPIC, record)
        self.audited.registration.addKey(record)
        for kind, document in POLICY.documents():
            self.register(SERVICE.statement(CLAIMS, kind, document))
        self.register(ISSUER.statement(CLAIMS, "text/plain", b"one"))

    def register(self, *contents: bytes) -> None:
        """Register statements in one block."""
        self.chain.publish(TOPIC, *contents)
        for each in contents:
            self.audited.add(each, self.chain.head.timestamp)
        self.original.wake()

    def line(self) -> TreeLine:
        """The tree as it is now."""
        return TreeLine(TOPIC, self.audited.size, self.audited.root)

    def say(self, *lines: TreeLine | str) -> None:
        """Have the next checkpoints say this."""
        self.log.lines = [each if isinstance(each, str) else each.text for each in lines]

    def test_rightTreesAreCosigned(self) -> None:
        """Those of now and of before, the empty one, and in every run; other lines are let be."""
        self.follow()
        earlier = self.line()
        size = self.log.size
        self.say(earlier, "something else")
        self.cosigned(0, size)
        self.register(b"no statement", ISSUER.statement(CLAIMS, "text/plain", b"two"))
        self.say(self.line(), earlier, TreeLine(TOPIC, 0, EMPTY_ROOT))
        self.cosigned(size, size + 1)
        self.again()
        self.publish(b"of another topic")
        self.say(self.line(), TreeLine("never/opened", 0, EMPTY_ROOT))
        self.cosigned(size + 1, size + 2)

    def test_wrongTreesAreRefused(self) -> None:
        """
        Another root or size, that of a later block, or of a topic without statements. The finding
        is kept, and checkpoints with the right tree are cosigned all the same.
        """
        self.follow()
        right, size = self.line(), self.log.size
        self.register(ISSUER.statement(CLAIMS, "text/plain", b"two"))
        later = self.line()
        for line, text in (
            (TreeLine(TOPIC, 3, bytes(32)), "a tree of 3 statements of statements that is not"),
            (TreeLine(TOPIC, 2, right.root), "a tree of 2 statements of statements that is not"),
            (TreeLine(TOPIC, 5, later.root), "of which its events make 4"),
            (later, f"in block {self.chain.head.height}, after those of the checkpoint"),
            (TreeLine("t", 1, right.root), "a tree of 1 statements of t, of which"),
        ):
            self.say(right, line)
            refusal = self.refusal(0, size)
            self.assertEqual(refusal.status, 422)
            self.assertIn("the log has signed a tree of", str(refusal))
            self.assertIn(text, str(refusal))
        for restart in (lambda: None, self.again):
            restart()
            [(name, wrong)] = self.witness.wrongs.items()
            self.assertEqual(name, f"{self.chain.genesis.chain.hex()} statements")
            self.assertIn("of 3 statements", wrong.text)
            self.assertIn("WRONG", describe(self.witness)[-1])
            assert wrong.note is not None
            self.assertTrue(wrong.note.verified([self.log.key.verifier]))
            self.assertEqual(TreeHead.parse(wrong.note.text).extensions[1][-44:], "A" * 43 + "=")
        self.say(right)
        self.cosigned(0, size)

    def test_malformedLinesAreRefused(self) -> None:
        """And more trees than a witness follows."""
        self.follow()
        for lines in (["svcbroker/scitt statements 3"], [self.line()] * (MAX_TREES + 1)):
            self.say(*lines)
            self.assertEqual(self.refusal(0, self.log.size).status, 400)
        self.assertEqual(self.witness.wrongs, {})

    def test_damagedTreeIsNotHeldAgainstTheLog(self) -> None:
        """It is made again before anything is found wrong."""
        self.follow()
        self.say(self.line())
        self.cosigned(0, self.log.size)
        self.publish(b"more")
        size = self.log.size
        [path] = (self.directory / TREES_NAME).glob("*.sqlite")
        for change in ("hash = zeroblob(32)", "event = 'x'"):
            with closing(sqlite3.connect(path)) as database, database:
                database.execute(f"UPDATE leaf SET {change} WHERE number = 2")
            asked = self.ask(self.log, size - 1, size)
            self.clock.advance(1)
            if "event" in change:
                self.assertEqual(self.failureResultOf(asked).value.status, 503)
                self.clock.advance(1)
                asked = self.ask(self.log, size - 1, size)
            self.successResultOf(asked)
            size += 1
            self.publish(b"more")
        self.assertEqual(self.witness.wrongs, {})

    def test_treeOfTheLastRunIsNotBelieved(self) -> None:
        """Somebody may have made the file that is there."""
        self.follow()
        self.say(self.line())
        self.cosigned(0, self.log.size)
        self.stop()
        [path] = (self.directory / TREES_NAME).glob("*.sqlite")
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE leaf SET hash = zeroblob(32)")
            database.execute("DELETE FROM node")
        self.follow()
        self.publish(b"more")
        self.cosigned(self.log.size - 1, self.log.size)

    def test_treeInTheMakingIsWaitedFor(self) -> None:
        """For some seconds; that of a topic with erased statements is never there."""
        tasks: list[Deferred[None]] = []

        def later(run: Callable[[], object]) -> Deferred[object]:
            tasks.append(Deferred())
            return tasks[-1].addCallback(lambda _: run())

        self.follow()
        self.executed._audit = later
        self.say(self.line())
        refusal = self.refusal(0, self.log.size)
        self.assertEqual(refusal.status, 503)
        self.assertIn("has not made the tree of statements yet: ask again", str(refusal))
        waiting = self.ask(self.log, 0, self.log.size)
        while tasks:
            self.assertNoResult(waiting)
            tasks.pop(0).callback(None)
            self.clock.advance(0)
        self.successResultOf(waiting)
        self.executed._audit = self.audit
        self.stop()
        self.chain.erase(TOPIC, (3, 3))
        Eraser(self.chain.store).run()
        self.wipe()
        self.follow()
        refusal = self.refusal(self.log.size - 1, self.log.size)
        self.assertEqual(refusal.status, 503)
        self.assertIn("was erased, so the tree cannot be made", str(refusal))
        self.assertEqual(self.witness.wrongs, {})

    def test_missingLibraryIsNamed(self) -> None:
        """Without it nothing with a tree is cosigned, and everything else."""
        self.follow()
        name = "svcbroker.proofs.witness._statements"
        self.addCleanup(sys.modules.__setitem__, name, sys.modules[name])
        sys.modules[name] = None  # type: ignore[assignment]
        self.say(self.line())
        refusal = self.refusal(0, self.log.size)
        self.assertEqual(refusal.status, 503)
        self.assertIn("svcbroker[scitt]", str(refusal))
        self.say("something else")
        self.cosigned(0, self.log.size)
