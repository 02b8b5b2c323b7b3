"""
Tests of L{benchmarks.consoles}.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker.console
from benchmarks.consoles import PAGES

PAGE = Path(svcbroker.console.__file__).parent / "page"


class PageTests(SynchronousTestCase):
    def test_consolesAskWhatPagesAsk(self) -> None:
        """The same calls at the same pace."""
        for name, asked in PAGES.items():
            source = (PAGE / f"{name}.js").read_text("utf-8")
            if name == "checkpoints":
                source += (PAGE / "pins.js").read_text("utf-8")
            for every, path in asked:
                self.assertIn(f'"{path[1:].partition("?")[0]}"', source, name)
                self.assertIn(f" = {1000 * every:.0f};", source, f"{name} {path}")
