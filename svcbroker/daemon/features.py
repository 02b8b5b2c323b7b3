"""
The features of the daemon: the one list of them, in the order in which they start.

Options, the configuration file, C{run --check}, doctor, metrics and the table of settings are made
of this list. Those of other distributions, found as twisted plugins, come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from twisted.plugin import getPlugins

from ..broker import GroupOf, receipts, retention
from ..broker.features import Feature
from ..broker.find import feature as find
from ..broker.subscriptions import feature as subscriptions
from ..broker.transparency import feature as transparency
from ..carriers.http import feature as http
from ..carriers.http import follow, replication
from ..carriers.mqtt import carrier as mqtt
from ..carriers.scitt import feature as scitt
from ..carriers.stomp import carrier as stomp
from ..carriers.webhook import feature as webhooks
from ..console import FEATURE as CONSOLE
from ..interfaces import IFeaturePlugin
from ..net.alarms import Condition
from ..net.settings import ConfigError, Setting, declaredSettings
from . import alarms, auditing, history, incidents, jobs, metrics

BUILT_IN: Final[Sequence[Feature]] = (
    subscriptions.FEATURE,
    http.FEATURE,
    follow.FEATURE,
    stomp.FEATURE,
    mqtt.FEATURE,
    webhooks.FEATURE,
    CONSOLE,
    replication.FEATURE,
    transparency.FEATURE,
    retention.FEATURE,
    find.FEATURE,
    receipts.FEATURE,
    scitt.FEATURE,
    auditing.FEATURE,
    jobs.FEATURE,
    metrics.FEATURE,
    history.FEATURE,
    incidents.FEATURE,
    alarms.FEATURE,
)
"""Those that come with svcbroker."""


def findFeatures(
    getPlugins: Callable[[Any], Iterable[Any]] = getPlugins,
) -> Sequence[Feature]:
    """
    All features: the built-in ones, and those of plugins by their names.

    @param getPlugins: as C{twisted.plugin.getPlugins}.
    @raise ConfigError: two features have one name, one setting, or one kind of records.
    """
    loaded: list[Feature] = [plugin.load() for plugin in getPlugins(IFeaturePlugin)]
    found = (*BUILT_IN, *sorted(loaded, key=lambda each: each.name))
    for what, names in (
        ("features are called", [each.name for each in found]),
        ("features have a setting", [s.name for each in found for s in settingsOf(each)]),
        ("features have a condition", [c.name for each in found for c in each.conditions]),
        ("features keep records of kind", [kind for each in found for kind in each.entries]),
    ):
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"{names.count(name)} {what} {name!r}")
    return found


def settingsOf(feature: Feature) -> Sequence[Setting]:
    """The settings that a feature declares."""
    return declaredSettings(feature.settings)


FEATURES: Final[Sequence[Feature]] = findFeatures()
"""All features, in the order in which they start."""

ENTRY_GROUPS: Final[Mapping[str, GroupOf]] = dict(
    chain.from_iterable(each.entries.items() for each in FEATURES)
)
"""The functions that find the group of each entry of the metadata store."""

CONDITIONS: Final[Sequence[Condition]] = tuple(
    condition for each in FEATURES for condition in each.conditions
)
"""All that can be wrong with a running broker: the one list of alarms."""
