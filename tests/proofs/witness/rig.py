"""
A witness that executes, with a log of a chain whose keys a test has, on a clock.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from svcbroker.broker.transparency import LOG_TOPIC
from svcbroker.ledgers.copy import CopyLedger, CopyProgress
from svcbroker.proofs.tlog import CheckpointRefused, Note, NoteSignature, VerifierKey
from svcbroker.proofs.witness import ExecutedCopy, Witness, WitnessSite, makeWitness
from svcbroker.proofs.witness._executing import PATIENT

from ...ledgers.copy.rig import CopyTestCase, makeCopy
from .lying import ORIGIN, ChainLog, LyingChain


class ExecutingTestCase(CopyTestCase):
    """
    A witness that executes the chain of a log.
    """

    def setUp(self) -> None:
        super().setUp()
        self.log = ChainLog(self.chain)
        self.given: dict[str, list[VerifierKey]] | None = None
        self.place = self.root / "witness"
        self.place.mkdir()
        self.key = makeWitness(self.place, "w.example/executed", lambda count: b"e" * count)
        self.chain.open(LOG_TOPIC)
        self.certify(self.log)

    def makeChain(self, name: str) -> LyingChain:
        directory = self.root / name
        directory.mkdir()
        chain = LyingChain(directory)
        self.addCleanup(chain.close)
        chain.open("t", "u")
        for number in range(3):
            chain.publish("t", b"%d" % number)
        return chain

    def certify(self, log: ChainLog) -> None:
        """Have the chain certify the key of its log."""
        text = f'{{"origin":"{ORIGIN}","key":"{log.key.verifier.text}"}}'
        self.chain.publish(LOG_TOPIC, text.encode())

    def follow(self) -> ExecutedCopy:
        """The witness has started, and has what the log has."""
        self.witness = Witness.open(self.place, {}, lambda: 1000.0)
        self.make()

        def made(report: Callable[[CopyProgress], None]) -> CopyLedger:
            self.copy = makeCopy(self.context, self.original, report)
            return self.copy

        self.executed = ExecutedCopy(
            self.witness,
            maybeDeferred,
            made,
            self.directory,
            self.clock,
            self.audit,
            self.given,
        )
        self.site = WitnessSite(self.witness, maybeDeferred, self.executed)
        self.successResultOf(self.executed.start())
        self.isRunning = True
        self.addCleanup(self.stop)
        return self.executed

    def audit(self, run: Callable[[], Any]) -> Deferred[Any]:
        """In the place of a thread."""
        return maybeDeferred(run)

    def stop(self) -> None:
        if self.isRunning:
            self.isRunning = False
            self.successResultOf(self.executed.stop())
            self.witness.close()

    def again(self) -> None:
        """Restart the witness."""
        self.stop()
        self.follow()

    def wipe(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.directory)

    def ask(self, log: ChainLog, older: int, newer: int) -> Deferred[str]:
        """Ask for a cosignature."""
        asked = Deferred.fromCoroutine(self.site._cosign(log.request(older, newer).encode()))
        self.clock.pump([0] * 10)
        return asked

    def cosigned(self, older: int, newer: int, log: ChainLog | None = None) -> None:
        """Make sure that a checkpoint is cosigned."""
        log = log or self.log
        line = self.successResultOf(self.ask(log, older, newer))
        note = Note(log.head(newer).text).signedBy(NoteSignature.parse(line.splitlines()[0]))
        self.assertEqual([key for key, _ in note.verified([self.key])], [self.key])

    def refusal(self, older: int, newer: int, log: ChainLog | None = None) -> CheckpointRefused:
        """The refusal to cosign a checkpoint."""
        asked = self.ask(log or self.log, older, newer)
        self.clock.advance(PATIENT)
        error = self.failureResultOf(asked, CheckpointRefused).value
        assert isinstance(error, CheckpointRefused)
        return error
