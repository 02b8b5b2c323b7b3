"""
A transparency service on a chain of the embedded ledger, over HTTP in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import cbor2
from attrs import evolve
from twisted.internet.defer import maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore
from svcbroker.carriers.scitt.routes import scittRoutes
from svcbroker.carriers.scitt.scittservice import ScittService
from svcbroker.carriers.scitt.statementtree import StatementTree
from svcbroker.interfaces import submit
from svcbroker.model import EventId, PublishEvent
from svcbroker.proofs.scitt import (
    Claims,
    Issuer,
    RegistrationPolicy,
    ServiceKey,
    SignedStatement,
    readKeys,
    verifyReceipts,
)
from svcbroker.storage import TreeFile
from tests.broker.support import MemoryMetadataFile, makeFixture
from tests.carriers.http.support import Answer, Client, Connection, requestBytes
from tests.ledgers.pbft.rig import LedgerRig

TOPIC = "statements"
ISSUER = ServiceKey.derive(b"issuer")
CLAIMS = Claims(issuer="https://acme.example", subject="urn:thing")
POLICY = RegistrationPolicy.of([Issuer(name=CLAIMS.issuer, key=ISSUER.public)])


def statement(number: int) -> bytes:
    """A statement of the issuer: each time another one, since signatures differ."""
    return ISSUER.statement(evolve(CLAIMS, subject=f"urn:{number}"), "text/plain", b"x")


def pathOf(statement: bytes) -> str:
    """Where a statement's receipts are."""
    return f"/entries/{sha256(statement).hexdigest()}"


class ScittServiceTestCase(SynchronousTestCase):
    """
    A service over a ledger on a clock.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self).start()
        self.metadata = MemoryMetadataFile()
        self.path = Path(self.mktemp()) / "tree.sqlite"
        self.store: MetadataStore | None = None
        self.serve()

    def serve(self, policy: RegistrationPolicy = POLICY) -> None:
        """Begin, as a broker that has just started."""
        if self.store is not None:
            self.tearDown()
        ledger, clock = self.rig.ledger, self.rig.clock
        fixture = makeFixture(ledgers={"1": ledger}, reservedTopics=[TOPIC])
        self.clock = fixture.clock
        self.store = MetadataStore(self.metadata, clock, maybeDeferred)
        self.tree = StatementTree(
            *(ledger, TOPIC, lambda: TreeFile(self.path, b"owner"), self.store, clock),
            *(maybeDeferred, maybeDeferred, fixture.broker.budgets.work),
        )
        self.service = ScittService(
            *(TOPIC, "service", policy, ledger, self.tree, fixture.broker, clock, clock.seconds)
        )
        self.client = Client(routes=tuple(scittRoutes("", self.service)), fixture=fixture)
        self.successResultOf(self.service.start())
        self.settle()

    def tearDown(self) -> None:
        assert self.store is not None
        self.successResultOf(self.service.stop())
        self.successResultOf(self.store.stop())

    def settle(self) -> None:
        """Let blocks be decided, and the tree follow."""
        for _ in range(10):
            self.rig.run(0.1)
            self.clock.advance(0)

    def ask(self, method: str, path: str, body: bytes = b"") -> Connection:
        """Send a request."""
        connection = self.client.connect()
        connection.send(requestBytes(method, path, body, {"Content-Type": "application/cose"}))
        self.settle()
        return connection

    def answer(self, method: str, path: str, body: bytes = b"") -> Answer:
        """The answer to a request."""
        [answer] = self.ask(method, path, body).answers()
        return answer

    def register(self, *statements: bytes) -> None:
        """Register statements, and check their receipts."""
        for each in statements:
            answer = self.answer("POST", "/entries", each)
            self.assertEqual(answer.status, 201, answer.body)
            self.check(each, answer)

    def check(self, statement: bytes, answer: Answer) -> int:
        """
        Verify a receipt.

        @return: the index of the entry.
        """
        keys = readKeys(self.answer("GET", "/.well-known/scitt-keys").body)
        said = SignedStatement.decode(statement)
        [found] = verifyReceipts(said, [answer.body], keys, "service")
        return found.receipt.index

    def put(self, *contents: bytes) -> Sequence[EventId]:
        """Publish events to the topic as another broker of the network."""
        done = [
            submit(self.rig.ledger, PublishEvent(topic=TOPIC, content=each)) for each in contents
        ]
        self.settle()
        return [id for each in done if (id := self.successResultOf(each).eventId) is not None]

    def problem(self, path: str) -> tuple[int, str]:
        """The status and the text of an error."""
        answer = self.answer("GET", path)
        return answer.status, cbor2.loads(answer.body)[-2]
