"""
The examples of the documentation do what they say.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook import Signer

PAGE = Path(__file__).parents[3] / "docs" / "webhooks.rst"


class SignatureTests(SynchronousTestCase):
    """
    The check of signatures in Python.
    """

    def setUp(self) -> None:
        _, _, rest = PAGE.read_text(encoding="utf-8").partition(".. code-block:: python\n")
        lines = []
        for line in rest.splitlines():
            if line and not line.startswith("   "):
                break
            lines.append(line[3:])
        found: dict[str, Any] = {}
        exec("\n".join(lines), found)
        self.isGenuine = found["isGenuine"]

    def test_documentedReceiverChecksSignatures(self) -> None:
        """It accepts what was signed with one of the secrets, just now, and nothing else."""
        old, new, body = b"an old secret of ours", b"a new secret of ours", b'{"x":"\xc3\xbc"}'
        now = int(time.time())

        def headers(timestamp: int) -> dict[str, str]:
            text = b"%d" % timestamp
            signature = Signer((old, new)).sign(text, body)
            assert signature is not None
            return {"X-Svc-Timestamp": text.decode(), "X-Svc-Signature": signature.decode()}

        self.assertTrue(self.isGenuine(headers(now), body, old))
        self.assertTrue(self.isGenuine(headers(now), body, new))
        self.assertFalse(self.isGenuine(headers(now), body, b"another secret"))
        self.assertFalse(self.isGenuine(headers(now), body + b" ", old))
        self.assertFalse(self.isGenuine(headers(now - 3600), body, old))
        self.assertFalse(self.isGenuine({"X-Svc-Timestamp": str(now)}, body, old))
        self.assertFalse(
            self.isGenuine({**headers(now), "X-Svc-Timestamp": str(now - 1)}, body, old)
        )
