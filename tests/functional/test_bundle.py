"""
C{svcbroker proof bundle} and C{verify}, against a real daemon.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from svcbroker.proofs.bundle import decodeArchive

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

    async def test_erasureIsToldWithTheProof(self) -> None:
        """Of an erased event the bundle has when and why, and no content is called proved."""
        daemon = await self.start(ledger="pbft")
        where = f"--url={daemon.base}"
        await daemon.call("/rest/open", topic="contracts/x")
        ids = []
        await self.outcomeOf("keygen", "key.pem")
        for content in ("one", "two"):
            _, output, errors = await self.outcomeOf(
                *("pub", "contracts/x", content, "--sign=key.pem", where)
            )
            self.assertEqual(errors, "")
            ids.append(output.strip())
        code, _, errors = await self.outcomeOf(
            *("erase", str(self.dataDir), "--reason=request 17", ids[0])
        )
        self.assertEqual(code, 0, errors)
        code, _, errors = await self.outcomeOf("bundle", *ids, where, "--output=case.zip")
        self.assertEqual(code, 0, errors)
        readme = decodeArchive((self.root / "case.zip").read_bytes())["README.txt"].decode()
        self.assertIn('Reason: "request 17"', " ".join(readme.split()))
        code, output, errors = await self.outcomeOf("verify", "case.zip")
        self.assertEqual(code, 0, output + errors)
        words = " ".join(output.split())
        self.assertEqual(words.count("the policy accepts. What it said is not proved."), 1)
        for told in (
            "by a user of the machine for the reason: request 17 when, by whom and why is what",
            "its signature was removed with the content; nothing here shows that it held",
            "no witness has cosigned it: this rests on the log's own key alone",
        ):
            self.assertIn(told, words)
        _, output, _ = await self.outcomeOf("verify", "case.zip", "--json")
        events = {each["eventId"]: each for each in json.loads(output)["events"]}
        self.assertEqual(events[ids[0]]["erasure"]["reason"], "request 17")
        self.assertNotIn("content", events[ids[0]])
        self.assertEqual((events[ids[1]]["erasure"], events[ids[1]]["content"]), (None, "two"))
