"""
The console's pages for operators in Chromium, against the daemon.
"""

from __future__ import annotations

import json
import socket
from base64 import b64decode, b64encode
from functools import partial
from typing import Any

from twisted.internet.threads import deferToThread

from svcbroker.access import hashPassword
from svcbroker.proofs.tlog import LogKey, WitnessKey
from tests.functional.daemon import LOCAL, TIMEOUT, until

from .test_console import ConsoleTestCase

ROOT: Any = {"Authorization": f"Basic {b64encode(b'root:secret').decode('ascii')}"}


class OperatorTestCase(ConsoleTestCase):
    """
    An operator of the machine, without accounts.
    """

    def token(self) -> str:
        """The operator's token."""
        file = json.loads((self.dataDir / "operator.json").read_text("ascii"))
        token: str = file["token"]
        return token

    async def logIn(self) -> None:
        """Log in as operator on the page that asks for it."""
        browser = self.browser
        await browser.waitForText("Log in as operator")
        await browser.tabTo("Token of operator.json")
        await browser.type(self.token())
        await browser.press("Enter")
        await browser.waitForText("Log out")


class HoldsTests(OperatorTestCase):
    """
    Legal holds.
    """

    async def operate(self, call: str, **given: Any) -> Any:
        """The data that an operator call answers."""
        headers: Any = {
            "Authorization": f"Bearer {self.token()}",
            "Content-Type": "application/json",
        }
        path = f"/admin/operator/{call}"
        answer = await self.daemon.call(path, "POST", json.dumps(given).encode(), headers)
        self.assertEqual(answer["code"], 0, answer)
        return answer["data"]

    async def test_holdsAreShownWhereEventsAreErased(self) -> None:
        """All of them in a list, those released on request; the page of a held event says what
        holds it in place of the way to erase it."""
        await self.open(page="#operations")
        browser = self.browser
        await self.publish("orders", 2)
        page = await self.daemon.call("/rest/events", topic="orders")
        held, free = (each["eventId"] for each in page["events"])
        await self.operate("holds/add", case="old", reason="complaint 4", topics=["orders"])
        await self.operate("holds/release", case="old", reason="complaint withdrawn")
        await self.operate("holds/add", case="case-17", reason="court order 9", events=[held])
        await self.operate("holds/add", case="case-18", reason="<b>audit</b>", topics=["x/#"])
        await self.logIn()
        await browser.waitForText("court order 9")
        for text in ("case-17", "single events: 1", "<b>audit</b>", "x/#"):
            await browser.waitForText(text)
        shown = await browser.evaluate("document.body.innerText")
        self.assertNotIn("complaint", shown)
        await browser.tabTo("Show released holds")
        await browser.press("Enter")
        await browser.waitForText("complaint withdrawn")
        await browser.waitForText("complaint 4")
        await self.judge("holds")
        await browser.evaluate(f"location.hash = '#event?id={held}'")
        await browser.waitForText("It is held, and cannot be erased until this is released:")
        await browser.waitForText("case-17: court order 9")
        shown = await browser.evaluate("document.body.innerText")
        self.assertNotIn("Erase this event", shown)
        await self.judge("held")
        await browser.evaluate(f"location.hash = '#event?id={free}'")
        await browser.waitForText("Erase this event")
        shown = await browser.evaluate("document.body.innerText")
        self.assertNotIn("It is held", shown)


class ReplicasTests(OperatorTestCase):
    """
    Replicas, their faults and the configuration, without accounts.
    """

    async def test_viewChangeIsSeen(self) -> None:
        """An operator logs in by the token, stops the leader, publishes and heals by keyboard."""
        await self.open("--faults", ledger="pbft:nodes=4:timeout=0.3", page="#replicas")
        browser = self.browser
        await self.publish("orders/zurich", 3)
        await browser.waitForText("of the latest block")
        await self.judge("replicas-read-only")
        await self.logIn()
        await browser.waitForText("Faults on purpose")
        await browser.waitForText("leads next")
        leader = await browser.evaluate(
            "document.querySelector('.badge.lead').closest('tr').cells[0].textContent"
        )
        await browser.tabTo(f"Stop node {leader}")
        await browser.press("Enter")
        await browser.waitForText(f"Node {leader} has stopped.")
        await browser.waitForText("3 of 4 nodes run")
        await browser.tabTo("Start publishing")
        await browser.press("Enter")
        await browser.waitForText("View 0 → ")
        await browser.waitForText("blocks behind: ")
        await self.judge("replicas")
        await browser.tabTo("Stop publishing")
        await browser.press("Enter")
        await browser.tabTo("Node 0")
        await browser.evaluate(
            "((field) => { field.value = 'B';"
            " field.dispatchEvent(new Event('change', { bubbles: true })); })"
            "(document.activeElement)"
        )
        await browser.tabTo("Cut")
        await browser.press("Enter")
        await browser.waitForText("0→1 0→2 0→3")
        await browser.tabTo("Heal all")
        await browser.press("Enter")
        await browser.waitForText("4 of 4 nodes run")
        await browser.waitForText("Cut now: nothing")
        await browser.waitForText(f"Node {leader} runs again.")
        browser.problems.clear()
        await browser.evaluate("location.hash = '#configuration'")
        await browser.waitForText("Configuration file")
        await browser.tabTo("Only those that are not defaults")
        await browser.press("Space")
        await browser.waitForText("pbft:nodes=4:timeout=0.3")
        await browser.tabTo("Read files again")
        await browser.press("Enter")
        await browser.waitFor("!document.body.innerText.includes('never')")
        await self.judge("configuration")
        await browser.tabTo("Log out")
        await browser.press("Enter")
        await browser.waitForText("Log in as operator")

    async def test_networkOfCommandsCanBeChanged(self) -> None:
        """The form takes the values that a command has set: 0.07 is 7.000000000000001 per cent."""
        await self.open("--faults", ledger="pbft:nodes=4", page="#replicas")
        browser = self.browser
        headers: Any = {
            "Authorization": f"Bearer {self.token()}",
            "Content-Type": "application/json",
        }
        network = json.dumps({"delay": [0.00125, 0.0025], "loss": 0.07}).encode()
        made = await self.daemon.call("/admin/operator/faults/network", "POST", network, headers)
        self.assertEqual(made["code"], 0, made)
        await self.logIn()
        await browser.waitForText("Faults on purpose")
        form = "document.querySelector('[name=loss]').form"
        self.assertTrue(await browser.evaluate(f"{form}.checkValidity()"))
        values = f"[...{form}.elements].map(({{ value }}) => value).slice(0, 3)"
        self.assertEqual(await browser.evaluate(values), ["0.00125", "0.0025", "7"])

    async def test_faultsAreOffByDefault(self) -> None:
        """The page says how they are switched on, and shows the nodes."""
        await self.open(ledger="pbft:nodes=4", page="#replicas")
        browser = self.browser
        await self.publish("orders/zurich", 1)
        await self.logIn()
        await browser.waitForText("where the broker was started with the option --faults")
        await browser.waitForText("of the latest block")
        self.assertFalse(await browser.evaluate("document.body.innerText.includes('Heal')"))


class LookingTests(ConsoleTestCase):
    """
    Pages that are looked at, where there are accounts.
    """

    async def test_lookingWritesNothing(self) -> None:
        """No page of an operator, nor of an account with few grants, adds an event or a block."""
        accounts = self.root / "accounts.toml"
        password = hashPassword(b"secret")
        accounts.write_text(
            f"""
            [accounts.alice]
            password = "{password}"
            roles = ["reader"]
            [accounts.root]
            password = "{password}"
            roles = ["everything"]
            [roles.reader]
            grants = ["subscribe 1 orders/#", "subscribe 1 news"]
            """
        )
        await self.open(f"--accounts={accounts}", "--faults", ledger="pbft:nodes=4")
        browser = self.browser
        for name in ("root", "alice"):
            await browser.waitFor("document.activeElement.name === 'name'")
            await browser.type(name)
            await browser.press("Tab")
            await browser.type("secret")
            await browser.press("Enter")
            await browser.waitForText("Log out")
            pages = await browser.evaluate(
                "[...document.querySelectorAll('nav a')].map((each) => each.hash)"
            )
            self.assertIn("#topics", pages)
            self.assertEqual("#replicas" in pages, name == "root")
            await until(partial(self.isToldOf, name))
            written = await self.written()
            for page in pages:
                await browser.evaluate(
                    f"performance.clearResourceTimings(), location.hash = {page!r}"
                )
                # Searching and proving begin with what the reader gives.
                if page not in ("#search", "#event"):
                    await browser.waitFor(
                        "performance.getEntriesByType('resource').length > 0"
                        if page != "#replicas"
                        else "performance.getEntriesByType('resource')"
                        ".filter(({ name }) => name.endsWith('faults/show')).length >= 3"
                    )
            self.assertEqual(await self.written(), written, name)
            await browser.tabTo("Log out")
            await browser.press("Enter")

    async def isToldOf(self, name: str) -> bool:
        """Whether the audit trail has the log-in of an account, which is written soon after it."""
        return any(each["account"] == name for each in await self.written())

    async def written(self) -> list[dict[str, Any]]:
        """The records of the audit trail, once no block follows another."""
        heights = [-1]
        while len(heights) < 3 or heights[-1] != heights[-3]:
            checkpoint = await self.daemon.call("/rest/checkpoint", headers=ROOT)
            heights.append(checkpoint["height"])
        page = await self.daemon.call("/rest/events", headers=ROOT, topic="$svc/audit")
        # Nothing else is in the blocks.
        return [json.loads(b64decode(each["content"])) for each in page["events"]]


class ClientsTests(OperatorTestCase):
    """
    The connections of clients.
    """

    async def test_clientIsDisconnected(self) -> None:
        """An operator finds a client by its protocol, and closes its connection."""
        await self.open(f"--mqtt={LOCAL}", page="#configuration")
        browser = self.browser
        await self.logIn()
        port = int((await self.daemon.protocol.waitFor(r"MQTT on 127\.0\.0\.1:(\d+)"))[1])
        client = await deferToThread(connectMqtt, port)
        self.addCleanup(client.close)
        remote = f"127.0.0.1:{client.getsockname()[1]}"
        await browser.evaluate("location.hash = '#subscriptions'")
        await browser.waitForText(remote)
        await browser.tabTo(
            "A part of the account, the address, the protocol or the MQTT client id"
        )
        await browser.type("mqtt")
        await browser.waitForText("Connections: 1")
        await self.judge("connections")
        await browser.tabTo(f"Disconnect {remote}")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("Connections: 0")
        self.assertEqual(await deferToThread(readAll, client), b"")


def connectMqtt(port: int) -> socket.socket:
    """A client of MQTT 3.1.1 that has connected."""
    client = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    client.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c")
    client.recv(4, socket.MSG_WAITALL)
    return client


def readAll(client: socket.socket) -> bytes:
    """What a client gets until its connection ends, in order or not."""
    try:
        return client.recv(1)
    except ConnectionResetError:
        return b""


class ErasingTests(OperatorTestCase):
    """
    Events that an operator erases.
    """

    async def test_eventIsErasedAfterALook(self) -> None:
        """What goes is shown, and there is no button before there is a reason."""
        await self.open(ledger="pbft:nodes=4", page="#configuration")
        browser = self.browser
        await self.publish("orders/zurich", 2)
        page = await self.daemon.call("/rest/events", topic="orders/zurich")
        first, second = (each["eventId"] for each in page["events"])
        await self.logIn()
        await browser.evaluate(f"location.hash = '#event?id={second}'")
        await browser.tabTo("Erase this event …")
        await browser.press("Enter")
        await browser.tabTo("Ids of events, with spaces or lines between them")
        await browser.evaluate("document.activeElement.setSelectionRange(99, 99)")
        await browser.type(f" {first} 00000000-1-1")
        await browser.tabTo("Show what would be erased")
        await browser.press("Enter")
        await browser.waitForText("Events that would be erased: 2")
        await browser.waitForText('"number":0')
        self.assertIsNone(await browser.evaluate("document.querySelector('.danger')"))
        await browser.tabTo("Reason")
        await browser.type("request 17")
        await browser.waitForText(f"svcbroker admin erase --reason 'request 17' {second} {first}")
        await self.judge("erasing")
        await browser.tabTo("Erase for good: 2")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("Events erased: 2")
        page = await self.daemon.call("/rest/events", topic="orders/zurich", erased="tombstone")
        self.assertEqual([each.get("erased") for each in page["events"]], [True, True])


class JobsTests(OperatorTestCase):
    """
    Audits and backups that an operator asks for.
    """

    async def test_operatorAuditsAndBacksUp(self) -> None:
        """By two buttons; what comes of it is told, and the copy is there."""
        await self.open(ledger="pbft:nodes=4", page="#operations")
        browser = self.browser
        await self.publish("orders/zurich", 2)
        await self.logIn()
        for number, name in enumerate(("Audit now", "Back up now"), 1):
            await browser.tabTo(name)
            await browser.press("Enter")
            await browser.waitFor(
                f"document.body.innerText.match(/done: good/g)?.length === {number}"
            )
        await browser.waitForText("group 1: 3 blocks")
        await self.judge("operations")
        [copy] = self.dataDir.with_name("data-backups").iterdir()
        self.assertTrue((copy / "1" / "ledger.sqlite").exists())
        await browser.tabTo("Look now")
        await browser.press("Enter")
        # A machine of tests has its own faults; the options of the daemon are those of the doctor.
        await browser.waitFor("/\\d+ problems?, \\d+ warning/.test(document.body.innerText)")
        await browser.waitForText("svcbroker doctor --quiet ")
        await browser.waitForText("--ledger=pbft:nodes=4")

    async def test_operatorSeesWhatAReloadWouldChange(self) -> None:
        """Settings, and whether they take a restart; a file with a mistake changes nothing."""
        file = self.root / "svcbroker.toml"
        file.write_text("max-positions = 9\n")
        await self.open(f"--config={file}", page="#operations")
        browser = self.browser
        await self.logIn()
        for text, shown in (
            ("max-positions = 9\n", "Nothing would change."),
            ('max-positions = 7\nlog-level = "warn"\n', "max-positions: 9 → 7 takes a restart"),
            ("nonsense = 1\n", "Accounts and settings would stay as they are: "),
        ):
            file.write_text(text)
            await browser.tabTo("Show what would change")
            await browser.press("Enter")
            await browser.waitFor(
                f"document.body.innerText.replace(/\\s+/g, ' ').includes({json.dumps(shown)})"
            )
            if "log-level" in text:
                await browser.waitForText("log-level: info → warn")
                await self.judge("reload")
        file.write_text('log-level = "warn"\n')
        await browser.tabTo("Read files again")
        await browser.press("Enter")
        await browser.waitForText("Files were read again.")
        command = ("admin", "reload", "--preview", f"--data-dir={self.dataDir}")
        self.assertEqual(
            await self.outcomeOf(*command),
            (0, "max-positions: 9 -> 10000 (takes a restart)\n", ""),
        )


class CheckpointsTests(ConsoleTestCase):
    """
    Checkpoints that the browser keeps.
    """

    async def test_growthIsVerifiedInThePage(self) -> None:
        """A log that has grown is consistent; one without what is kept is told in red."""
        await self.open(ledger="pbft:nodes=4", page="#checkpoints")
        browser = self.browser
        await browser.waitForText("consistent")
        await self.publish("orders/zurich", 5)
        await browser.tabTo("Check now")
        await browser.press("Enter")
        kept = (
            "Object.entries(localStorage).find(([key]) => key.startsWith('svcbroker-checkpoint'))"
        )
        await browser.waitFor(f"Number(JSON.parse({kept}[1]).checkpoint.split(':')[0]) >= 5")
        await self.judge("checkpoints")
        other = (await self.daemon.call("/rest/checkpoint?height=2"))["checkpoint"]
        for checkpoint, text in (
            (other, "Both are of one log."),
            ("2:" + "00" * 32, "could not prove"),
            ("999:" + "00" * 32, "ends before the checkpoint"),
        ):
            await browser.tabTo("Checkpoint, HEIGHT:HASH")
            await browser.evaluate("document.activeElement.select()")
            await browser.type(checkpoint)
            await browser.press("Enter")
            await browser.waitForText(text)
        # As if the browser had seen another log.
        forged = json.dumps({"checkpoint": "2:" + "00" * 32})
        await browser.evaluate(
            f"(([key, value]) => localStorage.setItem(key,"
            f" JSON.stringify({{ ...JSON.parse(value), ...{forged} }})))({kept})"
        )
        await browser.tabTo("Check now")
        await browser.press("Enter")
        await browser.waitForText("The log was changed, or this is another one.")
        await self.judge("contradiction")
        await browser.tabTo("Forget")
        await browser.press("Enter", waits=False)
        await browser.accept()
        await browser.waitForText("consistent")

    async def test_witnessesAreListed(self) -> None:
        """The witnesses of the broker's policy are there, and which of them are away."""
        log = LogKey("broker.example/log/1", b"l" * 32).verifier
        witness = WitnessKey("w.example", b"w" * 32).verifier
        policy = self.root / "policy"
        policy.write_text(
            f"log {log.text}\nwitness away {witness.text} http://127.0.0.1:9/\nquorum away\n"
        )
        await self.open(
            f"--witness-policy={policy}",
            "--log-origin=broker.example",
            ledger="pbft:nodes=4",
            page="#checkpoints",
        )
        await self.browser.waitForText("is away")
        shown = await self.browser.evaluate("document.body.innerText")
        self.assertIn("The quorum away has cosigned size 0 of ", shown)
        await self.judge("witnesses")


class AccountsTests(ConsoleTestCase):
    """
    Accounts and their grants.
    """

    async def begin(self, name: str) -> None:
        """Open the page as an account."""
        accounts = self.root / "accounts.toml"
        password = hashPassword(b"secret")
        accounts.write_text(
            f"""
            [accounts.alice]
            password = "{password}"
            roles = ["orders"]
            limits = {{ publishes = 100, connections = 9 }}
            [accounts.root]
            password = "{password}"
            roles = ["everything"]
            [accounts.idle]
            [roles.orders]
            grants = ["publish 1 orders/#", "deny publish 1 orders/secret", "subscribe 1 orders/#"]
            """
        )
        await self.open(f"--accounts={accounts}", "--anonymous=subscribe 1 news/#")
        browser = self.browser
        await browser.waitForText("Log in")
        await browser.tabTo("Log in")
        await browser.press("Enter")
        await browser.waitFor("document.activeElement.name === 'name'")
        await browser.type(name)
        await browser.press("Tab")
        await browser.type("secret")
        await browser.press("Enter")
        await browser.waitForText("Log out")
        await browser.evaluate("location.hash = '#accounts'")

    async def ask(self, topic: str, **fields: Any) -> None:
        browser = self.browser
        for name, value in {**fields, "Topic": topic}.items():
            await browser.tabTo(name)
            await browser.evaluate("document.activeElement.select()")
            await browser.type(value)
        await browser.press("Enter")

    async def test_grantsAreExplained(self) -> None:
        """By the line that decides and its role."""
        await self.begin("root")
        browser = self.browser
        await browser.waitForText("without credentials")
        await browser.waitForText("9 connections")
        await self.ask("orders/x", Account="alice")
        await browser.waitForText("of the role orders")
        await browser.waitForText("granted")
        await self.ask("orders/secret", Account="alice")
        await browser.waitForText("refused")
        await browser.waitFor(
            "document.querySelector('[role=status] code[lang]').textContent"
            " === 'deny publish 1 orders/secret'"
        )
        browser.problems.clear()
        await self.judge("accounts")
        await self.ask("x", Account="nobody")
        await browser.waitForText("there is no such account")

    async def test_accountSeesItself(self) -> None:
        """And may ask about itself alone."""
        await self.begin("alice")
        browser = self.browser
        await browser.waitForText("(you)")
        await browser.waitForText("subscribe 1 orders/#")
        text = await browser.evaluate("document.querySelector('table').innerText")
        self.assertNotIn("root", text)
        await self.ask("orders/x")
        await browser.waitForText("granted")
        browser.problems.clear()
        await browser.evaluate("location.hash = '#configuration'")
        await browser.waitForText("This is for accounts that may operate.")
