"""
The configuration as operators see it: settings, bounds of memory, and what a reload would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen


class SettingSource(Enum):
    """The source of a setting's value."""

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
class SettingChange:
    """
    A setting to which the configuration file has given another value.

    @ivar name: its name.
    @ivar before: the value that is in force as text, without secrets; several where it may be given
        more than once.
    @ivar after: that of the file, likewise.
    @ivar needsRestart: whether it takes a restart; otherwise a reload applies it.
    """

    name: str
    before: Sequence[str]
    after: Sequence[str]
    needsRestart: bool


@frozen(kw_only=True)
class AccountChange:
    """
    An account that the file of accounts has otherwise than before.

    @ivar name: its name; empty for the limits of all that have none of their own.
    @ivar kind: C{added}, C{removed} or C{changed}.
    @ivar parts: what of it has changed, such as C{grants}.
    """

    name: str
    kind: str
    parts: Sequence[str] = ()


@frozen(kw_only=True)
class CertificateChange:
    """
    The certificates of a port whose files have changed.

    @ivar port: the name of the port.
    @ivar validUntil: when the first of the new ones expires, in milliseconds since the epoch.
    """

    port: str
    validUntil: int


@frozen(kw_only=True)
class ReloadDifference:
    """
    The changes that a reload would make.

    @ivar problems: a line for each file that cannot be used. What it says would stay as it is.
    """

    settings: Sequence[SettingChange]
    accounts: Sequence[AccountChange]
    certificates: Sequence[CertificateChange]
    problems: Sequence[str]


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
