"""
How many files may be open.
"""

from __future__ import annotations

import resource

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.process import WANTED_FILES, raiseFileLimit

NONE = resource.RLIM_INFINITY


class RaiseFileLimitTests(SynchronousTestCase):
    """
    L{raiseFileLimit}
    """

    def test_limitIsRaisedAndNeverLowered(self) -> None:
        """It goes up to the hard limit, up to what is wanted, and never down."""
        for soft, hard, expected in (
            (1024, 4096, 4096),
            (1024, 524_288, WANTED_FILES),
            (1024, NONE, WANTED_FILES),
            (4096, 4096, 4096),
            (100_000, 524_288, 100_000),
            (NONE, NONE, NONE),
        ):
            changes: list[tuple[int, tuple[int, int]]] = []

            def get(what: int, limits: tuple[int, int] = (soft, hard)) -> tuple[int, int]:
                self.assertEqual(what, resource.RLIMIT_NOFILE)
                return limits

            def put(
                what: int,
                limits: tuple[int, int],
                into: list[tuple[int, tuple[int, int]]] = changes,
            ) -> None:
                into.append((what, limits))

            self.assertEqual(raiseFileLimit(get, put), expected)
            change = (resource.RLIMIT_NOFILE, (expected, hard))
            self.assertEqual(changes, [] if expected == soft else [change])

    def test_limitCanBeRaisedTwice(self) -> None:
        """It can be called, and again."""
        limit = raiseFileLimit()
        self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE)[0], limit)
        self.assertEqual(raiseFileLimit(), limit)
