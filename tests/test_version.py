"""
Tests for L{svcbroker.version}.
"""

from __future__ import annotations

import sys
from types import ModuleType

from twisted.trial.unittest import SynchronousTestCase

from svcbroker import __version__
from svcbroker.version import VersionRecord, readVersion


class VersionTests(SynchronousTestCase):
    """
    What the build has written, and what is said without it.
    """

    def install(self, **values: str) -> str:
        """A module with build metadata; its name."""
        name = "svcbroker_test_build_metadata"
        module = ModuleType(name)
        module.__dict__.update(values)
        sys.modules[name] = module
        self.addCleanup(sys.modules.pop, name)
        return name

    def test_withoutMetadataCommitIsUnknown(self) -> None:
        """Without build metadata the commit is unknown and its time empty."""
        self.assertEqual(
            readVersion("svcbroker.nosuch"),
            VersionRecord(
                version=__version__, commitTimestamp="", branch="unknown", commitHash="unknown"
            ),
        )

    def test_metadataIsToldAsItIs(self) -> None:
        """With it, it is told as it is."""
        name = self.install(commitTimestamp="2024-01-02 03:04:05", branch="b", commitHash="c0")
        self.assertEqual(
            readVersion(name),
            VersionRecord(
                version=__version__,
                commitTimestamp="2024-01-02 03:04:05",
                branch="b",
                commitHash="c0",
            ),
        )

    def test_missingMetadataIsUnknown(self) -> None:
        """What git could not say is unknown."""
        record = readVersion(self.install(branch="b"))
        self.assertEqual((record.branch, record.commitHash), ("b", "unknown"))
