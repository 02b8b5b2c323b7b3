"""
The examples of the documentation do what they say.
"""

from __future__ import annotations

import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook.signing import WebhookSigner, parseSecrets

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
        old, new = (
            "whsec_" + b64encode(bytes(24)).decode(),
            "whsec_" + b64encode(b"x" * 24).decode(),
        )
        signer = WebhookSigner(parseSecrets(f"{old}\n{new}".encode()))
        body = b'{"x":"\xc3\xbc"}'
        now = int(time.time())

        def headers(timestamp: int) -> dict[str, str]:
            [(name, value), _] = signer.sign("", b"0123abcd-3-7", b"%d" % timestamp, body)
            return {
                "webhook-id": "0123abcd-3-7",
                "webhook-timestamp": str(timestamp),
                name.decode(): value.decode(),
            }

        self.assertTrue(self.isGenuine(headers(now), body, old))
        self.assertTrue(self.isGenuine(headers(now), body, new))
        self.assertFalse(self.isGenuine(headers(now), body, old.replace("A", "B")))
        self.assertFalse(self.isGenuine(headers(now), body + b" ", old))
        self.assertFalse(self.isGenuine(headers(now - 3600), body, old))
        self.assertFalse(self.isGenuine({"webhook-timestamp": str(now)}, body, old))
        for name, value in (("webhook-timestamp", str(now - 1)), ("webhook-id", "0123abcd-3-8")):
            self.assertFalse(self.isGenuine({**headers(now), name: value}, body, old))
