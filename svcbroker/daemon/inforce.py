"""
The configuration that is in force: what the daemon was started with, and what a reload has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..model import BoundRecord, ConfigurationReport, SettingRecord, SettingSource
from ..net.settings import Setting
from .config import SETTINGS, Config

_RELOADED: Final = ("anonymous", "log-level")
"""The settings of the file that a reload changes."""

# A user and a password in a URL, whose colons may be escaped in a description.
_URL_CREDENTIALS = re.compile(r"(:(?:\\?/){2})[^/@\s]+@")
_SECRET_VALUE = re.compile(r"\b(\w*(?:password|passphrase|secret|token)\w*=)(?!\*)[^:,\s]+", re.I)


def maskSecrets(text: str) -> str:
    """A text without the credentials of URLs, and the secrets of descriptions."""
    return _SECRET_VALUE.sub(r"\1***", _URL_CREDENTIALS.sub(r"\1***@", text))


class ConfigurationInForce:
    """
    The settings with their values and what has given them.
    """

    def __init__(
        self,
        config: Config,
        sources: Mapping[str, SettingSource],
        file: Path | None,
        now: Callable[[], float],
        bounds: Sequence[BoundRecord] = (),
        memory: int = 0,
    ) -> None:
        """
        @param config: what the daemon is started with.
        @param sources: what has given the settings that are no defaults, by their names.
        @param file: the configuration file.
        @param now: the wall clock: seconds since the epoch.
        @param bounds: how much memory each kind may take.
        @param memory: how much the process may use, in bytes.
        """
        self._bounds, self._memory = bounds, memory
        self._config = self._read = config
        self._sources = dict(sources)
        self._file = file
        self._now = now
        self._startedAt = now()
        self._reloadedAt: float | None = None

    def reloaded(self, config: Config, sources: Mapping[str, SettingSource]) -> None:
        """The file was read again, with the files of accounts and secrets."""
        self._read = config
        self._reloadedAt = self._now()
        for setting in SETTINGS:
            if setting.name in _RELOADED:
                self._config = self._config.change({setting: config.value(setting)})
                self._sources[setting.name] = sources.get(setting.name, SettingSource.DEFAULT)

    def describe(self) -> ConfigurationReport:
        """All settings, without secrets. Called when an operator asks."""
        return ConfigurationReport(
            settings=[self._record(setting) for setting in SETTINGS],
            file="" if self._file is None else str(self._file),
            startedAt=_milliseconds(self._startedAt),
            reloadedAt=None if self._reloadedAt is None else _milliseconds(self._reloadedAt),
            bounds=self._bounds,
            memory=self._memory,
        )

    def _record(self, setting: Setting) -> SettingRecord:
        value = self._config.value(setting)
        values = value if isinstance(value, tuple) else (value,)
        return SettingRecord(
            name=setting.name,
            values=[maskSecrets(_text(each)) for each in values],
            default=setting.default,
            source=self._sources.get(setting.name, SettingSource.DEFAULT),
            help=setting.help,
            needsRestart=value != self._read.value(setting),
        )


def _text(value: Any) -> str:
    """A value as it may be written on a command line."""
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
    return str(value)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
