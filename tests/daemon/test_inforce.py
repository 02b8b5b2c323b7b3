"""
Tests of L{svcbroker.daemon.running}.
"""

from __future__ import annotations

from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.config import SETTINGS
from svcbroker.daemon.options import ConfigOptions
from svcbroker.daemon.running import ConfigurationInForce
from svcbroker.model import SettingRecord, SettingSource
from svcbroker.net.settings import maskSecrets


class InForceTests(SynchronousTestCase):
    """
    A configuration from a file and a command line.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.file = Path(self.mktemp())
        self.write('log-level = "warn"\nmax-positions = 9\n[retain]\n"a/#" = "2d"\n')
        self.options = ConfigOptions()
        self.options.parseOptions(
            [
                *(f"--config={self.file}", "--max-positions=8", "--faults"),
                "--base-path=/",
                *("--group=1", "--group=2=memory"),
            ]
        )
        self.inForce = ConfigurationInForce(
            self.options["config"], self.options.sources(), self.options.file, self.clock.seconds
        )

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def reload(self) -> None:
        """What C{tap.py} does."""
        self.inForce.reloaded(self.options.readConfig(), self.options.sources())

    def setting(self, name: str) -> SettingRecord:
        [found] = [each for each in self.inForce.describe().settings if each.name == name]
        return found

    def test_differenceIsToldBeforeAReload(self) -> None:
        """Whether it takes a restart, too. Options that were given win over the file."""
        self.assertEqual([*self.inForce.difference(self.options.readConfig())], [])
        self.write('log-level = "info"\nmax-positions = 7\ntraces = "http://a:b@c/"\n')
        found = [*self.inForce.difference(self.options.readConfig())]
        told = {each.name: (each.before, each.after, each.needsRestart) for each in found}
        self.assertEqual(told.pop("retain")[1:], ([], True))
        self.assertEqual(told.pop("log-level"), (["warn"], ["info"], False))
        self.assertEqual(told.pop("traces"), ([""], ["http://***@c/"], True))
        self.assertEqual(told, {})

    def test_everySettingIsTold(self) -> None:
        report = self.inForce.describe()
        names = [each.name for each in report.settings]
        self.assertEqual(names, [each.name for each in SETTINGS])
        self.assertEqual((report.file, report.startedAt), (str(self.file.absolute()), 1_000_000))
        self.assertIsNone(report.reloadedAt)

    def test_valuesAreAsOnACommandLine(self) -> None:
        for name, values in (
            ("max-positions", ["8"]),
            ("retain", ["a/#=172800s"]),
            ("group", ["1", "2=memory"]),
            ("faults", ["on"]),
            ("access-log", ["off"]),
            ("chain-timeout", ["10"]),
            ("data-dir", ["svcbroker-data"]),
            ("cors-origin", []),
        ):
            self.assertEqual(self.setting(name).values, values, name)

    def test_valuesAreKeptByAReload(self) -> None:
        """Also one that is kept otherwise than it was given, such as the path of the root."""
        self.write('log-level = "error"\n')
        self.reload()
        self.assertEqual(self.setting("base-path").values, [""])
        self.assertEqual(self.setting("log-level").values, ["error"])

    def test_sourceIsWhatWins(self) -> None:
        for name, source in (
            ("max-positions", SettingSource.COMMAND_LINE),
            ("log-level", SettingSource.FILE),
            ("http", SettingSource.DEFAULT),
        ):
            self.assertIs(self.setting(name).source, source)

    def test_reloadChangesTheLevelOfTheLog(self) -> None:
        """And nothing else: other changes of the file take a restart."""
        self.write("max-content = 7")
        self.clock.advance(1)
        self.reload()
        level = self.setting("log-level")
        self.assertEqual((level.values, level.source), (["info"], SettingSource.DEFAULT))
        content = self.setting("max-content")
        self.assertEqual((content.values, content.needsRestart), (["1048576"], True))
        self.assertEqual(content.source, SettingSource.DEFAULT)
        self.assertTrue(self.setting("retain").needsRestart)
        self.assertFalse(level.needsRestart)
        self.assertEqual(self.inForce.describe().reloadedAt, 1_001_000)


class SecretTests(SynchronousTestCase):
    def test_secretsAreMasked(self) -> None:
        for text, shown in (
            ("evm:url=https\\://ann:secret@node/x", "evm:url=https\\://***@node/x"),
            ("https://ann@node", "https://***@node"),
            ("other:password=a:b=c", "other:password=***:b=c"),
            ("other:apiToken=a,clientSecret=b", "other:apiToken=***,clientSecret=***"),
            ("jwt:jwks=file:audience=a@b", "jwt:jwks=file:audience=a@b"),
            ("/run/secrets/webhooks", "/run/secrets/webhooks"),
            ("b:1=http://10.0.0.2:1/b", "b:1=http://10.0.0.2:1/b"),
        ):
            self.assertEqual(maskSecrets(text), shown)
