"""
Every alarm in Chromium: raised for real, seen above the page, and gone when its reason is.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import treq
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import CertificateBuilder, Name, NameAttribute, NameOID, random_serial_number
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest, SynchronousTestCase
from twisted.web.server import Site

from svcbroker.access import hashPassword
from svcbroker.daemon.alarms import BATCH_GAS, FEW_BATCHES
from svcbroker.daemon.features import CONDITIONS
from svcbroker.ledgers.evm import checkInstalled
from svcbroker.ledgers.evm._ethereum import EvmAccount, showAddress
from svcbroker.proofs.tlog import VerifierKey
from svcbroker.proofs.witness import Witness, WitnessSite, makeWitness
from tests.functional.daemon import AGAIN, OFF, RUN, TIMEOUT, Daemon, reactor, until
from tests.functional.test_alarms import Receiver
from tests.ledgers.evm.nodes import Chain

from .test_console import ConsoleTestCase

CLOCKS: Final = "SVCBROKER_TEST_CLOCKS"
SHIFTED: Final = f"""
import mmap, os, struct, time
from twisted.internet import base
with open(os.environ["{CLOCKS}"], "rb") as file:
    clocks = mmap.mmap(file.fileno(), 16, access=mmap.ACCESS_READ)
wall, steady = time.time, time.clock_gettime
time.time = lambda: wall() + struct.unpack_from("d", clocks, 0)[0]
time.clock_gettime = lambda clock: steady(clock) + (
    struct.unpack_from("d", clocks, 8)[0] if clock == time.CLOCK_BOOTTIME else 0
)
base.ReactorBase.seconds = staticmethod(time.time)
"""
"""Has a daemon read clocks that a test moves."""

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
LONG: Final = 600.0
"""Seconds after which refusals are forgotten."""
LOOK: Final = 2.0
"""Seconds after which a daemon that is asked for its alarms looks for them again."""

TITLES: Final = {each.name: each.title for each in CONDITIONS}


class CoverTests(SynchronousTestCase):
    """
    The tests below.
    """

    def test_everyAlarmIsSeenToAppearAndGo(self) -> None:
        text = Path(__file__).read_text("utf-8")
        for call in ("appears", "goes"):
            named = {
                name
                for words in re.findall(rf"self\.{call}\(([^)]*)\)", text)
                for name in re.findall(r'"([a-z-]+)"', words)
            }
            self.assertEqual(named, {*TITLES}, call)


class AlarmTestCase(ConsoleTestCase):
    """
    A daemon whose clocks can be moved, and a page that shows its alarms.
    """

    timeout = 5 * TIMEOUT
    script = """
    const wait = window.setTimeout;
    window.setTimeout = (run, delay) => wait(run, delay === 5000 ? 500 : delay);
    """

    def setUp(self) -> None:
        super().setUp()
        self.clocks = self.root / "clocks"
        self.clocks.write_bytes(bytes(16))
        self.environment[CLOCKS] = str(self.clocks)

    async def open(self, *arguments: str, **options: str) -> None:
        """Start both, and wait for the page: what it asks for from then on is asked for again."""
        await super().open(*arguments, **options)
        await self.browser.waitForText("Transactions a second")

    def run_(
        self, arguments: Sequence[str], twistd: Sequence[str] = ("-n", "--pidfile=")
    ) -> Daemon:
        code = SHIFTED + RUN
        return self.spawn(sys.executable, "-c", code, *twistd, "svcbroker", *OFF, *arguments)

    def shift(self, wall: float, steady: float | None = None) -> None:
        """
        Move the clocks of daemons against those of the machine.

        @param wall: by how many seconds the wall clock is ahead.
        @param steady: the same of the clock that nobody sets; as much where it is not given.
        """
        with self.clocks.open("r+b", buffering=0) as file:
            file.write(struct.pack("dd", wall, wall if steady is None else steady))

    async def pass_(self, begin: float, seconds: float = LONG) -> float:
        """Let time pass, and have the daemon look at its alarms after that; the end."""
        # The first answer may be of a look that had begun before.
        for each in (seconds, LOOK):
            begin += each
            self.shift(begin)
            # Connections that were open have become too old.
            answer = await treq.get(f"{self.daemon.base}/admin/listAlarms", persistent=False)
            self.assertEqual(answer.code, 200)
        return begin

    async def appears(self, *names: str) -> None:
        """The page shows alarms, and what to do."""
        for name in names:
            title = json.dumps(TITLES[name])
            await self.browser.waitFor(
                f"document.querySelector('.alarms')?.innerText.includes({title})"
            )

    async def goes(self, *names: str) -> None:
        """The page shows alarms no longer."""
        for name in names:
            title = json.dumps(TITLES[name])
            await self.browser.waitFor(
                f"!document.querySelector('.alarms')?.innerText.includes({title})"
            )

    async def operate(self, call: str, **parameters: Any) -> None:
        token = json.loads((self.dataDir / "operator.json").read_text("ascii"))["token"]
        headers: Any = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps(parameters).encode()
        answer = await self.daemon.call(f"/admin/operator/{call}", "POST", body, headers)
        self.assertEqual(answer["code"], 0, answer)


class ProcessAlarmTests(AlarmTestCase):
    """
    What concerns the process, its clients and its machine.
    """

    async def test_alarmsOfTheProcessAreSeen(self) -> None:
        """They go with their reasons, or some time after."""
        accounts = self.root / "accounts.toml"
        accounts.write_text(f'[accounts.ann]\npassword = "{hashPassword(b"secret")}"\n')
        certificate(self.root, 5)
        options = (
            *(f"--accounts={accounts}", "--anonymous=everything"),
            f"--mqtt=ssl:0:privateKey={self.root}/key:certKey={self.root}/certificate"
            ":interface=127.0.0.1",
        )
        await self.audited(*options)
        daemon = await self.start(*options, ledger="pbft")
        await daemon.stop(signal.SIGKILL)
        # The machine was off for two days.
        self.shift(2 * DAY)
        await self.open(*options, "--audit-every=90s", ledger="pbft")
        await self.appears("unclean-stop", "certificate-expires", "audit-old")
        await deferToThread(guess, self.daemon.base)
        await self.appears("logins-fail")
        await self.crowd()
        await self.appears("budget-used-up")
        for _ in range(16):
            self.daemon.process.signalProcess(signal.SIGSTOP)
            await deferLater(reactor, 0.6)
            self.daemon.process.signalProcess(signal.SIGCONT)
            await deferLater(reactor, 0.3)
        await self.appears("reactor-blocked")
        self.shift(2 * DAY + 15, 2 * DAY)
        await self.appears("clock-off")
        self.shift(2 * DAY)
        await self.goes("clock-off")
        certificate(self.root, 365)
        await self.pass_(await self.pass_(2 * DAY), DAY)
        await self.goes("unclean-stop", "certificate-expires", "audit-old")
        await self.goes("logins-fail", "budget-used-up", "reactor-blocked")

    async def audited(self, *options: str) -> None:
        """The chain is audited once."""
        daemon = await self.start(*options, "--audit-every=1s", ledger="pbft")
        [port] = re.findall(r":(\d+)/", daemon.base)

        async def isAudited() -> bool:
            url = f"http://127.0.0.1:{port}/metrics"
            answer = await treq.get(url, pool=daemon.pool)
            return "svcbroker_audit_good{" in await answer.text()

        await until(isAudited)
        self.assertEqual(await daemon.stop(), 0)

    async def crowd(self) -> None:
        """Many connect, and say nothing."""
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        for _ in range(1100):
            client = socket.create_connection(("127.0.0.1", port), TIMEOUT)
            self.addCleanup(client.close)


class LedgerAlarmTests(AlarmTestCase):
    """
    What concerns a group and its nodes.
    """

    async def test_alarmsOfAGroupAreSeen(self) -> None:
        """One node is down, then there is no quorum, and publishes are more than may wait."""
        await self.open("--faults", ledger="pbft:nodes=4:mempool=20000")
        await self.publish("a", 1)
        await self.operate("faults/stop", node=3)
        await self.appears("node-down")
        await self.goes("not-ready")
        await self.operate("faults/stop", node=2)
        await self.appears("not-ready")
        sent = [self.daemon.call("/rest/publish", topic="a", content="x" * 1000) for _ in range(40)]
        publishing = [Deferred.fromCoroutine(each) for each in sent]
        await self.appears("overloaded")
        await self.operate("faults/heal")
        for each in publishing:
            await each
        await self.goes("node-down", "not-ready")
        await self.pass_(0)
        await self.goes("overloaded")


class MoneyAlarmTests(AlarmTestCase):
    """
    The broker's account on a chain of others.
    """

    skip = checkInstalled() or None

    async def test_littleMoneyIsSeen(self) -> None:
        """It goes when the account gets some, also where nothing is published meanwhile."""
        price, batches = 10**9, FEW_BATCHES // 10
        chain, key = Chain(self), self.root / "broker.key"
        account = EvmAccount.create(key, os.urandom)
        await chain.start()
        await chain.deploy([account])
        await chain.give(account, batches * BATCH_GAS * price + price)
        ledger = (
            f"evm:endpoint={urlsplit(chain.url).port}:contract={showAddress(chain.contract)}"
            f":key={key}:chain-id={chain.id}:finality=instant:interval=0:gas-price={price}"
        )
        await self.open(ledger=ledger)
        await self.appears("gas-low")
        await self.browser.evaluate("document.querySelector('.alarms summary').click()")
        await self.browser.waitForText(f"wei are left, for {batches} batches")
        await chain.give(account, 2 * FEW_BATCHES * BATCH_GAS * price)
        self.shift(90)
        await self.goes("gas-low")


class DiskAlarmTests(AlarmTestCase):
    """
    The disk of the data directory, a file system of its own.
    """

    async def test_fullDiskIsSeen(self) -> None:
        """Before that, that it is full in a day at the rate of the last one."""
        place = self.root / "mounted"
        place.mkdir()
        self.resize(place, "8g", "mount", "-t", "tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", str(place)], check=True)
        self.dataDir = place / "data"
        await self.open(ledger="pbft")
        # What was free at least an hour ago is compared with what is free now.
        for ahead in (70, 140, 140 + HOUR):
            await self.measured(ahead)
        self.resize(place, "2g")
        await self.appears("disk-fills-up")
        self.resize(place, "64m")
        await self.appears("disk-full")
        await self.goes("disk-fills-up")
        self.resize(place, "9g")
        await self.goes("disk-full", "disk-fills-up")

    async def measured(self, ahead: float) -> None:
        """Move the clocks, and wait until the daemon has written how much is free."""
        path = self.dataDir / ".history"

        def writtenAt() -> int:
            return path.stat().st_mtime_ns if path.exists() else 0

        before = writtenAt()
        self.shift(ahead)
        await until(lambda: succeed(writtenAt() != before))

    def resize(self, place: Path, size: str, *mount: str) -> None:
        """Mount a file system, or change its size."""
        option = f"size={size},mode=700" if mount else f"remount,size={size}"
        if shutil.which("mount") is None:
            raise SkipTest("mount is not installed")
        command = [*(mount or ["mount"]), "-o", option, *(["tmpfs"] if mount else []), str(place)]
        done = subprocess.run(command, capture_output=True, check=False)
        if os.geteuid() or done.returncode:
            raise SkipTest("nothing can be mounted here")


class WebhookAlarmTests(AlarmTestCase):
    """
    Webhooks and their receivers.
    """

    async def test_failingReceiverIsSeen(self) -> None:
        """Its alarm goes when it takes an event; that of dead letters after an hour."""
        receiver = Receiver()
        port = reactor.listenTCP(0, Site(receiver), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        await self.open("--webhook-allow=127.0.0.0/8", "--webhook-max-delay=0.1")
        await self.daemon.call("/rest/open", topic="a")
        url = f"http://127.0.0.1:{port.getHost().port}/"
        await self.daemon.call("/rest/subscribe", topic="a", url=url)
        given: Any = {"maxAttempts": 1, "deadLetter": "dead"}
        await self.daemon.call("/rest/subscribe", topic="a", url=f"{url}other", **given)
        await self.publish("a", 1)
        await self.appears("webhooks-fail", "events-given-up")
        receiver.status = 200
        await self.goes("webhooks-fail")
        await self.pass_(0, HOUR + 60)
        await self.goes("events-given-up")


class CopyAlarmTests(AlarmTestCase):
    """
    A copy of a chain.
    """

    async def test_alarmsOfACopyAreSeen(self) -> None:
        """Its original is away, then another one; then an event of the copy is damaged."""
        original, copy = self.root / "original", self.root / "copy"
        self.dataDir = original
        first = await self.start(ledger="pbft", http=AGAIN)
        await first.call("/rest/open", topic="a")
        await first.call("/rest/publish", topic="a", content="whole content")
        self.dataDir = copy
        url = first.base.replace(":", "\\:")
        ledger = f"copy:url={url}"
        await self.open(ledger=ledger, http=AGAIN)
        await until(self.isCopied)
        self.assertEqual(await first.stop(), 0)
        self.shift(150)
        await self.appears("copy-behind")
        await self.goes("copy-forked")
        port = urlsplit(first.base).port
        there = AGAIN.replace(":0:", f":{port}:")
        self.dataDir = self.root / "another"
        other = await self.start(ledger="pbft", http=there)
        await other.call("/rest/open", topic="a")
        for _ in range(3):
            await other.call("/rest/publish", topic="a", content="other")
        await self.appears("copy-forked")
        self.assertEqual(await other.stop(), 0)
        self.dataDir = original
        await self.start(ledger="pbft", http=there)
        # Nothing more is copied before the next start.
        for changed in (
            None,
            (b"whole content", b"other content"),
            (b"other content", b"whole content"),
        ):
            await self.restartCopy(copy, ledger, changed)
            await self.goes("copy-forked", "copy-behind")
            if changed is not None and changed[0] == b"whole content":
                await self.appears("audit-failed")
        await self.goes("audit-failed")

    async def isCopied(self) -> bool:
        """Whether the copy has the event."""
        answer = await self.daemon.call("/rest/events", topic="a")
        return bool(answer.get("events"))

    async def restartCopy(
        self, copy: Path, ledger: str, changed: tuple[bytes, bytes] | None
    ) -> None:
        """
        Start the copy again on its port.

        @param changed: bytes of its file that are changed meanwhile, and what they become.
        """
        here = AGAIN.replace(":0:", f":{urlsplit(self.daemon.base).port}:")
        path = copy / "1" / "ledger.sqlite"
        self.assertEqual(await self.daemon.stop(), 0)
        if changed is not None:
            path.write_bytes(path.read_bytes().replace(*changed))
        self.dataDir = copy
        self.daemon = await self.start("--audit-every=1s", ledger=ledger, http=here)


class WitnessAlarmTests(AlarmTestCase):
    """
    A log and its witness.
    """

    async def test_alarmsOfAWitnessAreSeen(self) -> None:
        """It is away while the log grows; then it refuses a log that was restored and went on."""
        witness = self.witness()
        options = (f"--witness-policy={self.root}/policy", "--witness-interval=0.2")
        await self.open(*options, ledger="pbft", http=AGAIN)
        key = VerifierKey.parse((await self.daemon.call("/log/1/keys"))["key"])
        witness.useLogs({key.name: [key]})
        await self.publish("a", 1)
        await self.cosigned()
        copy, whole = self.root / "copy", self.root / "whole"
        code, _, errors = await self.outcomeOf("chain", "backup", self.dataDir, copy)
        self.assertEqual(code, 0, errors)
        witness.useLogs({})
        await self.publish("a", 1)
        ahead = await self.pass_(0, 2 * HOUR)
        await self.appears("witness-behind")
        witness.useLogs({key.name: [key]})
        ahead = await self.pass_(ahead)
        await self.goes("witness-behind")
        await self.cosigned()
        here = AGAIN.replace(":0:", f":{urlsplit(self.daemon.base).port}:")
        self.assertEqual(await self.daemon.stop(), 0)
        self.dataDir.rename(whole)
        copy.rename(self.dataDir)
        self.daemon = await self.start(*options, ledger="pbft", http=here)
        await self.publish("a", 3)
        await self.appears("witness-refuses")
        self.assertEqual(await self.daemon.stop(), 0)
        shutil.rmtree(self.dataDir)
        whole.rename(self.dataDir)
        self.daemon = await self.start(*options, ledger="pbft", http=here)
        await self.publish("a", 1)
        await self.goes("witness-refuses")

    def witness(self) -> Witness:
        """A witness in this process."""
        directory = self.root / "witness"
        directory.mkdir()
        key = makeWitness(directory, "w.example", os.urandom)
        witness = Witness.open(directory, {}, time.time)
        self.addCleanup(witness.close)
        site = WitnessSite(witness, maybeDeferred).site(reactor)
        port = reactor.listenTCP(0, site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"http://127.0.0.1:{port.getHost().port}"
        (self.root / "policy").write_text(f"witness w {key.text} {url}\nquorum w\n")
        return witness

    async def cosigned(self) -> None:
        """Wait until the witness has cosigned all."""

        async def isCosigned() -> bool:
            told = await self.daemon.call("/rest/witnesses")
            return bool(told["cosigned"] == told["size"])

        await until(isCosigned)


def certificate(root: Path, days: int) -> None:
    """Write a certificate that expires in so many days, and its key."""
    key = generate_private_key(SECP256R1())
    name = Name([NameAttribute(NameOID.COMMON_NAME, "broker.example")])
    builder = CertificateBuilder(name, name, key.public_key(), random_serial_number())
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
    signed = builder.not_valid_after(datetime.now(UTC) + timedelta(days=days)).sign(key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (root / "key").write_bytes(private)
    (root / "certificate").write_bytes(signed.public_bytes(Encoding.PEM))


def guess(base: str) -> None:
    """Try passwords from many addresses, as each is slowed down."""
    place = urlsplit(base)
    headers = {"Authorization": f"Basic {b64encode(b'ann:wrong').decode()}"}
    assert place.hostname is not None
    for number in range(25):
        source = (f"127.0.0.{10 + number}", 0)
        client = http.client.HTTPConnection(
            place.hostname, place.port, timeout=TIMEOUT, source_address=source
        )
        client.request("GET", f"{place.path}/rest/list", headers=headers)
        client.getresponse().read()
        client.close()
