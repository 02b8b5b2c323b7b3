"""
The configuration that is in force, as operators see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen


class SettingSource(Enum):
    """What has given a setting its value."""

    DEFAULT = "default"
    FILE = "file"
    COMMAND_LINE = "command line"


@frozen(kw_only=True)
class SettingRecord:
    """
    A setting, without secrets.

    @ivar name: its name, on the command line and in the configuration file.
    @ivar values: its value as text; several where it may be given more than once.
    @ivar default: the default in words.
    @ivar help: what it means.
    @ivar needsRestart: whether the configuration file had another value at the last reload, which
        takes a restart.
    """

    name: str
    values: Sequence[str]
    default: str
    source: SettingSource
    help: str
    needsRestart: bool


@frozen(kw_only=True)
class BoundRecord:
    """
    The most memory of one kind.

    @ivar name: what takes it, in a few words.
    @ivar bytes: how many bytes, of all together, or of one.
    @ivar how: how the number comes about.
    @ivar each: C{each} where the bytes are those of one, of which there are as many as are stored
        or as clients have made; else empty.
    """

    name: str
    bytes: int
    how: str
    each: str = ""


@frozen(kw_only=True)
class ConfigurationReport:
    """
    All settings as they are in force.

    @ivar bounds: how much memory each kind may take.
    @ivar memory: what the process may use, in bytes; 0 where that is not known.
    @ivar file: the path of the configuration file; empty without one.
    @ivar startedAt: when the broker started, in milliseconds since the epoch.
    @ivar reloadedAt: when files were last read again; C{None} where they were not.
    """

    settings: Sequence[SettingRecord]
    file: str
    startedAt: int
    reloadedAt: int | None
    bounds: Sequence[BoundRecord] = ()
    memory: int = 0
