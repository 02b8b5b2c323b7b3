"""
Tests for L{svcbroker.daemon.config} and L{svcbroker.daemon.config}.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.retention import RetentionOptions, RetentionRule
from svcbroker.carriers.http.feature import HttpOptions
from svcbroker.daemon.auditing import AuditOptions
from svcbroker.daemon.config import (
    MAX_FILE_SIZE,
    OUTDATED,
    SETTINGS,
    Config,
    GroupSetting,
    makeConfig,
    readSettings,
)
from svcbroker.daemon.features import FEATURES
from svcbroker.daemon.plan import endpointsOf
from svcbroker.net.settings import MAX_SECRETS_FILE, ConfigError, Period


class DefaultTests(SynchronousTestCase):
    """
    What holds when nothing is chosen.
    """

    def test_defaultsAreThePublishedOnes(self) -> None:
        """The defaults are those of the interface's page on addresses and defaults."""
        config = Config()
        self.assertEqual(
            {setting.name: config.value(setting) for setting in SETTINGS},
            {
                "http": "tcp:8080:interface=127.0.0.1",
                "stomp": "tcp:61613:interface=127.0.0.1",
                "mqtt": "tcp:1883:interface=127.0.0.1",
                "metrics": "http",
                "accounts": "",
                "auth": (),
                "anonymous": (),
                "audit-topic": "$svc/audit",
                "audit-every": Period(0),
                "log-origin": "",
                "witness-policy": "",
                "witness-interval": 60.0,
                "mqtt-open-topics": True,
                "base-path": "/svcbroker",
                "dialect": "",
                "data-dir": Path("svcbroker-data"),
                "ledger": "pbft:nodes=4",
                "group": (GroupSetting(id="1"),),
                "max-content": 1048576,
                "max-unsent": 0,
                "max-positions": 10_000,
                "position-expiry": 30,
                "retain": (),
                "find": False,
                "index": (),
                "chain-timeout": 10.0,
                "log-format": "auto",
                "log-level": "info",
                "traces": "",
                "access-log": False,
                "cors-origin": (),
                "host-name": (),
                "webhook-allow": (),
                "webhook-secret-file": "",
                "webhook-signatures": "both",
                "webhook-timeout": 10.0,
                "scitt": "",
                "scitt-policy": "",
                "scitt-name": "",
                "webhook-max-delay": 300.0,
                "faults": False,
                "advertise": "",
                "shutdown-timeout": 30.0,
            },
        )

    def test_configurationIsFrozen(self) -> None:
        """A configuration does not change."""
        with self.assertRaises(attrs.exceptions.FrozenInstanceError):
            Config().ledger = ""  # type: ignore[misc]

    def test_eachFieldIsASetting(self) -> None:
        """Every field is declared as a setting, with a name and a help text of its own."""
        declared = {(setting.owner, setting.attribute) for setting in SETTINGS}
        for owner in (Config, *(feature.settings for feature in FEATURES)):
            for field in attrs.fields(owner):
                if field.name not in ("_features", "outdated"):
                    self.assertIn((owner, field.name), declared)
        self.assertEqual(len({setting.name for setting in SETTINGS}), len(SETTINGS))
        self.assertEqual(len({setting.help for setting in SETTINGS}), len(SETTINGS))


class ValueTests(SynchronousTestCase):
    """
    What a setting may be.
    """

    def refused(self, name: str, value: Any) -> str:
        """The words with which a value is refused; they begin with the setting's name."""
        error = self.assertRaises(ConfigError, makeConfig, {name: value})
        text = str(error)
        self.assertTrue(text.startswith(f"{name}: "), text)
        self.assertNotIn("\n", text)
        return text

    def test_goodValuesAreConverted(self) -> None:
        """Good values are taken, and changed into what the program works with."""
        config = makeConfig(
            {
                "http": "",
                "base-path": "/a/b-c",
                "data-dir": "/srv/x",
                "group": ["1", "two=memory", "3.x=pbft:nodes=7"],
                "max-content": 5,
                "chain-timeout": 2,
                "access-log": True,
                "cors-origin": ["*", "https://example.com:444"],
            }
        )
        self.assertEqual(config.of(HttpOptions).endpoint, "")
        self.assertEqual(config.basePath, "/a/b-c")
        self.assertEqual(config.dataDir, Path("/srv/x"))
        self.assertEqual(
            config.groups,
            (
                GroupSetting(id="1"),
                GroupSetting(id="two", ledger="memory"),
                GroupSetting(id="3.x", ledger="pbft:nodes=7"),
            ),
        )
        self.assertEqual(config.maxContent, 5)
        self.assertEqual(config.chainTimeout, 2.0)
        self.assertTrue(config.of(HttpOptions).accessLog)
        self.assertEqual(config.of(HttpOptions).corsOrigins, ("*", "https://example.com:444"))

    def test_laterWins(self) -> None:
        """Of two sources, the later one wins, setting by setting."""
        config = makeConfig(
            {"max-content": 5, "group": ["a", "b"], "http": "x"},
            {"max-content": 6, "group": ["c"]},
        )
        self.assertEqual(config.maxContent, 6)
        self.assertEqual([group.id for group in config.groups], ["c"])
        self.assertEqual(config.of(HttpOptions).endpoint, "x")

    def test_unknownSettingIsRefused(self) -> None:
        """A setting that does not exist is refused by its name."""
        self.assertIn("no such setting", self.refused("amqp", "tcp:5672"))
        self.assertIn("no such setting", self.refused("dataDir", "x"))

    def test_portNumberIsServedOnLoopback(self) -> None:
        """In the file it may be a number or text."""
        for value in (8080, "8080", "08080"):
            for name in ("http", "stomp", "mqtt"):
                config = makeConfig({name: value})
                self.assertEqual(endpointsOf(config)[name], "tcp:8080:interface=127.0.0.1")
        # What is no number in ASCII is left to the parser of endpoints.
        self.assertEqual(makeConfig({"http": "\u0661"}).of(HttpOptions).endpoint, "\u0661")

    def test_unknownSettingNamesNearest(self) -> None:
        """Where none is near, none is named."""
        self.assertTrue(self.refused("htp", "x").endswith("; did you mean http?"))
        self.assertTrue(self.refused("xyzzy", "x").endswith("no such setting"))

    def test_wrongTypes(self) -> None:
        """A value of the wrong type is refused."""
        for setting in SETTINGS:
            self.refused(setting.name, {"a": 1})
            self.refused(setting.name, None)
        for name in ("data-dir", "ledger", "base-path", "log-format"):
            self.refused(name, 5)
        for port in (True, 5.0, -1, 65536, "65536", "9" * 5000):
            self.refused("http", port)
        for name in ("max-content", "chain-timeout", "shutdown-timeout"):
            self.refused(name, "5")
            self.refused(name, True)
        self.refused("access-log", 1)
        self.refused("access-log", "true")
        self.refused("group", "1")
        self.refused("group", [1])
        self.refused("max-content", 1.0)

    def test_numbersAreBounded(self) -> None:
        """Sizes and times are positive, finite and not beyond reason."""
        for value in (0, -1, 64 * 1024 * 1024 + 1):
            self.refused("max-content", value)
        for name in ("chain-timeout", "shutdown-timeout"):
            for span in (0, -1, -0.001, float("inf"), float("nan"), 3600.5, 10**400):
                self.refused(name, span)
        self.assertEqual(makeConfig({"max-content": 64 * 1024 * 1024}).maxContent, 2**26)
        self.assertEqual(makeConfig({"chain-timeout": 3600}).chainTimeout, 3600.0)

    def test_groupIdsAreSafeAndDistinct(self) -> None:
        """Group ids are safe as names of directories, and are not given twice."""
        for id in (
            "",
            ".",
            "..",
            ".hidden",
            "a/b",
            "a b",
            "ä",
            "x" * 65,
            "a\x00",
            "a\n",
            "=memory",
        ):
            self.refused("group", [id])
        self.refused("group", [])
        self.refused("group", ["1="])
        self.assertIn("'1'", self.refused("group", ["1", "2", "1=memory"]))
        self.assertIn("'Ab'", self.refused("group", ["Ab", "aB"]))
        self.assertEqual(makeConfig({"group": ["x" * 64]}).groups[0].id, "x" * 64)

    def test_basePath(self) -> None:
        """The base path is a plain path."""
        for path in ("svcbroker", "a/", "/a/", "//a", "/a//b", "/a b", "/../a", "/a?b", "/%41"):
            self.refused("base-path", path)
        self.refused("base-path", "/" + "a" * 256)
        self.assertEqual(makeConfig({"base-path": "/"}).basePath, "")

    def test_dialectIsKnown(self) -> None:
        self.assertEqual(makeConfig({"dialect": "weevent-1.1"}).dialect, "weevent-1.1")
        for text in ("weevent", "WeEvent-1.1", "svcbroker"):
            self.assertIn("weevent-1.1", self.refused("dialect", text))

    def test_hostNamesHaveNoPort(self) -> None:
        config = makeConfig({}, {"host-name": ["Broker.example", "10.0.0.1"]})
        self.assertEqual(config.of(HttpOptions).hostNames, ("broker.example", "10.0.0.1"))
        for text in ("", "a b", "broker.example:8080", "http://a", "*", "-a", "a."):
            self.refused("host-name", [text])

    def test_originsAreWhatBrowsersSend(self) -> None:
        """Origins are what browsers send."""
        for text in ("", "example.com", "https://", "https://a/b", "ftp://a", "https://a/"):
            self.refused("cors-origin", [text])

    def test_advertisedNameHasHostAndPort(self) -> None:
        """What a broker is called has a host and a port."""
        for text in ("a", "a:", ":1", "a:0", "a:65536", "a:x", "a,b:1", "a b:1", "::1:80", "[x]:1"):
            self.refused("advertise", text)
        for text in ("", "a.example:8080", "10.0.0.1:1", "[::1]:65535"):
            self.assertEqual(makeConfig({"advertise": text}).advertise, text)

    def test_auditEveryIsALengthOfTime(self) -> None:
        for text, seconds in (("24h", 86400), ("2w", 1_209_600), ("", 0)):
            self.assertEqual(
                makeConfig({"audit-every": text}).of(AuditOptions).every, Period(seconds)
            )
        for bad in ("24", "0h", "h", "-1d", 5):
            self.refused("audit-every", bad)

    def test_retainIsATableOrAList(self) -> None:
        """Patterns with ages, in a table of TOML, in a list, or as options."""
        rules = (RetentionRule("telemetry/#", 90 * 86400), RetentionRule("a=b", 30))
        for value in (
            {"telemetry/#": "90d", "a=b": "30s"},
            ["telemetry/#=90d", "a=b=30s"],
            rules,
        ):
            self.assertEqual(makeConfig({"retain": value}).of(RetentionOptions).rules, rules)
        ages = {"1s": 1, "2m": 120, "3h": 10800, "4d": 345600, "5w": 3024000}
        found = (
            makeConfig({"retain": [f"t/{age}={age}" for age in ages]}).of(RetentionOptions).rules
        )
        self.assertEqual([rule.age for rule in found], list(ages.values()))
        for text in (
            *("", "a", "a=", "a=5", "a=0d", "a=-1d", "a=1.5d", "a=1y", "a=1d ", "a=101w1"),
            *("=1d", "a/#/b=1d", "a=36501d", "a=1000000000d", "a+=1d"),
        ):
            self.refused("retain", [text])
        self.refused("retain", ["a=1d", "a=2d"])
        self.refused("retain", {"a": 5})
        self.refused("retain", "a=1d")

    def test_anonymousGrantsHaveCommasBetweenThem(self) -> None:
        """Commas in topics stay where they are."""
        config = makeConfig(
            {"anonymous": ["subscribe 1 a,b/#, deny subscribe 1 a,x,publisher ,* 2 c", "admin 1"]}
        )
        self.assertEqual(
            config.anonymous,
            ("subscribe 1 a,b/#", "deny subscribe 1 a,x", "publisher", "* 2 c", "admin 1"),
        )
        self.assertIn("must be one of publish", self.refused("anonymous", ["publsh 1 a"]))
        self.assertIn("is no grant", self.refused("anonymous", ["nobody"]))

    def test_logFormat(self) -> None:
        """The log's format is one of two words, which the refusal names."""
        self.assertIn("auto, text, json, journal", self.refused("log-format", "xml"))

    def test_controlCharactersAreRefused(self) -> None:
        """No text has control characters in it."""
        for name in ("http", "data-dir", "ledger"):
            self.refused(name, "a\x00b")
            self.refused(name, "a\nb")

    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.dictionaries(
            st.sampled_from([setting.name for setting in SETTINGS]),
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.lists(st.text() | st.integers()),
        )
    )
    def test_anyInputGivesConfigOrConfigError(self, chosen: dict[str, Any]) -> None:
        """Whatever is given, there is a configuration or a L{ConfigError} in one line."""
        try:
            makeConfig(chosen)
        except ConfigError as error:
            self.assertNotIn("\n", str(error))


class FileTests(SynchronousTestCase):
    """
    TOML files.
    """

    def write(self, content: str | bytes) -> Path:
        """A file with this content."""
        path = Path(self.mktemp())
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def refused(self, content: str | bytes) -> str:
        """The words with which a file is refused."""
        path = self.write(content)
        text = str(self.assertRaises(ConfigError, readSettings, path))
        self.assertIn(str(path), text)
        self.assertNotIn("\n", text)
        return text

    def test_settingsAreReadByName(self) -> None:
        """The settings are read under their names."""
        path = self.write('http = "tcp:1"\ngroup = ["1", "2=memory"]\nchain-timeout = 2.5\n')
        config = makeConfig(readSettings(path))
        self.assertEqual(config.of(HttpOptions).endpoint, "tcp:1")
        self.assertEqual(config.groups[1], GroupSetting(id="2", ledger="memory"))
        self.assertEqual(config.chainTimeout, 2.5)

    def test_missingFileIsRefusedByName(self) -> None:
        """A file that is not there is refused by its name."""
        path = Path(self.mktemp())
        text = str(self.assertRaises(ConfigError, readSettings, path))
        self.assertEqual(text, f"config: cannot read {path}: No such file or directory")

    def test_syntaxErrorNamesLine(self) -> None:
        """A syntax error is told with its line."""
        self.assertIn("line 2", self.refused("max-content = 1\nhttp = tcp\n"))

    def test_extremeNumbersAndNestingAreRefused(self) -> None:
        """Numbers and brackets without end are refused too."""
        self.assertIn("is not TOML", self.refused("max-content = " + "9" * 5000))
        self.assertIn("is not TOML", self.refused("group = " + "[" * 100_000))

    def test_outdatedSettingsAreTakenAndTold(self) -> None:
        """Files of earlier releases can still be used; each old setting is told in one line."""
        values = ('"x"', "7", '["b"]')
        lines = [f"{name} = {values[at % 3]}\n" for at, name in enumerate(OUTDATED)]
        config = makeConfig(readSettings(self.write("".join(lines))), {"max-levels": "9"})
        self.assertEqual(config, Config())
        self.assertEqual(len(config.outdated), len(OUTDATED))
        for name, line in zip(OUTDATED, config.outdated, strict=True):
            self.assertTrue(line.startswith(f"{name} is no setting any more, and has no effect: "))
            self.assertNotIn("\n", line)
        self.assertEqual(makeConfig({"http": "1"}).outdated, ())

    def test_unknownKeyNamesLine(self) -> None:
        """An unknown key is told with its line."""
        self.assertTrue(
            self.refused("# x\nmax-content = 1\n'htpp' = 1\n").endswith(
                ", line 3: htpp: there is no such setting; did you mean http?"
            )
        )
        self.assertIn(", line 2: server: ", self.refused("\n[server]\nhttp = 'x'\n"))

    def test_badValueNamesKeyAndLine(self) -> None:
        """A bad value is told with its key and line."""
        self.assertIn(", line 1: max-content: is not", self.refused("max-content = 0"))

    def test_notText(self) -> None:
        """A file that is not UTF-8 is refused."""
        self.assertIn("UTF-8", self.refused(b"http = '\xff'"))

    def test_oversizedFileIsNotReadWhole(self) -> None:
        """A file beyond the limit is not read to its end."""
        self.assertIn("larger", self.refused(b"#" * (MAX_FILE_SIZE + 1)))


class SecretFileTests(SynchronousTestCase):
    """
    The files of secrets that settings name.
    """

    def test_oversizedFilesOfSecretsAreRefused(self) -> None:
        """A secret that is cut short would be one, too, and those behind it would be missing."""
        path = Path(self.mktemp())
        for feature in FEATURES:
            for setting in feature.secrets:
                options: Any = makeConfig({setting: str(path)}).of(feature.settings)
                self.check(setting, path, partial(feature.read, options))

    def check(self, setting: str, path: Path, read: Callable[[], object]) -> None:
        """The file of a setting may have so many bytes, and no more."""
        line = b"one = whsec_MDEyMzQ1Njc4OWFiY2RlZg==\n" if setting.startswith("webhook") else b""
        path.write_bytes(line.ljust(MAX_SECRETS_FILE, b"\n"))
        read()
        path.write_bytes(line.ljust(MAX_SECRETS_FILE + 1, b"\n"))
        error = self.assertRaises(ConfigError, read)
        self.assertEqual(str(error), f"{setting}: {path} is larger than {MAX_SECRETS_FILE} bytes")
