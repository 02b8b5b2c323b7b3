"""
The alarms of a real daemon, each raised for real: all who tell of alarms tell the same.
"""

from __future__ import annotations

import json
import re
import signal
from base64 import b64encode
from typing import Any

import treq
from attrs import evolve
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from svcbroker.access import hashPassword

from .daemon import TIMEOUT, Daemon, DaemonTestCase, reactor, until


class Receiver(Resource):
    """
    Answers requests with a status.
    """

    isLeaf = True
    status = 500

    def render_POST(self, request: Request) -> bytes:
        request.setHeader("Connection", "close")
        request.setResponseCode(self.status)
        return b""


class AlarmTests(DaemonTestCase):
    async def told(self, daemon: Daemon) -> list[str]:
        """The names of the alarms, as the query tells them."""
        answer = await daemon.call("/admin/listAlarms")
        return [each["name"] for each in answer["data"]]

    async def measured(self, daemon: Daemon) -> list[str]:
        """The same, as metrics tell them."""
        url = daemon.base.removesuffix("/svcbroker") + "/metrics"
        response = await treq.get(url, pool=daemon.pool, timeout=TIMEOUT)
        text = (await response.content()).decode()
        return re.findall(r'svcbroker_alarm\{name="([a-z-]+)"\} 1\.0', text)

    async def examined(self) -> list[str]:
        """The same, as the doctor tells them."""
        _, output, _ = await self.outcomeOf("doctor", f"--data-dir={self.dataDir}", "--json")
        subjects = [json.loads(line).get("subject", "") for line in output.splitlines()]
        return [each.removeprefix("alarm ") for each in subjects if each.startswith("alarm ")]

    async def ready(self, daemon: Daemon) -> list[str]:
        """The same, as readyz tells them."""
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        return [each["name"] for each in (await root.call("/readyz"))["alarms"]]

    async def becomes(self, daemon: Daemon, *names: str) -> None:
        """
        Wait until these are the alarms, but for one that a busy machine raises. Then all tell the
        same.
        """

        async def areTold() -> bool:
            found = await self.told(daemon)
            return [each for each in found if each != "reactor-blocked"] == [*names]

        await until(areTold)
        for asked in (self.ready(daemon), self.measured(daemon), self.examined()):
            self.assertEqual({*await asked} - {"reactor-blocked"}, {*names})

    async def operate(self, daemon: Daemon, call: str, **parameters: Any) -> None:
        token = json.loads((self.dataDir / "operator.json").read_text("ascii"))["token"]
        headers: Any = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        path = f"/admin/operator/{call}"
        answer = await daemon.call(path, "POST", json.dumps(parameters).encode(), headers)
        self.assertEqual(answer["code"], 0, answer)

    async def test_stoppedNodesAreAlarmsUntilTheyRun(self) -> None:
        """One is a warning; with two there is no quorum."""
        daemon = await self.start("--faults", ledger="pbft:nodes=4")
        await self.becomes(daemon)
        await self.operate(daemon, "faults/stop", node=3)
        await self.becomes(daemon, "node-down")
        await self.operate(daemon, "faults/stop", node=2)
        await self.becomes(daemon, "not-ready", "node-down")
        [first, second] = (await daemon.call("/admin/listAlarms"))["data"]
        self.assertEqual((first["groupId"], first["level"]), ("1", "problem"))
        self.assertIn("2 of 4 run", second["text"])
        self.assertLessEqual(second["since"], first["since"])
        await self.operate(daemon, "faults/heal")
        await self.becomes(daemon)
        where = f"--data-dir={self.dataDir}"
        code, output, errors = await self.outcomeOf("incidents", where, "--json")
        self.assertEqual((code, errors), (0, ""))
        found = {each["name"]: each for each in json.loads(output)}
        self.assertLessEqual({"not-ready", "node-down"}, {*found})
        told = json.loads((self.dataDir / found["node-down"]["file"]).read_bytes())
        self.assertTrue(any("Alarm node-down" in line["text"] for line in told["lines"]))
        _, output, _ = await self.outcomeOf("incidents", where)
        self.assertIn("node-down", output)
        self.assertIn("Alarm over: node-down of group 1", daemon.protocol.output)

    async def test_failingReceiverIsAnAlarmUntilItTakesAnEvent(self) -> None:
        receiver = Receiver()
        port = reactor.listenTCP(0, Site(receiver), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"http://127.0.0.1:{port.getHost().port}/"
        daemon = await self.start("--webhook-allow=127.0.0.0/8", "--webhook-max-delay=0.1")
        await daemon.call("/rest/open", topic="a")
        await daemon.call("/rest/subscribe", topic="a", url=url)
        await daemon.call("/rest/publish", topic="a", content="x")
        await self.becomes(daemon, "webhooks-fail")
        receiver.status = 200
        await self.becomes(daemon)

    async def test_killIsAnAlarmUntilTheNextStart(self) -> None:
        daemon = await self.start(ledger="pbft")
        await daemon.stop(signal.SIGKILL)
        daemon = await self.start(ledger="pbft")
        await self.becomes(daemon, "unclean-stop")
        self.assertEqual(await daemon.stop(), 0)
        await self.becomes(await self.start(ledger="pbft"))

    async def test_damageIsAnAlarmUntilItIsMended(self) -> None:
        """As the scheduled audit finds it."""
        daemon = await self.start(ledger="pbft")
        await daemon.call("/rest/open", topic="a")
        await daemon.call("/rest/publish", topic="a", content="whole content")
        self.assertEqual(await daemon.stop(), 0)
        path = self.dataDir / "1" / "ledger.sqlite"
        path.write_bytes(path.read_bytes().replace(b"whole content", b"other content"))
        daemon = await self.start("--audit-every=1s", ledger="pbft")
        await self.becomes(daemon, "audit-failed")
        self.assertEqual(await daemon.stop(), 0)
        path.write_bytes(path.read_bytes().replace(b"other content", b"whole content"))
        await self.becomes(await self.start("--audit-every=1s", ledger="pbft"))

    async def test_alarmsAreForThoseWhoMayQueryAGroup(self) -> None:
        """And for the doctor, who reads the data directory."""
        accounts = self.root / "accounts.toml"
        accounts.write_text(
            f"""
            [accounts.ann]
            password = "{hashPassword(b"secret")}"
            roles = ["publisher"]
            [accounts.op]
            password = "{hashPassword(b"secret")}"
            roles = ["operator"]
            """
        )
        daemon = await self.start(f"--accounts={accounts}")
        await daemon.stop(signal.SIGKILL)
        daemon = await self.start(f"--accounts={accounts}")
        self.assertIn("unclean-stop", await self.examined())
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        for name, code, alarms in (("ann", 101016, list[str]()), ("op", 0, ["unclean-stop"])):
            credentials = b64encode(f"{name}:secret".encode()).decode("ascii")
            headers: Any = {"Authorization": f"Basic {credentials}"}
            answer = await daemon.call("/admin/listAlarms", headers=headers)
            self.assertEqual(answer["code"], code)
            ready = await root.call("/readyz", headers=headers)
            found = [each["name"] for each in ready["alarms"]]
            self.assertEqual([each for each in found if each != "reactor-blocked"], alarms)
        self.assertEqual(await self.ready(daemon), [])
