"""
Tests for the commands of C{svcbroker proof scitt} that ask a service: one on a chain, in memory.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2
import httpx
from attrs import evolve
from msgspec.structs import replace

from svcbroker.client import Event
from svcbroker.commands import scitt
from svcbroker.commands.scitt import ScittClient, serviceUrl
from svcbroker.proofs.scitt import (
    KEY_TOPIC,
    Claims,
    ServiceKey,
    SignedStatement,
    encodeKeys,
    readKeys,
    receiptsOf,
)
from svcbroker.proofs.tlog import LogKey, Note, TreeHead
from tests.carriers.scitt.support import (
    CLAIMS,
    ISSUER,
    POLICY,
    TOPIC,
    ScittServiceTestCase,
    statement,
)
from tests.commands.support import CommandTestCase

STRANGER = Claims(issuer="https://else.example", subject="urn:thing")
LOG = LogKey("log", b"l" * 32)
BASE = "https://broker.example"
KEYS_WARNING = "the keys are what the service shows: give --keys with those that you trust\n"
PROBLEM = "application/concise-problem-details+cbor"


class ServiceCommandTests(ScittServiceTestCase, CommandTestCase):
    """
    Commands whose requests a service in memory answers.

    @ivar change: changes an answer before the command gets it.
    @ivar waited: the seconds that commands have waited.
    """

    def setUp(self) -> None:
        super().setUp()
        self.change: Callable[[httpx.Request, httpx.Response], httpx.Response] = lambda _, it: it
        self.asked: list[str] = []
        self.lines: Sequence[str] = ()
        self.waited: list[float] = []
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.statement = self.save("report.cose", statement(1))
        self.output = self.directory / "report.scitt"
        self.keys = self.save("keys", self.answer("GET", "/.well-known/scitt-keys").body)

        @contextmanager
        def asked(given: Mapping[str, Any], topic: str | None) -> Iterator[ScittClient]:
            http = httpx.Client(transport=httpx.MockTransport(self.handle))
            yield ScittClient(
                *(serviceUrl(f"{BASE}/svcbroker", topic), http, given["timeout"]),
                *(lambda: sum(self.waited), self.wait),
            )

        @contextmanager
        def connected(urls: Any, settings: Mapping[str, Any]) -> Iterator[Any]:
            yield self

        self.patch(scitt, "askedService", asked)
        self.patch(scitt, "connected", connected)
        self.events: Callable[..., Iterator[Event]] = self.logged

    def save(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.write_bytes(data)
        return path

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        path = request.url.raw_path.decode()
        answer = self.answer(request.method, path, request.content)
        response = httpx.Response(answer.status, headers=answer.headers, content=answer.body)
        return self.change(request, response)

    def logged(self, topic: str, tombstones: bool = False) -> Iterator[Event]:
        """The events of a topic, as a client of the broker reads them."""
        ledger = self.rig.ledger
        for height in self.successResultOf(ledger.findBlocks([topic], 1, 1000)):
            block = self.successResultOf(ledger.readBlock(height))
            for each in block.events:
                if each.topic == topic:
                    yield Event(
                        topic=topic,
                        content=each.content,
                        extensions={},
                        eventId=str(each.eventId),
                        timestamp=block.timestamp,
                    )

    def readLog(self, path: str) -> bytes:
        """The checkpoint of the broker's log."""
        self.assertEqual(path, "checkpoint")
        text = TreeHead("log", 9, bytes(32), self.lines).text
        return Note(text).signedBy(LOG.sign(text)).encode()

    def sign(self) -> None:
        """Have the log sign the tree as it is now."""
        self.lines = self.successResultOf(self.service.checkpointLines())

    def getEvent(self, eventId: str) -> Event:
        """An event of the topic, as a client of the broker reads it."""
        [found] = [each for each in self.logged(TOPIC) if each.eventId == eventId]
        return found

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.clock.advance(seconds)
        self.settle()

    def scitt(self, *words: object, code: int = 0) -> tuple[str, str]:
        """What a command writes to standard output and standard error."""
        found, output, errors = self.run_("proof", "scitt", *words)
        self.assertEqual(found, code, output + errors)
        return output, errors

    def registerFile(self, *words: object, code: int = 0) -> tuple[str, str]:
        """The same of the command that registers the statement."""
        return self.scitt("register", self.statement, "--output", self.output, *words, code=code)

    def receipts(self, path: Path) -> int:
        """The number of receipts of a file, all of which verify offline."""
        output, _ = self.scitt("verify", path, "--keys", self.keys, "--service", "service")
        self.assertNotIn("left out", output)
        return len(receiptsOf(SignedStatement.decode(path.read_bytes())))

    def test_registeredStatementIsWrittenWithItsReceipt(self) -> None:
        output, errors = self.registerFile("--keys", self.keys, "--service", "service")
        self.assertTrue(output.startswith("PROVED: the statement is in the tree of the service\n"))
        self.assertEqual((errors, self.receipts(self.output)), ("", 1))
        self.assertEqual(self.asked, ["POST /entries"])
        self.output.unlink()
        _, errors = self.registerFile("--json")
        self.assertEqual((errors, self.receipts(self.output)), (KEYS_WARNING, 1))
        self.assertEqual(self.tree.state.size, 3)

    def test_newReceiptIsPutBehindTheOthers(self) -> None:
        self.registerFile("--keys", self.keys)
        newer = self.directory / "newer.scitt"
        words = ("--output", newer, "--keys", self.keys)
        output, _ = self.scitt("receipt", self.output, *words)
        self.assertIn("  entry        2 of a tree of 3\n", output)
        self.assertEqual(self.receipts(newer), 2)

    def test_eventOfTheTopicHasAReceipt(self) -> None:
        """By its id; one that is no statement, or not registered, has none."""
        self.registerFile("--keys", self.keys)
        ids = [str(each) for each in self.put(b"hello", ISSUER.statement(STRANGER, "a", b"b"))]
        registered = [*self.logged(TOPIC)][2]
        newer = self.directory / "newer.scitt"
        words = ("--output", newer, "--keys", self.keys)
        output, _ = self.scitt("receipt", registered.eventId, *words)
        self.assertIn("  entry        2 of a tree of 3\n", output)
        said = SignedStatement.decode(newer.read_bytes())
        self.assertEqual(said.message.withoutUnprotected(), self.statement.read_bytes())
        newer.unlink()
        for event, line in zip(
            ids, ("the statement is no COSE_Sign1", "there is no such entry"), strict=True
        ):
            self.assertIn(line, self.scitt("receipt", event, *words, code=1)[1])
        _, errors = self.scitt("receipt", f"./{ids[0]}", *words, code=2)
        self.assertIn("No such file", errors)
        self.assertFalse(newer.exists())

    def test_receiptOfTheTreeInACheckpointLeadsToTheLog(self) -> None:
        """Verified with a policy, and compared with the log by an audit."""
        self.registerFile("--keys", self.keys)
        words: Sequence[object] = ("receipt", self.statement, "--keys", self.keys)
        newer, note = self.directory / "newer.scitt", self.directory / "checkpoint"
        words = (*words, "--output", newer, "--checkpoint", note)
        _, errors = self.scitt(*words, code=1)
        self.assertIn("the newest checkpoint has no tree of statements: wait", errors)
        self.sign()
        self.answer("POST", "/entries", statement(2))
        self.scitt(*words)
        policy = self.save("policy", f"log {LOG.verifier.text}\nquorum none".encode())
        checked = ("--checkpoint", note, "--policy", policy)
        verify: Sequence[object] = ("verify", newer, "--keys", self.keys, *checked)
        output, _ = self.scitt(*verify)
        self.assertIn("  signed tree  of 3, of the topic statements\n", output)
        self.assertIn("  log          log\n", output)
        self.assertIn("no witness has cosigned it", output)
        told = json.loads(self.scitt(*verify, "--json")[0])
        tree = {"topic": TOPIC, "size": 3, "root": self.lines[0].split(" ")[3]}
        tree["root"] = b64decode(str(tree["root"])).hex()
        self.assertEqual((told["signedTree"], told["log"]["size"]), (tree, 9))
        self.change = self.rooted
        output, _ = self.scitt("audit", "--topic", TOPIC, *checked)
        self.assertIn(f"  compared     the service, {note}\n", output)
        self.scitt("audit", "--copy", "--topic", TOPIC, *checked)

    def test_checkpointsThatDoNotFitAreRefused(self) -> None:
        """Of another tree or topic, without a policy, or of a tree without the statement."""
        self.registerFile("--keys", self.keys)
        self.sign()
        good = self.lines[0]
        wrong = good.rpartition(" ")[0] + " " + "A" * 43 + "="
        newer, note = self.directory / "newer.scitt", self.directory / "checkpoint"
        receipt: Sequence[object] = ("--output", newer, "--checkpoint", note, "--keys", self.keys)
        receipt = ("receipt", self.statement, *receipt)
        for lines, code, words in (
            ([wrong], 1, "another tree of this size than the receipt"),
            ([good, good.replace(TOPIC, "other")], 2, "the trees of several topics: give --topic"),
            ([good.replace(" 3 ", " 2 ")], 1, "no such entry in the tree of 2"),
            ([good.replace(" 3 ", " 4 ")], 1, "trees with receipts have 2 to 3 entries"),
            ([f"{good} x"], 1, "has not a topic, a size and a root"),
        ):
            self.lines = lines
            self.assertIn(words, "".join(self.scitt(*receipt, code=code)))
        self.assertFalse(newer.exists() or note.exists())
        policy = self.save("policy", f"log {LOG.verifier.text}\nquorum none".encode())
        self.lines = [wrong]
        forged = self.save("forged", self.readLog("checkpoint"))
        for given, code, line in (
            (("--checkpoint", forged), 2, "--checkpoint and --policy are given together"),
            (("--policy", policy), 2, "--checkpoint and --policy are given together"),
            (("--checkpoint", policy, "--policy", policy), 1, "the checkpoint: "),
            (("--checkpoint", forged, "--policy", forged), 2, "forged: line 1"),
            (("--checkpoint", forged, "--policy", policy), 1, "another tree of this size"),
        ):
            verify = ("verify", self.output, "--keys", self.keys, *given)
            self.assertIn(line, "".join(self.scitt(*verify, code=code)))
        audit = ("audit", "--topic", TOPIC, "--checkpoint", forged, "--policy", policy)
        self.change = self.rooted
        output, _ = self.scitt(*audit, code=1)
        self.assertIn(f"the checkpoint {forged} is of another tree of 3 than the log", output)
        self.lines = [good.replace(TOPIC, "other")]
        forged.write_bytes(self.readLog("checkpoint"))
        self.assertIn("has no tree of the topic statements", self.scitt(*audit, code=1)[0])

    def test_hashEnvelopeIsRegisteredWhereTheContentIsItsOwn(self) -> None:
        """And verified with the content, or without it; what is signed of that is shown."""
        content = self.save("report.pdf", b"%PDF a report")
        header = {258: -16, 259: "application/pdf", 260: "https://acme.example/1"}
        fields = {1: -7, 4: ISSUER.public.kid, 15: CLAIMS.fields, **header}
        digest = sha256(content.read_bytes())
        self.statement = self.save("report.cose", ISSUER.sign(fields, digest.digest()))
        other = self.save("other.pdf", b"%PDF another")
        words = ("--keys", self.keys, "--content")
        output, _ = self.registerFile(*words, other, code=1)
        self.assertEqual(output, "NOT PROVED: the content is not that of the statement\n")
        self.assertEqual((self.asked, self.output.exists()), ([], False))
        self.registerFile(*words, content)
        self.assertIn("NOT PROVED", self.scitt("verify", self.output, *words, other, code=1)[0])
        output, _ = self.scitt("verify", self.output, *words, content)
        self.assertIn(
            f"  content      {content} is that of the statement\n"
            f"               SHA-256 {digest.hexdigest()}\n"
            "               of the type application/pdf\n"
            "               at https://acme.example/1\n",
            output,
        )
        self.assertNotIn("the content, which is elsewhere", output)
        output, _ = self.scitt("verify", self.output, "--keys", self.keys)
        self.assertIn("  not checked  the content, which is elsewhere: give --content\n", output)
        told = json.loads(self.scitt("verify", self.output, *words, content, "--json")[0])
        self.assertEqual((told["contentChecked"], told["content"]["hash"]), (True, "SHA-256"))
        self.assertEqual(told["content"]["digest"], digest.hexdigest())

    def test_statementUnderWayIsWaitedFor(self) -> None:
        self.rig.disk.isHeld = True
        late = self.ask("POST", "/entries", self.statement.read_bytes())
        self.clock.advance(60)
        [answer] = late.answers()
        self.assertEqual(answer.status, 202)
        _, errors = self.registerFile("--keys", self.keys, "--timeout", "3", code=1)
        self.assertIn("not registered within 3 seconds; ask later", errors)
        self.assertEqual(self.waited, [1.0, 1.0, 1.0])
        self.rig.disk.isHeld = False
        self.rig.disk.release()
        self.registerFile("--keys", self.keys)
        self.assertEqual(self.receipts(self.output), 1)

    def test_busyServiceIsAskedAgain(self) -> None:
        answers = [503, 429]

        def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
            if not answers:
                return response
            return httpx.Response(answers.pop(), headers={"Retry-After": "7"})

        self.change = change
        self.registerFile("--keys", self.keys)
        self.assertEqual(self.waited, [7.0, 7.0])
        self.output.unlink()
        answers += [503] * 9
        # For as long as it takes.
        self.registerFile("--keys", self.keys, "--timeout", "0")
        self.assertEqual(self.waited, [7.0] * 11)

    def test_redirectsOfEarlierDraftsAreFollowed(self) -> None:
        """303 and 302, until the receipt is there."""
        location = f"/entries/{sha256(self.statement.read_bytes()).hexdigest()}"
        redirects = [(302, location), (303, location)]

        def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
            if not redirects:
                return response
            code, place = redirects.pop()
            return httpx.Response(code, headers={"Location": place})

        self.change = change
        self.registerFile("--keys", self.keys)
        self.assertEqual(self.asked, ["POST /entries", f"GET {location}", f"GET {location}"])
        for place in ("https://other.example/entries/1", "", "//"):
            path = self.directory / "other.scitt"
            redirects.append((303, place))
            words = ("--output", path, "--keys", self.keys)
            _, errors = self.scitt("register", self.statement, *words, code=2)
            self.assertIn("the service names no place of its own", errors)
            self.assertFalse(path.exists())

    def test_refusalOfServiceIsTold(self) -> None:
        other = self.save("other.cose", statement(1)[:-64] + bytes(64))
        words = ("--output", self.output, "--keys", self.keys)
        _, errors = self.scitt("register", other, *words, code=1)
        self.assertIn(
            "svcbroker proof scitt register: the service refused (400): Rejected: the signature of "
            "the statement is wrong",
            errors,
        )
        _, errors = self.scitt("receipt", self.statement, *words, code=1)
        self.assertIn("the service refused (404): Not Found: there is no such entry", errors)
        for headers, body, line in (
            ({}, b"<html>", "there is no transparency service at https://broker.example (HTTP "),
            ({"Content-Type": PROBLEM}, b"\xff", "there is no transparency service"),
            (
                {"Content-Type": PROBLEM},
                cbor2.dumps({-1: "No\x1b[31m", -2: "x" * 2000}),
                "refused (400): No\\x1b[31m: xxx",
            ),
            ({}, b'{"code": 100106, "message": "who?"}', "refused (400): who?"),
        ):
            response = httpx.Response(400, headers=headers, content=body)
            self.change = lambda _, it, answer=response: answer  # type: ignore[misc]
            code, _, errors = self.run_("proof", "scitt", "register", self.statement, *words)
            self.assertIn(line, errors)
            self.assertEqual((code, len(errors.splitlines())), (1 if "refused" in line else 2, 1))
        self.assertFalse(self.output.exists())

    def test_receiptThatDoesNotVerifyIsNotKept(self) -> None:
        """Of another key, of another name, changed, or of another statement; nor a long answer."""
        stranger = self.save("stranger", ServiceKey.derive(b"x").public.encode())
        self.assertIn("NOT PROVED", self.registerFile("--keys", stranger, code=1)[0])
        words = ("--keys", self.keys, "--service", "other")
        self.assertIn("not issued in the name", self.registerFile(*words, code=1)[0])
        other = self.answer("POST", "/entries", statement(2)).body
        for body in (other, other[:-1] + b"\0", b""):
            response = httpx.Response(201, content=body)
            self.change = lambda _, it, answer=response: answer  # type: ignore[misc]
            output, _ = self.registerFile("--keys", self.keys, code=1)
            self.assertTrue(output.startswith("NOT PROVED: "))
        self.change = lambda _, it: httpx.Response(201, content=bytes(3 << 20))
        self.assertIn("has more than", self.registerFile("--keys", self.keys, code=2)[1])
        self.assertFalse(self.output.exists())

    def test_filesAreLookedAtBeforeAnythingIsRegistered(self) -> None:
        self.output.write_bytes(b"")
        _, errors = self.registerFile("--keys", self.keys, code=2)
        self.assertIn("report.scitt is there already", errors)
        words = ("--output", self.directory / "new", "--keys")
        for path, keys, line in (
            (self.keys, self.keys, "the statement is no COSE_Sign1"),
            (self.statement, self.statement, f"{self.statement}: "),
            (self.directory / "none", self.keys, "No such file"),
        ):
            _, errors = self.scitt("register", path, *words, keys, code=2)
            self.assertIn(line, errors)
        self.assertEqual(self.asked, [])

    def test_keysAreShownAndKept(self) -> None:
        path = self.directory / "kept"
        output, errors = self.scitt("keys", "--output", path, "--topic", TOPIC, code=2)
        self.assertIn("there is no transparency service", errors)
        self.assertEqual(self.asked, [f"GET /svcbroker/scitt/{TOPIC}/.well-known/scitt-keys"])
        output, errors = self.scitt("keys", "--output", path)
        [key] = readKeys(path.read_bytes())
        self.assertEqual(output, f"{key.kid.hex()}\n")
        self.assertIn("give --genesis", errors)
        output, _ = self.scitt("keys", "--genesis", "genesis.json")
        [event] = self.logged(KEY_TOPIC)
        self.assertEqual(output, f"{key.kid.hex()}, certified by event {event.eventId}\n")
        stranger = encodeKeys([key, ServiceKey.derive(b"x").public])
        self.change = lambda _, it: httpx.Response(200, content=stranger)
        _, errors = self.scitt("keys", "--genesis", "genesis.json", code=1)
        self.assertIn("NOT PROVED: the chain does not certify the key", errors)
        self.change = lambda _, it: httpx.Response(200, content=b"\x80")
        _, errors = self.scitt("keys", code=1)
        self.assertIn("what the service shows: there is no key", errors)

    def test_growthIsProvedFromTheNewestReceipt(self) -> None:
        self.registerFile("--keys", self.keys)
        grown = self.directory / "grown"
        words = ("consistency", self.output, "--keys", self.keys, "--output", grown)
        output, errors = self.scitt(*words)
        self.assertIn("the tree has not grown: it has the 3 entries of the receipt", errors)
        self.assertFalse(grown.exists())
        for number in range(2, 6):
            self.answer("POST", "/entries", statement(number))
        output, errors = self.scitt(*words)
        self.assertIn("  later tree   of 7, has all of the tree of 3\n", output)
        self.assertEqual(errors, "")
        checked, _ = self.scitt(
            *("verify", self.output, "--keys", self.keys, "--consistency", grown)
        )
        self.assertEqual(checked, output)
        data = grown.read_bytes()
        for body in (data[:-1] + bytes([data[-1] ^ 1]), b"", self.keys.read_bytes()):
            response = httpx.Response(200, content=body)
            self.change = lambda _, it, answer=response: answer  # type: ignore[misc]
            output, _ = self.scitt(*words[:-2], code=1)
            self.assertTrue(output.startswith("NOT PROVED: "))
        output, _ = self.scitt("consistency", self.statement, "--keys", self.keys, code=1)
        self.assertIn("no receipt", output)

    def test_logMakesTheTreesOfReceipts(self) -> None:
        """That of the service as it is now, and those of older receipts, in spite of a new key."""
        self.registerFile("--keys", self.keys)
        self.put(b"hello", statement(2), statement(2)[:-1])
        self.serve(evolve(POLICY, receipts="EdDSA"))
        words = ("audit", self.output, "--topic", TOPIC)
        self.change = self.rooted
        output, errors = self.scitt(*words, "--json")
        told = json.loads(output)
        self.assertEqual((told["good"], told["problems"], told["leftOut"]), (True, [], 2))
        self.assertEqual(told["compared"], [str(self.output), "the service"])
        self.assertEqual(
            (told["entries"], told["root"]), (self.tree.state.size, self.tree.state.root.hex())
        )
        self.assertIn("the events are what the broker tells: give --genesis", errors)
        output, _ = self.scitt(*words, "--copy", "--genesis", "genesis.json")
        self.assertTrue(output.startswith("GOOD: the log makes the trees that were signed\n"))
        _, errors = self.scitt("audit", "--copy", "--topic", TOPIC, code=2)
        self.assertIn("--copy needs a STATEMENT", errors)

    def test_logThatDoesNotMakeTheTreeIsNotGood(self) -> None:
        """One that ends before, has other entries, or none at a place; and gaps in it are told."""
        self.change = self.rooted
        self.registerFile("--keys", self.keys)
        self.put(statement(2))
        known = [*self.logged(TOPIC)]
        words = ("audit", self.output, "--topic", TOPIC, "--copy")
        changed = [*known[:2], replace(known[3], eventId=known[2].eventId)]
        for events, line in (
            (known[:2], "is of a tree of 3, and the log makes 2"),
            (changed, "is of another tree of 3 than the log makes"),
        ):
            self.reads(events)
            output, _ = self.scitt(*words, code=1)
            self.assertTrue(output.startswith("NOT GOOD: "), output)
            self.assertIn(line, output)
            self.assertEqual(json.loads(self.scitt(*words, "--json", code=1)[0])["good"], False)
        for events, line in (
            (known[1:], "event 1 of the topic is missing"),
            ([*known[:2], replace(known[2], erased=True)], "event 3 of the topic was erased"),
        ):
            self.reads(events)
            self.assertIn(line, self.scitt(*words, code=1)[1])

    def rooted(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        """What the resource of the topic answers, which is at the root here."""
        path = request.url.path.removeprefix(f"/svcbroker/scitt/{TOPIC}")
        answer = self.answer(request.method, path, request.content)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    def reads(self, events: Sequence[Event]) -> None:
        """Have the log be another one, but for the keys."""
        self.events = lambda topic, **given: iter(
            events if topic == TOPIC else [*self.logged(topic)]
        )
