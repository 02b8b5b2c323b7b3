"""
C{open} with authors, C{authors} and C{state}.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import authorsStatement
from svcbroker.model import AuthorSet

from ...authors import Author, tellChain
from .support import Client

ANN, BOB = Author(1), Author(2)
BOTH = sorted([ANN.key, BOB.key])


class AuthorsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.client = Client()
        self.chain = tellChain(self.client.fixture.ledger)

    def state(self) -> dict[str, Any]:
        """The state of the topic by REST, which is that by JSON-RPC."""
        state: dict[str, Any] = self.client.rest("state?topic=t")
        self.assertEqual(self.client.rpc("state", ["t"])["result"], state)
        return state

    def test_stateShowsAuthors(self) -> None:
        keys = f"{ANN.key.hex()},{BOB.key.hex().upper()},{ANN.key.hex()}"
        self.assertIs(self.client.rest(f"open?topic=t&authors={keys}&admins={BOB.key.hex()}"), True)
        state = self.state()
        self.assertEqual(state["authors"], [key.hex() for key in BOTH])
        self.assertEqual((state["admins"], state["generation"]), ([BOB.key.hex()], 0))

    def test_stateWithoutAuthorsIsAsBefore(self) -> None:
        self.client.rest("open?topic=t")
        self.assertEqual(
            list(self.state()),
            [
                *("topicName", "topicAddress", "senderAddress", "createdTimestamp"),
                *("sequenceNumber", "blockNumber"),
            ],
        )

    def test_keysAreAListInJSON(self) -> None:
        params = {"topic": "t", "authors": [key.hex() for key in reversed(BOTH)]}
        self.assertEqual(self.client.rpc("open", params)["result"], "true")
        params["authors"] = ",".join(params["authors"])
        self.assertEqual(self.client.rpc("open", params)["result"], "true")
        self.assertEqual(self.state()["authors"], [key.hex() for key in BOTH])
        self.assertEqual(self.state()["admins"], [])

    def test_malformedKeysAreNamed(self) -> None:
        for authors in ("x", ANN.key.hex() + ",", ",".join(["00" * 32] * 65)):
            answer = self.client.rest(f"open?topic=t&authors={authors}")
            self.assertIn(answer["code"], (100210, 100600))
            self.assertTrue(answer["message"].startswith("authors: "), answer)
        wrong: object
        for wrong in (1, [], [1], {}):
            answer = self.client.rpc("open", {"topic": "t", "authors": wrong})
            self.assertEqual(answer["error"]["code"], -32602)

    def test_changeIsMade(self) -> None:
        self.client.rest(f"open?topic=t&authors={ANN.key.hex()}&admins={BOB.key.hex()}")
        for generation, authors, admins in ((1, BOTH, [BOB.key]), (2, [BOB.key], [])):
            following = AuthorSet(
                generation=generation, authors=tuple(authors), admins=tuple(admins)
            )
            signature = BOB.signText(authorsStatement(self.chain, "t", following))
            given = {
                "topic": "t",
                "generation": generation,
                "authors": ",".join(key.hex() for key in authors),
                "admins": ",".join(key.hex() for key in admins),
                "admin": BOB.key.hex(),
                "signature": signature.hex(),
            }
            if generation == 1:
                query = "&".join(f"{name}={value}" for name, value in given.items())
                self.assertIs(self.client.rest(f"authors?{query}"), True)
            else:
                del given["admins"]
                self.assertEqual(self.client.rpc("authors", given)["result"], "true")
            state = self.state()
            self.assertEqual(state["authors"], [key.hex() for key in authors])
            self.assertEqual(state["admins"], [key.hex() for key in admins])
            self.assertEqual(state["generation"], generation)

    def test_missingParametersAreNamed(self) -> None:
        answer = self.client.rest("authors?topic=t")
        self.assertEqual(answer, {"code": 100600, "message": "generation: is required"})

    def test_othersAreRefused(self) -> None:
        self.client.rest(f"open?topic=t&authors={ANN.key.hex()}")
        self.assertEqual(self.client.rest("publish?topic=t&content=x")["code"], 100211)
        answer = self.client.rpc("publish", {"topic": "t", "content": "eA=="})
        self.assertEqual(answer["error"]["code"], -32018)
