"""
The page of the clients that were tried.
"""

from __future__ import annotations

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from .tried import CLIENTS, page, rows

AGAIN = "the page is written by: python -m tests.interop.tried"


class PageTests(SynchronousTestCase):
    """
    What stands there is what these tests do: CI lets none of them fail or be skipped.
    """

    def test_pageListsWhatIsTried(self) -> None:
        listed = [(row["Client"], row["Tried"], row["Tests"]) for row in page()]
        self.assertEqual(listed, rows(), AGAIN)

    def test_versionsAreThoseOfThePage(self) -> None:
        """As far as their first numbers: others do not stop their releases for this project."""
        missing = []
        for client, row in zip(CLIENTS, page(), strict=True):
            try:
                found = client.findVersion()
            except SkipTest as reason:
                missing.append(str(reason))
                continue
            first = [each.split(".")[0] for each in (found, row["Version"])]
            self.assertEqual(first[0], first[1], f"{client.name}; {AGAIN}")
        if missing:
            raise SkipTest("; ".join(missing))
