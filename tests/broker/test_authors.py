"""
Tests of topics that take events of certain authors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.chain import authorsStatement
from svcbroker.interfaces import submit
from svcbroker.model import AuthorSet, ChangeAuthors, Execution, OpenTopic, Receipt

from ..access.support import principalOf
from ..authors import Author, tellChain
from .support import makeFixture, publishOne

ANN, BOB, EVE = (Author(number) for number in (1, 2, 3))


def keys(*authors: Author) -> tuple[bytes, ...]:
    """The keys of authors as the broker gets them."""
    return tuple(sorted(each.key for each in authors))


class AuthorsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = fixture = makeFixture()
        self.ledger, self.broker = fixture.ledger, fixture.broker
        self.chain = tellChain(self.ledger)

    def open(
        self, authors: Sequence[Author] | None = None, admins: Sequence[Author] | None = None
    ) -> Deferred[bool]:
        return self.broker.open(
            ANYBODY,
            None,
            "t",
            None if authors is None else keys(*authors),
            None if admins is None else keys(*admins),
        )

    def opened(self, *authors: Author, admins: Sequence[Author] | None = None) -> None:
        self.assertIs(self.successResultOf(self.open(authors, admins)), True)

    def authors(self) -> AuthorSet | None:
        state = self.successResultOf(self.broker.state(ANYBODY, None, "t"))
        return state.authors

    def publish(self, author: Author | None) -> Any:
        """Publish; answer the error that it fails with, if it does."""
        given: dict[str, Any] = {}
        if author is not None:
            signed = author.sign(self.chain, "t", b"x", {})
            given["author"], given["signature"] = signed.key, signed.signature
            given["signedAt"] = signed.signedAt
        answers: list[Any] = []
        publishOne(self.broker, ANYBODY, None, "t", b"x", {}, **given).addBoth(answers.append)
        return getattr(answers[0], "value", None)

    def change(
        self,
        *authors: Author,
        generation: int = 1,
        admins: Sequence[Author] = (BOB,),
        admin: Author = BOB,
        signed: AuthorSet | None = None,
        principal: Principal = ANYBODY,
        topic: str = "t",
    ) -> Deferred[bool]:
        following = AuthorSet(generation=generation, authors=keys(*authors), admins=keys(*admins))
        text = authorsStatement(self.chain, "t", signed or following)
        return self.fixture.calls.authors.change(
            principal,
            None,
            topic,
            generation,
            following.authors,
            admin.key,
            admin.signText(text),
            following.admins,
        )


class OpeningTests(AuthorsTests):
    def test_authorsAloneMayPublish(self) -> None:
        self.opened(ANN, BOB)
        self.assertEqual(self.authors(), AuthorSet(authors=keys(ANN, BOB)))
        self.assertIsNone(self.publish(ANN))
        self.assertIsNone(self.publish(BOB))
        for other in (EVE, None):
            self.assertIsInstance(self.publish(other), errors.AuthorRefused)

    def test_sameAuthorsAreOpenedAgain(self) -> None:
        self.opened(ANN, BOB, admins=[EVE])
        self.opened(BOB, ANN, admins=[EVE])
        self.successResultOf(self.broker.close(ANYBODY, None, "t"))
        self.opened(ANN, BOB, admins=[EVE])
        self.assertEqual(self.authors(), AuthorSet(authors=keys(ANN, BOB), admins=keys(EVE)))

    def test_unusableKeysAreNamed(self) -> None:
        """A key that anybody could sign with, or nobody, is neither author nor admin of a topic."""
        weak, none = b"\x01" + bytes(31), b"\x02" + bytes(31)
        for name, authors, admins in (
            ("authors", [ANN.key, weak], None),
            ("authors", [none], [BOB.key]),
            ("admins", [ANN.key], [BOB.key, weak]),
        ):
            opened = self.broker.open(ANYBODY, None, "t", authors, admins)
            error = self.failureResultOf(opened, errors.ParameterInvalid).value
            self.assertRegex(str(error), f"^{name}: 0[12]00.* is not a usable Ed25519 key")
        self.assertIsNone(self.ledger.topicState("t"))

    def test_topicWithUnusableKeyIsOpenedAgain(self) -> None:
        """A topic of before that has such a key is opened and changed as it is."""
        weak = b"\x01" + bytes(31)
        authors = AuthorSet(authors=(weak, ANN.key), admins=(BOB.key,))
        self.successResultOf(submit(self.ledger, OpenTopic(topic="t", authors=authors)))
        opened = self.broker.open(ANYBODY, None, "t", authors.authors, authors.admins)
        self.assertIs(self.successResultOf(opened), True)

    def test_openWithoutAuthorsChangesNothing(self) -> None:
        self.opened(ANN)
        self.successResultOf(self.open())
        self.successResultOf(self.broker.close(ANYBODY, None, "t"))
        self.successResultOf(self.open())
        self.assertEqual(self.authors(), AuthorSet(authors=keys(ANN)))

    def test_otherAuthorsAreRefused(self) -> None:
        self.opened(ANN)
        for authors, admins in (([BOB], None), ([ANN, BOB], None), ([ANN], [BOB])):
            self.failureResultOf(self.open(authors, admins), errors.AuthorRefused)

    def test_topicOfAllCannotGetAuthors(self) -> None:
        self.successResultOf(self.open())
        self.failureResultOf(self.open([ANN]), errors.AuthorRefused)

    def test_refusalOfTheChainIsTold(self) -> None:
        """Another broker was first."""
        self.ledger.receipt = Receipt(
            execution=Execution.REFUSED, transactionHash=bytes(32), height=1
        )
        self.failureResultOf(self.open([ANN]), errors.AuthorRefused)

    def test_adminsNeedAuthors(self) -> None:
        self.failureResultOf(self.open(None, [ANN]), errors.ParameterInvalid)


class ChangingTests(AuthorsTests):
    def setUp(self) -> None:
        super().setUp()
        self.opened(ANN, admins=[BOB])

    def test_adminChangesTheAuthors(self) -> None:
        self.assertIs(self.successResultOf(self.change(EVE, admins=[ANN])), True)
        self.assertEqual(
            self.authors(), AuthorSet(generation=1, authors=keys(EVE), admins=keys(ANN))
        )
        self.assertIsInstance(self.publish(ANN), errors.AuthorRefused)
        self.assertIsNone(self.publish(EVE))
        self.successResultOf(self.change(ANN, generation=2, admin=ANN))
        self.assertIsNone(self.publish(ANN))

    def test_sameChangeAgainChangesNothing(self) -> None:
        self.successResultOf(self.change(EVE))
        self.successResultOf(self.change(EVE))
        changes = [each for each in self.ledger.submitted if isinstance(each, ChangeAuthors)]
        self.assertEqual(len(changes), 1)

    def test_wrongChangeIsNotSubmitted(self) -> None:
        self.ledger.submitted.clear()
        other = AuthorSet(generation=1, authors=keys(ANN), admins=keys(BOB))
        for error, change in (
            (errors.AuthorRefused, self.change(EVE, admin=ANN)),
            (errors.ParameterInvalid, self.change(EVE, generation=2)),
            (errors.SignatureInvalid, self.change(EVE, signed=other)),
            (errors.TopicNotFound, self.change(EVE, topic="never")),
            (errors.TopicBlank, self.change(EVE, topic=" ")),
        ):
            self.failureResultOf(change, error)
        self.assertEqual(self.ledger.submitted, [])

    def test_unusableKeysAreNotSetLater(self) -> None:
        """A change names no key that is not usable, but those that the topic has."""
        weak = b"\x01" + bytes(31)
        authors = AuthorSet(authors=(weak,), admins=(BOB.key,))
        self.successResultOf(submit(self.ledger, OpenTopic(topic="u", authors=authors)))
        for topic, isGood in (("t", False), ("u", True)):
            following = AuthorSet(generation=1, authors=(weak, ANN.key), admins=(BOB.key,))
            text = authorsStatement(self.chain, topic, following)
            changing = self.fixture.calls.authors.change(
                ANYBODY,
                None,
                topic,
                1,
                following.authors,
                BOB.key,
                BOB.signText(text),
                following.admins,
            )
            if isGood:
                self.assertIs(self.successResultOf(changing), True)
            else:
                error = self.failureResultOf(changing, errors.ParameterInvalid).value
                self.assertIn("authors: 0100", str(error))

    def test_topicOfAllHasNoAuthorsToChange(self) -> None:
        self.successResultOf(self.broker.open(ANYBODY, None, "u"))
        self.failureResultOf(self.change(EVE, topic="u"), errors.AuthorRefused)

    def test_ledgerWithoutChainChecksAlone(self) -> None:
        self.ledger.chain = b""
        other = AuthorSet(generation=1, authors=keys(ANN), admins=keys(BOB))
        self.failureResultOf(self.change(EVE, signed=other), errors.SignatureInvalid)
        self.successResultOf(self.change(EVE))

    def test_refusalsOfTheChainAreTold(self) -> None:
        for execution, error in (
            (Execution.TOPIC_NOT_FOUND, errors.TopicNotFound),
            (Execution.REFUSED, errors.SignatureInvalid),
            (Execution.REPEATED, errors.TransactionFailed),
        ):
            self.ledger.receipt = Receipt(execution=execution, transactionHash=bytes(32), height=1)
            self.failureResultOf(self.change(EVE), error)

    def test_grantOfOpeningIsNeeded(self) -> None:
        publisher = principalOf("publish 1 #", "subscribe 1 #")
        self.failureResultOf(self.change(EVE, principal=publisher), errors.NotAuthorized)
        self.successResultOf(self.change(EVE, principal=principalOf("open 1 t")))
