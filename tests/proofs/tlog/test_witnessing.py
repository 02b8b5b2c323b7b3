"""
Tests for what witnesses decide.
"""

from __future__ import annotations

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs.tlog import (
    AddCheckpoint,
    CheckpointRefused,
    Note,
    NoteSignature,
    TreeHead,
    WitnessKey,
    checkCheckpoint,
)

from .support import MemoryLog

LOG = MemoryLog(600)
LOGS = {LOG.key.verifier.name: [LOG.key.verifier]}


class RequestTests(SynchronousTestCase):
    """
    L{AddCheckpoint}.
    """

    def test_requestIsReadBack(self) -> None:
        """The body of a request is what the specification shows."""
        request = LOG.request(5, 9)
        data = request.encode()
        self.assertTrue(data.startswith(b"old 5\n"))
        self.assertEqual(AddCheckpoint.decode(data), request)
        empty = LOG.request(0, 9)
        self.assertTrue(empty.encode().startswith(b"old 0\n\n"))
        self.assertEqual(AddCheckpoint.decode(empty.encode()), empty)

    def test_malformedRequestsAreRefused(self) -> None:
        """A text that is no request is refused."""
        data = LOG.request(5, 9).encode()
        line = data.split(b"\n")[1] + b"\n"
        for wrong in (
            b"",
            data.replace(b"old 5", b"old 05"),
            data.replace(b"old 5", b"old -5"),
            data.replace(b"old 5\n", b""),
            data.replace(b"old 5\n", b"old 5\n" + line * 61),
            data.replace(line, line[2:]),
            b"\xff" + data,
            b"x" * 100_000,
        ):
            with self.assertRaises(Malformed, msg=wrong[:80]):
                AddCheckpoint.decode(wrong)


class DecisionTests(SynchronousTestCase):
    """
    L{checkCheckpoint}.
    """

    def refused(self, request: AddCheckpoint, latest: TreeHead | None) -> CheckpointRefused:
        """The refusal of a request."""
        with self.assertRaises(CheckpointRefused) as caught:
            checkCheckpoint(request, LOGS, latest)
        refusal: CheckpointRefused = caught.exception
        return refusal

    @given(st.integers(0, 600), st.integers(0, 600))
    def test_grownLogsAreCosigned(self, one: int, other: int) -> None:
        """A checkpoint that is consistent with the one cosigned last may be cosigned."""
        older, newer = sorted((one, other))
        latest = LOG.head(older) if older else None
        head, note = checkCheckpoint(LOG.request(older, newer), LOGS, latest)
        self.assertEqual((head, note), (LOG.head(newer), LOG.checkpoint(newer)))

    @given(st.integers(1, 600), st.integers(1, 600), st.data())
    def test_forksAreRefused(self, one: int, other: int, data: st.DataObject) -> None:
        """A log with another entry below the size that was cosigned is refused."""
        older, newer = sorted((one, other))
        fork = LOG.forked(data.draw(st.integers(0, older - 1)))
        refusal = self.refused(fork.request(older, newer), LOG.head(older))
        self.assertEqual(refusal.status, 422)

    def test_otherSizesAreConflicts(self) -> None:
        """An old size that is not the one cosigned last is answered with that one."""
        for request, latest, size in (
            (LOG.request(4, 9), LOG.head(5), 5),
            (LOG.request(0, 9), LOG.head(5), 5),
            (LOG.request(5, 9), None, 0),
            (LOG.request(4, 5), LOG.head(9), 9),
        ):
            refusal = self.refused(request, latest)
            self.assertEqual((refusal.status, refusal.size), (409, size))

    def test_badRequestsHaveTheirStatus(self) -> None:
        """Each check of the specification has its status."""
        request = LOG.request(5, 9)
        latest = LOG.head(5)
        other = MemoryLog(9, "other.example", b"o" * 32)
        forged = MemoryLog(9, seed=b"f" * 32)
        broken = evolve(
            request,
            checkpoint=Note(
                request.checkpoint.text,
                [NoteSignature(LOG.key.verifier.name, LOG.key.verifier.id, bytes(64))],
            ),
        )
        nothing = TreeHead(LOG.key.verifier.name, 0, bytes(32)).text
        empty = Note(nothing).signedBy(LOG.key.sign(nothing))
        for wrong, status in (
            (other.request(0, 9), 404),
            (forged.request(5, 9), 403),
            (broken, 403),
            (evolve(request, older=10), 400),
            (evolve(request, proof=request.proof[:-1]), 422),
            (evolve(request, proof=(*request.proof, bytes(32))), 422),
        ):
            self.assertEqual(self.refused(wrong, latest).status, status)
        for wrong, status in (
            (evolve(LOG.request(0, 9), proof=[bytes(32)]), 422),
            (AddCheckpoint(older=0, proof=(), checkpoint=empty), 422),
        ):
            self.assertEqual(self.refused(wrong, None).status, status)

    def test_unknownSignaturesAreLeftOut(self) -> None:
        """A witness stores the signatures that it has verified, and no others."""
        request = LOG.request(0, 9)
        stranger = WitnessKey("stranger", b"s" * 32).cosign(request.checkpoint.text, 5)
        more = evolve(request, checkpoint=request.checkpoint.signedBy(stranger))
        _, note = checkCheckpoint(more, LOGS, None)
        self.assertEqual(note, request.checkpoint)
