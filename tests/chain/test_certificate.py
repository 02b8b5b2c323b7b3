"""
Tests of L{svcbroker.chain.checkCertificate} and its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Certificate,
    CertificateInvalid,
    Header,
    Phase,
    checkCertificate,
    faultsTolerated,
    quorum,
    votePayload,
)

from .reference import VECTORS
from .support import GENESIS, KEYS, headerOf, verify

HEADER = headerOf(VECTORS["blocks"][0]["header"])
OTHER = headerOf(VECTORS["blocks"][1]["header"])


def vote(
    index: int, header: Header = HEADER, round: int = 2, phase: Phase = Phase.COMMIT
) -> tuple[int, bytes]:
    """A node's true vote."""
    payload = votePayload(phase, header.chain, header.height, round, header.hash)
    return index, KEYS[index].sign(payload)


class CheckTests(SynchronousTestCase):
    """
    Certificates make blocks final, with true signatures of four nodes.
    """

    def check(
        self, signatures: Iterable[tuple[int, bytes]], header: Header = HEADER, round: int = 2
    ) -> None:
        """Check a certificate after it went over the wire."""
        certificate = Certificate(round=round, signatures=tuple(signatures))
        checkCertificate(
            Certificate.decode(certificate.encode()), header, len(GENESIS.validators), verify
        )

    def refuse(
        self,
        words: str,
        signatures: Iterable[tuple[int, bytes]],
        header: Header = HEADER,
        round: int = 2,
    ) -> None:
        """The certificate is refused for the reason in C{words}."""
        with self.assertRaises(CertificateInvalid) as caught:
            self.check(signatures, header, round)
        self.assertIn(words, str(caught.exception))

    def test_anyQuorumIsFinal(self) -> None:
        """Any three of four make it final, and four do."""
        for left in range(4):
            self.check(vote(index) for index in range(4) if index != left)
        self.check(map(vote, range(4)))

    def test_tooFewSignaturesAreRefused(self) -> None:
        """Two of four signatures are too few, and so are none."""
        self.refuse("fewer", [vote(0), vote(3)])
        self.refuse("fewer", [])

    def test_duplicateSignerIsRefused(self) -> None:
        """A validator counts once."""
        self.refuse("order", [vote(0), vote(1), vote(1)])

    def test_unorderedSignersAreRefused(self) -> None:
        """Signers come by rising index, so that a set of votes has one encoding."""
        self.refuse("order", [vote(1), vote(0), vote(2)])

    def test_foreignSignerIsRefused(self) -> None:
        """A foreign signer is refused, even beyond a quorum."""
        for index in (4, 2**16 - 1):
            self.refuse("not a validator", [*map(vote, range(4)), (index, vote(0)[1])])

    def test_votesOfOtherRoundsAreRefused(self) -> None:
        """Votes of one round do not count in another."""
        self.refuse("does not hold", map(vote, range(3)), round=1)

    def test_votesOfSeveralRoundsAreNotAdded(self) -> None:
        """Votes of several rounds are not added up."""
        self.refuse("validator 2", [vote(0), vote(1), vote(2, round=3)])

    def test_votesForOtherHeadersAreRefused(self) -> None:
        """Votes for one header do not make another final."""
        self.refuse("does not hold", map(vote, range(3)), header=OTHER)
        for header in (replace(HEADER, timestamp=1), replace(HEADER, chain=bytes(32))):
            self.refuse("does not hold", map(vote, range(3)), header=header)

    def test_preparesAreNoCommits(self) -> None:
        """Prepares are no commits."""
        for phase in set(Phase) - {Phase.COMMIT}:
            self.refuse("validator 0", [vote(index, phase=phase) for index in range(3)])

    def test_forgedSignatureIsRefused(self) -> None:
        """Each signature is that of its node, to the last bit."""
        good = [vote(index) for index in range(4)]
        for place in range(4):
            index, signature = good[place]
            for at in (0, 31, 32, 63):
                changed = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
                self.refuse(
                    f"validator {index}", [*good[:place], (index, changed), *good[place + 1 :]]
                )
        self.refuse("validator 0", [(0, good[1][1]), (1, good[0][1]), good[2]])


class QuorumTests(SynchronousTestCase):
    """
    The arithmetic of agreement.
    """

    def test_quorumsShareCorrectReplica(self) -> None:
        """
        At any size two quorums share a correct node, and the correct nodes alone are a quorum.
        """
        for nodes in range(1, 200):
            faults = faultsTolerated(nodes)
            self.assertLessEqual(3 * faults + 1, nodes)
            self.assertLess(nodes, 3 * faults + 4)
            self.assertGreater(2 * quorum(nodes) - nodes, faults)
            self.assertLessEqual(quorum(nodes), nodes - faults)


class VoteTests(SynchronousTestCase):
    """
    The bytes that are signed.
    """

    def test_payloadsDifferInEveryField(self) -> None:
        """Whatever differs between two votes differs in what is signed."""
        payloads = {
            votePayload(phase, chain, height, round, digest)
            for phase in Phase
            for chain in (bytes(32), b"\x01" * 32)
            for height in (1, 2)
            for round in (1, 2)
            for digest in (bytes(32), b"\x01" * 32)
        }
        self.assertEqual(len(payloads), 4 * 2**4)
        self.assertEqual({len(payload) for payload in payloads}, {95})
