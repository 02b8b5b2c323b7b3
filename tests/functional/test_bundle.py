"""
C{svcbroker bundle} and C{verify}, against a real daemon.
"""

from __future__ import annotations

import os
from pathlib import Path

from .daemon import DaemonTestCase


class BundleTests(DaemonTestCase):
    """
    A bundle from the publish to the verdict.
    """

    async def test_bundleIsVerifiedWithoutTheBroker(self) -> None:
        """What was published is proved after the broker has gone, and a changed byte is noticed."""
        daemon = await self.start(ledger="pbft")
        await daemon.call("/rest/open", topic="contracts/x")
        ids = []
        for content in ("one", "two"):
            answer = await daemon.call("/rest/publish", topic="contracts/x", content=content)
            ids.append(answer["eventId"])
        where = f"--url={daemon.base}"
        code, _, errors = await self.outcomeOf("bundle", *ids, where, "--output=case.zip")
        self.assertEqual(code, 0, errors)
        self.assertIn("no witness is asked for", errors)
        self.assertEqual((self.root / "case.zip").stat().st_mode & 0o777, 0o600)
        os.symlink("elsewhere.zip", self.root / "link.zip")
        for name in ("case.zip", "link.zip"):
            code, _, errors = await self.outcomeOf("bundle", *ids, where, f"--output={name}")
            self.assertEqual(code, 2, errors)
            self.assertIn(f"{name}: it exists already", errors)
        self.assertFalse((self.root / "elsewhere.zip").exists())
        code, _, errors = await self.outcomeOf("bundle", "00000000-1-1", where, "--output=no.zip")
        self.assertEqual(code, 1, errors)
        self.assertEqual(await daemon.stop(), 0)
        case = Path(self.root, "case.zip")
        code, output, errors = await self.outcomeOf("verify", "case.zip")
        self.assertEqual(code, 0, output + errors)
        self.assertIn("compare its keys", errors)
        self.assertEqual(output.count("PROVED: it is in a log that the policy accepts."), 2)
        for each in ids:
            self.assertIn(each, output)
        policy = self.root / "policy"
        policy.write_text("quorum none\n")
        code, output, _ = await self.outcomeOf("verify", "case.zip", "--policy=policy")
        self.assertEqual(code, 1)
        self.assertIn("no log of the policy", output)
        data = bytearray(case.read_bytes())
        data[1000] ^= 1
        case.write_bytes(data)
        code, output, _ = await self.outcomeOf("verify", "case.zip", "--json")
        self.assertEqual(code, 1)
        self.assertIn('"proved": false', output)
        code, _, errors = await self.outcomeOf("verify", "case.zip", "--chain=" + "0" * 64)
        self.assertEqual((code, errors.count("\n")), (2, 1))
