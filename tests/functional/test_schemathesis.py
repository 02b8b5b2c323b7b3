"""
The real daemon against its own OpenAPI document, by schemathesis.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256

from twisted.internet.utils import getProcessOutputAndValue

from tests import examples
from tests.needed import needPackage

from .daemon import DaemonTestCase, reactor

# Every answer below /rest and /admin has status 200, failures too, so what these look for is
# said in the body instead: that bad requests are refused, and good ones are not.
BY_DESIGN = "negative_data_rejection,positive_data_acceptance,missing_required_header"


class SchemathesisTests(DaemonTestCase):
    """
    Generated requests, good and bad, find nothing that the document does not say.
    """

    timeout = 1200.0

    async def test_findsNothing(self) -> None:
        """Schemathesis ends with nothing found."""
        await self.check()

    async def test_findsNothingWithAccounts(self) -> None:
        """Also of requests that are not granted."""
        path = self.root / "accounts.toml"
        token = sha256(b"svct_x").hexdigest()
        path.write_text(
            f"""
            [accounts.ann]
            tokens = [{{ label = "x", sha256 = "{token}" }}]
            roles = ["some"]
            [roles.some]
            grants = ["* 1 a/#", "open 1 +", "admin 1"]
            """
        )
        await self.check(f"--accounts={path}", headers=("-H", "Authorization: Bearer svct_x"))

    async def check(self, *given: str, headers: tuple[str, ...] = ()) -> None:
        """
        Run schemathesis against a daemon.

        @param headers: options for it.
        """
        needPackage("schemathesis", "contract")
        daemon = await self.start(*given, ledger="pbft:nodes=4")
        arguments = [
            *(
                "-c",
                "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())",
            ),
            *("run", f"{daemon.base}/openapi.json", *headers),
            *("--checks", "all", "--exclude-checks", BY_DESIGN),
            *("--phases", "examples,coverage,fuzzing"),
            # Its own examples, and all that its phase "coverage" makes, come on top of that.
            *("--max-examples", str(examples(25))),
            *("--continue-on-failure", "--generation-deterministic", "--no-color"),
            # Its answer does not end.
            *("--exclude-path-regex", "/rest/follow$"),
            # A call of events may wait for 30 seconds.
            *("--request-timeout", "60", "--max-response-time", "40"),
            *("--suppress-health-check", "all"),
        ]
        output, errors, code = await getProcessOutputAndValue(
            sys.executable, arguments, env=os.environ, path=str(self.root), reactor=reactor
        )
        self.assertEqual(code, 0, (output + errors).decode("utf-8", "replace"))
        self.assertEqual(await daemon.stop(), 0)
        self.assertNotIn("#critical", daemon.protocol.output)
