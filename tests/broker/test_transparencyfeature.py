"""
Tests for the transparency logs of a daemon: their settings, and which groups have one.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import Broker, Limits, MetadataStore
from svcbroker.broker.transparency import CheckpointLines, feature
from svcbroker.broker.transparency._cosigning import WitnessFailed
from svcbroker.broker.transparency.feature import (
    TransparencyFeature,
    TransparencyOptions,
    TransparencySettings,
    readTransparency,
)
from svcbroker.daemon.config import makeConfig
from svcbroker.net.settings import ConfigError
from svcbroker.proofs.tlog import Policy
from svcbroker.testing._fixtures import memoryLedger
from tests.broker.support import FakeDirectory
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
            self.assertEqual(config.of(TransparencyOptions).origin, text.rstrip("/"))
        for text in ("https://broker.example", "two words", "a+b", "x" * 257, "a\nb"):
            error = self.assertRaises(ConfigError, makeConfig, {"log-origin": text})
            self.assertTrue(str(error).startswith("log-origin: "))
            self.assertNotIn("\n", str(error))

    def test_policyNamesWitnessesWithUrls(self) -> None:
        """Anything else is refused, with the name of the setting and of the file."""
        path = Path(self.mktemp())
        options = makeConfig({"witness-policy": str(path)}).of(TransparencyOptions)
        self.assertIsNone(readTransparency(TransparencyOptions()).policy)
        for text, words in (
            (None, "cannot read"),
            ("", "no quorum line"),
            ("quorum none\n", "names no witness"),
            (f"{WITNESS}\nquorum a\n", "no URL for the witness a"),
            (f"{WITNESS} https://a.example\nquorum b\n", "line 2"),
        ):
            if text is not None:
                path.write_text(text)
            error = self.assertRaises(ConfigError, readTransparency, options)
            self.assertTrue(str(error).startswith("witness-policy: "))
            self.assertIn(str(path), str(error))
            self.assertIn(words, str(error))
        path.write_text(f"{WITNESS} https://a.example\nquorum a\n")
        policy = readTransparency(options).policy
        assert policy is not None
        self.assertEqual(list(policy.witnesses), ["a"])


class GroupTests(SynchronousTestCase):
    """
    Tests for L{TransparencyFeature}.
    """

    def make(self, policy: Any, origin: str = "") -> TransparencyFeature:
        """The logs of a group with a chain, and of one without."""
        rig = LedgerRig(self).start()
        clock = rig.clock
        ledgers: Any = {"1": rig.ledger, "2": memoryLedger(Clock(), "2")}
        metadata = MetadataStore(MetadataFile(), clock, maybeDeferred)

        # Nothing is asked of the network, nor of the threads of the real reactor for its names.
        client = SimpleNamespace(
            addCheckpoint=lambda url, body: fail(WitnessFailed("not reached")),
            close=lambda: succeed(None),
        )
        self.patch(feature, "makeWitnessClient", lambda reactor: client)
        services: Any = SimpleNamespace(
            reactor=clock,
            now=clock.seconds,
            random=lambda: 0.5,
            metadata=metadata,
            ledgers=ledgers,
            broker=Broker(ledgers, clock, Limits(), FakeDirectory()),
            checkpointLines=CheckpointLines(),
        )
        self.addCleanup(services.broker.stop)
        made = TransparencyFeature(TransparencySettings(origin=origin, policy=policy), services)
        certified = made.logs["1"].certified()
        rig.run(1)
        self.origin = self.successResultOf(certified).key.verifier.name
        return made

    def test_groupsWithAChainHaveALog(self) -> None:
        """It is called as the setting says; without a policy it has no witnesses."""
        made = self.make(None, "broker.example/svcbroker")
        self.assertEqual((list(made.logs), made.witnessings), (["1"], {}))
        self.assertEqual(self.origin, "broker.example/svcbroker/log/1")
        self.successResultOf(made.drain())

    def test_policyGivesEachLogItsWitnesses(self) -> None:
        """Those of the policy, for all groups."""
        made = self.make(policyOf())
        self.assertTrue(self.origin.startswith("svcbroker/"))
        [witnessing] = made.witnessings.values()
        self.assertEqual([each.party.name for each in witnessing.witnesses], list(NAMES))
        self.successResultOf(made.drain())

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
            self.successResultOf(made.drain())
