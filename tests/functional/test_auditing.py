"""
The scheduled audit of a real daemon.
"""

from __future__ import annotations

import treq

from .daemon import TIMEOUT, DaemonTestCase


class ScheduledAuditTests(DaemonTestCase):
    """
    C{--audit-every}.
    """

    async def test_resultIsLoggedKeptAndMeasured(self) -> None:
        """Audits of a chain that grows meanwhile are good, also after a restart."""
        daemon = await self.start("--audit-every=1s", ledger="pbft")
        await daemon.rpc("open", topic="a", groupId="1")
        found = await daemon.protocol.waitFor(r"group 1: audited up to block (\d+) in .* good")
        self.assertGreaterEqual(int(found[1]), 1)
        await daemon.rpc("open", topic="b", groupId="1")
        await daemon.protocol.waitFor(r"group 1: audited up to block 2 in .* good")
        url = daemon.base.removesuffix("/svcbroker") + "/metrics"
        response = await treq.get(url, pool=daemon.pool, timeout=TIMEOUT)
        text = (await response.content()).decode()
        self.assertIn('svcbroker_audit_good{group="1"} 1.0', text)
        self.assertIn('svcbroker_audit_height{group="1"} 2.0', text)
        measures = (await daemon.call("/admin/group/measures", groupId="1"))["data"]
        self.assertGreater(measures["auditedTimestamp"], 0)
        self.assertEqual(await daemon.stop(), 0)

        again = await self.start("--audit-every=24h", ledger="pbft")
        response = await treq.get(
            again.base.removesuffix("/svcbroker") + "/metrics", pool=again.pool, timeout=TIMEOUT
        )
        self.assertIn('svcbroker_audit_height{group="1"} 2.0', (await response.content()).decode())
        self.assertEqual(await again.stop(), 0)
