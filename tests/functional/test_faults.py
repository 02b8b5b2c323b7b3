"""
Faults in a real daemon, made by the real command: an application that lives through them.
"""

from __future__ import annotations

import json
import signal
import stat
import sys
from datetime import datetime
from functools import partial
from typing import Any

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, random_serial_number
from cryptography.x509.oid import NameOID
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol

from .daemon import LOCAL, TIMEOUT, Daemon, DaemonTestCase, reactor, until

LEDGER = "pbft:nodes=4:timeout=0.1"
COMMAND = ["-m", "svcbroker.commands", "fault"]


class FaultTestCase(DaemonTestCase):
    """
    Helpers of these tests.
    """

    async def fault(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code of C{svcbroker net fault}, and what it writes."""
        return await self.outcomeOf("fault", self.dataDir, *arguments)

    async def done(self, *arguments: str) -> Any:
        """What the daemon answers to a fault that is made."""
        code, output, errors = await self.fault(*arguments, "--json")
        self.assertEqual((code, errors), (0, ""))
        return json.loads(output)

    async def refused(self, *arguments: str) -> str:
        """The line of a fault that is not made."""
        code, output, errors = await self.fault(*arguments)
        self.assertEqual((code, output), (1, ""))
        (line,) = errors.splitlines()
        return line

    async def operate(self, daemon: Daemon, **headers: str) -> Any:
        """What is answered to an operator call without the command."""
        given: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
        given.update(headers)
        return await daemon.call("/admin/operator/faults/show", "POST", b"{}", given)


class ViewChangeTests(FaultTestCase):
    """
    With C{--faults}.
    """

    async def nodes(self, daemon: Daemon) -> list[dict[str, Any]]:
        """The nodes as the admin query tells them."""
        answer = await daemon.call("/admin/node/nodeList")
        found: list[dict[str, Any]] = answer["data"]["pageData"]
        return found

    async def publish(self, daemon: Daemon, content: str) -> tuple[str, int | None]:
        """What becomes of an event, and its number."""
        sent = await daemon.call("/rest/publish", topic="t", content=content)
        number = None if sent["eventId"] is None else int(sent["eventId"].split("-")[1])
        return sent["status"], number

    async def test_stoppedLeaderCausesViewChangeWithoutGap(self) -> None:
        """The leader is stopped: publishing continues in a higher view, without a gap."""
        daemon = await self.start("--faults", ledger=LEDGER)
        self.assertIn("FAULTS ARE ON", daemon.protocol.output)
        await daemon.call("/rest/open", topic="t")
        self.assertEqual(await self.publish(daemon, "first"), ("SUCCESS", 1))
        view = max(node["pbftView"] for node in await self.nodes(daemon))
        nodes = (await self.done("show"))["nodes"]
        [leader] = [node["index"] for node in nodes if node["leader"]]
        report = await self.done("stop", str(leader))
        self.assertEqual([node["running"] for node in report["nodes"]].count(False), 1)
        self.assertEqual(await self.publish(daemon, "second"), ("SUCCESS", 2))
        after = await self.nodes(daemon)
        self.assertEqual(
            [node["nodeActive"] for node in after], [int(i != leader) for i in range(4)]
        )
        self.assertGreater(max(node["pbftView"] for node in after), view)
        await self.done("start", str(leader))
        self.assertEqual(await self.publish(daemon, "third"), ("SUCCESS", 3))
        self.assertEqual([node["nodeActive"] for node in await self.nodes(daemon)], [1] * 4)
        self.assertEqual(await daemon.stop(), 0)

    async def hasEvents(self, daemon: Daemon, count: int) -> bool:
        """Whether the topic has so many events."""
        state = await daemon.call("/rest/state", topic="t")
        return bool(state["sequenceNumber"] == count)

    async def test_publishWithoutQuorumTimesOutUntilHealed(self) -> None:
        """Without a quorum the answer is TIMEOUT and readyz says why; healed, nothing is lost."""
        daemon = await self.start("--faults", "--chain-timeout=3", ledger=LEDGER)
        root = evolve(daemon, base=daemon.base.removesuffix("/svcbroker"))
        await daemon.call("/rest/open", topic="t")
        self.assertEqual(await self.publish(daemon, "first"), ("SUCCESS", 1))
        await self.done("cut", "0,1", "2,3")
        ready = await root.call("/readyz")
        self.assertEqual(
            ready["groups"]["1"],
            {"ready": False, "reason": "the network is cut: 0 nodes hear a quorum, 3 must"},
        )
        self.assertEqual(await self.publish(daemon, "second"), ("TIMEOUT", None))
        report = await self.done("heal")
        self.assertEqual(report["cut"], [])
        # What timed out was submitted first, so it is final first. The nodes may be late.
        await until(partial(self.hasEvents, daemon, 2))
        self.assertEqual(await self.publish(daemon, "third"), ("SUCCESS", 3))
        self.assertEqual((await root.call("/readyz"))["status"], "ready")
        self.assertTrue(await self.hasEvents(daemon, 3))
        general = (await daemon.call("/admin/group/general"))["data"]
        self.assertEqual(general["transactionCount"], "4")

    async def test_impossibleFaultsAreRefused(self) -> None:
        """Replicas that do not exist and impossible conditions are refused."""
        await self.start("--faults", ledger=LEDGER)
        for arguments, words in [
            (["stop", "4"], "there is no node 4, only 0 to 3"),
            (["lose", "1.5"], "loss: is not a number from 0 to 1: 1.5"),
            (["slow", "61"], "delay: is not a number from 0 to 60"),
            (["show", "--group=7"], "groupId: group is unknown: 7"),
        ]:
            self.assertEqual(
                await self.refused(*arguments),
                f"svcbroker net fault {arguments[0]}: the daemon refused: {words}",
            )


class TLSTests(FaultTestCase):
    """
    HTTP over TLS, with an untrusted certificate for another name.
    """

    async def test_commandAcceptsAnyCertificateOfThisMachine(self) -> None:
        """On the same machine the command accepts any certificate."""
        key = Ed25519PrivateKey.generate()
        name = Name([NameAttribute(NameOID.COMMON_NAME, "broker.example")])
        made = CertificateBuilder(name, name, key.public_key(), random_serial_number())
        dates = datetime(2020, 1, 1), datetime(2099, 1, 1)
        certificate = made.not_valid_before(dates[0]).not_valid_after(dates[1]).sign(key, None)
        keyPath, certificatePath = self.root / "key.pem", self.root / "certificate.pem"
        keyPath.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        certificatePath.write_bytes(certificate.public_bytes(Encoding.PEM))
        http = f"ssl:0:interface=127.0.0.1:privateKey={keyPath}:certKey={certificatePath}"
        await self.start("--faults", ledger=LEDGER, http=http)
        self.assertEqual((await self.done("show"))["quorum"], 3)


class RefusalTests(FaultTestCase):
    """
    Refused operator calls.
    """

    async def test_faultsAreRefusedWithoutOption(self) -> None:
        """Without --faults every fault is refused, and the error names the option."""
        daemon = await self.start(ledger=LEDGER)
        self.assertNotIn("FAULTS", daemon.protocol.output)
        for arguments in (["show"], ["stop", "0"], ["cut", "0"], ["heal"]):
            self.assertIn("start the daemon with --faults", await self.refused(*arguments))
        nodes = (await daemon.call("/admin/node/nodeList"))["data"]["pageData"]
        self.assertEqual([node["nodeActive"] for node in nodes], [1] * 4)

    async def test_memoryLedgerHasNoReplicasToStop(self) -> None:
        """The memory ledger has no replicas."""
        await self.start("--faults")
        self.assertIn("no nodes to make fail", await self.refused("stop", "0"))

    async def test_wrongOrOldTokenIsRefused(self) -> None:
        """A missing, wrong or old token is refused."""
        first = await self.start("--faults", ledger=LEDGER)
        path = self.dataDir / "operator.json"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        old = json.loads(path.read_text())
        self.assertEqual(old["url"], first.base)
        bearer = {"Authorization": f"Bearer {old['token']}"}
        self.assertEqual((await self.operate(first, **bearer))["code"], 0)
        self.assertEqual((await self.operate(first))["code"], 101016)
        for name, value in [("Host", "evil.example"), ("Origin", first.base)]:
            answer = await self.operate(first, **bearer, **{name: value})
            self.assertEqual(answer["code"], 101016)
        await first.stop(signal.SIGKILL)
        code, output, errors = await self.fault("show")
        self.assertEqual((code, output), (2, ""))
        self.assertIn(f"no daemon answers at {first.base}", errors)
        second = await self.start("--faults", ledger=LEDGER)
        self.assertNotEqual(json.loads(path.read_text())["token"], old["token"])
        self.assertEqual((await self.operate(second, **bearer))["code"], 101016)
        await self.done("show")
        self.assertEqual(await second.stop(), 0)
        self.assertFalse(path.exists())
        code, output, errors = await self.fault("show")
        self.assertEqual((code, output), (2, ""))
        (line,) = errors.splitlines()
        self.assertIn("no daemon that can be operated runs on", line)

    async def test_withoutHttpThereIsNoOperatorFile(self) -> None:
        """Without HTTP there are no operator calls, and no file that names their address."""
        daemon = self.run_(["--http=", "--ledger=memory", f"--data-dir={self.dataDir}", "--faults"])
        await daemon.protocol.waitFor("There is no operator.json")
        await daemon.protocol.waitFor("serves nothing,")
        self.assertFalse((self.dataDir / "operator.json").exists())
        await daemon.stop()
        options = ["--http=", "--ledger=memory", f"--data-dir={self.dataDir}", f"--mqtt={LOCAL}"]
        daemon = self.run_(options)
        await daemon.protocol.waitFor("serves MQTT,")


class TimeoutTests(FaultTestCase):
    """
    A daemon that never answers.
    """

    async def setUp(self) -> None:  # type: ignore[override]
        super().setUp()
        self.asked: Deferred[None] = Deferred()
        asked = self.asked

        class Silent(Protocol):
            def dataReceived(self, data: bytes) -> None:
                if not asked.called:
                    asked.callback(None)

        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(Factory.forProtocol(Silent))
        self.addCleanup(port.stopListening)
        self.dataDir.mkdir()
        operating = {"url": f"http://127.0.0.1:{port.getHost().port}", "token": "00"}
        (self.dataDir / "operator.json").write_text(json.dumps(operating))

    async def test_commandTimesOut(self) -> None:
        """The command fails after its time-out."""
        code, output, errors = await self.fault("show", "--timeout=0.2")
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(
            errors, "svcbroker net fault show: the daemon gave no answer in 0.2 seconds\n"
        )

    async def test_interruptEndsCommandQuietly(self) -> None:
        """Ctrl-C ends it quietly."""
        command = self.spawn(sys.executable, *COMMAND, self.dataDir, "show")
        await self.asked.addTimeout(TIMEOUT, reactor)
        self.assertEqual(await command.stop(signal.SIGINT), 130)
        self.assertEqual((command.protocol.output, command.protocol.errors), ("", ""))
