"""
The version of this svcbroker, and the commit that it was built from.

A module of its own: setup.py, the daemon and the command line read it, and it needs nothing.
"""

from __future__ import annotations

from importlib import import_module

from attrs import frozen

from . import __version__

UNKNOWN = "unknown"


@frozen(kw_only=True)
class VersionRecord:
    """
    The version that C{getVersion} tells.

    @ivar version: the version number.
    @ivar commitTimestamp: the time of the latest commit, C{yyyy-MM-dd HH:mm:ss} in UTC; empty
        in a build without build metadata.
    @ivar branch: the branch that was built, or C{unknown}.
    @ivar commitHash: the hash of the latest commit in hex, or C{unknown}.
    """

    version: str
    commitTimestamp: str = ""
    branch: str = UNKNOWN
    commitHash: str = UNKNOWN


def readVersion(moduleName: str = "svcbroker._build") -> VersionRecord:
    """
    The version of the running code.

    @param moduleName: the module that C{setup.py} writes into what it builds. A source tree
        has none.
    """
    try:
        build = import_module(moduleName)
    except ModuleNotFoundError:
        return VersionRecord(version=__version__)
    return VersionRecord(
        version=__version__,
        commitTimestamp=getattr(build, "commitTimestamp", ""),
        branch=getattr(build, "branch", UNKNOWN),
        commitHash=getattr(build, "commitHash", UNKNOWN),
    )
