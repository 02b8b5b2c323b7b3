"""
The page about the clients: each of its programs is run as it stands there, and has to print what
its last comment says.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

from tests.authors import makeKeyFile

from .daemon import DaemonTestCase

PAGE = Path(__file__).parents[2] / "docs" / "client.rst"
BASE = "http://127.0.0.1:8080/svcbroker"

_PROGRAM = re.compile(r"^\.\. code-block:: python\n\n((?: {3}.*\n|\n)+)", re.MULTILINE)
_EVENT_ID = re.compile(r"\b([0-9a-f]{8}-\d+-)\d+")


class PageTests(DaemonTestCase):
    """
    The programs of the page, one after the other.
    """

    async def test_programsPrintWhatThePageSays(self) -> None:
        daemon = await self.start(ledger="pbft:nodes=1")
        makeKeyFile(self.root / "author.pem")
        programs = [textwrap.dedent(each) for each in _PROGRAM.findall(PAGE.read_text("utf-8"))]
        self.assertGreaterEqual(len(programs), 9)
        for program in programs:
            expected = program.rstrip().splitlines()[-1].removeprefix("# ")
            # The height depends on how events fall into blocks.
            pattern = _EVENT_ID.sub(r"\1[0-9]+", re.escape(expected).replace("\\-", "-"))
            process = self.spawn(sys.executable, "-u", "-c", program.replace(BASE, daemon.base))
            await process.protocol.waitFor(f"(?m)^{pattern}$")
            if ".follow(" in program:
                await process.stop()
            else:
                self.assertEqual(await process.exits(), 0, process.protocol.errors)
