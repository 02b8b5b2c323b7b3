"""
Tests of L{svcbroker.daemon.features}: what each feature must do, asked of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.features import Feature, FeaturePlugin
from svcbroker.daemon.config import SETTINGS, makeConfig
from svcbroker.daemon.features import BUILT_IN, FEATURES, findFeatures
from svcbroker.daemon.plan import endpointsOf
from svcbroker.net.settings import ConfigError, declaredSettings
from svcbroker.testing import FeatureFixture, makeFeatureTests

FILES: Mapping[str, bytes] = {
    "webhook-secret-file": b"a secret of more than 16 bytes\n",
}
"""The settings that name files that a reload reads again, and what such a file may hold."""

PUBLISHES: Mapping[str, Sequence[bytes]] = {
    "stomp": (
        b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0",
        b"SEND\ndestination:t\n\nx\0",
    ),
    "mqtt": (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", b"\x30\x04\x00\x01tx"),
}
"""What clients of the features with a port of their own send, by the name of the feature."""


def makeFixture(test: SynchronousTestCase, feature: Feature) -> FeatureFixture:
    """The fixture of a built-in feature, with files for the settings that name some."""
    given: dict[str, Any] = {}
    files = []
    for setting in declaredSettings(feature.settings):
        if setting.name in FILES:
            path = Path(test.mktemp())
            path.write_bytes(FILES[setting.name])
            given[setting.name] = str(path)
            files.append(path)
    return FeatureFixture(
        feature=feature,
        settings=given,
        damage=files[0].unlink if files else None,
        port=feature.name if feature.name in PUBLISHES else "",
        publish=PUBLISHES.get(feature.name, ()),
    )


def contractOf(feature: Feature) -> type[SynchronousTestCase]:
    """The test case with the contract of a feature, by its name."""
    tests = makeFeatureTests(
        lambda test: makeFixture(test, feature), hasPort=feature.name in PUBLISHES
    )
    tests.__name__ = tests.__qualname__ = f"{feature.name.capitalize()}FeatureTests"
    tests.__module__ = __name__
    return tests


for _each in BUILT_IN:
    globals()[f"{_each.name.capitalize()}FeatureTests"] = contractOf(_each)


class ListTests(SynchronousTestCase):
    """
    The list.
    """

    def plugin(self, **changes: Any) -> list[Any]:
        """A plugin with a feature."""
        feature = Feature(**{"name": "more", "make": lambda read, services: None, **changes})

        class Plugin(FeaturePlugin):
            def load(self) -> Feature:
                return feature

        return [Plugin("more")]

    def test_pluginsComeLast(self) -> None:
        found = findFeatures(lambda interface: self.plugin())
        self.assertEqual([each.name for each in found][len(BUILT_IN) :], ["more"])
        self.assertEqual(tuple(found[: len(BUILT_IN)]), tuple(BUILT_IN))

    def test_namesAreDistinct(self) -> None:
        """Those of features, of their settings, and of the records that they keep."""
        settings = next(each.settings for each in BUILT_IN if each.name == "stomp")
        for changes, words in (
            ({"name": "stomp"}, "2 features are called 'stomp'"),
            ({"settings": settings}, "2 features have a setting 'stomp'"),
            ({"entries": {"mqtt": lambda *_: ""}}, "2 features keep records of kind 'mqtt'"),
        ):
            plugins = self.plugin(**changes)
            error = self.assertRaises(ConfigError, findFeatures, lambda _, p=plugins: p)
            self.assertEqual(str(error), words)

    def test_pluginsAreLoadedByName(self) -> None:
        found = FeaturePlugin("svcbroker.broker.retention.FEATURE").load()
        self.assertEqual(found.name, "retention")

    def test_everySettingHasAnOwner(self) -> None:
        """Settings of features, and those of the daemon itself, have one name each."""
        names = [setting.name for setting in SETTINGS]
        self.assertEqual(len(set(names)), len(names))
        for feature in FEATURES:
            for setting in declaredSettings(feature.settings):
                self.assertIn(setting, SETTINGS)

    def test_portsAreEndpointsOfFeatures(self) -> None:
        self.assertEqual(list(endpointsOf(makeConfig()))[:3], ["http", "stomp", "mqtt"])
        found = endpointsOf(makeConfig({"http": "", "metrics": 9464}))
        self.assertEqual(list(found)[-1], "metrics")
