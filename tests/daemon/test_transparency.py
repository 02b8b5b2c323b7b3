"""
Tests for the transparency logs of a daemon: their settings, and which groups have one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore
from svcbroker.daemon.config import ConfigError, makeConfig
from svcbroker.daemon.transparency import TransparencyLogs, readWitnessPolicy
from svcbroker.testing.doubles import memoryLedger
from svcbroker.tlog import Policy
from tests.broker.witnesses import KEYS, NAMES, policyOf
from tests.carriers.mqtt.support import MetadataFile
from tests.ledgers.pbft.rig import LedgerRig

WITNESS = f"witness a {KEYS['a'].verifier.text}"


class SettingTests(SynchronousTestCase):
    """
    C{log-origin} and C{witness-policy}.
    """

    def test_originIsAName(self) -> None:
        """Without a scheme, spaces or plus signs, and without a slash at its end."""
        for text in ("", "broker.example/svcbroker", "broker.example/svcbroker/"):
            config = makeConfig({"log-origin": text})
            self.assertEqual(config.logOrigin, text.rstrip("/"))
        for text in ("https://broker.example", "two words", "a+b", "x" * 257, "a\nb"):
            error = self.assertRaises(ConfigError, makeConfig, {"log-origin": text})
            self.assertTrue(str(error).startswith("log-origin: "))
            self.assertNotIn("\n", str(error))

    def test_policyNamesWitnessesWithUrls(self) -> None:
        """Anything else is refused, with the name of the setting and of the file."""
        path = Path(self.mktemp())
        config = makeConfig({"witness-policy": str(path)})
        self.assertIsNone(readWitnessPolicy(makeConfig({})))
        for text, words in (
            (None, "cannot read"),
            ("", "no quorum line"),
            ("quorum none\n", "names no witness"),
            (f"{WITNESS}\nquorum a\n", "no URL for the witness a"),
            (f"{WITNESS} https://a.example\nquorum b\n", "line 2"),
        ):
            if text is not None:
                path.write_text(text)
            error = self.assertRaises(ConfigError, readWitnessPolicy, config)
            self.assertTrue(str(error).startswith("witness-policy: "))
            self.assertIn(str(path), str(error))
            self.assertIn(words, str(error))
        path.write_text(f"{WITNESS} https://a.example\nquorum a\n")
        policy = readWitnessPolicy(config)
        assert policy is not None
        self.assertEqual(list(policy.witnesses), ["a"])


class GroupTests(SynchronousTestCase):
    """
    Tests for L{TransparencyLogs}.
    """

    def make(self, policy: Any, **settings: str) -> TransparencyLogs:
        """The logs of a group with a chain, and of one without."""
        rig = LedgerRig(self).start()
        clock = rig.clock
        ledgers: Any = {"1": rig.ledger, "2": memoryLedger(Clock(), "2")}
        metadata = MetadataStore(MetadataFile(), clock, maybeDeferred)

        class Parts:
            reactor, now, random = clock, clock.seconds, lambda: 0.5

        parts: Any = Parts
        made = TransparencyLogs(makeConfig(settings), policy, ledgers, metadata, parts)
        certified = made.logs["1"].certified()
        rig.run(1)
        self.origin = self.successResultOf(certified).key.verifier.name
        return made

    def test_groupsWithAChainHaveALog(self) -> None:
        """It is called as the setting says; without a policy it has no witnesses."""
        made = self.make(None, **{"log-origin": "broker.example/svcbroker"})
        self.assertEqual((list(made.logs), made.witnessings), (["1"], {}))
        self.assertEqual(self.origin, "broker.example/svcbroker/log/1")
        self.successResultOf(made.stop())

    def test_policyGivesEachLogItsWitnesses(self) -> None:
        """Those of the policy, for all groups."""
        made = self.make(policyOf())
        self.assertTrue(self.origin.startswith("svcbroker/"))
        [witnessing] = made.witnessings.values()
        self.assertEqual([each.party.name for each in witnessing.witnesses], list(NAMES))
        self.successResultOf(made.stop())

    def test_quorumsWithoutCommonWitnessAreLogged(self) -> None:
        """A policy by which two histories can both be accepted is named when the daemon starts."""
        for quorum, count in (("any", 1), ("2", 0)):
            witnesses = policyOf().witnesses.values()
            lines = [f"witness {each.name} {each.key.text} {each.url}" for each in witnesses]
            lines += [f"group g {quorum} {' '.join(NAMES)}", "quorum g"]
            made = self.make(Policy.parse("\n".join(lines).encode()))
            with capturedLogs() as events:
                self.successResultOf(made.start())
            said = [formatEvent(each) for each in events]
            self.assertEqual(sum("need not have seen" in each for each in said), count, said)
            self.successResultOf(made.stop())
