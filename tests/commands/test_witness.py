"""
Tests for L{svcbroker.commands.witness}: the invitation of partners.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.terminal import CommandError
from svcbroker.commands.witness import invitation, readAccepted
from svcbroker.proofs.tlog import NONE, Policy, WitnessKey

from ..proofs.tlog.support import MemoryLog

LOG = MemoryLog(3).key.verifier


def witness(name: str, url: str = "https://w.example/x") -> str:
    """A value of C{--witness}."""
    return f"{WitnessKey(name, name.encode().ljust(32)[:32]).verifier.text} {url}"


class InvitationTests(SynchronousTestCase):
    """
    The file for partners.
    """

    def written(self, *accepted: str) -> Policy:
        """The policy that programs read in it."""
        text = invitation(LOG.name, LOG.text, "", readAccepted(accepted))
        self.assertIn(f"# Invitation to witness the log {LOG.name}\n", text)
        self.assertIn("who holds the key?", text)
        return Policy.parse(text.encode())

    def test_invitationIsPolicyOfTheLog(self) -> None:
        """A witness reads the key of the log from it, and no quorum is wanted yet."""
        policy = self.written()
        self.assertEqual([each.key for each in policy.logs], [LOG])
        self.assertEqual((policy.quorum, dict(policy.witnesses)), (NONE, {}))

    def test_moreThanHalfOfTheWitnessesAreNeeded(self) -> None:
        """No two quorums can be without a witness in common."""
        for count in range(1, 6):
            policy = self.written(*(witness(f"w{each}.example/1") for each in range(count)))
            names = list(policy.witnesses)
            self.assertEqual(names, [f"w{each}" for each in range(count)])
            self.assertTrue(policy.isQuorum(names[: count // 2 + 1]))
            self.assertFalse(policy.isQuorum(names[: count // 2]))
            self.assertEqual(policy.warning, "")
            self.assertEqual(policy.witnesses["w0"].url, "https://w.example/x")

    def test_namesStandOnce(self) -> None:
        """A witness whose short name is taken has the whole name of its key."""
        names = ("a.example/1", "a.other/1", "majority.example", "none.example")
        policy = self.written(*map(witness, names))
        self.assertEqual(list(policy.witnesses), ["a", "a.other/1", *names[2:]])

    def test_unusableWitnessesAreRefused(self) -> None:
        """The line says which option is meant."""
        for given, text in (
            ("x", "expected 'VKEY URL'"),
            (witness("a.example", "ftp://a"), "expected 'VKEY URL'"),
            (witness("a.example", "https://a b"), "expected 'VKEY URL'"),
            ("x https://a", "--witness: "),
            (f"{LOG.text} https://a", "is not one of a witness"),
        ):
            error = self.assertRaises(CommandError, readAccepted, [given])
            self.assertIn("--witness: ", str(error))
            self.assertIn(text, str(error))
        twice = [witness("a.example"), witness("a.example")]
        self.assertIn("a.example", [each.name for each in readAccepted(twice)])
        self.assertRaises(CommandError, readAccepted, [*twice, twice[0]])
