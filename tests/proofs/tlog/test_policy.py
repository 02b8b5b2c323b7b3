"""
Tests for policies.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs.tlog import Policy, SignatureRefused, WitnessKey

from .support import MemoryLog, mlDsaKey

LOG = MemoryLog(10)
OTHER = MemoryLog(10, "other.example/log", b"o" * 32)
WITNESSES = {name: WitnessKey(f"{name}.example", name.encode() * 16) for name in ("X1", "X2", "Y1")}


def policy(*lines: str) -> Policy:
    """A policy with our log and witnesses."""
    names = [
        f"witness {name} {key.verifier.text} https://{name}.example/"
        for name, key in WITNESSES.items()
    ]
    return Policy.parse("\n".join([f"log {LOG.key.verifier.text}", *names, *lines]).encode())


class PolicyTests(SynchronousTestCase):
    """
    L{Policy}.
    """

    def check(self, trusted: Policy, *witnesses: str) -> list[tuple[str, int]]:
        """The witnesses of our checkpoint, with the times."""
        times = [(WITNESSES[name], 1000 - place) for place, name in enumerate(witnesses)]
        found = trusted.check(LOG.checkpoint(10, *times))
        self.assertEqual((found.head, found.log.key), (LOG.head(10), LOG.key.verifier))
        return [(each.witness, each.time) for each in found.cosignatures]

    def test_cosignaturesAreToldWithTheirTimes(self) -> None:
        """The witnesses of an accepted checkpoint are told, earliest first."""
        trusted = policy("group all all X1 X2 Y1", "quorum all")
        found = self.check(trusted, "X1", "X2", "Y1")
        self.assertEqual(found, [("Y1", 998), ("X2", 999), ("X1", 1000)])
        self.assertEqual(trusted.witnesses["X1"].url, "https://X1.example/")

    def test_quorumsAreOfGroupsOfGroups(self) -> None:
        """Groups may have groups as members; as many as their number have to witness."""
        trusted = policy("group X 2 X1 X2", "group both any X Y1", "quorum both")
        enough: tuple[tuple[str, ...], ...] = (("X1", "X2"), ("Y1",), ("X1", "Y1"))
        for names in enough:
            self.check(trusted, *names)
        few: tuple[tuple[str, ...], ...] = ((), ("X1",), ("X2",))
        for names in few:
            with self.assertRaises(SignatureRefused, msg=names):
                self.check(trusted, *names)
        self.check(policy("quorum none"))
        self.check(policy("quorum X1"), "X1")

    def test_quorumsWithoutCommonWitnessAreFound(self) -> None:
        """Two quorums have no witness in common exactly where trying all of them says so."""
        for lines, isSplit in (
            (["group g any X1 X2", "quorum g"], True),
            (["group g 2 X1 X2 Y1", "quorum g"], False),
            (["group g all X1 X2 Y1", "quorum g"], False),
            (["group x any X1 X2", "group g 2 x Y1", "quorum g"], False),
            (["group x any X1 X2", "group g any x Y1", "quorum g"], True),
            (["group x all X1 X2", "group g any x Y1", "quorum g"], True),
            (["group x any X1 X2", "group g all x", "quorum g"], True),
            (["quorum X1"], False),
            (["quorum none"], False),
        ):
            trusted = policy(*lines)
            names = list(trusted.witnesses)
            sets = [
                {name for place, name in enumerate(names) if number >> place & 1}
                for number in range(1, 1 << len(names))
            ]
            quorums = [each for each in sets if trusted.isQuorum(each)]
            found = trusted.disjointQuorums()
            isFound = any(not one & other for one in quorums for other in quorums)
            if trusted.quorum != "none":
                self.assertEqual(isFound, isSplit, lines)
            self.assertEqual(found is not None, isSplit, lines)
            if found is not None:
                one, other = map(set, found)
                self.assertFalse(one & other)
                self.assertTrue(trusted.isQuorum(one) and trusted.isQuorum(other))

    def test_groupsMayBeNestedDeeply(self) -> None:
        """As many groups in each other as a policy has lines are no trouble."""
        nested = [f"group g{number} any g{number - 1}" for number in range(1, 990)]
        trusted = policy("group g0 any X1", *nested, "quorum g989")
        self.check(trusted, "X1")
        with self.assertRaises(SignatureRefused):
            self.check(trusted, "X2")

    def test_checkpointsOfOtherLogsAreRefused(self) -> None:
        """A log that the policy does not name, or that has another key, is refused."""
        trusted = policy("quorum none")
        forged = MemoryLog(10, seed=b"f" * 32)
        for log in (OTHER, forged):
            with self.assertRaises(SignatureRefused):
                trusted.check(log.checkpoint(10))

    def test_forgedCosignatureIsRefused(self) -> None:
        """A cosignature that is not valid is an error, even where the quorum needs none."""
        note = LOG.checkpoint(10)
        wrong = WITNESSES["X1"].cosign(LOG.head(9).text, 5)
        with self.assertRaises(SignatureRefused):
            policy("quorum none").check(note.signedBy(wrong))

    def test_bothKindsOfCosignaturesAreAskedFor(self) -> None:
        """A quorum can ask a witness for its cosignatures of both kinds."""
        key = mlDsaKey(WITNESSES["X1"].verifier.name)
        trusted = policy(f"witness Q1 {key.verifier.text}", "group both all X1 Q1", "quorum both")
        signed = LOG.checkpoint(10, (WITNESSES["X1"], 5), (key, 5))
        found = [each.witness for each in trusted.check(signed).cosignatures]
        self.assertEqual(sorted(found), ["Q1", "X1"])
        for one in ((WITNESSES["X1"], 5), (key, 5)):
            with self.assertRaises(SignatureRefused):
                trusted.check(LOG.checkpoint(10, one))

    def test_commentsAndTabsAreAllowed(self) -> None:
        """Empty lines and comments are ignored, and tabs separate."""
        trusted = policy("", "  # comment", "\tquorum\t X1 ")
        self.assertEqual(trusted.quorum, "X1")

    def test_malformedPoliciesAreRefusedWithTheirLine(self) -> None:
        """A text that is no policy is refused, with the number of the line."""
        log, key = LOG.key.verifier.text, WITNESSES["X1"].verifier.text
        for wrong in (
            ("quorum X3",),
            ("quorum none", "quorum none"),
            ("group X 3 X1 X2", "quorum none"),
            ("group X 0 X1", "quorum none"),
            ("group X all", "quorum none"),
            ("group X1 all X2", "quorum none"),
            ("group none all X2", "quorum none"),
            ("group X all X1 X1", "quorum none"),
            ("group X all X1", "group Y all X1", "quorum none"),
            ("group X any Y", "group Y any X1", "quorum none"),
            (f"witness Z {log}", "quorum none"),
            (f"log {key}", "quorum none"),
            (f"log {log}", "quorum none"),
            (f"witness Z {key}", "quorum none"),
            ("wittness", "quorum none"),
            ("quorum none\x00",),
            ("log \udcff+00000000+AA==".encode("utf-8", "surrogateescape").decode("latin-1"),),
        ):
            with self.assertRaises(Malformed, msg=wrong) as caught:
                policy(*wrong)
            self.assertIn("line ", str(caught.exception))
        with self.assertRaises(Malformed):
            policy()
        with self.assertRaises(Malformed):
            Policy.parse(b"quorum none\n" * 1001)

    def test_namesMayHaveAnyBytes(self) -> None:
        """The names of witnesses are bytes; keys with names that are not UTF-8 are refused."""
        key = WITNESSES["X1"].verifier.text.encode()
        self.assertEqual(
            len(Policy.parse(b"witness \xff\xfe " + key + b"\nquorum \xff\xfe\n").witnesses), 1
        )
        with self.assertRaises(Malformed):
            Policy.parse(b"log \xff" + key + b"\nquorum none\n")
