"""
The transparency service on the real daemon: statements are registered by plain HTTP, and their
receipts verified by the command and by C{scitt-cose}; kills, and files that are lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import cbor2
import treq
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePublicNumbers,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from twisted.internet.defer import gatherResults
from twisted.internet.utils import getProcessOutputAndValue
from twisted.logger import Logger

import svcbroker
from svcbroker.net.deferreds import asDeferred
from svcbroker.proofs.scitt import (
    SignedStatement,
    readKeys,
    receiptsOf,
    verifyGrowth,
    verifyReceipts,
)
from tests.functional.daemon import TIMEOUT, Daemon, DaemonTestCase, until
from tests.needed import needPackage

with contextlib.suppress(ImportError):
    import scitt_cose

ISSUER = "https://acme.example"
EXAMPLE = Path(svcbroker.__file__).parent.parent / "docs" / "examples" / "register-statement.py"
COSE: Any = {"Content-Type": "application/cose"}


def tokenOf(name: str) -> bytes:
    """The token of an account."""
    return b"svc_" + name.encode() + b"0" * 32


KILLS = int(os.environ.get("SVCBROKER_TEST_KILLS", "6"))
"""The number of kills; more of them run by hand."""
BATCH = 20
ANSWERED = 5
"""The number of statements of a batch, and of those that are awaited before the kill."""


class Answer:
    """An answer of HTTP."""

    def __init__(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        self.code = code
        self.headers = headers
        self.body = body

    @property
    def problem(self) -> tuple[int, str, str]:
        """The status, the title and the detail of an error."""
        assert self.headers["content-type"] == "application/concise-problem-details+cbor"
        fields = cbor2.loads(self.body)
        return self.code, fields[-1], fields[-2]


class ScittTests(DaemonTestCase):
    """
    A daemon that is a transparency service, and an issuer with two keys.
    """

    timeout = (KILLS + 10) * TIMEOUT
    _log = Logger()

    def setUp(self) -> None:
        needPackage("scitt_cose", "interop")
        super().setUp()

    async def serve(self, *arguments: str, ledger: str = "pbft:nodes=1") -> Daemon:
        """Start it, and wait until the service is ready."""
        self.private = {"EdDSA": Ed25519PrivateKey.generate()}
        self.private["ES256"] = generate_private_key(SECP256R1())  # type: ignore[assignment]
        policy = ""
        for kid, name in (("key-1", "EdDSA"), ("key-2", "ES256")):
            path = self.root / f"{name}.pub"
            path.write_bytes(
                self.private[name]
                .public_key()
                .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            )
            policy += f'[[issuers]]\nissuer = "{ISSUER}"\nkeys = "{path.name}"\nkid = "{kid}"\n'
        (self.root / "policy.toml").write_text(policy)
        self.arguments = ("--scitt=statements", "--scitt-policy=policy.toml", *arguments)
        return await self.again(ledger)

    async def again(self, ledger: str = "pbft:nodes=1") -> Daemon:
        """Start it with the files that there are."""
        self.daemon = await self.start(*self.arguments, ledger=ledger)

        async def isReady() -> bool:
            return (await self.get(f"/entries/{'0' * 64}")).code == 404

        await until(isReady)
        return self.daemon

    async def refusal(self, *arguments: str) -> str:
        """The last line of what a daemon says that does not start."""
        daemon = self.run_([f"--data-dir={self.dataDir}", "--http=", *arguments])
        self.assertIn(await daemon.exits(), (1, 2))
        self.assertNotIn("Traceback", daemon.protocol.errors)
        return daemon.protocol.errors.splitlines()[-1]

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Ask the daemon, at the root of its port."""
        root = self.daemon.base.removesuffix("/svcbroker")
        given: Any = headers or COSE
        response = await treq.request(
            method,
            root + path,
            data=body or None,
            headers=given,
            pool=self.daemon.pool,
            timeout=TIMEOUT,
        )
        found = {
            name.decode().lower(): values[-1].decode()
            for name, values in response.headers.getAllRawHeaders()
        }
        return Answer(response.code, found, await response.content())

    async def get(self, path: str) -> Answer:
        return await self.request("GET", path)

    def statement(self, number: int, algorithm: str = "EdDSA", **changed: Any) -> bytes:
        """A statement that is signed by C{scitt-cose}."""
        pem = self.private[algorithm].private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        made: bytes = scitt_cose.build_signed_statement(
            b"payload %d" % number,
            **{
                "alg": algorithm,
                "private_key_pem": pem,
                "issuer": ISSUER,
                "subject": f"urn:thing:{number}",
                "content_type": "text/plain",
                "kid": {"EdDSA": b"key-1", "ES256": b"key-2"}[algorithm],
                **changed,
            },
        )
        return made

    async def register(self, statement: bytes) -> Answer:
        return await self.request("POST", "/entries", statement)

    async def check(self, statement: bytes, answer: Answer) -> int:
        """
        Verify a receipt with both libraries.

        @return: the index of the entry.
        """
        keys = readKeys((await self.get("/.well-known/scitt-keys")).body)
        [found] = verifyReceipts(SignedStatement.decode(statement), [answer.body], keys)
        key = found.key
        x, y = (int.from_bytes(each, "big") for each in key.coordinates)
        public = EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        other = scitt_cose.verify_receipt(
            answer.body, leaf_entry_hex=statement.hex(), log_public_key_pem=pem
        )
        self.assertTrue(other.ok, other.errors)
        place = (found.receipt.index, found.receipt.size, found.root)
        self.assertEqual((other.leaf_index, other.tree_size, bytes.fromhex(other.root)), place)
        self.assertEqual(answer.headers["content-type"], "application/cose")
        return found.receipt.index

    async def test_registeredStatementsHaveReceipts(self) -> None:
        """Both kinds of keys, several at once; the policy and the anchors are the first entries."""
        await self.serve("--scitt-name=https://broker.example")
        statements = [self.statement(n, "ES256" if n % 2 else "EdDSA") for n in range(9)]
        answers = await gatherResults([asDeferred(self.register)(each) for each in statements])
        indexes = set()
        for statement, answer in zip(statements, answers, strict=True):
            self.assertEqual(answer.code, 201)
            location = f"/entries/{sha256(statement).hexdigest()}"
            self.assertEqual(answer.headers["location"], location)
            indexes.add(await self.check(statement, answer))
            again = await self.get(location)
            self.assertEqual((again.code, again.headers["location"]), (200, location))
            await self.check(statement, again)
            whole = await self.get(f"{location}/statement")
            said = SignedStatement.decode(whole.body)
            self.assertEqual(said.message.withoutUnprotected(), statement)
            self.assertEqual(whole.headers["content-type"], "application/scitt-statement+cose")
            keys = readKeys((await self.get("/.well-known/scitt-keys")).body)
            [found] = verifyReceipts(said, receiptsOf(said), keys, "https://broker.example")
            self.assertEqual(found.receipt.size, 11)
        self.assertEqual(indexes, set(range(2, 11)))
        page = await self.daemon.call("/rest/events", topic="statements")
        self.assertEqual(len(page["events"]), 11)

    async def test_sameStatementIsRegisteredOnce(self) -> None:
        """Again, at the same time, below the path of the topic, and with an unprotected header."""
        await self.serve()
        statement = self.statement(1)
        parts = cbor2.loads(statement).value
        other = b"\xd2" + cbor2.dumps([parts[0], {99: "x"}, *parts[2:]])
        answers = await gatherResults(
            [asDeferred(self.register)(each) for each in (statement, other, statement)]
        )
        answers.append(await self.request("POST", "/svcbroker/scitt/statements/entries", other))
        for answer in answers:
            self.assertEqual(answer.code, 201)
            self.assertEqual(await self.check(statement, answer), 2)
        name = sha256(statement).hexdigest()
        self.assertEqual({each.headers["location"] for each in answers[:3]}, {f"/entries/{name}"})
        page = await self.daemon.call("/rest/events", topic="statements")
        self.assertEqual(len(page["events"]), 3)

    async def test_refusedStatementsDoNotReachTheLog(self) -> None:
        """Each is told why in a document of SCRAPI, and so is what is no statement."""
        await self.serve("--max-content=4096")
        good = self.statement(1)
        parts = [*cbor2.loads(good).value]
        for statement, expected in (
            (b"", (400, "Malformed request")),
            (b"hello", (400, "Malformed request")),
            (good + b"\0", (400, "Malformed request")),
            (b"\xd2\x84" + b"\x81" * 4000, (400, "Malformed request")),
            (b"\xd2\x84\x40" + b"\xbb" + b"\xff" * 8, (400, "Malformed request")),
            (b"\xd2" + cbor2.dumps([*parts[:2], None, parts[3]]), (400, "Payload Missing")),
            (b"\xd2" + cbor2.dumps([*parts[:3], bytes(64)]), (400, "Rejected")),
            (self.statement(1, issuer="https://other.example"), (400, "Rejected")),
            (self.statement(1, kid=b"key-2"), (400, "Rejected")),
            (self.statement(1, kid=b"key-3"), (400, "Rejected")),
            (self.statement(1, kid=None), (400, "Rejected")),
            (
                b"\xd2" + cbor2.dumps([*parts[:2], bytes(4096), parts[3]]),
                (413, "Payload Too Large"),
            ),
        ):
            with self.subTest(statement=statement[:100]):
                code, title, detail = (await self.register(statement)).problem
                self.assertEqual((code, title), expected, detail)
        for method, path, expected in (
            ("GET", "/entries/abc", (400, "Invalid locator")),
            ("GET", f"/entries/{'A' * 64}", (400, "Invalid locator")),
            ("GET", f"/entries/{'a' * 64}", (404, "Not Found")),
            ("GET", f"/entries/{'a' * 64}/statement", (404, "Not Found")),
            ("GET", "/.well-known/scitt-keys/abc", (404, "No such key")),
            ("DELETE", "/entries", (405, "Method Not Allowed")),
            ("GET", "/entries", (405, "Method Not Allowed")),
            ("POST", "/.well-known/scitt-keys", (405, "Method Not Allowed")),
        ):
            self.assertEqual((await self.request(method, path)).problem[:2], expected, path)
        html = await self.request("POST", "/entries", good, **{"Content-Type": "text/html"})
        self.assertEqual(html.problem[:2], (415, "Unsupported Media Type"))
        page = await self.daemon.call("/rest/events", topic="statements")
        self.assertEqual(len(page["events"]), 2)
        sent = await self.daemon.call("/rest/publish", topic="statements", content="x")
        self.assertNotIn("status", sent)
        closed = await self.daemon.call("/rest/close", topic="statements")
        self.assertNotEqual(closed, True)
        first = page["events"][0]["eventId"]
        erased = await self.operate("erase", reason="x", events=[first])
        self.assertIn("the events of statements are not erased", erased["message"])

    async def test_keysArePublicAndHaveUrls(self) -> None:
        """Also where there are accounts, which everything else needs."""
        await self.serve()
        kid = readKeys((await self.get("/.well-known/scitt-keys")).body)[0].kid
        await self.daemon.stop()
        accounts = self.root / "accounts.toml"
        accounts.write_text(
            "".join(
                f"[accounts.{action}]\n"
                f'tokens = [{{ label = "x", sha256 = "{sha256(tokenOf(action)).hexdigest()}" }}]\n'
                f'roles = ["{action}"]\n[roles.{action}]\ngrants = ["{action} 1 statements"]\n'
                for action in ("publish", "subscribe")
            )
        )
        self.arguments += (f"--accounts={accounts}",)
        self.daemon = await self.start(*self.arguments, ledger="pbft:nodes=1")

        async def hasKeys() -> bool:
            return (await self.get("/.well-known/scitt-keys")).body != b"\x80"

        await until(hasKeys)
        name = urlsafe_b64encode(kid).rstrip(b"=").decode()
        for path in ("", "/svcbroker/scitt/statements"):
            answer = await self.get(f"{path}/.well-known/scitt-keys/{name}")
            self.assertEqual(
                (answer.code, answer.headers["content-type"]), (200, "application/cbor")
            )
            self.assertEqual([each.kid for each in readKeys(answer.body)], [kid])
        statement = self.statement(1)
        path = f"/entries/{sha256(statement).hexdigest()}"
        for token, codes in (
            ("", (401, 401)),
            ("subscribe", (403, 404)),
            ("publish", (201, 403)),
            ("subscribe", (403, 200)),
        ):
            headers = {**COSE, "Authorization": f"Bearer {tokenOf(token).decode()}"}
            headers = headers if token else COSE
            registered = await self.request("POST", "/entries", statement, **headers)
            got = await self.request("GET", path, **headers)
            self.assertEqual((registered.code, got.code), codes, token)

    async def test_changedPolicyIsInForceFromThenOn(self) -> None:
        """By a reload: the anchors are registered again, and old receipts stay good."""
        await self.serve()
        statement = self.statement(1)
        first = await self.register(statement)
        policy = self.root / "policy.toml"
        policy.write_text(policy.read_text().replace("key-1", "key-9"))
        self.daemon.process.signalProcess(signal.SIGHUP)

        async def isRefused() -> bool:
            return (await self.register(self.statement(2))).code == 400

        await until(isRefused)
        self.assertEqual(await self.check(statement, first), 2)
        again = await self.get(first.headers["location"])
        self.assertEqual((again.code, await self.check(statement, again)), (200, 2))
        later = self.statement(3, kid=b"key-9")
        answer = await self.register(later)
        self.assertGreater(await self.check(later, answer), 3)

    async def test_brokenPolicyIsOneLine(self) -> None:
        """What cannot be a policy is refused at the start, and so is a ledger without a chain."""
        await self.serve()
        await self.daemon.stop()
        policy = self.root / "policy.toml"
        good = policy.read_text()
        for text, words in (
            ("", "there is no [[issuers]]"),
            ("[[issuers]]\n", "issuer is not a name"),
            ("x", "policy.toml: "),
            (good.replace("EdDSA.pub", "policy.toml"), "the keys is not CBOR"),
            (good.replace("EdDSA.pub", "absent.pub"), "cannot read"),
            (good.replace("key-2", "key-1"), "two keys of an issuer have one name"),
            (good + 'since = "today"\n', "since of https://acme.example is no date"),
            (good + "leaf = 1\n", "one of [[issuers]] has 'leaf'"),
        ):
            policy.write_text(text)
            self.assertIn(words, await self.refusal(*self.arguments))
        policy.write_text(good)
        for arguments, words in (
            (self.arguments[:1], "scitt: needs scitt-policy"),
            (self.arguments[1:], "there is no scitt"),
            ((*self.arguments, "--retain=#=1d"), "scitt: retain #=86400s would erase"),
            (("--scitt=a/+", *self.arguments[1:]), "scitt: is not"),
            ((*self.arguments, "--ledger=memory", "--data-dir=other"), "has no chain"),
        ):
            self.assertIn(words, await self.refusal(*arguments))

    async def test_exampleRegistersWithCommandsThatVerify(self) -> None:
        """The page's Python program, whose Transparent Statement the command finds proved."""
        await self.serve("--scitt-name=https://broker.example")
        (self.root / "issuer.pem").write_bytes(
            self.private["EdDSA"].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        document = self.root / "report.pdf"
        document.write_bytes(b"%PDF a report")
        root = self.daemon.base.removesuffix("/svcbroker")
        for issuer, expected in (
            (ISSUER, (0, "")),
            ("https://other.example", (1, "400 Rejected: the policy has no such issuer")),
        ):
            arguments = [str(EXAMPLE), root, issuer, "issuer.pem", str(document), "--hash"]
            output, errors, code = await getProcessOutputAndValue(
                sys.executable, arguments, env=self.environment, path=str(self.root)
            )
            self.assertEqual((code, errors.decode()[: len(expected[1])]), expected, errors)
        keys = self.root / "keys"
        genesis = self.root / "genesis.json"
        genesis.write_bytes((await self.get("/svcbroker/rest/genesis")).body)
        code, output, _ = await self.outcomeOf(
            *("proof", "scitt", "keys", "--url", self.daemon.base, "--output", keys),
            *("--genesis", genesis),
        )
        self.assertEqual(code, 0, output)
        self.assertIn(", certified by event ", output)
        for words in (
            (
                *("verify", f"{document}.scitt", "--issuer-keys", self.root / "EdDSA.pub"),
                *("--content", document),
            ),
            (
                *("register", f"{document}.scitt", "--output", self.root / "again.scitt"),
                *("--url", self.daemon.base, "--topic", "statements"),
            ),
            ("verify", self.root / "again.scitt"),
        ):
            given = ("--keys", keys, "--service", "https://broker.example")
            code, output, errors = await self.outcomeOf("proof", "scitt", *words, *given)
            self.assertEqual((code, errors), (0, ""), output)
            self.assertIn("PROVED", output)
        policy, note = self.root / "policy", self.root / "checkpoint"
        where = ("--url", self.daemon.base)
        log = ("admin", "log", "key", "--genesis", genesis, *where)
        code, output, errors = await self.outcomeOf(*log)
        self.assertEqual((code, errors), (0, ""), output)
        policy.write_text(output)
        event = (await self.daemon.call("/rest/events", topic="statements"))["events"][2]["eventId"]
        newer, trusted = self.root / "newer.scitt", ("--keys", keys)
        seen = ("--checkpoint", note, "--policy", policy)
        for asking in (
            ("receipt", event, "--output", newer, "--checkpoint", note, *trusted, *where),
            ("verify", newer, *trusted, *seen),
        ):
            code, output, errors = await self.outcomeOf("proof", "scitt", *asking)
            self.assertEqual((code, errors), (0, ""), output)
        self.assertIn("  signed tree  of 3, of the topic statements\n", output)
        code, output, errors = await self.outcomeOf(
            *("proof", "scitt", "audit", f"{document}.scitt", "--topic", "statements"),
            *(*where, "--genesis", genesis, "--json", *seen),
        )
        self.assertEqual((code, errors), (0, ""), output)
        told = json.loads(output)
        self.assertEqual((told["good"], told["entries"], told["leftOut"]), (True, 3, 0))

    async def operate(self, call: str, **parameters: Any) -> Any:
        """The answer to an operator call."""
        token = json.loads((self.dataDir / "operator.json").read_text("ascii"))["token"]
        headers: Any = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = json.dumps(parameters).encode()
        return await self.daemon.call(f"/admin/operator/{call}", "POST", body, headers)

    async def test_treeIsTheSameAfterKillsAndLosses(self) -> None:
        """
        Kills while statements are registered and holds made; some take away the file of the tree,
        or damage it. The tree made again has all of the one that was signed last, what is held
        cannot be erased, and at the end every statement that was answered is at its place.
        """
        await self.serve()
        await self.daemon.call("/rest/open", topic="papers")
        paper = await self.daemon.call("/rest/publish", topic="papers", content="held")
        held = [paper["eventId"]]
        known: dict[bytes, int] = {}
        size = 0
        for round in range(KILLS):
            batch = [self.statement(BATCH * round + each) for each in range(BATCH)]
            asked = [asDeferred(self.register)(each) for each in batch]
            answered: Sequence[Answer] = [await each for each in asked[:ANSWERED]]
            for each in asked[ANSWERED:]:
                each.addErrback(lambda failure: None)
            answer = await self.operate("holds/add", case=f"{round}", reason="x", events=held)
            self.assertEqual(answer["code"], 0, answer)
            for statement, given in zip(batch, answered, strict=False):
                self.assertEqual(given.code, 201, given.body)
                known[statement] = await self.check(statement, given)
            keys = readKeys((await self.get("/.well-known/scitt-keys")).body)
            signed = verifyReceipts(SignedStatement.decode(statement), [given.body], keys)
            await self.daemon.stop(signal.SIGKILL)
            [path] = (self.dataDir / "1" / "scitt").glob("*.sqlite")
            if round % 6 == 3:
                path.unlink()
            elif round % 6 == 4:
                data = bytearray(path.read_bytes())
                data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
                path.write_bytes(data)
            await self.again()
            answer = await self.operate("erase", reason="x", events=held)
            self.assertNotEqual(answer["code"], 0)
            # Whether the others of the batch were in a later block or not.
            more = self.statement(BATCH * KILLS + round)
            known[more] = await self.check(more, await self.register(more))
            grown = await self.get(f"/consistency/{signed[0].receipt.size}")
            self.assertEqual(grown.code, 200, grown.body)
            later, _ = verifyGrowth(signed, grown.body, keys)
            size = later.newer
            self._log.info("{kills} kills, a tree of {size}", kills=round + 1, size=size)
        for statement, index in known.items():
            answer = await self.get(f"/entries/{sha256(statement).hexdigest()}")
            self.assertEqual(await self.check(statement, answer), index)
        self.assertGreater(size, len(known))
        holds = await self.operate("holds/list")
        self.assertEqual(holds["data"]["total"], KILLS)
        page = await self.daemon.call("/rest/events", topic="papers")
        self.assertEqual([each["eventId"] for each in page["events"]], held)
        text = "{kills} kills, {receipts} answered receipts, a tree of {size}"
        self._log.info(text, kills=KILLS, receipts=len(known), size=size)
