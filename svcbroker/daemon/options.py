"""
The command line of C{twistd svcbroker}: one option for each setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.python import usage

from ..ledgers import describeLedgers, findLedgerFactories
from ..model import SettingSource
from ..net.settings import ConfigError, Flag, List, Setting
from ..version import readVersion
from .config import OUTDATED, SETTINGS, Config, makeConfig, readSettings
from .plan import describeAuthenticators


class ConfigOptions(usage.Options):
    """
    The command line. After parsing, C{self["config"]} is the whole configuration.

    @ivar file: the configuration file, if there is one.
    """

    synopsis = "[options]"
    longdesc = (
        "Every setting can also stand in a TOML file, under the same name. "
        "An option given here wins over the file."
    )

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, Any] = {}
        self._words: list[str] = []
        self._inFile: frozenset[str] = frozenset()
        self.file: Path | None = None

    def parseOptions(self, options: Any = None) -> None:
        """
        Parse a command line. See C{usage.Options}.

        @raise SystemExit: it is wrong, and twistd's: twistd would write its usage of some 145 lines
            before the reason. The code is that of C{svcbroker run}.
        """
        try:
            super().parseOptions(options)
        except usage.UsageError as error:
            if self.parent is None:
                raise
            sys.stderr.write(f"twistd svcbroker: {error}\n")
            raise SystemExit(2) from None

    def opt_config(self, path: str) -> None:
        """A TOML file with settings."""
        # twistd may go to another directory before the file is read again.
        self.file = Path(path).absolute()

    def arguments(self) -> Sequence[str]:
        """The options that were given, for a command that looks at the same configuration."""
        return [*([] if self.file is None else [f"--config={self.file}"]), *self._words]

    def readConfig(self) -> Config:
        """
        The configuration: the command line and the file, as it is now.

        @raise ConfigError: the file cannot be used, or a setting.
        """
        settings = {} if self.file is None else readSettings(self.file)
        config = makeConfig(settings, self._given)
        self._inFile = frozenset(settings)
        return config

    def sources(self) -> Mapping[str, SettingSource]:
        """The sources of the settings that L{readConfig} has found, by their names."""
        return {
            **dict.fromkeys(self._inFile, SettingSource.FILE),
            **dict.fromkeys(self._given, SettingSource.COMMAND_LINE),
        }

    def opt_help_ledger(self) -> None:
        """Show the ledgers there are, and their settings."""
        sys.stdout.write(describeLedgers(findLedgerFactories()))
        raise SystemExit(0)

    def opt_help_auth(self) -> None:
        """Show the authenticators there are, and their settings."""
        sys.stdout.write(describeAuthenticators())
        raise SystemExit(0)

    def give(self, setting: Setting, value: Any, word: str) -> None:
        """
        Take a setting from the command line.

        @param word: the option as it was given.
        """
        self._words.append(word)
        if isinstance(setting.kind, List):
            value = [*self._given.get(setting.name, []), value]
        self._given[setting.name] = value

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        try:
            self["config"] = self.readConfig()
        except ConfigError as error:
            raise usage.UsageError(str(error)) from None

    def opt_version(self) -> None:
        """Show the version."""
        sys.stdout.write(f"svcbroker {readVersion().version}\n")
        raise SystemExit(0)


def _option(setting: Setting) -> Callable[[ConfigOptions, str], None]:
    def take(self: ConfigOptions, text: str) -> None:
        try:
            self.give(setting, setting.kind.parse(text), f"--{setting.name}={text}")
        except ValueError as error:
            raise usage.UsageError(f"{setting.name}: {error}") from None

    take.__doc__ = f"{setting.help} [{setting.kind.metavar}, default: {setting.default}]"
    return take


def _flag(setting: Setting, value: bool) -> Callable[[ConfigOptions], None]:
    def turn(self: ConfigOptions) -> None:
        self.give(setting, value, f"--{setting.name}" if value else f"--no-{setting.name}")

    default = " (default)" if setting.default == ("on" if value else "off") else ""
    turn.__doc__ = (setting.help if value else f"turn --{setting.name} off") + default
    return turn


def _outdated(name: str) -> Callable[[ConfigOptions, str], None]:
    def take(self: ConfigOptions, text: str) -> None:
        self._given[name] = text

    take.__doc__ = f"no setting any more: {OUTDATED[name]}"
    return take


for _old in OUTDATED:
    setattr(ConfigOptions, f"opt_{_old.replace('-', '_')}", _outdated(_old))
for _each in SETTINGS:
    _name = _each.name.replace("-", "_")
    if isinstance(_each.kind, Flag):
        setattr(ConfigOptions, f"opt_{_name}", _flag(_each, True))
        setattr(ConfigOptions, f"opt_no_{_name}", _flag(_each, False))
    else:
        setattr(ConfigOptions, f"opt_{_name}", _option(_each))
