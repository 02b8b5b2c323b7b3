"""
Declaring settings as the fields of a class: each once, with its type, its default and its help.
"""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

from .settings import SettingType

_KEY = "svcbroker.setting"


class ConfigError(Exception):
    """
    A setting that cannot be used. The text is one line and names the setting.
    """


@frozen(kw_only=True)
class Setting:
    """
    One setting.

    @ivar name: its name, on the command line (after C{--}) and in TOML.
    @ivar attribute: the attribute of a configuration that holds it.
    @ivar kind: what it may be.
    @ivar default: its default, as a command line would have it.
    @ivar help: what it means, in a sentence without a dot.
    """

    name: str
    attribute: str
    kind: SettingType
    default: str
    help: str


def declareSetting(
    name: str, kind: SettingType, default: Any, help: str, shown: str | None = None
) -> Any:
    """
    Declare a field of a configuration.

    @param shown: the default in words where its own text does not do.
    """

    def convert(value: Any) -> Any:
        try:
            return kind.check(value)
        except ValueError as error:
            raise ConfigError(f"{name}: {error}") from None

    text = str(default) if shown is None else shown
    return attrs.field(
        default=default,
        converter=convert,
        metadata={_KEY: (name, kind, text, help)},
    )


def declaredSettings(config: type[Any]) -> tuple[Setting, ...]:
    """The settings that a class declares, in its order."""
    found = []
    for attribute in attrs.fields(config):
        if _KEY in attribute.metadata:
            name, kind, default, help = attribute.metadata[_KEY]
            found.append(
                Setting(name=name, attribute=attribute.name, kind=kind, default=default, help=help)
            )
    return tuple(found)
