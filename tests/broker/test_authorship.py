"""
Tests of publishes with a signature, an idempotency key or an expected sequence number.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal, Usage
from svcbroker.access._grants import EVERYTHING
from svcbroker.broker import Publication, PublishPolicy, SendResult, SendStatus
from svcbroker.broker.subscriptions._positions import locateOffset
from svcbroker.interfaces import Identity, Quotas, Submission, submit
from svcbroker.model import (
    AuthorSet,
    EraseEvents,
    EventId,
    Execution,
    Position,
    PublishEvent,
    Receipt,
    Topic,
)

from ..access.support import principalOf
from ..authors import SIGNED_AT, Author, tellChain
from .support import idOf, makeFixture, publishOne

FIRST = EventId("e3b98a4d", 3, 7)


def receipt(execution: Execution, **more: Any) -> Receipt:
    return Receipt(execution=execution, transactionHash=bytes(32), height=9, **more)


class AuthorshipTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker
        self.chain = tellChain(self.ledger)
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))
        self.ledger.submitted.clear()
        self.author = Author()

    def publish(self, principal: Principal = ANYBODY, **more: Any) -> Deferred[SendResult]:
        return publishOne(self.broker, principal, None, "t", b"x", {"svc-a": "b"}, **more)

    def signed(self, **more: Any) -> dict[str, Any]:
        """The parameters of an author who has signed what L{publish} publishes."""
        key, version = more.get("idempotencyKey"), more.pop("statement", 1)
        expected = more.get("expectedSequence") if version == 2 else None
        authorship = self.author.sign(
            self.chain, "t", b"x", {"svc-a": "b"}, key, version=version, expected=expected
        )
        return {
            "author": authorship.key,
            "signature": authorship.signature,
            "signedAt": authorship.signedAt,
            **more,
        }

    def refused(self, error: type[errors.BrokerError], **more: Any) -> errors.BrokerError:
        failure = self.failureResultOf(self.publish(**more), error)
        assert isinstance(failure.value, errors.BrokerError)
        return failure.value

    def batch(self, *publications: Publication, policy: PublishPolicy | None = None) -> Any:
        return self.successResultOf(
            self.broker.publish(ANYBODY, publications, policy or PublishPolicy())
        )

    def submitted(self) -> PublishEvent:
        [request] = self.ledger.submitted
        assert isinstance(request, PublishEvent)
        return request

    def close(self) -> None:
        self.successResultOf(self.broker.close(ANYBODY, None, "t"))
        self.ledger.submitted.clear()


class SigningTests(AuthorshipTests):
    def test_signatureIsSubmitted(self) -> None:
        self.successResultOf(self.publish(**self.signed()))
        author = self.submitted().author
        assert author is not None
        self.assertEqual((author.key, author.signedAt), (self.author.key, SIGNED_AT))

    def test_versionOfStatementIsFound(self) -> None:
        """The signature tells whether the author has signed the expected number."""
        for number, isExpected in enumerate((False, True) * 2):
            expected = 2 * number if isExpected else None
            for version in (1, 2):
                self.ledger.submitted.clear()
                given = self.signed(expectedSequence=expected, statement=version)
                self.successResultOf(self.publish(**given))
                expected = expected and expected + 1
                author = self.submitted().author
                assert author is not None
                self.assertEqual((author.statement, author.key), (version, self.author.key))

    def test_signedNumberIsNotChanged(self) -> None:
        """A number that was signed can be neither left out nor changed, and none can be added."""
        given = self.signed(expectedSequence=3, statement=2)
        for number in (None, 0, 4):
            self.refused(errors.SignatureInvalid, **{**given, "expectedSequence": number})
        given = self.signed(statement=2)
        self.refused(errors.SignatureInvalid, **{**given, "expectedSequence": 0})
        self.assertEqual(self.ledger.submitted, [])

    def test_changedEventIsNotSubmitted(self) -> None:
        given = self.signed(idempotencyKey="k")
        for change in (
            {"signedAt": SIGNED_AT + 1},
            {"idempotencyKey": "l"},
            {"idempotencyKey": None},
            {"author": Author(2).key},
            {"author": bytes(32)},
            {"signature": bytes(64)},
        ):
            self.refused(errors.SignatureInvalid, **{**given, **change})
        self.assertEqual(self.ledger.submitted, [])
        self.successResultOf(self.publish(**given))

    def test_ledgerWithoutChainChecksAlone(self) -> None:
        self.ledger.chain = b""
        self.refused(errors.SignatureInvalid, **{**self.signed(), "signature": bytes(64)})
        self.assertEqual(len(self.ledger.submitted), 1)

    def test_partOfASignatureIsRefused(self) -> None:
        given = self.signed()
        for name in given:
            rest = {key: value for key, value in given.items() if key != name}
            error = self.refused(errors.SignatureInvalid, **rest)
            self.assertTrue(error.message.startswith(f"{name}: "), error.message)
        self.assertEqual(self.ledger.submitted, [])

    def test_quotaIsSpentBeforeTheSignatureIsChecked(self) -> None:
        usage = Usage(Quotas(publishes=1, inflight=1), lambda: 0.0)
        principal = Principal(Identity(name="ann", grants=EVERYTHING), usage)
        wrong = {**self.signed(), "signature": bytes(64)}
        self.failureResultOf(self.publish(principal, **wrong), errors.SignatureInvalid)
        self.assertEqual(usage.used("inflight"), 0)
        self.assertNoResult(self.publish(principal, **self.signed()))

    def test_eachEventOfABatchIsChecked(self) -> None:
        author = self.author.sign(self.chain, "t", b"x", {})
        extensions: dict[str, str] = {}
        plain, good, bad = (
            Publication(topic="t", content=content, extensions=extensions, author=each)
            for content, each in ((b"x", None), (b"x", author), (b"y", author))
        )
        first, second, third = self.batch(plain, good, bad)
        self.assertEqual([first.status, second.status], [SendStatus.SUCCESS] * 2)
        self.assertIsInstance(third, errors.SignatureInvalid)
        self.assertEqual(len(self.ledger.submitted), 2)


class AuthorsTests(AuthorshipTests):
    def setUp(self) -> None:
        super().setUp()
        state = self.ledger.topicState("t")
        assert state is not None
        self.state: Topic = replace(state, authors=AuthorSet(authors=(self.author.key,)))
        self.patch(self.ledger, "topicState", lambda name: self.state)

    def test_othersAreRefusedBeforeTheySubmit(self) -> None:
        self.refused(errors.AuthorRefused)
        author, self.author = self.author, Author(2)
        self.refused(errors.AuthorRefused, **self.signed())
        self.assertEqual(self.ledger.submitted, [])
        self.author = author
        self.successResultOf(self.publish(**self.signed()))

    def test_repeatedEventIsSubmitted(self) -> None:
        """The author was in the set when the event was published first."""
        self.ledger.receipt = receipt(Execution.PUBLISHED_BEFORE, eventId=FIRST)
        result = self.successResultOf(self.publish(idempotencyKey="k"))
        self.assertEqual(result, SendResult("t", str(FIRST), SendStatus.SUCCESS))


class KeyTests(AuthorshipTests):
    def test_keyBelongsToTheAccount(self) -> None:
        self.successResultOf(
            self.publish(principalOf("publish 1 #", name="ann"), idempotencyKey="k")
        )
        request = self.submitted()
        self.assertEqual((request.idempotencyKey, request.publisher), ("k", "ann"))

    def test_eventsWithoutKeyHaveNoPublisher(self) -> None:
        self.successResultOf(self.publish(principalOf("publish 1 #", name="ann")))
        self.assertEqual(self.submitted().publisher, "")

    def test_keyOfABatchBelongsToTheAccount(self) -> None:
        extensions: dict[str, str] = {}
        plain, keyed, other = (
            Publication(topic="t", content=b"x", extensions=extensions, idempotencyKey=key)
            for key in (None, "k", "l")
        )
        principal = principalOf("publish 1 #", name="ann")
        self.successResultOf(self.broker.publish(principal, [plain, keyed, other, plain]))
        publishers = [getattr(each, "publisher", None) for each in self.ledger.submitted]
        self.assertEqual(publishers, ["", "ann", "ann", ""])

    def test_repeatedEventOfAClosedTopicIsAnswered(self) -> None:
        self.close()
        self.refused(errors.TopicNotFound)
        self.ledger.receipt = receipt(Execution.PUBLISHED_BEFORE, eventId=FIRST)
        result = self.successResultOf(self.publish(idempotencyKey="k"))
        self.assertEqual(result, SendResult("t", str(FIRST), SendStatus.SUCCESS))

    def test_eventsBehindARepeatedOneAreChecked(self) -> None:
        self.close()
        self.ledger.receipt = receipt(Execution.PUBLISHED_BEFORE, eventId=FIRST)
        extensions: dict[str, str] = {}
        keyed, other, plain = (
            Publication(topic="t", content=b"x", extensions=extensions, idempotencyKey=key)
            for key in ("k", "l", None)
        )
        first, second, third, fourth = self.batch(keyed, other, plain, keyed)
        self.assertEqual([idOf(each) for each in (first, second, fourth)], [FIRST] * 3)
        self.assertIsInstance(third, errors.TopicNotFound)

    def test_keyedEventOfAnUnknownTopicIsRefused(self) -> None:
        answer = publishOne(self.broker, ANYBODY, None, "never", b"x", {}, idempotencyKey="k")
        self.failureResultOf(answer, errors.TopicNotFound)


class OutcomeTests(AuthorshipTests):
    def outcome(self, execution: Execution, **more: Any) -> tuple[Any, Any]:
        """What a publish is answered, with a result and without one."""
        answer = receipt(execution, **more)
        self.patch(self.ledger, "submitMany", lambda each: self._settled(len(each), answer))
        publication = Publication(topic="t", content=b"x", expectedSequence=2)
        [withResult] = self.batch(publication)
        [without] = self.batch(publication, policy=PublishPolicy(wantsResults=False))
        return withResult, without

    def _settled(self, count: int, answer: Receipt) -> Submission:
        submission = Submission(count)
        submission.settle(0, [answer] * count)
        return submission

    def test_publishedBeforeIsSuccess(self) -> None:
        result, other = self.outcome(Execution.PUBLISHED_BEFORE, eventId=FIRST)
        self.assertEqual(result, SendResult("t", str(FIRST), SendStatus.SUCCESS))
        self.assertIsNone(other)

    def test_otherSequenceIsToldToTheClient(self) -> None:
        for error in self.outcome(Execution.OTHER_SEQUENCE, sequence=5):
            assert isinstance(error, errors.SequenceConflict)
            self.assertEqual(error.sequence, 5)
            self.assertTrue(error.message.endswith(": it has 5"), error.message)

    def test_refusalsHaveErrorsOfTheirOwn(self) -> None:
        for execution, error in (
            (Execution.KEY_IN_USE, errors.IdempotencyConflict),
            (Execution.NO_AUTHOR, errors.AuthorRefused),
            (Execution.REFUSED, errors.TransactionFailed),
            (Execution.REPEATED, errors.TransactionFailed),
        ):
            for answer in self.outcome(execution):
                self.assertIsInstance(answer, error)

    def test_expectedSequenceIsSubmitted(self) -> None:
        self.successResultOf(self.publish(expectedSequence=0))
        self.assertEqual(self.submitted().expectedSequence, 0)


class ReservedNameTests(AuthorshipTests):
    def test_extensionCannotLookLikeASignature(self) -> None:
        for name in ("svc-author", "svc-erased", "svc-idempotency-key"):
            answer = publishOne(self.broker, ANYBODY, None, "t", b"x", {name: "x"})
            self.failureResultOf(answer, errors.ExtensionKeyInvalid)

    def test_privateExtensionIsAnExtension(self) -> None:
        extensions = {"svc-private-name": "x"}
        self.successResultOf(publishOne(self.broker, ANYBODY, None, "t", b"x", extensions))
        self.assertEqual(self.submitted().extensions, extensions)


class ErasedTests(SynchronousTestCase):
    """
    Events whose content was erased, in a broker over the memory ledger.
    """

    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.broker = self.fixture.broker
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))
        sent = publishOne(self.broker, ANYBODY, None, "t", b"x", {})
        eventId = self.successResultOf(sent).eventId
        assert eventId is not None
        self.eventId = EventId.parse(eventId)
        erasing = EraseEvents(topic="t", ranges=[(1, 1)], account="ops", reason="asked")
        self.successResultOf(submit(self.fixture.ledger, erasing))

    def test_erasureIsToldToReaders(self) -> None:
        """Who may read the event is told that it was erased, by whom and why."""
        for principal in (ANYBODY, principalOf("subscribe 1 t")):
            asked = self.broker.getEvent(principal, None, self.eventId)
            error: Any = self.failureResultOf(asked, errors.EventErased).value
            self.assertEqual((error.topic, error.account, error.reason), ("t", "ops", "asked"))

    def test_erasureIsNotToldToOthers(self) -> None:
        """For who may not read it, the event is not there."""
        asked = self.broker.getEvent(principalOf("subscribe 1 u"), None, self.eventId)
        self.failureResultOf(asked, errors.EventNotFound)

    def test_subscriptionsBeginAfterErasedEvent(self) -> None:
        """An erased event is still a place in the log, for who may read it."""
        follower = SimpleNamespace(ledger=self.fixture.ledger, committed=9)
        for grant, found in (("t", Position(2, 0)), ("u", None)):
            principal = principalOf(f"subscribe 1 {grant}")
            placed: Any = Deferred.fromCoroutine(
                locateOffset(cast(Any, follower), principal, self.eventId)
            )
            if found is None:
                self.failureResultOf(placed, errors.EventNotFound)
            else:
                self.assertEqual(self.successResultOf(placed), found)
