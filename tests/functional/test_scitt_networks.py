"""
A transparency service at one broker of a network whose log others decide: engines of CometBFT, and
an EVM chain.
"""

from __future__ import annotations

import json
import os
import signal
from hashlib import sha256
from typing import Any, Final

import treq
from attrs import evolve
from twisted.internet.defer import gatherResults
from twisted.trial.unittest import SkipTest

from svcbroker.ledgers.evm import checkInstalled
from svcbroker.net.deferreds import asDeferred
from svcbroker.proofs.scitt import (
    Claims,
    ServiceKey,
    SignedStatement,
    encodeKeys,
    readKeys,
    verifyGrowth,
    verifyReceipts,
)
from tests.ledgers.evm.nodes import Chain

from .daemon import TIMEOUT, until
from .network import NetworkTestCase

CLAIMS: Final = Claims(issuer="https://acme.example", subject="urn:thing")
ISSUER: Final = ServiceKey.derive(os.urandom(32))
COUNT: Final = 5


def statement(number: int) -> bytes:
    """A statement of the issuer."""
    return ISSUER.statement(evolve(CLAIMS, subject=f"urn:{number}"), "text/plain", b"x")


class NetworkTests(NetworkTestCase):
    """
    Statements are registered at the first broker, and read at the last one.
    """

    def setUp(self) -> None:
        if not os.environ.get("SVCBROKER_LONG"):
            raise SkipTest("SVCBROKER_LONG is not set: nox -s chains runs what takes long")
        super().setUp()

    async def layOut(self, *options: str) -> None:
        """Lay out a network whose first broker is a service."""
        code, _, errors = await self.outcomeOf(
            "testnet", "--lay-out-only", *options, self.directory / "net"
        )
        self.assertEqual(code, 0, errors)
        node = self.node(0)
        (node / "issuer-keys").write_bytes(encodeKeys([ISSUER.public]))
        (node / "policy.toml").write_text(
            f'[[issuers]]\nissuer = "{CLAIMS.issuer}"\nkeys = "issuer-keys"\n'
        )
        with (node / "broker.toml").open("a") as file:
            file.write(f'scitt = "statements"\nscitt-policy = "{node}/policy.toml"\n')

    async def begin(self) -> Any:
        """Start the network, and wait until the service is ready."""
        network = self.network = await self.startNetwork()

        async def isReady() -> bool:
            return (await self.answer("GET", f"/entries/{'0' * 64}"))[0] == 404

        await until(isReady)
        return network

    async def answer(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The status and the body of an answer of the service."""
        headers: Any = {"Content-Type": "application/cose"}
        response = await treq.request(
            *(method, self.base(0).removesuffix("/svcbroker") + path),
            data=body or None,
            headers=headers,
            pool=self.network.pool,
            timeout=TIMEOUT,
        )
        return response.code, await response.content()

    async def check(self, data: bytes, answer: tuple[int, bytes], code: int) -> Any:
        """Verify a receipt."""
        self.assertEqual(answer[0], code, answer)
        keys = readKeys((await self.answer("GET", "/.well-known/scitt-keys"))[1])
        [found] = verifyReceipts(SignedStatement.decode(data), [answer[1]], keys)
        return found

    async def registersAndRestarts(self, count: int, *options: str) -> None:
        """
        Receipts are good, also after a restart without the file of the tree; the last broker has
        the events that make the tree.
        """
        await self.layOut(*options)
        network = await self.begin()
        given = [*map(statement, range(COUNT))]
        register = asDeferred(lambda each: self.answer("POST", "/entries", each))
        answers = await gatherResults([register(each) for each in given])
        known = [await self.check(*each, 201) for each in zip(given, answers, strict=True)]
        self.assertEqual({each.receipt.index for each in known}, {*range(2, COUNT + 2)})
        self.assertEqual(await network.stop(signal.SIGINT), 0)
        [path] = (self.node(0) / "broker" / "1" / "scitt").glob("*.sqlite")
        path.unlink()
        network = await self.begin()
        for each, before in zip(given, known, strict=True):
            answer = await self.answer("GET", f"/entries/{sha256(each).hexdigest()}")
            found = await self.check(each, answer, 200)
            self.assertEqual(found.receipt.index, before.receipt.index)
        last = statement(COUNT)
        newest = await self.check(last, await self.answer("POST", "/entries", last), 201)
        self.assertEqual(newest.receipt.index, COUNT + 2)
        grown = await self.answer("GET", f"/consistency/{known[0].receipt.size}")
        self.assertEqual(grown[0], 200, grown)
        keys = readKeys((await self.answer("GET", "/.well-known/scitt-keys"))[1])
        self.assertEqual(verifyGrowth([known[0]], grown[1], keys)[1], newest.root)
        await self.audit(count - 1, last, newest)
        self.assertEqual(await network.stop(signal.SIGINT), 0)

    async def audit(self, number: int, data: bytes, newest: Any) -> None:
        """Have a broker's events compared with the tree of a receipt, once it has all of them."""
        transparent = SignedStatement.decode(data).withReceipts([newest.receipt.message.encode()])
        path = self.root / "last.scitt"
        path.write_bytes(transparent)
        words = ("proof", "scitt", "audit", path, "--topic=statements", "--copy", "--json")
        told: dict[str, Any] = {}

        async def isThere() -> bool:
            code, output, errors = await self.outcomeOf(*words, f"--url={self.base(number)}")
            self.assertIn(code, (0, 1), errors)
            told.update(json.loads(output))
            return code == 0

        await until(isThere)
        self.assertEqual((told["entries"], told["root"]), (COUNT + 3, newest.root.hex()))


class EngineTests(NetworkTests):
    """
    Four engines.
    """

    async def test_statementsAreRegisteredOnEngines(self) -> None:
        await self.registersAndRestarts(4)


class EvmTests(NetworkTests):
    """
    Two brokers on one node of an EVM chain.
    """

    skip = checkInstalled() or None

    async def test_statementsAreRegisteredOnAChain(self) -> None:
        self.environment["SVCBROKER_ANVIL"] = Chain.program()
        await self.registersAndRestarts(2, "--anvil", "--nodes=2")
